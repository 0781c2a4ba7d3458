"""Many runs below one directory: k seeds of one setting (``siafu.repeat``, ``siafu train --runs``); searches build on
it.

Rules:
1. A *trial* is a run in a directory of its own, named after its differences from the other trials. It is finished when
   it has a result and no limit stopped it, or when it diverged and divergence is an answer (a search, a contest).
2. The same call continues: finished trials are kept, others begin anew. So the directory's name follows from the
   settings, and ``plan.json`` in it records them; another call's settings are refused there.
3. ``run.budget_usd`` and ``run.max_seconds`` limit all trials together. The trial that a limit stops is not finished.
4. Trials run one after the other in this process; with ``jobs`` > 1 side by side, each as a ``siafu train`` of its own.
   If one ends without a result, its stderr stays in ``.NAME.stderr``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np

from graph_data.sources.columns import path_and_options
from run_coordinator import api, keywords, live_status, prepared, run_config, run_directory, tables
from run_coordinator.actions import Status
from run_coordinator.epoch_calls import Calls, OnEpoch, as_raised
from run_coordinator.meter import BUDGET, LIMITS, TIME
from run_coordinator.run import Run
from siafu import __version__, errors, run_files, start
from siafu import config as configs
from siafu.config import Config
from siafu.errors import ConfigError, Diverged, GnnError, PeerLost
from siafu.metrics import TITLES
from siafu.progress import from_here, of_notebook, written
from siafu.run_files import Result, write_whole
from siafu.shards import ShardSet

PLAN, SUMMARY = "plan.json", "summary.json"
#: How long a trial's process may take to end after it was asked to: those of a run end within 5 s.
END_S = 8.0
POLL_S = 0.1

OnStatus = Callable[[Status], None] | None
Watch = Callable[["Trial"], contextlib.AbstractContextManager[OnStatus]]
Trainer = Callable[["Trial", OnStatus], Run | None]  # None: the limit on time came, and nothing is known


@dataclass(frozen=True)
class Trial:
    name: str  # of its directory
    config: Config  # but for run.dir and the limits
    settings: Mapping[str, Any]  # what tells it from the others

    @property
    def seed(self) -> int:
        return self.config.train.seed


def in_a_cell(trial: Trial) -> contextlib.AbstractContextManager[OnStatus]:
    """Shows a trial's progress below the cell of a notebook, and nothing anywhere else."""
    return of_notebook(trial.config.train.epochs, trial.name) or contextlib.nullcontext()


@dataclass(frozen=True)
class Done:
    trial: Trial
    result: Result | None  # None: it diverged
    error: str = ""
    before: bool = False  # whether an earlier call did it


