"""Which processors a run computed on, and when they are of one kind."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from run_coordinator.reports import processors, total
from siafu import processor
from siafu.processor import PROCESSOR, UNKNOWN, merged, told


def kind_under(core: str) -> str:
    code = "from siafu import processor; print(processor.kind('avx2'))"
    env = {**os.environ, "OPENBLAS_CORETYPE": core}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout


def test_the_kind_begins_with_the_machine_and_ends_with_the_kernels():
    assert processor.kind().split()[0] == platform.machine()
    assert processor.kind("avx2") == f"{processor.kind()} avx2"
    assert told(processor.kind("avx512bf16")) == processor.kind("avx512bf16")


@pytest.mark.skipif(len(processor.kind().split()) < 2, reason="NumPy has no OpenBLAS that names its kernels")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86-64")
@pytest.mark.parametrize("core", ["Haswell", "Sandybridge"])
def test_the_kernels_that_openblas_was_told_to_use_are_in_the_kind(core):
    assert kind_under(core) == f"x86_64 {core} avx2\n"


@pytest.mark.parametrize("lie", ["", "a b c d", "x" * 25, "x\n", "é", "a  b", "\x1b[2J"])
def test_what_cannot_be_a_kind_is_unknown(lie):
    assert told(lie) == UNKNOWN


def test_a_worker_without_kernels_of_ours_is_of_its_servers_kind():
    assert merged(["x86_64 SkylakeX", "x86_64 SkylakeX avx512", "x86_64 SkylakeX"]) == ["x86_64 SkylakeX avx512"]
    assert merged(["x86_64 Sky", "x86_64 SkylakeX avx512"]) == ["x86_64 Sky", "x86_64 SkylakeX avx512"]
    assert merged(["x86_64 Zen avx2", "x86_64 Zen avx512"]) == ["x86_64 Zen avx2", "x86_64 Zen avx512"]


def test_kinds_are_named_beside_the_totals_and_not_in_them():
    usage = {0: {"tasks": 1.0, f"{PROCESSOR}arm64": 2}, 1: {"tasks": 2.0, f"{PROCESSOR}x86_64 Zen avx2": 1}}
    assert processors(usage) == ["arm64", "x86_64 Zen avx2"]
    assert total(usage) == {"tasks": 3.0}
