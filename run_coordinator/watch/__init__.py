"""``siafu watch``: the contents of a browser page that shows runs live. Only reads files.

A run's process writes metrics.jsonl as epochs end, and twice a second what is under way (``live_status``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from run_coordinator import live_status, past_runs
from run_coordinator.curves import thinned
from run_coordinator.past_runs import PastRun
from run_coordinator.watch.newest_tasks import Timeline, timeline
from siafu.errors import ConfigError
from siafu.metrics import SPLITS, TITLES
from siafu.run_files import CONFIG, MANIFEST, RESULT, GrowingLines, Record, Usage
from siafu.tasks import TENSOR_KINDS, Kind

#: Steps of training, as they stand in ``usage``: what servers do, and what Lambdas (or threads in their place) do.
STEPS = {"server": [kind for kind in Kind if kind not in TENSOR_KINDS], "tensor": list(TENSOR_KINDS)}


class Line(TypedDict):
    """A run in the list of runs."""

    name: str  # its directory, from the folder that is watched
    graph: str
    model: str
    state: str
    epochs: int
    asked: int  # epochs at most
    val: float | None
    test: float | None


class Page(TypedDict):
    """A run, as its page shows it."""

    line: Line
    metric: str
    started: str
    seconds: float | None
    usd: float | None
    status: Mapping[str, Any]  # ``Status``; empty where nobody writes it
    loss: list[tuple[float, float]]  # (epoch, value), as the other curves
    scores: dict[str, list[tuple[float, float]]]  # by split
    epoch_ms: list[tuple[float, float]]
    ghost_mb: list[tuple[float, float]]
    steps: dict[str, list[tuple[float, float]]]  # ms an epoch of all servers and workers, by step: "GA", "AV", ...
    tensor_steps: list[str]  # which of these Lambdas do
    restarts: list[str]  # in words
    timeline: Timeline | None  # the newest tasks; None without a trace


class _Watched:
    """One run; reads only new records."""

    def __init__(self, run_dir: Path):
        self._dir, self._lines = run_dir, GrowingLines(run_dir)
        # All mutable state:
        self._records: list[Record] = []
        self._seen: list[int] = []
        self._run: PastRun | None = None

    def now(self) -> PastRun:
        """Raises: ConfigError for files that cannot be read."""
        new = self._lines.new()
        self._records = new if self._lines.began_anew else self._records + new
        seen = [_changed(self._dir / name) for name in (CONFIG, MANIFEST, RESULT)]
        if self._run is None or new or seen != self._seen or self._run.result is None:  # which may have died
            self._run, self._seen = past_runs.of(self._dir, self._records), seen
        return self._run


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


class Folder:
    """The runs in a folder, or a run's own directory."""

    def __init__(self, path: Path):
        self.path = path
        # All mutable state:
        self._watched: dict[Path, _Watched] = {}

    def runs(self) -> list[PastRun]:
        """Runs, the newest first; unreadable runs are left out unless all are. Raises: ConfigError for a missing
        folder, or if no run can be read."""
        there = past_runs.run_dirs(self.path)
        self._watched = {path: self._watched.get(path) or _Watched(path) for path in there}
        found: list[PastRun] = []
        unreadable: list[ConfigError] = []
        for one in self._watched.values():
            try:
                found.append(one.now())
            except ConfigError as error:
                unreadable.append(error)
        if unreadable and not found:
            raise unreadable[0]
        return sorted(found, key=lambda run: run.started, reverse=True)

    def lines(self) -> list[Line]:
        """Raises: ConfigError also where there is no run."""
        if not (found := self.runs()):
            raise ConfigError(f"{self.path}: no run in it")
        return [line_of(run, self.path) for run in found]

    def page(self, name: str) -> Page:
        """The page of a run. ``name``: as in ``Line``. Raises: ConfigError if there is no such run."""
        run = next((run for run in self.runs() if line_of(run, self.path)["name"] == name), None)
        if run is None:
            raise ConfigError(f"{name}: no run in {self.path}")
        return page_of(run, self.path)


def line_of(run: PastRun, folder: Path) -> Line:
    return {
        "name": run.dir.relative_to(folder).as_posix(),
        "graph": run.graph,
        "model": run.model,
        "state": run.state,
        "epochs": run.epochs,
        "asked": run.config.train.epochs,
        "val": run.score("val"),
        "test": run.score("test"),
    }


def page_of(run: PastRun, folder: Path) -> Page:
    epochs = [record for record in run.records if record["event"] == "epoch"]
    evaluations = [record for record in run.records if record["event"] == "evaluation"]
    scores = {
        split: thinned([(record["epoch"], found["acc"]) for record in evaluations if (found := record[split])])
        for split in SPLITS
    }
    restarts = [record for record in run.records if record["event"] == "restart"]
    return {
        "line": line_of(run, folder),
        "metric": TITLES.get(run.metric or "", "score"),
        "started": run.started,
        "seconds": run.seconds,
        "usd": run.usd,
        "status": live_status.read(run.dir) if run.state == "running" else {},
        "loss": thinned([(record["epoch"], record["loss"]) for record in epochs]),
        "scores": {split: points for split, points in scores.items() if points},
        "epoch_ms": thinned([(record["epoch"], 1000 * record["epoch_s"]) for record in epochs]),
        "ghost_mb": thinned([(record["epoch"], record["ghost_bytes"] / 1e6) for record in epochs]),
        "steps": steps([(record["epoch"], record.get("usage", {})) for record in epochs]),
        "tensor_steps": [kind.name for kind in STEPS["tensor"]],
        "timeline": timeline(run.dir, run.epoch_s),
        "restarts": [f"went on from epoch {one['version']}: {one['reason']}" for one in restarts],
    }


def steps(usages: Sequence[tuple[int, Usage]]) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of each kind of step in each epoch, of all servers and workers, from totals so far; without those
    that take none."""
    found: dict[str, list[tuple[float, float]]] = {}
    for kind in [*STEPS["server"], *STEPS["tensor"]]:
        totals = [usage.get(f"{kind.name}_s", 0.0) for _, usage in usages]
        if any(totals):
            spent = [after - before for before, after in zip([0.0, *totals], totals, strict=False)]
            points = [(epoch, 1000 * max(0.0, s)) for (epoch, _), s in zip(usages, spent, strict=True)]
            found[kind.name] = thinned(points)
    return found
