"""What a process computes with, and whose bits a run's weights then have."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from run_coordinator.reports import arithmetic, processors, total
from siafu import processor
from siafu.config import Config
from siafu.processor import NUMPY, PROCESSOR, UNKNOWN, told


def kind_under(core: str) -> str:
    code = "from siafu import processor; print(processor.kind('numpy'))"
    env = {**os.environ, "OPENBLAS_CORETYPE": core}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout


def test_the_kind_is_the_machine_and_the_compiled_kernels():
    assert processor.kind("avx2") == f"{platform.machine()} avx2"
    assert told(processor.kind("avx512bf16")) == processor.kind("avx512bf16")


@pytest.mark.skipif(len(processor.kind(NUMPY).split()) < 3, reason="NumPy has no OpenBLAS that names its kernels")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86-64")
@pytest.mark.parametrize("core", ["Haswell", "Sandybridge"])
def test_without_compiled_kernels_those_of_openblas_are_in_the_kind(core):
    assert kind_under(core) == f"x86_64 {core} numpy\n"


@pytest.mark.parametrize("lie", ["", "a b c d", "x" * 25, "x\n", "é", "a  b", "\x1b[2J"])
def test_what_cannot_be_a_kind_is_unknown(lie):
    assert told(lie) == UNKNOWN


def test_kinds_are_named_beside_the_totals_and_not_in_them():
    usage = {0: {"tasks": 1.0, f"{PROCESSOR}aarch64 neon": 2}, 1: {"tasks": 2.0, f"{PROCESSOR}x86_64 avx2": 1}}
    assert processors(usage) == ["aarch64 neon", "x86_64 avx2"]
    assert total(usage) == {"tasks": 3.0}


@pytest.mark.parametrize(
    ("options", "kinds", "whose"),
    [
        ({}, ["aarch64 neon", "x86_64 avx2"], "as everywhere"),
        ({"model.dtype": "float64"}, ["x86_64 scalar"], "as everywhere"),
        ({}, ["x86_64 Haswell numpy", "x86_64 avx2"], "numpy"),
        ({"model.rows": "bfloat16"}, ["x86_64 avx2"], "bfloat16"),
        ({"model.rows": "bfloat16"}, ["x86_64 numpy"], "numpy"),
        ({"servers.backend": "gpu"}, ["x86_64 avx2"], "gpu"),
    ],
)
def test_whose_bits_the_weights_have(options, kinds, whose):
    assert arithmetic(Config().replace(options), kinds) == whose