@dataclass(frozen=True, repr=False)
class Runs:
    """Finished runs that differ by their seeds alone, and their directory. A notebook shows their table."""

    dir: Path
    runs: tuple[Run, ...]
    summary: SummaryOfSeeds  # what ``siafu train --runs K --json`` prints

    @property
    def test_acc(self) -> tuple[float, float]:
        """Mean and standard deviation; NaN without test vertices."""
        test = self.summary["test_acc"]
        return (test["mean"], test["std"]) if test else (float("nan"), float("nan"))

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each run: seed, val_acc, test_acc, best_epoch, epochs, train_seconds,
        stopped, weights_digest, run_dir. Raises: ConfigError without pandas."""
        return tables.frame(self.summary["runs"], list(Brief.__annotations__))

    def __repr__(self) -> str:
        found = (("val", self.summary["val_acc"]), ("test", self.summary["test_acc"]))
        scores = [f"{split} {plus_minus(values, 4)}" for split, values in found if values]
        counted = f"{len(self.runs)} of {self.summary['asked']}"
        return f"Runs({', '.join([counted, *scores, str(self.dir)])})"

    def _repr_html_(self) -> str:
        """The table of runs that a notebook shows."""
        head = ("seed", "validation", "test", "best epoch", "epochs", "seconds")
        rows = [
            [
                run["seed"],
                written(run["val_acc"]),
                written(run["test_acc"]),
                run["best_epoch"],
                run["epochs"],
                f"{run['train_seconds']:.1f}",
            ]
            for run in self.summary["runs"]
        ]
        return tables.as_html(repr(self), head, rows)


@keywords.spelled_out(tuple(run_config.SHORT), tables=True)
def repeat(
    source: Any = ...,
    *,
    runs: int,
    data_seeds: bool = False,
    jobs: int = 1,
    config: Config | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    watch: Watch = in_a_cell,
    on_done: Callable[[Done], None] = lambda done: None,
    on_epoch: OnEpoch | None = None,
    **short: Any,
) -> Runs:
    """Trains ``runs`` times, with seeds ``train.seed``, ``train.seed`` + 1 and so on; the
    other arguments are ``siafu.train``'s.

    data_seeds: also increase ``data.seed``: new partitions, and a new split if the source has none. jobs: runs to train
    at the same time. watch: what shows a run's progress; by default a line below the cell of a notebook. on_done:
    called with each finished run; on_epoch: called after each epoch of each run, whose ``run_dir`` names the run. After
    an interruption, the same call continues.

        >>> runs = siafu.repeat("digits", runs=5, epochs=50)
        >>> runs.test_acc
        (0.98, 0.004)

    Raises: as ``siafu.train``. Finished runs are kept.
    """
    if runs < 1 or jobs < 1:
        raise ConfigError(f"runs = {runs}, jobs = {jobs}: must be >= 1")
    base, in_memory = asked(source, config, settings, short, preset)
    trials = seeds_of(base, runs, data_seeds=data_seeds)
    if in_memory is not None:
        trials = [_on_disk(trial, in_memory) for trial in trials]
        base = base.replace({"data.source": trials[0].config.data.source})
    folder = folder_of(base, "seeds", {"data_seeds": data_seeds, "graph": content_of(base)})
    finished = []
    with contextlib.closing(carry_out(trials, folder, base, jobs=jobs, watch=watch, on_epoch=on_epoch)) as outcomes:
        for one in outcomes:
            finished.append(one)
            on_done(one)
    finished.sort(key=lambda one: one.trial.seed)
    summary: SummaryOfSeeds = {**summarised(finished), "asked": runs, "run_dir": str(folder)}
    (folder / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n")
    found = tuple(Run(folder / one.trial.name, one.result) for one in finished if one.result is not None)
    return Runs(folder, found, summary)


def asked(
    source: Any,
    config: Config | str | Path | None,
    settings: Mapping[str, Any] | None,
    short: Mapping[str, Any],
    preset: str,
) -> tuple[Config, Any]:
    """The config that all trials begin with, and the graph in memory if that is the source, else None."""
    found, in_memory = run_config.asked(source, config, settings, short, preset)
    run_directory.check_free(found)
    prepared.check_beforehand(found, in_memory)
    return found, in_memory


def _on_disk(trial: Trial, in_memory: Any) -> Trial:
    shards = prepared.shards_of(trial.config, in_memory)
    return replace(trial, config=trial.config.replace({"data.source": str(shards)}))


def seeds_of(config: Config, runs: int, *, data_seeds: bool = False, name: str = "", **told: Any) -> list[Trial]:
    """One trial for each seed. ``name``: start of the directories' names. ``told``: added to the settings."""
    trials = []
    for number in range(runs):
        changes = {"train.seed": config.train.seed + number}
        if data_seeds:
            changes["data.seed"] = config.data.seed + number
        trials.append(Trial(f"{name}seed-{changes['train.seed']}", config.replace(changes), {**told, **changes}))
    return trials


def content_of(config: Config) -> str:
    """Fingerprint of the graph as JSON: a source's name does not show that a file was rewritten."""
    return json.dumps(ShardSet.open(prepared.shards_of(config)).manifest.fingerprint, sort_keys=True)


# --- the directory ----------------------------------------------------------------------------------------------------


