"""Reads a compiled library's requirements on the machine that loads it, for the platform tag of its wheel.

``setup.py`` runs this file by its path, before siafu can be imported. So the file imports nothing of ours and no
package.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

#: e_machine -> the machine's name in a wheel's tag.
MACHINES = {62: "x86_64", 183: "aarch64"}
#: manylinux_2_28: the newest version of each kind of symbol, and the libraries that every such system has (the policy
#: of auditwheel 6.8; only libraries that C++ links by itself).
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
EVERYWHERE = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux-[a-z0-9-]+)\.so\.\d+")
VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_([A-Z\d].*)")  # GLIBC_ABI_DT_RELR is one: of glibc 2.36
DT_NEEDED, DT_STRTAB, DT_STRSZ = 1, 5, 10
PT_LOAD, PT_DYNAMIC = 1, 2


class Needs(NamedTuple):
    """The requirements of a 64-bit ELF library."""

    machine: int  # e_machine
    libraries: set[str]  # DT_NEEDED
    strings: set[str]  # of its dynamic symbols, their versions among them


def needs(elf: bytes) -> Needs:
    """Reads the requirements of a library. Raises: ValueError if ``elf`` is no 64-bit little-endian ELF library."""
    if not elf.startswith(b"\x7fELF\x02\x01"):
        raise ValueError("no 64-bit ELF library")
    start, (size, count) = struct.unpack_from("<Q", elf, 32)[0], struct.unpack_from("<HH", elf, 54)
    segments = [struct.unpack_from("<IIQQQQ", elf, start + size * i) for i in range(count)]
    dynamic = next(segment for segment in segments if segment[0] == PT_DYNAMIC)
    entries = [struct.unpack_from("<QQ", elf, dynamic[2] + i) for i in range(0, dynamic[5], 16)]
    address, length = (next(value for tag, value in entries if tag == wanted) for wanted in (DT_STRTAB, DT_STRSZ))
    place = next(
        address - at + offset
        for kind, _, offset, at, _, nbytes in segments
        if kind == PT_LOAD and at <= address < at + nbytes
    )
    strings = elf[place : place + length]
    libraries = {strings[at : strings.index(b"\0", at)].decode() for tag, at in entries if tag == DT_NEEDED}
    names = {text.decode("latin-1") for text in strings.split(b"\0")}
    return Needs(struct.unpack_from("<H", elf, 18)[0], libraries, names)


def platform_tag(elf: bytes) -> str:
    """Returns manylinux_2_28_MACHINE if the library needs nothing newer or other than that (PEP 600), else
    linux_MACHINE.

    Raises: ValueError if it is no ELF library of a known machine."""
    needed = needs(elf)
    if needed.machine not in MACHINES:
        raise ValueError(f"machine {needed.machine} is not known")
    versions = [match.groups() for text in needed.strings if (match := VERSION.fullmatch(text))]
    is_old = all(_is_old(kind, version) for kind, version in versions)
    is_plain = all(EVERYWHERE.fullmatch(library) for library in needed.libraries)
    return f"{'manylinux_2_28' if is_old and is_plain else 'linux'}_{MACHINES[needed.machine]}"


def _is_old(kind: str, version: str) -> bool:
    numbers = version.split(".")
    return all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) <= NEWEST[kind]
