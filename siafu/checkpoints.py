"""The checkpoints of a run on disk, their copies elsewhere, and a thread that saves them.

S1  A checkpoint is written beside, as .epoch-0042.partial, its manifest last; then it is renamed, and the folder above
    synced. A crash or a power cut leaves what was there before, or the new one (``siafu.faultpoints``).
S2  What is saved last is what training goes on from: ``keep`` versions up to it stay, older ones go, and so do newer
    ones, which are of a past that a run was taken back from. Nothing goes before the new one is there.
S3  Whatever goes, or gives way to the same version, is renamed first: a folder called epoch-N was written whole.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from siafu import extras
from siafu.errors import ConfigError, DatasetError, GnnError
from siafu.faultpoints import reach
from siafu.fingerprint import Fingerprint, differences
from siafu.models import ModelSpec
from siafu.table import loaded
from siafu.training_state import Manifest, TrainingState, load, sync_folder, write

__all__ = ["FOLDER_NAME", "Mirror", "Saver", "Store", "TrainingState", "load", "mirror_of", "name_of"]

logger = logging.getLogger(__name__)

#: Where checkpoints can be copied to: the scheme of ``run.checkpoint_to`` -> a class that is built from URL and run.
MIRRORS = {"s3": "infra.checkpoint_copies:BucketMirror"}
#: How long leaving the ``with`` block of a Saver waits for the disk.
CLOSE_S = 60.0

#: Of checkpoints.
FOLDER_NAME = re.compile(r"epoch-(\d{4,9})")
_LEFTOVER = re.compile(r"\.(epoch-\d{4,9})\.(partial|replaced|removed)")


class Mirror(Protocol):
    """Somewhere else that checkpoints of one run are copied to. Every method raises GnnError if it fails."""

    def versions(self) -> Sequence[int]:
        """Those that are there whole, ascending."""

    def upload(self, folder: Path, version: int) -> None:
        """Copies FILES, then MANIFEST."""

    def fetch(self, version: int, folder: Path) -> None:
        """Brings the same files to ``folder``, which exists. They are checked by whoever asks."""

    def remove(self, version: int) -> None:
        """The manifest first."""


class Store:
    """The checkpoints of one run in ``folder``, the ``keep`` newest of them, and their copies elsewhere. ``data``: the
    fingerprint of what the run trains on, kept in each.

    Any thread may use it: reading waits for what is being saved.
    """

    def __init__(
        self,
        folder: Path,
        spec: ModelSpec,
        config_digest: str,
        data: Fingerprint,
        keep: int,
        mirror: Mirror | None = None,
    ):
        self.folder, self.spec, self.config_digest, self.keep, self.mirror = folder, spec, config_digest, keep, mirror
        self.data = data
        self._at_work = threading.Lock()  # its holder alone changes the folder

    def save(self, state: TrainingState) -> Path:
        """Saves it whole or not at all; returns its folder. Raises: DatasetError if it cannot be written.

        A copy that fails is a logged word: the checkpoint is there.
        """
        target = self._path(state.version)
        with self._at_work:
            try:
                self._save(state, target)
            except OSError as error:
                with contextlib.suppress(OSError):
                    self._tidy()  # the disk may be full
                raise DatasetError(f"{target}: cannot be written: {error.strerror or error}") from error
            self._copy(state.version, target)
        return target

    def newest(self, *, fetch: bool = False) -> TrainingState | None:
        """The newest whole one; damaged ones that are newer are passed over with a logged word. None: there is none.

        ``fetch``: where none is here, the mirror's newest is brought, for a run that another machine has begun. Raises:
        DatasetError if the folder cannot be read, or all in it are damaged; GnnError if the mirror cannot be read.
        """
        with self._at_work:
            try:
                self._tidy()
                versions = self.versions()
            except OSError as error:
                raise DatasetError(f"{self.folder}: {error.strerror or error}") from error
            damaged: list[DatasetError] = []
            for version in reversed(versions):
                try:
                    state = self._own(self._path(version))
                except DatasetError as error:
                    damaged.append(error)
                    continue
                for passed_over in damaged:
                    logger.warning("checkpoint passed over: %s", passed_over)
                return state
            fetched = self._fetch() if fetch and self.mirror else None
            if damaged and fetched is None:
                raise DatasetError(
                    f"{self.folder.parent}: none of its {len(damaged)} checkpoints is whole ({damaged[0]}); without "
                    f"{self.folder} siafu resume begins anew"
                )
            return fetched

    def versions(self) -> list[int]:
        """Those that are here, ascending."""
        entries = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(int(match[1]) for entry in entries if (match := FOLDER_NAME.fullmatch(entry.name)))

    def _own(self, folder: Path) -> TrainingState:
        """What is in a checkpoint's folder. ConfigError if it was trained on other data than ours."""
        state = load(folder)
        if differ := differences(Manifest.read(folder).data, self.data):
            raise ConfigError(f"{folder}: was trained on other {differ} than the graph has now")
        return state

    def _path(self, version: int) -> Path:
        return self.folder / name_of(version)

    def _save(self, state: TrainingState, target: Path) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._tidy()
        reach("checkpoint/leftovers-removed")
        partial = _aside(target, "partial")
        partial.mkdir(mode=0o700)
        reach("checkpoint/folder-made")
        write(partial, state, self.spec, self.config_digest, self.data)
        reach("checkpoint/folder-synced")
        if target.exists():
            target.rename(_aside(target, "replaced"))
            reach("checkpoint/replaced-aside")
        partial.rename(target)
        reach("checkpoint/renamed")
        sync_folder(self.folder)
        reach("checkpoint/parent-synced")
        for old in superseded(self.versions(), state.version, self.keep):
            self._path(old).rename(_aside(self._path(old), "removed"))
        reach("checkpoint/old-aside")
        self._tidy()
        reach("checkpoint/old-removed")

    def _tidy(self) -> None:
        """Removes what crashes and saving have left. What gave way to a checkpoint that never came is put back."""
        for entry in self.folder.iterdir() if self.folder.is_dir() else ():
            if (match := _LEFTOVER.fullmatch(entry.name)) is None:
                continue
            if match[2] == "replaced" and not (self.folder / match[1]).exists():
                entry.rename(self.folder / match[1])
            else:
                shutil.rmtree(entry, ignore_errors=True)

    # --- copies -------------------------------------------------------------------------------------------------------

    def _copy(self, version: int, folder: Path) -> None:
        if self.mirror is None:
            return
        try:
            self.mirror.upload(folder, version)
            for old in superseded(self.mirror.versions(), version, self.keep):
                self.mirror.remove(old)
        except GnnError as error:
            logger.warning("checkpoint %d is on disk, but was not copied: %s", version, error)

    def _fetch(self) -> TrainingState | None:
        assert self.mirror is not None
        for version in reversed(self.mirror.versions()):
            target = self._path(version)
            partial = _aside(target, "partial")
            try:
                partial.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.mirror.fetch(version, partial)
                state = self._own(partial)
                partial.rename(target)
                sync_folder(self.folder)
                return state
            except OSError as error:
                raise DatasetError(f"{target}: cannot be written: {error.strerror or error}") from error
            except DatasetError as error:
                logger.warning("copy of a checkpoint passed over: %s", error)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        return None


