"""Locks that processes have on files and folders, as far as the file system has locks.

Lustre as it is mounted by default, and NFS without its lock daemon, have none: there no process is kept out, and two
processes that use one folder disturb each other.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

LOCK: Final = "lock"  # the file by which a process locks its folder
SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX


def locked(file: int | IO[str], kind: int = EXCLUSIVE, *, wait: bool = False) -> bool:
    """Takes a lock on an open file or folder, which lasts until that is closed. Returns False if another process, or
    another opening of it in this one, has a lock that excludes this kind; True also if the file system has no locks.
    ``wait``: waits until the lock is free."""
    try:
        fcntl.flock(file, kind | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def lock_in(folder: Path, *, wait: bool = False) -> IO[str] | None:
    """Locks a folder for this process, and makes it if it is missing. Returns the open file ``LOCK`` in it: closing the
    file ends the lock. None if another process has the lock; ``wait``: waits until it is free.

    The owner may delete the folder; processes that wait make it anew. Raises: OSError if the folder cannot be written.
    """
    path = folder / LOCK
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("w")
        except FileNotFoundError:  # deleted just now
            continue
        if not locked(file, wait=wait):
            file.close()
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # its folder was deleted meanwhile
