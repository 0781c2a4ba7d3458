"""The files of a run's directory: their names, contents and readers.

    config.toml      the settings (siafu.config, siafu.baseline)
    manifest.json    Manifest: what ran where, on which data
    metrics.jsonl    a line for each Record, written during the run
    result.json      Result: the output of the command with --json; written at the end

The JSON files are read as they are: a run of another version of siafu may lack keys. Reading a missing key raises a
ConfigError that names the file and the key (``Told``). Reading a file with a value of another type than declared here
raises one that names the file and the value.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypedDict, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from siafu.errors import ConfigError, Diverged

CONFIG, MANIFEST, METRICS, RESULT = "config.toml", "manifest.json", "metrics.jsonl", "result.json"
DIVERGED = "diverged.json"

Split = Literal["train", "val", "test"]
Scores = Mapping[str, float]  # of one split, by name (siafu.metrics)
Usage = Mapping[str, float]  # by name: totals of graph servers and workers (docs/report.md)

# --- metrics.jsonl ----------------------------------------------------------------------------------------------------


class Began(TypedDict, total=False):
    """Training starts, or is resumed."""

    event: Literal["start"]
    siafu: str  # version
    metric: str  # the metric of "acc" (siafu.metrics)
    setup_s: float  # seconds of the roles before training, which time_s leaves out
    epoch: int  # from which a run is resumed; absent in a new run
    method: str  # of a baseline
    ranks: int  # of a baseline


class _Epoch(TypedDict):
    event: Literal["epoch"]
    epoch: int  # from 1
    loss: float
    time_s: float  # since training began
    epoch_s: float
    ghost_bytes: int  # of rows between servers or ranks
    usd: float  # so far


class Epoch(_Epoch, total=False):
    """An epoch has ended."""

    staleness: list[int]  # intervals that read ghosts of 0, 1, ... epochs ago
    usage: Usage  # so far
    bytes: dict[str, int]  # of a baseline, by kind
    seconds: dict[str, float]  # of a baseline, by phase; mean of the ranks
    evaluation_s: float  # of a baseline, of its evaluations so far: time_s leaves them out


class BySplit(TypedDict):
    train: Scores | None  # None: nothing of the split is scored
    val: Scores | None
    test: Scores | None


class _Evaluation(BySplit):
    event: Literal["evaluation"]
    epoch: int  # optimiser steps that its weights had taken
    time_s: float


class Evaluation(_Evaluation, total=False):
    """An evaluation is judged."""

    evaluation_s: float  # of a baseline, of its evaluations so far: time_s leaves them out


class SkippedStep(TypedDict):
    """An optimiser step with NaN or infinity was left out."""

    event: Literal["skipped"]
    epoch: int
    where: str


class Restarted(TypedDict, total=False):
    """A member died, and the run resumed from ``version``."""

    reason: str
    version: int
    seconds: float  # until training resumed; absent if it never did


class Restart(Restarted):
    event: Literal["restart"]


class AtLimit(TypedDict):
    """A limit stops the run."""

    event: Literal["stop"]
    reason: str  # "budget" or "time"
    usd: float


Record = Began | Epoch | Evaluation | SkippedStep | Restart | AtLimit
_RECORDS: Mapping[str, Any] = {
    "start": Began,
    "epoch": Epoch,
    "evaluation": Evaluation,
    "skipped": SkippedStep,
    "restart": Restart,
    "stop": AtLimit,
}

# --- result.json ------------------------------------------------------------------------------------------------------


class Kept(TypedDict):
    """The epoch whose weights are model.safetensors, and why."""

    epoch: int
    why: str


class Outcome(TypedDict):
    """The results of evaluations. All are None if a limit stopped the run before the first one; all but
    ``final_scores`` are None if the best weights did not arrive."""

    test_acc: float | None
    val_acc: float | None
    val_loss: float | None
    best_epoch: int | None  # None also without validation vertices
    kept: Kept | None
    scores: BySplit | None  # of the kept weights
    final_scores: BySplit | None


class BillLine(TypedDict):
    part: str
    what: str
    quantity: float
    unit: str
    usd_per_unit: float
    as_of: str  # date of the price
    source: str
    usd: float


class Bill(TypedDict):
    """The cost of a run: ``siafu.pricing.cost.Cost``."""

    usd: float
    parts: Mapping[str, float]
    counted: str
    region: str
    as_of: str  # date of the oldest price
    items: Sequence[BillLine]
    amounts: Mapping[str, float]


class LaneUsage(TypedDict):
    """The tasks, bytes and seconds of training, or of evaluation, over all servers and workers."""

    tensor_tasks: float
    ghost_bytes: float
    compute_s: float


Lanes = Mapping[str, LaneUsage]  # "train", "eval"


CpuShare = Literal["real", "free"]  # lambda.cpu_share, decided

#: Keys of a result that only server runs have. In the functional form, because ``lambda`` is a keyword of Python.
_OfServers = TypedDict(
    "_OfServers",
    {
        "lambda": Usage,  # invocations, billed_ms, gb_s, relaunches, duplicates
        "lambda_cpu_share": "CpuShare | None",  # of environments that are not on AWS; None: there were none
        "usage": Usage,
        "usage_complete": bool,  # whether every server has reported the whole cost of its workers
        "lanes": Lanes,
        "resumed_from": "int | None",  # version
        "stash_peak_versions": int,
        "skipped_steps": int,
        "processors": "list[str]",
        "arithmetic": str,  # the arithmetic that decides the weights' bits (run_coordinator.reports)
        "restarts": "Sequence[Restarted]",
    },
    total=False,
)


class _OfBaselines(TypedDict, total=False):
    """Keys of a result that only baselines have, besides those that each method adds (its ``facts``)."""

    method: str
    ranks: int
    device: str  # a GPU's name, or "cpu"
    transport: str  # "nccl" or "gloo"
    evaluation_seconds: float  # during which training waited: train_seconds leaves them out
    seconds_per_epoch: dict[str, float]  # by phase
    bytes_per_epoch: dict[str, int]  # by kind
    warnings: Sequence[str]


class Trained(Outcome, _OfServers, _OfBaselines):
    """The result of a run as the trainer reports it."""

    epochs: int
    stopped: str  # why: "epochs", "target", "patience", or a limit: "budget", "time"
    train_seconds: float
    epoch_seconds_median: float  # without the first
    loss_history: list[float]
    bytes_per_link: list[list[int]]  # [from][to] an epoch
    ghost_bytes_per_epoch: int
    weights_digest: str
    metric: str  # the metric of "acc" (siafu.metrics)
    cost: Bill | None  # None: a baseline whose machine the config does not name


class OfGraph(TypedDict, total=False):
    """Keys of a result about the graph."""

    features: str  # made by siafu because the source has none: "random:F"
    notes: Sequence[str]  # how parts of the source were interpreted


class Result(Trained, OfGraph):
    """result.json."""

    run_dir: str


# --- manifest.json ----------------------------------------------------------------------------------------------------


class GraphCounts(TypedDict):
    name: str
    vertices: int
    edges: int
    features: int
    classes: int
    weights: bool  # whether edges have them; older runs do not say
    types: bool


class Manifest(TypedDict, total=False):
    siafu: str
    python: str
    numpy: str
    machine: str
    cores: int
    started: str  # ISO 8601
    resumed: list[str]
    config_digest: str
    shards: str  # path
    shards_digest: str
    data: Mapping[str, str]  # siafu.fingerprint
    seed: int
    graph: GraphCounts


# --- reading ----------------------------------------------------------------------------------------------------------


class Told(dict[str, Any]):
    """A JSON object of a file. A missing key is a fault of the file, so ``[key]`` raises ConfigError, not KeyError."""

    def __init__(self, found: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), where: str = "a record"):
        """``where``: the place of the object, for errors. Copies made by ``dataclasses.asdict`` have the default."""
        super().__init__(found)
        self._where = where  # file, and line

    def __missing__(self, key: str) -> Any:
        raise ConfigError(f"{self._where}: lacks {key!r}: damaged, or written by another version of siafu")


def records(run_dir: Path) -> list[Record]:
    """Reads the complete lines of metrics.jsonl; the run may still be going on. Raises: ConfigError naming file and
    line."""
    file = run_dir / METRICS
    return [read_record(line, f"{file}: line {number}") for number, line in enumerate(whole_lines(file), 1)]


def result(run_dir: Path) -> Result | None:
    """Reads result.json; None if the run is going on or was broken off. Raises: ConfigError for a file that is not
    valid."""
    return cast("Result | None", _json_object(run_dir / RESULT, Result))


def divergence(run_dir: Path) -> str:
    """Reads how the run diverged; "" if it did not. Raises: ConfigError for a file that is not valid."""
    found = _json_object(run_dir / DIVERGED)
    return "" if found is None else str(found.get("text", ""))


def manifest(run_dir: Path) -> Manifest:
    """Reads manifest.json; empty if there is none. Raises: ConfigError for a file that is not valid."""
    found = _json_object(run_dir / MANIFEST, Manifest)
    return cast(Manifest, Told({}, str(run_dir / MANIFEST)) if found is None else found)


def json_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects in a file's complete lines. Raises: ConfigError naming file and line."""
    for number, line in enumerate(whole_lines(file), 1):
        yield read_object(line, f"{file}: line {number}")


