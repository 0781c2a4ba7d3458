"""``siafu.runs``: describes runs from their directories, finished or not; many seeds, or a search, count as one."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypedDict

from run_coordinator import run_directory, tables
from run_coordinator.repeat import PLAN, Spread, plus_minus, spread
from siafu import baseline, run_files
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.metrics import SPLITS
from siafu.progress import dollars, duration, written
from siafu.run_files import CONFIG, METRICS, Record, Result, Split

logger = logging.getLogger(__name__)

#: finished: all epochs, the target, or patience; at its limit: of money or time; running: by a process of this machine;
#: diverged: its loss, or a gradient, became NaN or infinite; broken off: killed, crashed, or run elsewhere and not
#: fetched: siafu resume, or attach, goes on
State = Literal["finished", "at its limit", "running", "diverged", "broken off"]

#: Of a table of runs.
COLUMNS = ("run", "date", "where", "graph", "model", "state", "epochs", "validation", "test", "time", "cost")


class Told(TypedDict):
    """A run, as ``siafu runs --json`` prints it."""

    dir: str
    started: str
    graph: str
    model: str
    on: str
    state: State
    epochs: int
    metric: str | None
    train_acc: float | None
    val_acc: float | None
    test_acc: float | None
    train_seconds: float | None
    usd: float | None


@dataclass(frozen=True, repr=False)
class PastRun:
    """A run, finished or not, read from its directory. Functions that take a run's directory take a ``PastRun`` too."""

    dir: Path
    config: Config
    started: str  # ISO 8601; "": not known
    graph: str
    state: State
    records: Sequence[Record]
    result: Result | None  # None: it has not come to its end

    def __fspath__(self) -> str:
        return str(self.dir)

    @property
    def model(self) -> str:
        """Model and mode; of a baseline, model and method."""
        config = self.config
        method = config.baseline.method if isinstance(config, BaselineConfig) else config.train.mode
        return f"{config.model.name} {method}"

    @property
    def epochs(self) -> int:
        return sum(record["event"] == "epoch" for record in self.records)

    @property
    def seconds(self) -> float | None:
        """Seconds of training."""
        if self.result is not None:
            return self.result["train_seconds"]
        times = [record["time_s"] for record in self.records if record["event"] == "epoch"]
        return times[-1] if times else None

    @property
    def epoch_s(self) -> float | None:
        """The median epoch time, without the first epoch."""
        if self.result is not None:
            return self.result["epoch_seconds_median"] or None
        times = [record["epoch_s"] for record in self.records if record["event"] == "epoch"]
        return median(times[1:] or times) if times else None

    @property
    def usd(self) -> float | None:
        if self.result is not None:
            return self.result["cost"]["usd"] if self.result["cost"] else None
        spent = [record["usd"] for record in self.records if record["event"] == "epoch"]
        return spent[-1] if spent else None

    @property
    def metric(self) -> str | None:
        if self.result is not None:
            return self.result["metric"]
        return next((record.get("metric") for record in self.records if record["event"] == "start"), None)

    def score(self, split: Split) -> float | None:
        """The score of the weights that the run has kept; of an unfinished run, of its last evaluation."""
        if self.result is not None:
            found = self.result["scores"]
        else:
            found = next((record for record in reversed(self.records) if record["event"] == "evaluation"), None)
        scores = found[split] if found else None
        return scores["acc"] if scores else None

    @property
    def runs(self) -> Sequence[PastRun]:
        """The run itself, so that a loop need not tell it from ``Trials``."""
        return (self,)

    def __repr__(self) -> str:
        scores = [f"{split} {written(score)}" for split in SPLITS[1:] if (score := self.score(split)) is not None]
        return f"PastRun({', '.join([str(self.dir), self.state, *scores])})"

    def cells(self, folder: Path) -> dict[str, str]:
        """The run's row in a table of the runs in ``folder``."""
        return {
            "run": str(self.dir.relative_to(folder)),
            "date": date_of(self.started),
            "where": self.config.run.on,
            "graph": self.graph,
            "model": self.model,
            "state": self.state,
            "epochs": str(self.epochs),
            "validation": written(self.score("val")),
            "test": written(self.score("test")),
            "time": time_of(self.seconds),
            "cost": money_of(self.usd),
        }

    def to_dict(self) -> Told:
        """The run as ``siafu runs --json`` prints it."""
        return {
            "dir": str(self.dir),
            "started": self.started,
            "graph": self.graph,
            "model": self.model,
            "on": self.config.run.on,
            "state": self.state,
            "epochs": self.epochs,
            "metric": self.metric,
            "train_acc": self.score("train"),
            "val_acc": self.score("val"),
            "test_acc": self.score("test"),
            "train_seconds": self.seconds,
            "usd": self.usd,
        }


