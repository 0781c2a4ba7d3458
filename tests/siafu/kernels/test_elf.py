"""siafu.kernels.elf: the platform tags of libraries that other projects have published, and of changed copies."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
import safetensors

from siafu.kernels import elf


def library_of(package: object, pattern: str) -> bytes:
    folder = Path(str(package.__file__)).parent  # type: ignore[attr-defined]
    found = sorted(folder.glob(pattern))
    data = found[0].read_bytes() if found else b""
    if not data.startswith(b"\x7fELF"):
        pytest.skip(f"no ELF library {pattern} in {folder}")
    return data


@pytest.fixture(scope="module")
def old() -> bytes:
    """Published as manylinux2014."""
    return library_of(safetensors, "*.so")


def test_a_library_of_an_old_system_is_for_manylinux(old: bytes) -> None:
    machine = elf.MACHINES[elf.needs(old).machine]
    assert elf.platform_tag(old) == f"manylinux_2_28_{machine}"


@pytest.mark.parametrize("newer", [b"GLIBC_2.29", b"GLIBC_2.9x", b"GLIBC_ABIx"])
def test_a_library_that_needs_a_newer_symbol_is_for_linux_like_this(old: bytes, newer: bytes) -> None:
    version = next(text for text in elf.needs(old).strings if text.startswith("GLIBC_2.") and len(text) == len(newer))
    changed = old.replace(b"\0" + version.encode() + b"\0", b"\0" + newer + b"\0")
    assert elf.platform_tag(changed).startswith("linux_")


def test_a_library_that_needs_a_library_of_its_own_is_for_linux_like_this() -> None:
    """NumPy's wheel brings its OpenBLAS."""
    core = library_of(numpy, "_core/_multiarray_umath*.so")
    if all(elf.EVERYWHERE.fullmatch(name) for name in elf.needs(core).libraries):
        pytest.skip("this NumPy brings no BLAS")
    assert elf.platform_tag(core).startswith("linux_")


def test_the_machine_is_the_librarys_not_ours(old: bytes) -> None:
    arm = old[:18] + (183).to_bytes(2, "little") + old[20:]
    assert elf.platform_tag(arm).endswith("_aarch64")
    with pytest.raises(ValueError, match="machine 243 is not known"):
        elf.platform_tag(old[:18] + (243).to_bytes(2, "little") + old[20:])


@pytest.mark.parametrize("data", [b"", b"\xcf\xfa\xed\xfe" + bytes(60), b"\x7fELF\x01\x01" + bytes(60)])
def test_what_is_no_64_bit_elf_library_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no 64-bit ELF library"):
        elf.platform_tag(data)
