"""What training goes on from, on disk: a folder for each saved version, whole or not there, and a thread that writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from siafu.models import ModelSpec
from siafu.sparse import Array


@dataclass(frozen=True)
class TrainingState:
    """All that a run goes on from (docs/recovery.md says why that is all)."""

    version: int  # optimiser steps taken; training goes on with epoch ``version``
    weights: Mapping[int, Mapping[str, Array]]  # by version: ``version``, the best one, those still to be evaluated
    optimiser: Mapping[str, Array]  # as ``Optimiser.state``
    ledger: Mapping[str, Any]  # JSON: what the coordinator knows of the epochs before


class Mirror(Protocol):
    """Somewhere else that checkpoints are copied to. Every method raises GnnError where the other side does not do it."""

    def versions(self) -> Sequence[int]:
        """Those that are there whole, ascending."""

    def upload(self, folder: Path, version: int) -> None:
        """Copies a checkpoint, its manifest last."""

    def fetch(self, version: int, folder: Path) -> None:
        """Brings its files to ``folder``, which exists."""

    def remove(self, version: int) -> None:
        """Its manifest first."""


class Store:
    """The checkpoints of one run in ``folder``, the ``keep`` newest of them, and their copies elsewhere.

    One thread at a time may use it.
    """

    def __init__(self, folder: Path, spec: ModelSpec, config_digest: str, keep: int, mirror: Mirror | None = None):
        raise NotImplementedError

    def save(self, state: TrainingState) -> Path:
        """Saves it whole or not at all; returns its folder. Raises: DatasetError if it cannot be written."""
        raise NotImplementedError

    def newest(self) -> TrainingState | None:
        """The newest whole one; damaged ones are passed over with a logged word. None: there is none."""
        raise NotImplementedError


def load(path: Path) -> TrainingState:
    """One folder. Raises: DatasetError naming the file that is altered, truncated or missing."""
    raise NotImplementedError


def mirror_of(url: str) -> Mirror | None:
    """What ``run.checkpoint_to`` names; None for nothing. Raises: ConfigError if it needs what is not installed."""
    raise NotImplementedError


class Saver:
    """A thread that saves: training never waits for a disk. Use in a ``with`` block, or call ``close``."""

    def __init__(self, store: Store):
        self.saved: int | None = None  # newest version on disk
        self.failures = 0  # each one is a logged warning; the run goes on, older checkpoints stay
        raise NotImplementedError

    def put(self, state: TrainingState) -> None:
        """Has it saved. If one is waiting still, this one takes its place. Its arrays must not change any more."""

    def close(self, timeout_s: float) -> None:
        """Waits for what is under way and waiting, but no longer than that."""

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(60.0)
