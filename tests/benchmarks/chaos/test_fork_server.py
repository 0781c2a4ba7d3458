"""Processes that are born of one that has imported everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.chaos import fork_server

pytestmark = pytest.mark.skipif(not fork_server.SUPPORTED, reason="only Linux hands on children")
ROOT = Path(__file__).parents[3]
#: What a nursery is asked to run: as a module, from a file of its own.
MODULE = """
import os, sys, time
leads, heard = os.getsid(0) == os.getpid(), sys.stdin.read()
print(os.environ["WORD"], leads, sys.argv[1:], heard, "numpy" in sys.modules, flush=True)
print("a complaint", file=sys.stderr, flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(7)
"""
#: In a process of its own: whoever has a nursery inherits the children of its descendants for good.
SCRIPT = """
import os, subprocess, sys
from pathlib import Path
from benchmarks.chaos import fork_server
from siafu import start

fork_server.Popen.nursery, fork_server.Popen.births = fork_server.Nursery.start(), sys.argv[1]

def born(seconds):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    env = {**os.environ, "WORD": "said"}
    return fork_server.Popen(start.command("told", seconds), **pipes, env=env, start_new_session=True)

first, second = born("0"), born("60")
print(first.communicate(b"heard"), first.returncode)
second.stdin.close()
print(second.stdout.readline().startswith(b"said"), second.poll(), fork_server.began_at(second.pid) != "")
os.killpg(second.pid, 9)
print(second.wait(60), fork_server.began_at(second.pid))
other = fork_server.Popen([sys.executable, "-c", "pass"])
print(other.wait(60), [line.split()[4:] for line in Path(sys.argv[1]).read_text().splitlines()])
"""


def test_they_are_children_like_any_others_and_noted(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(MODULE)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "births")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},  # benchmarks is in no installation
        timeout=120,
    )
    assert done.stdout.splitlines() == [
        "(b\"said True ['0'] heard True\\na complaint\\n\", None) 7",
        "True None True",
        f"{-signal.SIGKILL} ",
        "0 [['told', '0'], ['told', '60']]",
    ], done.stderr
