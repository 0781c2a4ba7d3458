"""Named points of saving at which tests kill a process."""

from __future__ import annotations

import os
import signal

#: In the order in which ``siafu.checkpoints.Store.save`` reaches them. "torn": half of a file is written.
POINTS = (
    "checkpoint/leftovers-removed",
    "checkpoint/folder-made",
    "checkpoint/model.safetensors-torn",
    "checkpoint/model.safetensors-synced",
    "checkpoint/versions.safetensors-torn",
    "checkpoint/versions.safetensors-synced",
    "checkpoint/optimiser.safetensors-torn",
    "checkpoint/optimiser.safetensors-synced",
    "checkpoint/ledger.json-torn",
    "checkpoint/ledger.json-synced",
    "checkpoint/manifest.json-torn",
    "checkpoint/manifest.json-synced",
    "checkpoint/folder-synced",
    "checkpoint/replaced-aside",  # only where this version was saved before
    "checkpoint/renamed",
    "checkpoint/parent-synced",
    "checkpoint/old-aside",
    "checkpoint/old-removed",
)
#: Environment variable with the point at which this process is to die, for tests.
VARIABLE = "SIAFU_FAULT_POINT"


def reach(name: str) -> None:
    """Ends the process, as by ``kill -9``, if the environment names this point; else does nothing."""
    assert name in POINTS, name
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
