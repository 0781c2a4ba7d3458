"""Where a verb will write its results: refused before the work that makes them, not after it."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from siafu.errors import ConfigError


def check_file(path: str | os.PathLike[str], called: str) -> None:
    """Refuses a file that cannot be written. If it is missing, it and its parents would be made; this makes nothing.

    ``called``: what begins the error's line, such as "--out p.csv". Raises: ConfigError.
    """
    _check(Path(path).absolute(), called, is_folder=False)


def check_folder(path: str | os.PathLike[str], called: str) -> None:
    """The same of a folder that files go into."""
    _check(Path(path).absolute(), called, is_folder=True)


def _check(path: Path, called: str, *, is_folder: bool) -> None:
    """It tries, for permissions do not say what a file system grants: root, or a mount that is read-only."""
    there = path
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    try:
        if there.is_dir():
            with tempfile.TemporaryFile(dir=there):
                return
        if is_folder or there != path:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigError(f"{called}: cannot be written: {error.strerror}") from None
