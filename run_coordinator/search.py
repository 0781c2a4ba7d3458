"""``siafu search`` and ``siafu.search``: train with each setting of a space, and rank them by validation score.

The test score is shown, and never used to choose. Points are trials of ``run_coordinator.repeat``, and follow its
rules: after an interruption the same call continues. ``--max-time`` and ``--budget`` limit the whole search. A point
that diverges ranks last.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from run_coordinator import keywords, prepared, repeat, run_config, search_space, tables
from run_coordinator.epoch_calls import OnEpoch
from run_coordinator.repeat import Done, Spread, Summary, Watch, in_a_cell
from run_coordinator.run import Run
from siafu.config import Config, Data
from siafu.errors import ConfigError
from siafu.metrics import TITLES
from siafu.shards import ShardSet

LINES, SUMMARY = "search.jsonl", "search.json"
LONGEST_NAME = 80


@dataclass(frozen=True)
class Point:
    """One setting of the space, and the scores of its runs."""

    settings: Mapping[str, Any]
    runs: tuple[Run, ...]
    summary: Summary = field(repr=False)
    diverged: str = ""  # why, if a run did

    @property
    def val_acc(self) -> float:
        """Mean over the runs; below every score if one diverged."""
        found = self.summary["val_acc"]
        return float("-inf") if self.diverged or found is None else found["mean"]

    def cells(self) -> list[str]:
        """The point's row below ``Search.headings``."""
        values = [search_space.written(value) for value in self.settings.values()]
        if self.diverged:
            return [*values, "diverged", "", "", ""]
        found = self.summary
        columns = (found["val_acc"], 4), (found["test_acc"], 4), (found["epochs"], 0), (found["train_seconds"], 1)
        return [*values, *(_cell(spread, digits) for spread, digits in columns)]


@dataclass(frozen=True, repr=False)
class Search:
    """Every finished point, best first, and the directory of all runs. A notebook shows their table."""

    dir: Path
    points: tuple[Point, ...]
    num_asked: int  # points that the search would have if nothing stopped it
    metric: str

    @property
    def complete(self) -> bool:
        return len(self.points) == self.num_asked

    @property
    def best(self) -> Point:
        """The point with the best validation score, the earlier of equals. Raises: ConfigError if no point has
        finished, or all diverged."""
        if not self.has_best:
            why = "all points diverged" if self.points else "no point has finished"
            raise ConfigError(f"{self.dir}: {why}: there is no best one")
        return self.points[0]

    @property
    def best_settings(self) -> dict[str, Any]:
        """The best point's settings, for ``siafu.train(..., settings=...)``. Raises: as ``best``."""
        return dict(self.best.settings)

    @property
    def has_best(self) -> bool:
        """Whether a point has finished without diverging."""
        return bool(self.points) and not self.points[0].diverged

    def headings(self) -> list[str]:
        """The headings of a table of the points."""
        keys = list(self.points[0].settings) if self.points else []
        return [*keys, f"validation {TITLES[self.metric]}", "test", "epochs", "seconds"]

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that ``siafu search --json`` prints."""
        points = [
            {"settings": dict(point.settings), "diverged": point.diverged, **point.summary} for point in self.points
        ]
        return {
            "best": self.best_settings if self.has_best else None,
            "metric": self.metric,
            "points": points,
            "asked": self.num_asked,
            "run_dir": str(self.dir),
        }

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each point, best first. Its columns: the settings by their names
        ("train.lr"); over the point's runs the means val_acc, test_acc, epochs and train_seconds, the deviations
        val_acc_std and test_acc_std, and the sum usd; runs (how many); diverged (why, "" if none did).
        Raises: ConfigError without pandas."""
        rows = [{**point.settings, **_in_numbers(point)} for point in self.points]
        return tables.frame(rows, None if rows else list(_Numbers.__annotations__))

    def __repr__(self) -> str:
        best = f", best {name_of(self.best.settings)}: val {self.best.val_acc:.4f}" if self.has_best else ""
        return f"Search({len(self.points)} of {self.num_asked} points{best}, {self.dir})"

    def _repr_html_(self) -> str:
        """The table of ``siafu search``, as a notebook shows it."""
        rows = [point.cells() for point in self.points]
        return tables.as_html(repr(self), self.headings(), rows)