@dataclass(frozen=True, repr=False)
class Trials:
    """Runs of one call of ``--runs K``, ``siafu search`` or ``siafu value``."""

    dir: Path
    what: str  # "seeds", "search", "value"
    runs: Sequence[PastRun]

    @property
    def of_seeds(self) -> bool:
        """Whether the runs differ by their seeds alone: then their mean is meaningful."""
        return self.what == "seeds"

    def spread(self, split: Split) -> Spread | None:
        """Mean and deviation of the finished runs' scores."""
        return spread([run.score(split) for run in self.runs if run.state == "finished"])

    def __repr__(self) -> str:
        return f"Trials({self.dir}, {self.what}, {len(self.runs)} runs)"

    def cells(self, folder: Path) -> dict[str, str]:
        """The row of all runs in a table. Times and costs are sums; scores are means if the runs differ by their seeds
        alone."""
        finished = sum(run.state == "finished" for run in self.runs)
        seconds = [run.seconds for run in self.runs if run.seconds is not None]
        usd = [run.usd for run in self.runs if run.usd is not None]
        return {
            "run": str(self.dir.relative_to(folder)),
            "date": date_of(_started(self)),
            "where": ", ".join({run.config.run.on: 0 for run in self.runs}),
            "graph": ", ".join({run.graph: 0 for run in self.runs}),
            "model": ", ".join({run.model: 0 for run in self.runs}),
            "state": f"{finished} finished" if finished == len(self.runs) else f"{finished} of {len(self.runs)}",
            "epochs": str(sum(run.epochs for run in self.runs)),
            "validation": self._mean("val"),
            "test": self._mean("test"),
            "time": time_of(sum(seconds) if seconds else None),
            "cost": money_of(sum(usd) if usd else None),
        }

    def _mean(self, split: Split) -> str:
        found = self.spread(split) if self.of_seeds else None
        return plus_minus(found, 3) if found else "–"

    def to_dict(self) -> dict[str, object]:
        """The runs as ``siafu runs --json`` prints them."""
        return {"dir": str(self.dir), "what": self.what, "runs": [run.to_dict() for run in self.runs]}


