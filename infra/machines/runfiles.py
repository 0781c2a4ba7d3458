"""A run directory that travels through the bucket: machines send what their processes write, the laptop joins it.

Growing files (``.log``, ``.jsonl``) travel in pieces, named by their offset and cut after a line; others as a whole,
again whenever they have changed. A growing file that was replaced, such as metrics.jsonl when a run continues from a
checkpoint, starts over: its old pieces are emptied, and receivers start it over too. Names that begin with a dot do not
travel.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra.machines.mailbox import (
    MAX_FILE_BYTES,
    MAX_PIECE_BYTES,
    Entry,
    Mailbox,
    checked_path,
    piece_key,
    piece_of,
    run_key,
)
from siafu.errors import GnnError, PeerLost, RemoteProtocolError
from siafu.run_files import draft_of

logger = logging.getLogger(__name__)

GROWING = (".log", ".jsonl")
#: Objects of one request to list: of a file with fewer pieces, none is saved by leaving the old ones out.
PAGE = 1000
#: Pieces come so far apart at most; at first as often as the agent looks for orders.
SLOWEST_S = 10.0
LAST_TRIES = 3
THREADS = 16


def pace_s(elapsed_s: float, every_s: float) -> float:
    """Seconds until a sender that has run for ``elapsed_s`` sends files again, and until a receiver looks again. Grows
    from ``every_s``."""
    return min(SLOWEST_S, every_s + elapsed_s / 100)


class Sender:
    """Sends a folder's files as a run's from time to time, in its own thread. Use in a ``with`` block."""

    def __init__(self, mailbox: Mailbox, run: str, folder: Path, every_s: float):
        self.folder = folder
        self._mailbox, self._run, self._every_s = mailbox, run, every_s
        self._begun = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"sender {run}")
        # All mutable state, the thread's own:
        self._grown: dict[str, tuple[int, int]] = {}  # growing files: inode, and up to which offset they were sent
        self._stamps: dict[str, tuple[int, int]] = {}  # others: size and time

    def finish(self) -> None:
        """Sends the rest and ends, in the thread; ``done`` is true when that is over."""
        self._ended.set()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._ended.wait(pace_s(time.monotonic() - self._begun, self._every_s)):
            self._send(last=False)
        for _ in range(LAST_TRIES):
            if self._send(last=True):
                return

    def _send(self, *, last: bool) -> bool:
        """Sends files; whether all are in the bucket now."""
        try:
            for path in _files(self.folder):
                name = path.relative_to(self.folder).as_posix()
                if name.endswith(GROWING):
                    self._send_growth(path, name, last)
                else:
                    self._send_whole(path, name)
        except (GnnError, OSError) as error:  # the next turn goes on where this one stopped
            logger.warning("files of run %s: %s", self._run, error)
            return False
        return True

    def _send_growth(self, path: Path, name: str, last: bool) -> None:
        inode, offset = self._grown.get(name, (0, 0))
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            if last and not inode and not stat.st_size:  # that it is empty says something too
                self._mailbox.put(piece_key(self._run, name), b"")
            if stat.st_ino != inode or stat.st_size < offset:
                self._empty_pieces(name)
                inode, offset = stat.st_ino, 0
            file.seek(offset)
            while data := file.read(MAX_PIECE_BYTES):
                if not last:
                    data = data[: data.rfind(b"\n") + 1] if len(data) < MAX_PIECE_BYTES else data
                if not data:
                    return
                self._mailbox.put(piece_key(self._run, name, offset), data)
                offset += len(data)
                self._grown[name] = inode, offset
                file.seek(offset)

    def _empty_pieces(self, name: str) -> None:
        """Empties all pieces but the first, which is written next."""
        for entry in self._mailbox.entries(run_key(self._run, f"files/{name}/"), piece_key(self._run, name)):
            if entry.nbytes:
                self._mailbox.put(entry.key, b"")

    def _send_whole(self, path: Path, name: str) -> None:
        stat = path.stat()
        stamp = stat.st_size, stat.st_mtime_ns
        if self._stamps.get(name) != stamp:
            self._mailbox.upload(path, piece_key(self._run, name))
            self._stamps[name] = stamp

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent) / name
            try:
                checked_path(path.relative_to(folder).as_posix())
            except RemoteProtocolError:
                continue
            if path.is_file() and not path.is_symlink():
                yield path


class Listing:
    """The bucket's list of a run's files, for repeated use: old pieces of long files are listed only once."""

    def __init__(self, mailbox: Mailbox, run: str, folder: str = ""):
        self._mailbox, self._run, self._prefix = mailbox, run, run_key(run, f"files/{folder}")
        # All mutable state:
        self._known: dict[str, tuple[int, str]] = {}  # growing file -> how many pieces it had, and the last one's key

    def entries(self, *, whole: bool = False) -> Iterator[tuple[Entry, str, int]]:
        """Entry, path and offset of each piece, in order; ``whole``: also of old pieces, which a restarted role may
        have replaced.

        RemoteProtocolError for a key that would lead out of the folder.
        """
        after: str | None = ""
        while after is not None:
            start, after = after, None
            for entry in self._mailbox.entries(self._prefix, start):
                path, offset = piece_of(self._run, entry.key)
                count, last = self._known.get(path, (0, ""))
                if count >= PAGE and entry.key < last and not whole:
                    after = last  # we go on behind it
                    break
                if entry.key > last and path.endswith(GROWING):
                    self._known[path] = count + 1, entry.key
                yield entry, path, offset


class Receiver:
    """Keeps a folder equal to a run's files in the bucket."""

    def __init__(self, mailbox: Mailbox, run: str, folder: Path):
        self._mailbox, self._run, self._folder, self._listing = mailbox, run, folder, Listing(mailbox, run)
        # All mutable state:
        self._seen: dict[str, str] = {}  # key -> etag

    def update(self, only: tuple[str, ...] = (), *, whole: bool = True) -> list[tuple[str, int]]:
        """Fetches new pieces; returns path and offset of each. ``only``: prefixes of the paths to fetch. ``whole``: as
        in ``Listing``; frequent calls pass False, and the last one, after the run's end, True.

        RemoteProtocolError for a key that would lead out of the folder, or a file beyond all measure.
        """
        there = list(self._listing.entries(whole=whole))
        if replaced := {path for entry, path, offset in there if not offset and self._is_replaced(entry, path)}:
            self._forget(replaced)
            there = list(self._listing.entries(whole=True))
        fresh = []
        for entry, path, offset in there:
            if self._seen.get(entry.key) != entry.etag and (not only or path.startswith(only)):
                if offset + entry.nbytes > MAX_FILE_BYTES:
                    raise RemoteProtocolError(
                        f"{entry.key}: ends at byte {offset + entry.nbytes}, limit {MAX_FILE_BYTES}"
                    )
                fresh.append((entry, path, offset))
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda item: self._bring(*item), fresh))
        self._seen.update({entry.key: entry.etag for entry, _, _ in fresh})
        return [(path, offset) for _, path, offset in fresh]

    def _is_replaced(self, first: Entry, path: str) -> bool:
        return path.endswith(GROWING) and self._seen.get(first.key, first.etag) != first.etag

    def _forget(self, paths: set[str]) -> None:
        """Empties growing files that will come again from their first byte."""
        self._seen = {key: etag for key, etag in self._seen.items() if piece_of(self._run, key)[0] not in paths}
        for path in paths:
            try:
                os.truncate(self._folder / path, 0)
            except OSError as error:
                raise PeerLost(f"{self._folder / path}: cannot be written: {error.strerror}") from error

    def _bring(self, entry: Entry, path: str, offset: int) -> None:
        file = self._folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if path.endswith(GROWING):
                data = self._mailbox.get(entry.key) or b""
                with os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as stream:
                    stream.seek(offset)
                    stream.write(data)
                return
            with draft_of(file) as draft:
                self._mailbox.download(entry.key, draft)
        except OSError as error:
            raise PeerLost(f"{file}: cannot be written: {error.strerror}") from error
