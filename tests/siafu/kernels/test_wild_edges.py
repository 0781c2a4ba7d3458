"""Edges that lead anywhere are refused by every kernel, at any processor; sanitizers find no
byte that is read out of place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import siafu.kernels
from siafu.kernels import build
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using
from tests.siafu.kernels.wild_edges import drive

SOURCES = Path(siafu.kernels.__file__).with_name("src")
COMMON = ("threads", "isa", "gather", "attention", "order")
PER_ISA = ("gather_rows", *(name for name in build.PER_ISA if name.startswith("attention")))
#: What lies on the stack is not watched, and checks are calls: inlined, they make attention
#: a compiler's work of 10 minutes.
SANITIZE = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-sanitize-address-use-after-scope",
    "--param",
    "asan-stack=0",
    "--param",
    "asan-instrumentation-with-call-threshold=0",
)


@pytest.mark.parametrize("isa", [isa for isa in INSTRUCTION_SETS if isa != "numpy"])
def test_edges_that_lead_anywhere_are_refused_and_all_others_are_not(isa: str):
    with using(isa):
        counted = drive()
    assert min(counted["answered"], counted["refused"]) > 300


@pytest.mark.skipif(
    "avx2" not in INSTRUCTION_SETS, reason="it builds for AVX2, where fused multiply-add is one instruction"
)
@pytest.mark.timeout(1200)
@pytest.mark.slow  # 140 s of a compiler's time
def test_sanitizers_find_no_byte_that_is_read_out_of_place(tmp_path: Path):
    compiler = shutil.which("g++")
    runtimes = [_runtime(compiler, name) for name in ("libasan.so", "libubsan.so")] if compiler else [None]
    if compiler is None or None in runtimes:
        pytest.skip("there is no g++ with AddressSanitizer and UndefinedBehaviorSanitizer")
    flags = [
        "-std=c++17",
        "-O1",
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-math-errno",
        "-pthread",
        "-Wno-psabi",
        *SANITIZE,
    ]
    macros = ["-DSIAFU_HAS_AVX2=1", '-DSIAFU_SOURCES=""']
    avx2 = ["-DSIAFU_ISA=avx2", "-DSIAFU_AVX2=1", *build.X86["avx2"]]
    units = [(name, macros) for name in COMMON] + [(name, avx2) for name in PER_ISA]

    def compiled(unit: tuple[str, list[str]]) -> str:
        name, defined = unit
        made = str(tmp_path / f"{name}.o")
        subprocess.run([compiler, *flags, *defined, "-c", SOURCES / f"{name}.cpp", "-o", made], check=True)  # type: ignore[list-item]
        return made

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, units))
    library = tmp_path / "kernels.so"
    subprocess.run([compiler, "-shared", "-pthread", *SANITIZE, *objects, "-o", library], check=True)
    preloaded = {"LD_PRELOAD": " ".join(map(str, runtimes)), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.siafu.kernels.wild_edges", str(library)],
        env={**os.environ, **preloaded},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "'refused': " in ended.stdout


def _runtime(compiler: str, name: str) -> str | None:
    """None if the compiler has none: it then answers with the name."""
    found = subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return found if Path(found).is_file() else None
