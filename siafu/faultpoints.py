"""Named points of saving at which tests kill a process."""

from __future__ import annotations

import os
import signal

#: In the order in which ``siafu.checkpoints.Store.save`` comes by. "torn": half of a file is written.
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
#: The one at which this process is to die, for tests.
VARIABLE = "SIAFU_FAULT_POINT"


def reach(name: str) -> None:
    """Does nothing, unless the environment names this point: then the process ends here, as by ``kill -9``."""
    assert name in POINTS, name
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