@keywords.spelled_out(tuple(run_config.SHORT), tables=True)
def search(
    source: Any = ...,
    over: Mapping[str, Any] | None = None,
    *,
    random: int = 0,
    seed: int = 0,
    runs: int = 1,
    jobs: int = 1,
    config: Config | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    watch: Watch = in_a_cell,
    on_done: Callable[[Done], None] = lambda done: None,
    on_epoch: OnEpoch | None = None,
    **short: Any,
) -> Search:
    """Trains with every combination of ``over``, or ``random`` draws of it; returns the
    points, best validation score first.

    over: name of a flag or "section.key" -> values to try, or a range such as "1e-4..1e-1:log" to draw from
    (``run_coordinator.search_space``). seed: of the draws. runs: seeds per point; points are ranked by their mean.
    jobs: runs to train at the same time. watch, on_done, on_epoch: as in ``siafu.repeat``. The other arguments are
    those of ``siafu.train``, for all points.

        >>> found = siafu.search("cora", {"lr": [0.01, 0.005], "hidden": [16, 32]}, runs=3)
        >>> found.best_settings, found.best.val_acc

    Raises: ConfigError for a point that is not possible, before anything is trained; else as ``siafu.train``.
    """
    if runs < 1 or jobs < 1 or random < 0:
        raise ConfigError(f"runs = {runs}, jobs = {jobs}, random = {random}: must be >= 1, random >= 0")
    parsed = search_space.parse(over or {}, run_config.keys_said(settings or {}, short))
    base, in_memory = repeat.asked(source, config, settings, short, preset)
    points = search_space.points(parsed, random, seed)
    known: dict[Data, ShardSet] = {}
    trials = {
        name_of(point): repeat.seeds_of(_checked(base, point, known, in_memory), runs, name=f"{name_of(point)},")
        for point in points
    }
    if in_memory is not None:
        base = base.replace({"data.source": next(iter(trials.values()))[0].config.data.source})
    graphs = sorted({json.dumps(shards.manifest.fingerprint, sort_keys=True) for shards in known.values()})
    plan = {"over": {key: str(values) for key, values in parsed.items()}, "seed": seed, "graphs": graphs}
    folder = repeat.folder_of(base, "search", plan)
    place = {trial.name: number for number, same in enumerate(trials.values()) for trial in same}
    done: list[list[Done]] = [[] for _ in points]
    everything = [trial for same in trials.values() for trial in same]
    outcomes = repeat.carry_out(everything, folder, base, jobs=jobs, watch=watch, may_diverge=True, on_epoch=on_epoch)
    with contextlib.closing(outcomes):
        for one in outcomes:
            is_first = not any(done)  # what is known already is said again, in the order of the trials
            done[place[one.trial.name]].append(one)
            _note(folder / LINES, points[place[one.trial.name]], one, anew=is_first)
            on_done(one)
    finished = [
        _point(folder, point, its)
        for point, its in zip(points, done, strict=True)
        if len(its) == runs or any(one.result is None for one in its)
    ]
    ranked = tuple(sorted(finished, key=lambda point: -point.val_acc))
    metric = next((str(point.summary["metric"]) for point in ranked if point.summary["metric"]), "accuracy")
    found = Search(folder, ranked, len(points), metric)
    (folder / SUMMARY).write_text(json.dumps(found.to_dict(), indent=1) + "\n")
    return found


def name_of(point: Mapping[str, Any]) -> str:
    """A readable directory name: "model.hidden=16,train.lr=0.01"; a long one ends with a digest instead."""
    name = ",".join(f"{key}={search_space.written(value)}" for key, value in point.items())
    name = re.sub(r"[^A-Za-z0-9.=,+-]+", "-", name)
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _checked(base: Config, point: Mapping[str, Any], known: dict[Data, ShardSet], in_memory: Any) -> Config:
    """The point's config; for a graph in memory, with its shards as source. ConfigError, naming the point, for an
    impossible model or if there is no score to choose by."""
    try:
        config = base.replace(point)
        if config.data not in known:
            known[config.data] = ShardSet.open(prepared.shards_of(config, in_memory))
        shards = known[config.data]
        if in_memory is not None:
            config = config.replace({"data.source": str(shards.path)})
        prepared.built(prepared.fit(config, shards), shards)
    except ConfigError as error:
        raise ConfigError(f"search at {name_of(point)}: {error}") from None
    if not shards.manifest.num_validated(config.data.split):
        none = (
            "data.val_edges = 0: no edge"
            if config.data.task == "link"
            else f"data.split = {config.data.split}: no vertex"
        )
        raise ConfigError(f"{none} of {config.data.source} is held out for validation, by which a search chooses")
    return config


def _note(file: Path, settings: Mapping[str, Any], one: Done, *, anew: bool) -> None:
    """Writes a line of search.jsonl, for people who watch. A continued search reads the runs instead."""
    told: Mapping[str, object] = repeat.brief(one.trial.seed, one.result) if one.result else {"diverged": one.error}
    with open(file, "w" if anew else "a", encoding="utf-8") as stream:
        stream.write(json.dumps({"settings": dict(settings), "seed": one.trial.seed, **told}) + "\n")


class _Numbers(TypedDict):
    val_acc: float | None
    val_acc_std: float | None
    test_acc: float | None
    test_acc_std: float | None
    epochs: float | None
    train_seconds: float | None
    usd: float
    runs: int
    diverged: str


def _in_numbers(point: Point) -> _Numbers:
    """The point's columns of ``Search.to_pandas`` after the settings."""
    found = point.summary
    val, test = (None, None) if point.diverged else (found["val_acc"], found["test_acc"])
    return {
        "val_acc": val and val["mean"],
        "val_acc_std": val and val["std"],
        "test_acc": test and test["mean"],
        "test_acc_std": test and test["std"],
        "epochs": found["epochs"] and found["epochs"]["mean"],
        "train_seconds": found["train_seconds"] and found["train_seconds"]["mean"],
        "usd": found["usd"],
        "runs": len(found["runs"]),
        "diverged": point.diverged,
    }


def _cell(values: Spread | None, digits: int) -> str:
    if values is None:
        return ""
    return f"{values['mean']:.{digits}f}" if values["min"] == values["max"] else repeat.plus_minus(values, digits)


def _point(folder: Path, settings: Mapping[str, Any], done: Sequence[Done]) -> Point:
    found = [one for one in done if one.result is not None]
    runs = tuple(Run(folder / one.trial.name, one.result) for one in found if one.result is not None)
    return Point(settings, runs, repeat.summarised(found), next((one.error for one in done if one.result is None), ""))
