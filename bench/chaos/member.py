"""``python -m bench.chaos.member FILE ROLE ...``: ``python -m ROLE ...`` with a faulty hub. FILE: JSON of ``settings``."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import siafu.member
from bench.chaos.hub import FaultyHub
from bench.chaos.schedule import MessageFaults


def settings(faults: MessageFaults, began_at: float, proxy: str, log: Path) -> dict[str, Any]:
    """What is written to FILE."""
    return {"faults": vars(faults), "began_at": began_at, "proxy": proxy, "log": str(log)}


def install(file: Path) -> None:
    """From now on every hub of this process's member is faulty."""
    told = json.loads(file.read_text())
    FaultyHub.faults, FaultyHub.began_at = MessageFaults(**told["faults"]), told["began_at"]
    FaultyHub.proxy, FaultyHub.log = told["proxy"], Path(told["log"])
    vars(siafu.member)["Hub"] = FaultyHub


if __name__ == "__main__":
    install(Path(sys.argv[1]))
    role = sys.argv[2]
    del sys.argv[1:3]
    runpy.run_module(role, run_name="__main__", alter_sys=True)