class PastRuns(tuple[PastRun | Trials, ...]):
    """The runs in a folder, the newest last: a tuple of ``PastRun`` and, for runs of one call, ``Trials``."""

    folder: Path

    @classmethod
    def of(cls, folder: Path, found: Iterable[PastRun | Trials]) -> PastRuns:
        made = cls(found)
        made.folder = folder
        return made

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each run, also for each of ``Trials``: what ``siafu runs --json`` says
        of it, ``of`` (the directory of its ``Trials``, "" for a run alone), then every setting by its name
        ("train.lr"). Raises: ConfigError without pandas."""
        rows = [
            {**run.to_dict(), "of": str(one.dir) if isinstance(one, Trials) else "", **run.config.flat()}
            for one in self
            for run in one.runs
        ]
        return tables.frame(rows, [*Told.__annotations__, "of", *Config().flat()] if not rows else None)

    def __repr__(self) -> str:
        return f"PastRuns({sum(len(one.runs) for one in self)} runs in {self.folder})"

    def _repr_html_(self) -> str:
        """The table of ``siafu runs`` that a notebook shows, the newest first."""
        rows = [one.cells(self.folder) for one in reversed(self)]
        head = columns_of(rows)
        return tables.as_html(repr(self), head, [[row[name] for name in head] for row in rows])


def runs(folder: str | os.PathLike[str] = "runs") -> PastRuns:
    """All runs in a folder, the newest last. A notebook shows their table.

        >>> siafu.runs().to_pandas().sort_values("val_acc")

    A run whose files cannot be read (damaged, of another siafu, removed meanwhile) is left out, with a warning. Raises:
    ConfigError for a folder that is not there.
    """
    path = Path(folder)
    found = []
    for entry in sorted(_entries(path)):
        try:
            found += [read(entry)] if _is_run(entry) or _is_many(entry) else []
        except ConfigError as error:
            logger.warning("%s: left out: %s", entry, error)
    return PastRuns.of(path, sorted(found, key=_started))


def read(path: Path) -> PastRun | Trials:
    """A run directory, or that of many. Raises: ConfigError if it is neither, or cannot be read."""
    if _is_run(path):
        return _run(path)
    if not _is_many(path):
        raise ConfigError(f"{path}: not a run directory: it has neither {CONFIG} nor {PLAN}")
    inside = [_run(entry) for entry in run_dirs(path)]
    return Trials(path, str(_plan(path).get("what", "")), inside)


def run_dirs(folder: Path) -> list[Path]:
    """Directories of all runs in a folder, including trials; of a run's own directory, itself. Raises: ConfigError."""
    if _is_run(folder):
        return [folder]
    found: list[Path] = []
    for path in sorted(_entries(folder)):
        found += run_dirs(path) if _is_run(path) or _is_many(path) else []
    return found


def _entries(folder: Path) -> Iterator[Path]:
    try:
        return iter(list(folder.iterdir()))
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}; name the folder that holds your runs") from None


def _is_run(path: Path) -> bool:
    """Whether the folder is a run that we may read: a run's directory is its owner's alone."""
    return os.path.isfile(path / CONFIG)


def _is_many(path: Path) -> bool:
    return os.path.isfile(path / PLAN)


def _plan(folder: Path) -> Mapping[str, Any]:
    try:
        found = json.loads((folder / PLAN).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / PLAN}: {error}") from None
    return found if isinstance(found, dict) else {}


def _run(path: Path) -> PastRun:
    return of(path, run_files.records(path) if (path / METRICS).is_file() else [])


def of(path: Path, records: Sequence[Record]) -> PastRun:
    """The run in a directory. ``records``: the records of its metrics.jsonl. Raises: ConfigError."""
    config, manifest, result = baseline.load(path / CONFIG), run_files.manifest(path), run_files.result(path)
    graph = manifest["graph"]["name"] if "graph" in manifest else config.data.source
    found = PastRun(path, config, str(manifest.get("started", "")), graph, _state(path, result), records, result)
    found.to_dict()  # reads all that a table shows
    return found


def _state(path: Path, result: Result | None) -> State:
    if result is not None:
        return "at its limit" if result["stopped"] in ("budget", "time") else "finished"
    if run_directory.is_under_way(path):
        return "running"
    return "diverged" if run_files.divergence(path) else "broken off"


def _started(one: PastRun | Trials) -> str:
    return max((run.started for run in one.runs), default="")


def columns_of(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The table's columns; "where" only if a run was not local."""
    is_local = all(row["where"] in ("local", "") for row in rows)
    return [name for name in COLUMNS if not (name == "where" and is_local)]


def date_of(started: str) -> str:
    """ISO 8601, to the minute: "2026-11-26 19:00"."""
    return started[:16].replace("T", " ") or "–"


def time_of(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


def money_of(usd: float | None) -> str:
    return dollars(usd) if usd else "–"
