"""The state from which training resumes, as a folder of files.

    epoch-0042/                   after 42 optimiser steps; readable by its owner alone
        model.safetensors         weights of version 42, as of a finished run: --warm-start takes the folder
        versions.safetensors      "VERSION/NAME": the best weights so far, and those still to be evaluated
        optimiser.safetensors     Optimiser.state
        ledger.json               the coordinator's records of earlier epochs
        manifest.json             bytes and sha256 of each file, and a digest of itself: written last

Every file is checked against the manifest before it is used; errors name the file. Each file is synced before the next
is written. ``siafu.checkpoints`` keeps the checkpoints of a run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

from siafu import __version__
from siafu.errors import DatasetError
from siafu.faultpoints import reach
from siafu.fingerprint import Fingerprint
from siafu.model_file import packed, packed_model, unpacked
from siafu.models import ModelSpec
from siafu.run_files import Evaluation
from siafu.sparse import Array

FORMAT, FORMAT_VERSION = "siafu-checkpoint", 2
MODEL, VERSIONS, OPTIMISER = "model.safetensors", "versions.safetensors", "optimiser.safetensors"
LEDGER, MANIFEST = "ledger.json", "manifest.json"
FILES = (MODEL, VERSIONS, OPTIMISER, LEDGER)  # beside the manifest
MAX_MANIFEST_BYTES = 1 << 20


class Verdicts(TypedDict):
    """The records of evaluations so far."""

    best: Evaluation | None
    final: Evaluation | None
    judged: int  # the epoch of the last one judged; -1: none
    stopping: list[Any]  # of siafu.stopping


class LedgerState(Verdicts):
    """ledger.json: the coordinator's records of the epochs before ``version``, and the time and cost spent."""

    losses: list[float]
    epoch_seconds: list[float]
    usage: dict[str, dict[str, float]]  # graph server -> totals
    seconds: float  # of training
    role_seconds: float  # for which roles ran
    skipped: dict[str, str]  # epoch whose step was left out -> the source of NaN or infinity


@dataclass(frozen=True)
class TrainingState:
    """The complete state from which a run can resume (docs/recovery.md explains why it is complete)."""

    version: int  # optimiser steps taken; training resumes with epoch ``version``
    weights: Mapping[int, Mapping[str, Array]]  # by version: ``version``, the best one, those still to be evaluated
    optimiser: Mapping[str, Array]  # ``Optimiser.state``
    ledger: LedgerState


@dataclass(frozen=True)
class FileEntry:
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint."""

    siafu: str  # the version that wrote it
    version: int
    versions: tuple[int, ...]  # versions of weights in it
    model: Mapping[str, Any]  # fields of ModelSpec
    config: str  # digest of the run's config
    data: Mapping[str, str]  # fingerprint of the training data (siafu.fingerprint)
    files: Mapping[str, FileEntry]

    def to_json(self) -> str:
        body = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        return json.dumps({**body, "digest": _digest(body)}, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads the manifest of a checkpoint's folder. Raises: DatasetError if it is missing, altered or of another
        version."""
        file = path / MANIFEST
        try:
            if (nbytes := file.stat().st_size) > MAX_MANIFEST_BYTES:
                raise DatasetError(f"{file}: {nbytes} bytes, must be at most {MAX_MANIFEST_BYTES}")
            raw = json.loads(file.read_bytes())
            said = raw.pop("digest")
            found = raw["format"], raw["format_version"]
        except OSError as error:
            raise DatasetError(f"{file}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise DatasetError(f"{file}: not the manifest of a checkpoint") from None
        if found != (FORMAT, FORMAT_VERSION):
            raise DatasetError(
                f"{file}: {found[0]!r} {found[1]!r}, must be {FORMAT!r} {FORMAT_VERSION}: another siafu wrote it"
            )
        if said != _digest(raw):
            raise DatasetError(f"{file}: its digest is not that of its content: it was altered")
        try:
            files = {name: FileEntry(**raw["files"][name]) for name in FILES}
            return cls(
                raw["siafu"],
                int(raw["version"]),
                tuple(map(int, raw["versions"])),
                raw["model"],
                raw["config"],
                dict(raw["data"]),
                files,
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise DatasetError(f"{file}: fields are missing or malformed") from None


def load(path: Path) -> TrainingState:
    """Loads a checkpoint's folder. Raises: DatasetError naming the file that is altered, truncated or missing."""
    manifest = Manifest.read(path)
    files = {name: _read(path / name, entry) for name, entry in manifest.files.items()}

    def tensors(name: str) -> dict[str, Array]:
        try:
            return unpacked(files[name])
        except DatasetError as error:
            raise DatasetError(f"{path / name}: {error}") from error

    weights = {manifest.version: tensors(MODEL)}
    for key, W in tensors(VERSIONS).items():
        version, _, name = key.partition("/")
        if not version.isdecimal():
            raise DatasetError(f"{path / VERSIONS}: {key!r} is not VERSION/NAME")
        weights.setdefault(int(version), {})[name] = W
    if sorted(weights) != sorted(manifest.versions):
        raise DatasetError(f"{path}: weights of versions {sorted(weights)}, must be of {sorted(manifest.versions)}")
    try:
        ledger = json.loads(files[LEDGER])
    except (ValueError, RecursionError):
        ledger = None
    if not isinstance(ledger, dict):
        raise DatasetError(f"{path / LEDGER}: not a JSON object")
    return TrainingState(manifest.version, weights, tensors(OPTIMISER), cast(LedgerState, ledger))


def write(folder: Path, state: TrainingState, spec: ModelSpec, config_digest: str, data: Fingerprint) -> None:
    """Writes a checkpoint into an empty folder, which is synced too. ``data``: the fingerprint of the training data.
    Raises: OSError."""
    files = {name: _write(folder / name, content) for name, content in _contents(state, spec, data)}
    versions = tuple(sorted(state.weights))
    manifest = Manifest(__version__, state.version, versions, asdict(spec), config_digest, dict(data), files)
    _write(folder / MANIFEST, manifest.to_json().encode())
    sync_folder(folder)


def _contents(state: TrainingState, spec: ModelSpec, data: Fingerprint) -> Iterator[tuple[str, bytes]]:
    """Yields (name, content) of each file, so that only one is in memory at a time."""
    others = {
        f"{version}/{name}": W
        for version, weights in sorted(state.weights.items())
        if version != state.version
        for name, W in weights.items()
    }
    yield (
        MODEL,
        packed_model(state.weights[state.version], spec, {"epoch": state.version, "data": json.dumps(dict(data))}),
    )
    yield VERSIONS, packed(others)
    yield OPTIMISER, packed(state.optimiser)
    yield LEDGER, json.dumps(state.ledger).encode()


def _write(file: Path, data: bytes) -> FileEntry:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        half = len(data) // 2
        stream.write(memoryview(data)[:half])
        stream.flush()
        reach(f"checkpoint/{file.name}-torn")
        stream.write(memoryview(data)[half:])
        stream.flush()
        os.fsync(stream.fileno())
    reach(f"checkpoint/{file.name}-synced")
    return FileEntry(len(data), hashlib.sha256(data).hexdigest())


def _read(file: Path, entry: FileEntry) -> bytes:
    try:
        if (nbytes := file.stat().st_size) != entry.bytes:  # before it is in memory
            raise DatasetError(f"{file}: {nbytes} bytes, must be {entry.bytes}")
        data = file.read_bytes()
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise DatasetError(f"{file}: its SHA-256 is not the manifest's: it was altered")
    return data


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
