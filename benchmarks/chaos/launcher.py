"""``python -m benchmarks.chaos.launcher FILE VERB ...``: ``siafu VERB ...`` whose members are
``benchmarks.chaos.member``. FILE: JSON of its ``settings``.

While the file ``full`` exists in their folder, the disk is full for checkpoints.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

from benchmarks.chaos import member
from run_coordinator import launch
from run_coordinator.hosts import child
from siafu.__main__ import entry
from siafu.checkpoints import Store


def fill(full: Path) -> None:
    """Saving fails as on a full disk while that file exists."""
    save = Store.save

    def saved(store: Store, state: Any) -> Path:
        if full.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(store, state)

    Store.save = saved  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    child.PROGRAM = ("benchmarks.chaos.member", str(file))
    member.install(file, "launcher")
    fill(file.parent / "full")
    launch.BILLING_S = launch.FAREWELL_S  # a member that was stopped says no last word, and nobody pays
    del sys.argv[1]
    entry()
