"""``python -m bench.chaos.launcher FILE FULL VERB ...``: ``siafu VERB ...`` whose members are ``bench.chaos.member``.

While the file FULL exists, the disk is full for checkpoints.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

from bench.hosts import child
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
    file, full = sys.argv[1:3]
    child.PROGRAM = ("-m", "bench.chaos.member", file)
    fill(Path(full))
    del sys.argv[1:3]
    entry()
