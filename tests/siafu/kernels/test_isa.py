"""Which instruction set is chosen among those that a library was built with."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from siafu.kernels.library import ISAS

SOURCE = Path(__file__).parents[3] / "siafu" / "kernels" / "src" / "isa.cpp"
CPUINFO = Path("/proc/cpuinfo")
COMPILER = shutil.which("g++") or shutil.which("clang++")


def library(folder: Path, *built: str) -> ctypes.CDLL:
    """The choice alone, as a build of these sets has it."""
    assert COMPILER
    macros = [f"-DSIAFU_HAS_{isa.upper()}=1" for isa in built]
    path = folder / f"{'-'.join(built) or 'nothing'}.so"
    command = [COMPILER, "-std=c++17", "-shared", "-fPIC", '-DSIAFU_SOURCES=""', *macros, str(SOURCE), "-o", str(path)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path))


#: What the sets need, by Linux's names.
NEEDS = {
    "avx2": {"avx2", "fma", "f16c", "bmi2"},
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd"},
    "avx512bf16": {"avx512_bf16"},
    "amx": {"amx_tile", "amx_bf16"},
}


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler")
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="has one instruction set alone")
@pytest.mark.skipif(not CPUINFO.exists(), reason="not Linux")
def test_the_processor_has_what_linux_says(tmp_path):
    flags = set(re.findall(r"^flags\s*:(.*)$", CPUINFO.read_text(), re.MULTILINE)[0].split())
    expected = "scalar"
    for isa, needed in NEEDS.items():
        if not needed <= flags:
            break
        expected = isa
    if expected == "amx" and not tiles_allowed():
        expected = "avx512bf16"
    assert ISAS[library(tmp_path).siafu_best()] == expected


def tiles_allowed() -> bool:
    """Whether the system gives this process AMX's tile registers: a sandbox may not."""
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler")
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="has one instruction set alone")
def test_best_that_was_built_and_that_the_processor_has(tmp_path):
    best = library(tmp_path).siafu_best()
    assert library(tmp_path).siafu_isa() == -1  # nothing was built
    scalar = library(tmp_path, "scalar")
    assert (scalar.siafu_isa(), scalar.siafu_built(), scalar.siafu_best()) == (0, 1, best)
    everything = library(tmp_path, "scalar", "avx2", "avx512", "avx512bf16", "amx")
    assert everything.siafu_isa() == best
    for number in (n for n in (0, 2, 3, 4, 5) if n <= best):
        assert everything.siafu_use_isa(number) == number
    gaps = library(tmp_path, "scalar", ISAS[best])
    assert (gaps.siafu_isa(), gaps.siafu_use_isa(0), gaps.siafu_use_isa(best)) == (best, 0, best)
    alone = library(tmp_path, ISAS[best])
    assert alone.siafu_use_isa(0) == (best if best else 0)  # nothing lower is there: it stays as it is
