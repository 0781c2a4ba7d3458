from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure import footprint
from bench.measure.footprint import Footprint, Pages
from siafu.errors import ConfigError

pytestmark = pytest.mark.skipif(
    not (footprint.PROC / "self" / "smaps_rollup").exists(), reason="memory is read from Linux' /proc"
)

MB = 1_000_000
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
HOLDS = "import time; held = bytes({}) + b'x'; time.sleep(0.5)"


def test_the_peak_is_that_of_everything_together_and_each_role_has_its_own():
    found = Footprint()
    found.add({"a": [Pages(10, 1)], "b": [Pages(5), Pages(5)]})
    found.add({"a": [Pages(2)], "b": [Pages(15)]})
    assert (found.peak_nbytes, found.num_samples) == (21, 2)
    assert found.at_peak == {"a": Pages(10, 1), "b": Pages(10, 0)}
    assert found.by_role == {"a": Pages(10, 1), "b": Pages(15, 0)}
    assert found.processes == {"a": 1, "b": 1}


def test_children_count(tmp_path: Path):
    found = footprint.watch([sys.executable, "-c", CHILD, HOLDS.format(80 * MB)], log=tmp_path / "log")
    assert 80 * MB < found.peak_nbytes < 140 * MB
    assert found.by_role["others"].anonymous > 80 * MB


def test_pages_that_two_processes_map_count_once(tmp_path: Path):
    (tmp_path / "file").write_bytes(bytes(60 * MB))
    maps = (
        "import mmap, time, sys; f = open(sys.argv[1]); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); m[::4096]; "
    )
    twice = f"import subprocess, sys; code = {maps + 'time.sleep(0.4)'!r}; " + (
        "subprocess.Popen([sys.executable, '-c', code, sys.argv[1]]); subprocess.run([sys.executable, '-c', code, sys.argv[1]])"
    )
    found = footprint.watch([sys.executable, "-c", twice, str(tmp_path / "file")], log=tmp_path / "log")
    assert 60 * MB < found.by_role["others"].mapped < 100 * MB


def test_a_command_that_fails_is_an_error_with_its_last_line(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"exit code 3: the reason$"):
        footprint.watch([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], log=tmp_path / "log")


def test_roles_are_told_by_the_command_line():
    program = [sys.executable, "-c", "import sys; print('here', flush=True); sys.stdin.read()", "param_server"]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # from here on the command line is its own
        assert footprint.role_of(process.pid) == "parameter servers"
        assert process.pid in footprint.tree(os.getpid())
    finally:
        process.communicate(b"")
    assert footprint.pages_of(process.pid) is None