def name_of(version: int) -> str:
    """Of a checkpoint's folder."""
    return f"epoch-{version:04}"


def superseded(versions: Sequence[int], saved: int, keep: int) -> list[int]:
    """Which of them go, by rule S2, once ``saved`` is there."""
    staying = sorted(version for version in versions if version <= saved)[-keep:]
    return sorted(set(versions) - set(staying))


def mirror_of(url: str, run: str) -> Mirror | None:
    """Where ``run.checkpoint_to`` says that the checkpoints of a run of this name are copied to; None for "".

    Raises: ConfigError if it names no place that there is, or needs what is not installed.
    """
    if not url:
        return None
    scheme = url.partition("://")[0]
    if scheme not in MIRRORS:
        raise ConfigError(f"run.checkpoint_to = {url!r}: must begin with {' or '.join(f'{s}://' for s in MIRRORS)}")
    try:
        mirror: Mirror = loaded(MIRRORS[scheme])(url, run)
    except ModuleNotFoundError as error:
        raise ConfigError(f"run.checkpoint_to = {url!r} needs {error.name}: {extras.install('aws')}") from None
    return mirror


def _aside(target: Path, state: str) -> Path:
    return target.with_name(f".{target.name}.{state}")


# --- saving beside training -------------------------------------------------------------------------------------------


class Saver:
    """A thread that saves the newest state it was given: training never waits for a disk. Use in a ``with`` block, or
    call ``close``. One other thread calls it."""

    def __init__(self, store: Store):
        self._store = store
        self._changed = threading.Condition()
        # Everything that changes, by whoever holds the condition:
        self.saved: int | None = None  # the version that this has put on disk last
        self.failures = 0  # each is a logged warning; the run goes on, older checkpoints stay
        self._waiting: TrainingState | None = None
        self._busy = self._closing = False
        self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)  # a hung disk ends no run
        self._thread.start()

    def put(self, state: TrainingState) -> None:
        """Has it saved. If one is waiting still, this one takes its place. Its arrays must not change any more."""
        with self._changed:
            assert not self._closing, "put after close"
            self._waiting = state
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Until what was put is on disk, or has failed; whether that was within ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting is None and not self._busy, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Waits for what is under way and waiting, but no longer than that; a second call for nothing."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            logger.warning("the last checkpoint was not written within %g s", timeout_s)

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(CLOSE_S)

    def _work(self) -> None:
        while (state := self._next()) is not None:
            try:
                self._store.save(state)
            except Exception as error:
                self._done(None)
                logger.warning(
                    "checkpoint %d was not saved: %s", state.version, error, exc_info=not isinstance(error, GnnError)
                )
            else:
                self._done(state.version)

    def _next(self) -> TrainingState | None:
        """What to save now; None once closed and nothing waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closing)
            state, self._waiting = self._waiting, None
            self._busy = state is not None
            return state

    def _done(self, version: int | None) -> None:
        """``version``: what was saved; None: it failed."""
        with self._changed:
            if version is None:
                self.failures += 1
            else:
                self.saved = version
            self._busy = False
            self._changed.notify_all()
