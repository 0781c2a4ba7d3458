"""Locks that processes have on files and folders, as far as the file system has locks.

Lustre as it is mounted by default, and NFS without its lock daemon, have none: there nobody is kept out, and two
processes that use one folder disturb each other.
"""

from __future__ import annotations

import fcntl
from typing import IO

SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX


def locked(file: int | IO[str], kind: int = EXCLUSIVE, *, wait: bool = False) -> bool:
    """Takes a lock on an open file or folder, which lasts until that is closed. False if another process, or another
    opening of it in this one, has a lock that excludes this kind; ``wait``: until none has."""
    try:
        fcntl.flock(file, kind | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
