"""How the kernels are compiled: sources, instruction sets, flags and macros, for
``setup.py`` and for ``infra.kernels``.

Only this file says it. ``setup.py`` reads it by its path, before siafu can be imported: it
imports nothing of ours and no package.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("src")
#: Compiled once per instruction set; they use no templates of the standard library, which the linker would merge.
PER_ISA = (
    "gather_rows",
    "pack_rows",
    "attention_rows",
    "attention_forward_float",
    "attention_forward_bfloat16",
    "attention_backward_float",
    "attention_backward_bfloat16",
    "dense_rows",
    "quantise_rows",
    "dropout_rows",
    "functions_rows",
    "plain_rows",
)
#: To compile: first, so that nothing is left to wait for at the end.
LONGEST = (
    "gather_rows",
    "attention_forward_float",
    "attention_forward_bfloat16",
    "attention_backward_float",
    "attention_backward_bfloat16",
    "dense_rows",
)
#: Compiled once, for any processor: threads, the choice of the instruction set, and what needs no vectors.
COMMON = (
    "threads",
    "isa",
    "limits",
    "gather",
    "pack",
    "attention",
    "dense",
    "order",
    "checksum",
    "quantise",
    "dropout",
    "functions",
    "plain",
)

#: GCC and clang know all of them.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",  # a product and a sum are one operation only where src/fused.hpp says so
    "-pthread",
    "-Wall",
    "-Wno-psabi",  # vectors wider than the processor's are passed between inlined functions alone
    "-g0",
]
_AVX2 = ["-mavx2", "-mfma", "-mf16c", "-mbmi2"]
_AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512cd", *_AVX2, "-mprefer-vector-width=512"]
X86 = {"scalar": [], "avx2": _AVX2, "avx512": _AVX512, "avx512bf16": ["-mavx512bf16", *_AVX512]}
#: By the number that siafu/kernels/src/isa.hpp gives them.
ISAS = ("scalar", "neon", "avx2", "avx512", "avx512bf16")
#: All but products of bfloat16 are the other set's.
RESTS_ON = {"avx512bf16": "avx512"}
#: NEON is part of every 64-bit arm processor: the compiler's own vectors become NEON.
ARM: dict[str, list[str]] = {"neon": []}


class Unit(NamedTuple):
    """One call of the compiler: ``name``.cpp becomes an object of that name in ``folder``."""

    name: str
    folder: str  # "common" or an instruction set
    flags: list[str]  # besides FLAGS
    macros: list[tuple[str, str]]


def instruction_sets(machine: str) -> dict[str, list[str]]:
    """Name -> flags of the instruction sets that ``machine`` (as ``platform.machine()`` has it) may have."""
    machine = machine.lower()
    if machine in ("x86_64", "amd64"):
        return X86
    return ARM if machine in ("aarch64", "arm64") else {"scalar": []}


def units(sets: dict[str, list[str]]) -> list[Unit]:
    """All that is compiled for these instruction sets, in the order to begin in; the objects make one library."""
    built = [(f"SIAFU_HAS_{isa.upper()}", "1") for isa in sets]
    found = [Unit(name, "common", [], [("SIAFU_SOURCES", f'"{sources_digest()}"'), *built]) for name in COMMON]
    for isa, flags in sets.items():
        macros = [("SIAFU_ISA", isa), (f"SIAFU_{isa.upper()}", "1")]
        names = ["dense_rows"] if isa in RESTS_ON else PER_ISA
        found += [Unit(name, isa, flags, macros) for name in names]
    return sorted(found, key=lambda unit: unit.name not in LONGEST)


def sources_digest() -> str:
    """What ``siafu.kernels.library`` compares, so that a library of older sources is
    not called with newer structures."""
    digest = hashlib.sha256()
    for file in sorted(FOLDER.glob("*.[ch]pp")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
