"""Remembers which files of a folder were verified, so that each is read again only after it has changed.

Servers map a prepared graph's arrays, and compiled kernels use their values as indices. So every file is compared with
its checksum, and its values with their limits, before it is used. Reading takes a server a tenth of a second per 500
MB. Therefore verified files are remembered beside the files, in ``.verified.json``:

    1. A file is identified by its inode, size, mtime and ctime: a copy, a restored file or one with its mtime set is
       read again.
    2. A file is remembered only if its ctime is before the current time of its own file system's clock when the reading
       began. A later change then gets another ctime, however coarse that clock is (Git calls other files "racily
       clean").
    3. The reference of the comparison is part of the memory (``against``): with another manifest, nothing is known.
    4. A lost memory only costs a reading. So it is written without a lock, replaced as a whole, and used only if it
       parses. If it cannot be written (read-only shards), every start reads the files.

A person who may write there may alter the graph and its manifest too: this finds accidents, not forgeries.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from siafu.errors import DatasetError
from siafu.kernels.checksum import crc32
from siafu.npy import read_header
from siafu.sparse import Array

MEMORY, VERSION = ".verified.json", 1
MAX_MEMORY_BYTES = 1 << 20
#: Bytes read at a time: they stay in the cache while they are checked, and are a multiple of every dtype's size.
BLOCK_BYTES = 1 << 20
#: An upper bound of the clock step of local file systems. If a step is longer, files are only not remembered.
CLOCK_STEP_S = 0.02

Identity = tuple[int, int, int, int]  # inode, bytes, mtime and ctime in nanoseconds
#: A check of values: (place of a block's first value, the block) -> what is wrong with a value, or None. Blocks come in
#: order.
Look = Callable[[int, Array], "str | None"]


@dataclass(frozen=True)
class Verified:
    """The memory of one folder: its files that were compared with ``against``."""

    folder: Path
    against: str

    def check(self, checks: Mapping[str, Callable[[], None]]) -> None:
        """Carries out the checks, by file name, of files that are not remembered in their current state.

        A check reads its file, and raises if it is not good; then files checked before it are not remembered either.
        """
        found = {name: identity for name in checks if (identity := self._identity(name)) is not None}
        known = self._load()
        unread = [name for name in checks if name not in found or known.get(name) != found[name]]
        if not unread:
            return
        now = self._clock()
        for name in unread:
            checks[name]()
        settled = {name: found[name] for name in unread if name in found and found[name][3] < now}
        if settled:
            self._save({**known, **settled})

    def remember(self, name: str) -> None:
        """Remembers a file whose content is known to be good, because this process has just written it."""
        give_up = time.monotonic() + CLOCK_STEP_S
        found = self._identity(name)
        while found is not None and found[3] >= self._clock() and time.monotonic() < give_up:
            time.sleep(CLOCK_STEP_S / 10)
        if found is not None and found[3] < self._clock():
            self._save({**self._load(), name: found})

    def _identity(self, name: str) -> Identity | None:
        """Returns the identity of a file; None if it is missing, or (behind a link) on another file system, whose clock
        is not this folder's."""
        with contextlib.suppress(OSError):
            found = (self.folder / name).stat()
            if found.st_dev == self.folder.stat().st_dev:
                return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        return None

    def _clock(self) -> int:
        """Returns the time of the folder's file system, in nanoseconds; 0 if nothing can be written there."""
        with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=self.folder) as probe:
            return os.fstat(probe.fileno()).st_ctime_ns
        return 0

    def _load(self) -> dict[str, Identity]:
        try:
            with (self.folder / MEMORY).open("rb") as stream:
                said = json.loads(stream.read(MAX_MEMORY_BYTES))
            if (said["version"], said["against"]) != (VERSION, self.against):
                return {}
            return {name: _identity_of(values) for name, values in said["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}

    def _save(self, files: Mapping[str, Identity]) -> None:
        draft = self.folder / f"{MEMORY}.{uuid.uuid4().hex}"
        there = {name: identity for name, identity in files.items() if (self.folder / name).exists()}
        try:
            draft.write_text(json.dumps({"version": VERSION, "against": self.against, "files": there}), "utf-8")
            draft.replace(self.folder / MEMORY)
        except OSError:  # read-only or full: read again next time
            with contextlib.suppress(OSError):
                draft.unlink()


def _identity_of(values: Any) -> Identity:
    inode, nbytes, mtime, ctime = map(int, values)
    return inode, nbytes, mtime, ctime


# --- one file ---------------------------------------------------------------------------------------------------------


def checksum(file: Path) -> int:
    """Returns the CRC-32 of a whole file. Raises: DatasetError if it cannot be read."""
    return _read(file, None)[0]


def compare(file: Path, wanted: int, advice: str = "", look: Look | None = None) -> None:
    """Reads a ``.npy`` file once. Raises: DatasetError naming it, if its CRC-32 differs or a value is not valid.

    ``advice``: the end of the error's message.
    """
    found, wrong = _read(file, look)
    if found != wanted:
        wrong = f"checksum {found:08x}, must be {wanted:08x}: it was altered"
    if wrong is not None:
        raise DatasetError(f"{file}: {wrong}" + (f"; {advice}" if advice else ""))


def _read(file: Path, look: Look | None) -> tuple[int, str | None]:
    """Returns the checksum, and the first finding of ``look``; None if there is none."""
    buffer, wrong, place = np.empty(BLOCK_BYTES, np.uint8), None, 0
    try:
        with file.open("rb") as stream:
            dtype, offset = np.dtype(np.uint8), 0
            if look is not None:
                header = read_header(stream)
                dtype, offset = header.dtype, header.offset
                stream.seek(0)
            crc = crc32(stream.read(offset))
            while nbytes := stream.readinto(buffer.data):  # a buffered stream fills it, but for the last time
                crc = crc32(buffer[:nbytes].data, crc)
                if look is not None and wrong is None and not nbytes % dtype.itemsize:
                    block = buffer[:nbytes].view(dtype)
                    wrong = look(place, block)
                    place += len(block)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: cannot be read: {error}") from None
    return crc, wrong


# --- values -----------------------------------------------------------------------------------------------------------


def between(low: int, high: int) -> Look:
    """Makes a check of integers: from ``low`` to ``high``."""

    def look(place: int, block: Array) -> str | None:
        if low <= int(block.min(initial=high)) and int(block.max(initial=low)) <= high:
            return None
        at = int(np.flatnonzero((block < low) | (block > high))[0])
        return f"value {place + at} is {block[at]}, must be in {low}..{high}"

    return look


def finite(place: int, block: Array) -> str | None:
    """Checks that numbers are neither NaN nor infinite."""
    good = np.isfinite(block)
    if good.all():
        return None
    at = int(np.argmin(good))
    return f"value {place + at} is {block[at]}, must be finite"


def rising(low: int, high: int) -> Look:
    """Makes a check of integers: from ``low`` to ``high``, and never falling."""
    inside, last = between(low, high), low

    def look(place: int, block: Array) -> str | None:
        nonlocal last
        if (wrong := inside(place, block)) is not None:
            return wrong
        falls = np.flatnonzero(np.diff(block, prepend=block.dtype.type(last)) < 0)
        if len(falls):
            at = int(falls[0])
            return f"value {place + at} is {block[at]} after {block[at - 1] if at else last}, must not fall"
        last = int(block[-1])
        return None

    return look


def columns(indptr: Array, width: int) -> Look:
    """Makes a check of the columns of a CSR with these row pointers: in 0..width - 1, and not falling within a row. The
    pointers must not fall."""
    inside, last = between(0, width - 1), 0

    def look(place: int, block: Array) -> str | None:
        nonlocal last
        if (wrong := inside(place, block)) is not None:
            return wrong
        before, last = last, int(block[-1])
        # Columns may fall where a row begins. Counting both kinds of falls is several times faster than finding them.
        begins = np.unique(indptr[slice(*np.searchsorted(indptr, (place, place + len(block))))]) - place
        allowed = np.count_nonzero(block[begins] < np.where(begins > 0, block[begins - 1], before))
        fallen = np.count_nonzero(block[1:] < block[:-1]) + int(block[0] < before)
        if fallen == allowed:
            return None
        falls = np.flatnonzero(np.diff(block, prepend=block.dtype.type(before)) < 0)
        at = int(np.setdiff1d(falls, begins)[0])
        return f"value {place + at} is {block[at]} after {block[at - 1] if at else before}, must not fall within a row"

    return look
