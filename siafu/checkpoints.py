"""The checkpoints of a run on disk, their copies elsewhere, and a thread that saves them.

S1  A checkpoint is written as .epoch-0042.partial, its manifest last; then it is renamed, and the folder above synced.
    A crash or a power cut leaves the previous checkpoints, or these and the new one (``siafu.faultpoints``).
S2  Training resumes from the checkpoint saved last. ``keep`` versions up to it stay. Older ones are removed, and so are
    newer ones: they are from before the run was set back. Nothing is removed before the new one is complete.
S3  A folder to be removed or replaced is renamed first: so a folder called epoch-N is always complete.
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

#: Targets for copies: the scheme of ``run.checkpoint_to`` -> a class that is built from URL and run.
MIRRORS = {"s3": "infra.checkpoint_copies:BucketMirror"}
#: How long leaving the ``with`` block of a Saver waits for the disk.
CLOSE_S = 60.0

#: Names of checkpoints' folders.
FOLDER_NAME = re.compile(r"epoch-(\d{4,9})")
_LEFTOVER = re.compile(r"\.(epoch-\d{4,9})\.(partial|replaced|removed)")


class Mirror(Protocol):
    """A remote place for copies of one run's checkpoints. Every method raises GnnError if it fails."""

    def versions(self) -> Sequence[int]:
        """Returns the versions that are complete there, ascending."""

    def upload(self, folder: Path, version: int) -> None:
        """Copies the files of ``folder`` there: FILES, then MANIFEST."""

    def fetch(self, version: int, folder: Path) -> None:
        """Copies the same files to ``folder``, which exists. The caller checks them."""

    def remove(self, version: int) -> None:
        """Removes a version, its manifest first."""


class Store:
    """The ``keep`` newest checkpoints of one run in ``folder``, and their copies elsewhere. ``data``: the fingerprint
    of the run's data, kept in each.

    Any thread may use it: reading waits until saving has ended.
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
        """Saves the state completely or not at all; returns its folder. Raises: DatasetError if it cannot be written.

        A copy that fails is only logged: the checkpoint itself is saved.
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
        """Returns the newest complete checkpoint; None if there is none. Skips damaged ones, and logs them.

        ``fetch``: if there is none here, copies the mirror's newest, for a run that another machine has started.
        Raises: DatasetError if the folder cannot be read, or all in it are damaged and none was fetched; GnnError if
        the mirror cannot be read.
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
        """Returns the versions in the folder, ascending."""
        entries = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(int(match[1]) for entry in entries if (match := FOLDER_NAME.fullmatch(entry.name)))

    def _own(self, folder: Path) -> TrainingState:
        """Loads a checkpoint's folder. Raises: ConfigError if it was trained on other data than ours."""
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
        """Removes leftovers of crashes and of saving. A replaced checkpoint whose successor was never completed is put
        back."""
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
    """Returns the name of a checkpoint's folder."""
    return f"epoch-{version:04}"


def superseded(versions: Sequence[int], saved: int, keep: int) -> list[int]:
    """Returns the versions to remove, by rule S2, once ``saved`` is complete."""
    staying = sorted(version for version in versions if version <= saved)[-keep:]
    return sorted(set(versions) - set(staying))


def mirror_of(url: str, run: str) -> Mirror | None:
    """Makes the mirror for checkpoints of the run named ``run``; ``url``: ``run.checkpoint_to``. None for "".

    Raises: ConfigError if the URL's scheme is unknown, or needs a package that is not installed.
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
    """A thread that saves the newest state that it was given, so that training never waits for a disk. Use in a
    ``with`` block, or call ``close``. Only one other thread may call it."""

    def __init__(self, store: Store):
        self._store = store
        self._changed = threading.Condition()
        # All mutable state, changed only by the holder of the condition:
        self.saved: int | None = None  # the version saved last
        self.failures = 0  # each is a logged warning; the run goes on, older checkpoints stay
        self._waiting: TrainingState | None = None
        self._busy = self._closing = False
        self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)  # a hung disk ends no run
        self._thread.start()

    def put(self, state: TrainingState) -> None:
        """Queues a state for saving. It replaces one that still waits. Its arrays must not change any more."""
        with self._changed:
            assert not self._closing, "put after close"
            self._waiting = state
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Waits until the queued state is on disk, or has failed. Returns whether that was within ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting is None and not self._busy, timeout_s)

    def close(self, timeout_s: float) -> None:
        """Waits for states that are being saved or wait, at most ``timeout_s``. A second call returns at once."""
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
        """Waits for the next state to save, and returns it; None once closed and nothing waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closing)
            state, self._waiting = self._waiting, None
            self._busy = state is not None
            return state

    def _done(self, version: int | None) -> None:
        """Records the end of a save. ``version``: the version saved; None: it failed."""
        with self._changed:
            if version is None:
                self.failures += 1
            else:
                self.saved = version
            self._busy = False
            self._changed.notify_all()