def folder_of(config: Config, what: str, plan: Mapping[str, Any]) -> Path:
    """The folder of the trials, made and signed. ConfigError if it holds trials of other settings, or something
    else."""
    # what must be equal from call to call: all but where runs go and when they are stopped
    compared = {section: values for section, values in config.to_dict().items() if section != "run"}
    told = {"siafu": __version__, "what": what, **plan, "config": compared}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:8]
    source = path_and_options(config.data.source)[0].removeprefix("edges:")  # columns would make it too long for a name
    graph = re.sub(r"[^A-Za-z0-9.-]+", "-", Path(source).stem or "graph").strip("-")
    folder = Path(config.run.dir or f"runs/{graph}-{config.model.name}-{what}-{digest}").resolve()
    signed = json.loads(json.dumps(told, default=str))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / PLAN).exists():
            _check_same(folder, json.loads((folder / PLAN).read_text()), signed)
        elif any(folder.iterdir()):
            raise ConfigError(f"run.dir = {folder}: holds something else already")
        write_whole(folder / PLAN, (json.dumps(signed, indent=1) + "\n").encode())
    except (OSError, ValueError) as error:
        raise ConfigError(f"run.dir = {folder}: {error}") from None
    return folder


def _check_same(folder: Path, there: dict[str, Any], wanted: dict[str, Any]) -> None:
    flat = [_flat(plan) for plan in (there, wanted)]
    for key in sorted(flat[0].keys() | flat[1].keys()):
        was, now = (plan.get(key) for plan in flat)
        if was != now:
            raise ConfigError(f"run.dir = {folder}: holds trials with {key} = {was}, asked is {now}")


def _flat(plan: Mapping[str, Any]) -> dict[str, Any]:
    sections = plan.get("config", {})
    settings = {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}
    return {**{key: value for key, value in plan.items() if key != "config"}, **settings}


def _finished(folder: Path, trial: Trial, *, may_diverge: bool) -> Done | None:
    """The outcome that an earlier call left (rule 1); None: no outcome."""
    with contextlib.suppress(ConfigError):  # it was cut short, or is somebody else's
        result = run_files.result(folder / trial.name)
        if result is not None and "stopped" in result:
            return None if result["stopped"] in LIMITS else Done(trial, result, before=True)
        if may_diverge and (how := run_files.divergence(folder / trial.name)):
            return Done(trial, None, how, before=True)
    return None


# --- trials -----------------------------------------------------------------------------------------------------------


def _usd(result: Result) -> float:
    """A trial's cost for the limits: 0 if a baseline's machine is not named."""
    return result["cost"]["usd"] if result["cost"] else 0.0


class Limits:
    """Rule 3: the limits of all trials of a call."""

    def __init__(self, config: Config, jobs: int):
        self._run, self._jobs, self._begun = config.run, jobs, time.monotonic()
        # All mutable state:
        self.spent = 0.0
        self.reached = ""

    def settings(self) -> dict[str, Any] | None:
        """A trial's own limits; None if nothing is left for one."""
        left: dict[str, Any] = {}
        if self._run.max_seconds:
            left["run.max_seconds"] = self._run.max_seconds - (time.monotonic() - self._begun)
        if self._run.budget_usd:
            left["run.budget_usd"] = (self._run.budget_usd - self.spent) / self._jobs
        if not self.reached:
            names = {"run.max_seconds": TIME, "run.budget_usd": BUDGET}
            self.reached = next((names[key] for key, value in left.items() if value <= 0), "")
        return None if self.reached else left

    def count(self, result: Result) -> None:
        self.spent += _usd(result)
        if result["stopped"] in LIMITS:
            self.reached = result["stopped"]


def trained(trial: Trial, on_status: OnStatus, on_epoch: OnEpoch | None = None) -> Run:
    """Trains a trial on graph servers."""
    return api.train(config=trial.config, on_status=on_status, on_epoch=on_epoch)


def carry_out(
    trials: Sequence[Trial],
    folder: Path,
    config: Config,
    *,
    jobs: int = 1,
    watch: Watch = in_a_cell,
    may_diverge: bool = False,
    may_fail: bool = False,
    train: Trainer | None = None,
    on_epoch: OnEpoch | None = None,
    limits: Limits | None = None,
) -> Generator[Done, None, None]:
    """Yields finished trials, those of earlier calls first, until all are finished or a limit is reached. Close it
    (``contextlib.closing``): until then the folder is locked, and the processes of trials go on.

    may_diverge: yield diverged trials too; may_fail: yield trials that failed for any reason too; the next call tries
    them again. train: trains one trial when ``jobs`` is 1; by default ``trained``. limits: shared with other trials of
    the same call.
    """
    train = train or functools.partial(trained, on_epoch=on_epoch)
    limits = limits or Limits(config, jobs)
    with run_directory.alone(folder):
        missing = []
        for trial in trials:
            if (known := _finished(folder, trial, may_diverge=may_diverge)) is None:
                missing.append(trial)
                continue
            limits.spent += _usd(known.result) if known.result else 0.0
            yield known
        todo = _asked(missing, folder, limits)
        outcomes = _one_by_one(todo, watch, train) if jobs == 1 else _side_by_side(todo, folder, jobs, watch, on_epoch)
        with contextlib.closing(outcomes):
            yield from _judged(outcomes, folder, limits, may_diverge=may_diverge, may_fail=may_fail)


