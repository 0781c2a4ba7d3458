"""What is fuzzed: one file for each parser."""

from __future__ import annotations

import importlib
import random
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, cast

from tests.fuzz.inputs import Input

TARGETS = {
    "wire": "tests.fuzz.targets.wire:Wire",
    "shards": "tests.fuzz.targets.shards:Shards",
    "model": "tests.fuzz.targets.model:Model",
    "checkpoint": "tests.fuzz.targets.checkpoint:Checkpoint",
    "config": "tests.fuzz.targets.config:Toml",
    "bsnap": "tests.fuzz.targets.bsnap:Bsnap",
    "npz": "tests.fuzz.targets.npz:Npz",
    "pickles": "tests.fuzz.targets.pickles:Pickles",
    "archives": "tests.fuzz.targets.archives:Archives",
    "table": "tests.fuzz.targets.table:Table",
}


class Target:
    """A parser under test. What a target does not say, is as here."""

    name: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]  # whose lines are watched
    tokens: ClassVar[tuple[bytes, ...]] = ()  # words of the format
    repeatable: ClassVar[bool] = False  # whether parts of the same name may come twice
    structured: ClassVar[float] = 0.4  # share of changes that know the format
    constant_bytes: ClassVar[int] = 200_000
    bytes_per_byte: ClassVar[int] = 60  # Python's lists make 2 bytes of JSON, "[]", 88 bytes of memory

    def examples(self) -> Iterator[Input]:
        """What is well-formed."""
        raise NotImplementedError

    def run(self, given: Input) -> None:
        """Parses it, and looks at all that a reader would trust."""
        raise NotImplementedError

    def edited(self, given: Input, rng: random.Random) -> Input | None:
        """A change that knows the format; None: there is none to make."""
        return None

    def sealed(self, given: Input) -> Input:
        """With checksums and digests made right, so that what lies behind them is tried too."""
        return given


def target_of(name: str) -> Target:
    """One of TARGETS, or any by "module:Class"."""
    module, _, cls = TARGETS.get(name, name).partition(":")
    return cast(Target, getattr(importlib.import_module(module), cls)())


class Folder:
    """A folder in memory (or the next best) that holds the parts of an input; only what differs is written."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        self.path = Path(tempfile.mkdtemp(prefix="siafu-fuzz-", dir=shared if shared.is_dir() else None))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        self._there: dict[str, bytes] = {}

    def put(self, given: Input) -> Path:
        wanted = dict(given)
        for name in self._there.keys() - wanted.keys():
            (self.path / name).unlink()
        for name, content in wanted.items():
            if self._there.get(name) != content:
                file = self.path / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.unlink(missing_ok=True)  # a mapping of the old file goes on showing the old content
                file.write_bytes(content)
        self._there = wanted
        return self.path


def replaced(given: Input, name: str, content: bytes) -> Input:
    return tuple((its, content if its == name else old) for its, old in given)