def whole_lines(file: Path) -> list[str]:
    """Reads a file's complete lines. Text after the last line break is left out: it is still being written, or its
    writer was stopped. Raises: ConfigError."""
    try:
        return file.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def last_lines(file: Path, nbytes: int) -> Iterator[dict[str, Any]]:
    """Yields the objects in the complete lines within the file's last ``nbytes``. Raises: ConfigError."""
    try:
        with file.open("rb") as opened:
            begin = max(0, opened.seek(0, os.SEEK_END) - nbytes)
            opened.seek(begin)
            data = opened.read()
    except OSError as error:
        raise _unreadable(file, error) from None
    whole = data.rpartition(b"\n")[0]
    for line in (whole.partition(b"\n")[2] if begin else whole).splitlines():
        yield read_object(line.decode(errors="replace"), f"{file}: a line")


class GrowingLines:
    """The growing metrics.jsonl of a run: gives each line once, when it is complete."""

    def __init__(self, run_dir: Path, *, from_end: bool = False):
        """``from_end``: skip the lines that exist already."""
        self._file, self._rest = run_dir / METRICS, b""
        there = self._file.stat() if from_end and self._file.is_file() else None
        # All mutable state:
        self._at, self._inode = (there.st_size, there.st_ino) if there else (0, 0)
        self.began_anew = False  # the file was replaced before the last ``new``: discard earlier records

    def new(self) -> list[Record]:
        """Returns the records that are new since the last call. Raises: ConfigError for a line that is not valid."""
        self.began_anew = False
        try:
            with self._file.open("rb") as file:
                now = os.fstat(file.fileno())
                if now.st_ino != self._inode or now.st_size < self._at:  # a resumed run cuts epochs to be repeated
                    self.began_anew = self._at > 0
                    self._at, self._rest, self._inode = 0, b"", now.st_ino
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        where = f"{self._file}: a line"
        return [read_record(line.decode(errors="replace"), where) for line in lines]