def _judged(outcomes: Outcomes, folder: Path, limits: Limits, *, may_diverge: bool, may_fail: bool) -> Iterator[Done]:
    """Yields the finished trials, and those allowed to fail. Raises the error of any other trial."""
    for trial, outcome in outcomes:
        if isinstance(outcome, GnnError):
            # All else (a lost server, a full disk, no room for a thread) says nothing about the settings.
            if not (may_fail or (may_diverge and isinstance(outcome, Diverged))):
                raise outcome
            yield Done(trial, None, str(outcome))
            continue
        if outcome is None:
            limits.reached = TIME
            continue
        limits.count(outcome)
        if outcome["stopped"] not in LIMITS:
            yield Done(trial, outcome)


def _asked(trials: Sequence[Trial], folder: Path, limits: Limits) -> Iterator[Trial]:
    """Yields each trial when its turn comes, with an empty directory and its share of the remaining limits."""
    for trial in trials:
        left = limits.settings()
        if left is None:
            return
        path = folder / trial.name
        if path.exists():  # ours, by plan.json, and begun but not finished
            with run_directory.alone(path):  # siafu resume may go on with it
                shutil.rmtree(path)
        yield replace(trial, config=trial.config.replace({**left, "run.dir": str(path)}))


Outcome = Result | GnnError | None  # None: as of ``Trainer``
Outcomes = Generator[tuple[Trial, Outcome], None, None]


def _one_by_one(trials: Iterator[Trial], watch: Watch, train: Trainer) -> Outcomes:
    for trial in trials:
        try:
            with watch(trial) as on_status:
                run = train(trial, on_status)
        except GnnError as error:
            yield trial, error
        else:
            yield trial, run.result if run else None


@dataclass(frozen=True)
class _Job:
    """A trial in its own process."""

    trial: Trial
    process: subprocess.Popen[str]
    stderr: Path
    on_status: OnStatus
    shown: contextlib.ExitStack  # closed when its progress is no longer shown
    calls: Calls

    def show(self) -> None:
        """Shows the trial's status, which its process writes into the run directory."""
        if self.on_status is not None and (told := live_status.read(Path(self.trial.config.run.dir))):
            self.on_status(live_status.status_of(told))

    def last_word(self, wait_s: float) -> str | None:
        """The process's output; None if it has not ended within ``wait_s``. Reads meanwhile: the losses of many epochs
        overfill a pipe."""
        try:
            return self.process.communicate(timeout=wait_s)[0]
        except subprocess.TimeoutExpired:
            return None

    def outcome(self, said: str) -> Outcome:
        try:
            found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
        except (ValueError, IndexError):
            complaint = self.stderr.read_text(errors="replace").strip().splitlines()[-1:]
            why = f": {complaint[0]} (all of it: {from_here(self.stderr)})" if complaint else ""
            ended = f"ended with exit code {self.process.returncode} and without a result"
            return PeerLost(f"the process of {self.trial.name} {ended}{why}")
        self.stderr.unlink(missing_ok=True)
        if "error" not in found:
            return cast(Result, found)
        cls = getattr(errors, found["type"], GnnError)
        error: GnnError = cls(found["error"])
        return error


def _side_by_side(trials: Iterator[Trial], folder: Path, jobs: int, watch: Watch, on_epoch: OnEpoch | None) -> Outcomes:
    running: list[_Job] = []
    with contextlib.ExitStack() as all_shown:
        try:
            while True:
                while len(running) < jobs and (trial := next(trials, None)) is not None:
                    shown = all_shown.enter_context(contextlib.ExitStack())
                    calls = Calls(on_epoch, Path(trial.config.run.dir), trial.config.train)
                    running.append(_started(trial, folder, shown.enter_context(watch(trial)), shown, calls))
                if not running:
                    return
                for job in list(running):
                    said = job.last_word(POLL_S / len(running))
                    with as_raised():
                        job.calls.look()
                    if said is None:
                        job.show()
                        continue
                    running.remove(job)
                    job.shown.close()
                    with as_raised():
                        job.calls.end()
                    yield job.trial, job.outcome(said)
        finally:
            _end([job.process for job in running])


