"""Runs the contenders: each once for each seed, on one graph, to one target.

Rules, besides those of ``run_coordinator.repeat``, whose trials these are:
1. Runs go seed by seed, and for each seed one contender after the other: a change on the machine affects all
   contenders.
2. A run ends when its validation score reaches ``train.target_acc``; without one, all its epochs are trained.
3. A failed run is shown in its contender's row. What cannot run here (no torch, no GPU, no such model) is tried once,
   what diverged is never repeated, and every other failure is retried by the next call.
4. On request, each contender first gets a cluster and a learning rate of its own (``tuning``).
5. ``contenders.json`` in the directory records which runs belong to which contender, ``tuned.json`` their tuned
   settings: the runs can be judged again, with other prices.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cost_planner.value import contenders, judge, trained, tuning
from cost_planner.value.contenders import Asked
from cost_planner.value.trained import Contender
from cost_planner.value.tuning import AS_ASKED, Found, Sizes
from run_coordinator import baseline, prepared, repeat, run_directory
from run_coordinator.actions import Status
from run_coordinator.repeat import Done, OnStatus, Trial, Watch
from run_coordinator.run import Run
from siafu import run_files
from siafu.baseline import METHODS, BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.run_files import RESULT
from siafu.shards import ShardSet

WHOSE, TUNED = "contenders.json", "tuned.json"
#: At whose price clusters are compared, if nobody says.
STAND_IN = judge.StandIn(judge.STAND_IN)
#: Between the contender and the seed in the name of a run's directory.
COMMA = ","


@dataclass(frozen=True)
class Contest:
    """The results of all contenders' runs."""

    dir: Path
    finished: Sequence[Contender]
    failed: Mapping[str, Sequence[str]]  # every contender, by its label: why runs of it failed
    left_out: Mapping[str, str]  # contenders without a run: why
    broken: Sequence[Contender] = ()  # the runs that failed and left what they had spent
    num_asked: int = 0  # runs, of those that can run
    num_done: int = 0
    tuned: Mapping[str, Found] = field(default_factory=dict)  # what was found, by label

    @property
    def complete(self) -> bool:
        """Whether no limit stopped the contest."""
        return self.num_done == self.num_asked

    def tries(self, label: str) -> list[Contender]:
        """The runs that tuned a contender, including failed ones."""
        found = sorted(self.dir.glob(f"{self.tuned[label].tries}*"))
        return [run for one in found for run in _as_far_as_it_came(one, label, "a try")]


def hold(
    asked: Sequence[Asked],
    base: Config,
    *,
    runs: int = 1,
    ranks: int = 0,
    tune: int = 0,
    sizes: Sizes = AS_ASKED,
    stand_in: judge.StandIn = STAND_IN,
    watch: Watch = lambda trial: contextlib.nullcontext(),
    on_done: Callable[[Done], None] = lambda done: None,
) -> Contest:
    """Trains whatever is missing; ``base.run.dir`` is the directory of all runs. ranks: of baselines; 0: as many as
    parts. tune: number of learning rates to try for each contender; 0: all use ``base``'s. sizes: clusters to try as
    well, for their value with machines at the price of ``stand_in``.

    Raises: ConfigError or DatasetError for settings that no contender can have, and for mistakes in a contender's own.
    """
    if runs < 1:
        raise ConfigError(f"runs = {runs}: must be >= 1")
    run_directory.check_free(base)
    prepared.check_beforehand(base)
    shards = ShardSet.open(prepared.shards_of(base))
    prepared.built(prepared.fit(base, shards), shards)
    ranks = ranks or base.data.parts
    tried = {one.directory: sizes.of(one, base, ranks) if tune else [] for one in asked}
    begin = [tuning.at(one, tried[one.directory][0]) if tried[one.directory] else one for one in asked]
    labels = names(asked, base, ranks, tried)
    why_not = {one.directory: why for one in begin if (why := _why_left_out(one, base, ranks))}
    order = _order(begin, base, runs, ranks, labels, why_not)  # mistakes are said before anything is trained
    folder = repeat.folder_of(base, "value", {"ranks": ranks, **({"tune": tune} if tune else {})})
    carry_out = functools.partial(
        repeat.carry_out,
        folder=folder,
        config=base,
        watch=watch,
        may_diverge=True,
        may_fail=True,
        train=_Trainer().train,
        limits=repeat.Limits(base, jobs=1),
    )
    own: Mapping[str, Found] = {}
    if tune:
        able = [one for one in asked if one.directory not in why_not]
        better = tuning.tuned(able, base, tune, ranks, tried, stand_in, folder, carry_out, on_done)
        ended = dict(zip([one.directory for one in able], better.asked, strict=True))
        asked = [ended.get(one.directory, one) for one in asked]
        labels = contenders.labels(asked, base, ranks)
        order = _order(asked, base, runs, ranks, labels, why_not)
        own = {labels[directory]: found for directory, found in better.found.items()}
    failed: dict[str, list[str]] = {labels[one.directory]: [] for one in asked}
    left_out = {labels[directory]: why for directory, why in why_not.items()}
    _sign(folder, labels, own)
    finished, broken, num_done = [], [], 0
    with contextlib.closing(carry_out(order)) as outcomes:
        for done in outcomes:
            name, num_done = done.trial.settings["contender"], num_done + 1
            if done.result is None:
                failed[name].append(done.error)
                broken += _as_far_as_it_came(folder / done.trial.name, name, done.error)
            else:
                finished.append(trained.read(folder / done.trial.name, name=name))
            on_done(done)
    return Contest(folder, finished, failed, left_out, broken, len(order), num_done, own)


