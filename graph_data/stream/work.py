"""The folder of an unfinished preparation, and its progress, so that the same call continues there.

``state.json`` is replaced atomically after every step, so a killed process loses the step that it was in. (What a step
wrote is not flushed to the disk before: after a power failure, delete the folder.)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from siafu.errors import DatasetError
from siafu.locks import LOCK, lock_in
from siafu.run_files import write_whole

STATE = "state.json"
Say = Callable[[str], None]


class Work:
    """Use in a ``with`` block, which locks the folder; ``close(done=True)`` deletes it."""

    def __init__(self, folder: Path, key: str, say: Say) -> None:
        """``key``: stands for the source and every option; another key starts over."""
        self.folder, self._key, self._say = folder, key, say
        self._steps: dict[str, Any] = {}  # changes with every record
        self._lock: IO[str] | None = None

    def __enter__(self) -> Work:
        try:
            lock = lock_in(self.folder)
        except OSError as error:
            raise DatasetError(f"{self.folder}: cannot be written: {error.strerror}") from None
        if lock is None:
            raise DatasetError(f"{self.folder}: another process is preparing there")
        self._lock = lock
        self._load()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._lock is not None
        if kind is None:
            shutil.rmtree(self.folder, ignore_errors=True)  # who begins just now may hold a new lock in it
        self._lock.close()

    def path(self, name: str) -> Path:
        return self.folder / name

    def get(self, step: str) -> Any:
        """The record of a step; None if it has not ended."""
        return self._steps.get(step)

    def record(self, step: str, value: Any) -> None:
        """Notes that a step has ended. ``value`` is JSON, and not None."""
        self._steps[step] = value
        write_whole(self.path(STATE), json.dumps({"key": self._key, "steps": self._steps}).encode())

    def say(self, line: str) -> None:
        self._say(line)

    def _load(self) -> None:
        try:
            found = json.loads(self.path(STATE).read_text())
        except (OSError, ValueError):
            found = {}
        if found.get("key") == self._key:
            self._steps = found["steps"]
            self.say(f"continuing behind step {list(self._steps)[-1]!r} of an interrupted preparation")
            return
        if found:
            self.say("the source or an option changed since an interrupted preparation: starting over")
        for entry in self.folder.iterdir():
            if entry.name != LOCK:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder; 0 if there is none."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