def _started(trial: Trial, folder: Path, on_status: OnStatus, shown: contextlib.ExitStack, calls: Calls) -> _Job:
    """Starts a trial in a session of its own: Ctrl-C reaches only us, and we end the trial."""
    file, stderr = folder / f".{trial.name}.toml", folder / f".{trial.name}.stderr"
    file.write_text(configs.dump(trial.config))
    command = start.command(
        "siafu", "train", "--config", str(file), "--quiet", "--json", *run_config.code_of(trial.config)
    )
    with open(stderr, "w") as log:
        process = subprocess.Popen(
            command, env=start.environment(), stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    return _Job(trial, process, stderr, on_status, shown, calls)


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + END_S
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


# --- summaries --------------------------------------------------------------------------------------------------------


class Spread(TypedDict):
    mean: float
    std: float  # of a sample: n - 1
    min: float
    max: float


class Brief(TypedDict):
    """A run in brief."""

    seed: int
    val_acc: float | None
    test_acc: float | None
    best_epoch: int | None
    epochs: int
    train_seconds: float
    stopped: str
    weights_digest: str
    run_dir: str


class Summary(TypedDict):
    """Statistics of the finished runs; None if no run has the value."""

    val_acc: Spread | None
    test_acc: Spread | None
    epochs: Spread | None
    train_seconds: Spread | None
    metric: str | None
    usd: float
    runs: list[Brief]


class SummaryOfSeeds(Summary):
    """summary.json."""

    asked: int
    run_dir: str


def summarised(done: Sequence[Done]) -> Summary:
    results = [one.result for one in done if one.result is not None]
    return {
        "val_acc": spread([result["val_acc"] for result in results]),
        "test_acc": spread([result["test_acc"] for result in results]),
        "epochs": spread([result["epochs"] for result in results]),
        "train_seconds": spread([result["train_seconds"] for result in results]),
        "metric": results[0]["metric"] if results else None,
        "usd": sum(map(_usd, results)),
        "runs": [brief(one.trial.seed, one.result) for one in done if one.result is not None],
    }


def brief(seed: int, result: Result) -> Brief:
    return cast(Brief, {key: seed if key == "seed" else result.get(key) for key in Brief.__annotations__})


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean and deviation; None without values, as for runs without an evaluation."""
    known = [float(value) for value in values if value is not None]
    if not known:
        return None
    std = float(np.std(known, ddof=1)) if len(known) > 1 else 0.0
    return {"mean": float(np.mean(known)), "std": std, "min": min(known), "max": max(known)}


def lines(summary: SummaryOfSeeds) -> list[str]:
    """The last lines of many runs."""
    found, title = summary["runs"], TITLES[summary["metric"]] if summary["metric"] else ""
    seeds = [run["seed"] for run in found]
    shown = f", seeds {min(seeds)} to {max(seeds)}" if len(seeds) > 1 else ""
    said = [f"runs        {len(found)} of {summary['asked']}{shown}"]
    shown_of = (
        ("validation", summary["val_acc"], 4),
        ("test", summary["test_acc"], 4),
        ("epochs", summary["epochs"], 0),
    )
    for name, values, digits in shown_of:
        if values is not None:
            what = f" {title}" if digits else ""
            said.append(
                f"{name:<12}{plus_minus(values, digits)}{what}, {values['min']:.{digits}f} to "
                f"{values['max']:.{digits}f}"
            )
    if (seconds := summary["train_seconds"]) is not None:
        said.append(f"seconds     {plus_minus(seconds, 1)} each")
    run_dir = Path(summary["run_dir"])
    return [*said, f"saved in    {from_here(run_dir)}"]


def plus_minus(values: Spread, digits: int) -> str:
    return f"{values['mean']:.{digits}f} ± {values['std']:.{digits}f}"