def read_record(line: str, where: str) -> Record:
    """Parses a line of metrics.jsonl. Accepts any JSON object with an unknown event. Raises: ConfigError."""
    found = read_object(line, where)
    _check(found, _RECORDS.get(str(found.get("event"))), where)
    return cast(Record, found)


def _json_object(file: Path, kind: Any = None) -> dict[str, Any] | None:
    """Reads a JSON object from a file; None if the file is missing. ``kind``: the TypedDict whose types its keys must
    have; None: any."""
    try:
        found = read_object(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None
    _check(found, kind, str(file))
    return found


#: Type -> JSON's name for its values.
_JSON_TYPES = {str: "a text", bool: "true or false", int: "a number", float: "a number", NoneType: "null"}


def _check(found: Mapping[str, Any], kind: Any, where: str) -> None:
    """Raises: ConfigError for the first value whose type is not that of ``kind``, a TypedDict."""
    if kind is not None and (wrong := _misfit(found, kind, "")) is not None:
        raise ConfigError(f"{where}: {wrong}: damaged, or written by another version of siafu")


def _misfit(value: Any, hint: Any, path: str) -> str | None:
    """Returns what is wrong with a value that is not of the type ``hint``; None if it fits. Any number fits int and
    float: JSON has no integers."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return None
    if origin in (Union, UnionType):
        of_each = [_misfit(value, one, path) for one in inner]
        return None if None in of_each else of_each[0]
    if origin is Literal:
        return _misfit(value, type(inner[0]), path)
    parts: Iterable[tuple[str, Any, Any]] = ()
    if is_typeddict(hint):
        wanted, fits = "an object", isinstance(value, dict)
        parts = ((key, value[key], one) for key, one in _hints(hint).items() if fits and key in value)
    elif origin in (dict, Mapping):
        wanted, fits = "an object", isinstance(value, dict)
        if fits and inner[1] is float and all(type(one) in (int, float) for one in value.values()):
            return None  # so that a line of metrics takes microseconds
        parts = ((key, one, inner[1]) for key, one in (value.items() if fits else ()))
    elif origin in (list, Sequence):
        wanted, fits = "a list", isinstance(value, list)
        parts = ((str(i), one, inner[0]) for i, one in enumerate(value if fits else ()))
    elif hint in (int, float):
        wanted, fits = _JSON_TYPES[hint], isinstance(value, int | float) and not isinstance(value, bool)
    else:
        wanted, fits = _JSON_TYPES[hint], isinstance(value, hint)
    if not fits:
        return f"{path} is {json.dumps(value)[:40]}, must be {wanted}"
    wrong = (_misfit(one, of, f"{path}.{key}" if path else key) for key, one, of in parts)
    return next((one for one in wrong if one is not None), None)


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def read_object(text: str, where: str) -> dict[str, Any]:
    """Parses a JSON object as a ``Told``. ``where``: its place, for errors. Raises: ConfigError if it is no JSON
    object."""
    try:
        found = json.loads(text, object_hook=lambda one: Told(one, where))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {f'no JSON: {error}' if text.strip() else 'is empty'}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: not a JSON object")
    return found


def _unreadable(file: Path, error: OSError | UnicodeDecodeError) -> ConfigError:
    return ConfigError(f"{file}: {error.strerror if isinstance(error, OSError) else error}")


# --- writing ----------------------------------------------------------------------------------------------------------


def write_result(run_dir: Path, result: Trained) -> None:
    write_whole(run_dir / RESULT, (json.dumps(result, indent=1) + "\n").encode())


def write_divergence(run_dir: Path, error: Diverged) -> None:
    """Writes how the run diverged. Raises: OSError."""
    write_whole(run_dir / DIVERGED, (json.dumps({"text": str(error)}) + "\n").encode())


def write_whole(file: Path, data: bytes) -> None:
    """Writes a file completely or not at all: after a crash, a full disk or a power cut the old file is still there.
    Raises: OSError."""
    with draft_of(file) as draft, open(draft, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def draft_of(file: Path) -> Iterator[Path]:
    """Yields the path of a draft that replaces ``file`` at the end of the block. After an exception the draft is
    deleted and ``file`` unchanged. Raises: OSError."""
    # The name must be unique even among machines that share a disk; a name has 255 bytes at most.
    draft = file.with_name(f".{file.name[:40]}.{uuid.uuid4().hex}")
    try:
        yield draft
        os.replace(draft, file)
    finally:
        draft.unlink(missing_ok=True)