def names(asked: Sequence[Asked], base: Config, ranks: int, tried: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """The contenders' names by directory, before sizes of clusters are tried: tuned contenders are named after them.
    tried: by directory."""
    found = contenders.labels([one for one in asked if not tried[one.directory]], base, ranks)
    return {one.directory: found.get(one.directory, one.name) for one in asked}


def _order(
    asked: Sequence[Asked], base: Config, runs: int, ranks: int, labels: Mapping[str, str], without: Container[str]
) -> list[Trial]:
    """The runs to compare, in the order of rule 1."""
    trials = [
        repeat.seeds_of(
            contenders.config_of(one, base, ranks), runs, name=one.directory + COMMA, contender=labels[one.directory]
        )
        for one in asked
        if one.directory not in without
    ]
    return [trial for same in zip(*trials, strict=True) for trial in same]


def _as_far_as_it_came(run: Path, name: str, error: str) -> list[Contender]:
    """A failed run up to its failure; empty if it never began."""
    with contextlib.suppress(ConfigError):
        return [trained.read(run, name=name, error=error)]
    return []


def read(folder: Path) -> Contest:
    """Reads the results of an earlier call. ConfigError if there are none."""
    try:
        whose = json.loads((folder / WHOSE).read_text())
        tuned = json.loads((folder / TUNED).read_text()) if (folder / TUNED).is_file() else {}
        own = {name: Found(**found) for name, found in tuned.items()}
        runs = [(name, run) for prefix, name in whose.items() for run in sorted(folder.glob(f"{prefix}{COMMA}seed-*"))]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{folder}: not a directory of siafu value's runs: {error}") from None
    failed: dict[str, list[str]] = {name: [] for name in whose.values()}
    finished, broken = [], []
    for name, run in runs:
        if how := run_files.divergence(run):
            failed[name].append(how)
            broken += _as_far_as_it_came(run, name, failed[name][-1])
        elif (run / RESULT).is_file():
            finished.append(trained.read(run, name=name))
    ended = {one.name for one in finished}
    left_out = {name: "no run of it is finished" for name, errors in failed.items() if not errors and name not in ended}
    return Contest(folder, finished, failed, left_out, broken, tuned=own)


def _why_left_out(one: Asked, base: Config, ranks: int) -> str:
    """The reason why a contender has no runs; "" if it has."""
    if one.kind not in METHODS:
        return ""
    try:
        baseline.needs_torch()
        contenders.can_run(one, base, ranks)
    except ConfigError as error:
        return str(error)
    return ""


def _sign(folder: Path, labels: Mapping[str, str], own: Mapping[str, Found]) -> None:
    """Writes directories' prefixes and labels: rule 5. Entries of earlier calls stay, unless a label now belongs to
    other runs."""
    file = folder / WHOSE
    before = json.loads(file.read_text()) if file.is_file() else {}
    before = {directory: label for directory, label in before.items() if label not in labels.values()}
    file.write_text(json.dumps({**before, **labels}, indent=1) + "\n")
    if own:
        file = folder / TUNED
        before = json.loads(file.read_text()) if file.is_file() else {}
        file.write_text(json.dumps({**before, **{label: asdict(one) for label, one in own.items()}}, indent=1) + "\n")


class _TimeIsUp(Exception):
    """Raised if the limit of all runs is reached while ranks train."""


class _Trainer:
    """Trains a trial, of graph servers or of a baseline. Baselines do not know limits: the trainer enforces the time
    limit."""

    def __init__(self) -> None:
        # All mutable state:
        self._refused: dict[str, ConfigError] = {}  # by contender (rule 3)

    def train(self, trial: Trial, on_status: OnStatus) -> Run | None:
        name = trial.settings["contender"]
        if name in self._refused:
            raise self._refused[name]
        try:
            if isinstance(trial.config, BaselineConfig):
                return _baseline(trial.config, on_status)
            return repeat.trained(trial, on_status)
        except ConfigError as error:
            self._refused[name] = error
            raise


def _baseline(config: BaselineConfig, on_status: OnStatus) -> Run | None:
    """Trains a baseline. None: the time was up."""
    begun, most_s = time.monotonic(), config.run.max_seconds

    def follow(status: Status) -> None:
        if on_status is not None:
            on_status(status)
        if most_s and time.monotonic() - begun >= most_s:
            raise _TimeIsUp

    unlimited = config.replace({"run.max_seconds": 0.0, "run.budget_usd": 0.0})
    try:
        return baseline.train_baseline(config.baseline.method, config=unlimited, on_status=follow)
    except _TimeIsUp:
        return None
