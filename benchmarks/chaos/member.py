"""``python -m benchmarks.chaos.member FILE ROLE ...``: ``python -m ROLE ...`` with a faulty
hub. FILE: JSON of ``settings``."""

from __future__ import annotations

import importlib
import json
import runpy
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import siafu.member
from benchmarks.chaos import clock, fork_server
from benchmarks.chaos.hub import FaultyHub
from benchmarks.chaos.schedule import MessageFaults


def settings(faults: MessageFaults, began_at: float, proxy: str, folder: Path) -> dict[str, Any]:
    """What is written to FILE. ``began_at``: of the run, by ``time.monotonic``, which
    all processes of a machine share."""
    return {"faults": vars(faults), "began_at": began_at, "proxy": proxy, "folder": str(folder)}


def install(file: Path, process: str) -> None:
    """``process``: its name. From now on every hub of this process's member is faulty, its clock jumps, and its
    children are known by their pids."""
    told = json.loads(file.read_text())
    folder = Path(told["folder"])
    FaultyHub.faults, FaultyHub.began_at = MessageFaults(**told["faults"]), told["began_at"]
    FaultyHub.proxy, FaultyHub.log = told["proxy"], folder / "log"
    vars(siafu.member)["Hub"] = FaultyHub
    # Lambda's clock, which its deadlines are told by, is none of this machine's.
    vars(importlib.import_module("lambda_funcs.environment"))["time"] = SimpleNamespace(**vars(time))
    clock.install(folder / "clock", process)
    fork_server.Popen.births = str(folder / "births")
    if fork_server.Popen.nursery is not None:
        fork_server.Popen.nursery.note(folder / "births")
    vars(subprocess)["Popen"] = fork_server.Popen


if __name__ == "__main__":
    role, index = sys.argv[2], sys.argv[sys.argv.index("--index") + 1]
    install(Path(sys.argv[1]), f"{role} {index}")
    del sys.argv[1:3]
    runpy.run_module(role, run_name="__main__", alter_sys=True)
