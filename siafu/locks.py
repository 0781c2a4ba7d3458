"""Locks that processes have on files and folders, as far as the file system has locks.

Lustre as it is mounted by default, and NFS without its lock daemon, have none: there nobody is kept out, and two
processes that use one folder disturb each other.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

LOCK: Final = "lock"  # the file in a folder that is one process's
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


def lock_in(folder: Path, *, wait: bool = False) -> IO[str] | None:
    """A folder, made if it is missing, for this process alone until the file ``LOCK`` in it, which is returned, is
    closed. None if it is another's; ``wait``: until it is not. Who has it may delete it: those who wait make it anew.

    Raises: OSError if it cannot be written.
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
        file.close()  # of a folder that is no more
