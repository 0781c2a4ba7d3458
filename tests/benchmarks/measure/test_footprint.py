from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure import footprint
from benchmarks.measure.footprint import Footprint, Pages
from siafu.errors import ConfigError

pytestmark = pytest.mark.skipif(
    not (footprint.PROC / "self" / "smaps_rollup").exists(), reason="memory is read from Linux' /proc"
)

MB = 1_000_000
#: How a process that holds something ends, whose first argument is ``meeting``: after it has been looked at.
STAYS = """
import os, sys, time
open(f"{sys.argv[1]}/{os.getpid()}.holds", "w").close()
while not os.path.exists(f"{sys.argv[1]}/seen"):
    time.sleep(0.01)
"""
#: Runs its first argument as often as its second says, with the others as arguments.
PARENT = """
import subprocess, sys
code, count, *others = sys.argv[1:]
for child in [subprocess.Popen([sys.executable, "-c", code, *others]) for _ in range(int(count))]:
    child.wait()
"""


def look_at(monkeypatch: pytest.MonkeyPatch, meeting: Path, code: str, count: int, *others: Path) -> Footprint:
    """The footprint of so many children that run ``code``, all of them seen while they hold what it has made."""
    meeting.mkdir()
    take = footprint.sample

    def sample(root: int) -> dict[str, list[Pages]]:
        all_hold = len(list(meeting.glob("*.holds"))) == count
        found = take(root)
        if all_hold:
            (meeting / "seen").touch()
        return found

    monkeypatch.setattr(footprint, "sample", sample)
    command = [sys.executable, "-c", PARENT, code + STAYS, str(count), str(meeting), *map(str, others)]
    return footprint.watch(command, log=meeting / "log")


def test_the_peak_is_that_of_everything_together_and_each_role_has_its_own():
    found = Footprint()
    found.add({"a": [Pages(10, 1)], "b": [Pages(5), Pages(5)]})
    found.add({"a": [Pages(2)], "b": [Pages(15)]})
    assert (found.peak_nbytes, found.num_samples) == (21, 2)
    assert found.at_peak == {"a": Pages(10, 1), "b": Pages(10, 0)}
    assert found.by_role == {"a": Pages(10, 1), "b": Pages(15, 0)}
    assert found.processes == {"a": 1, "b": 1}


def test_children_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = look_at(monkeypatch, tmp_path / "meeting", f"held = bytes({80 * MB}) + b'x'", 1)
    assert 80 * MB < found.peak_nbytes < 140 * MB
    assert found.by_role["others"].anonymous > 80 * MB


def test_pages_that_two_processes_map_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_bytes(bytes(60 * MB))
    maps = "import mmap, sys; f = open(sys.argv[2]); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); m[::4096]"
    found = look_at(monkeypatch, tmp_path / "meeting", maps, 2, tmp_path / "file")
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
