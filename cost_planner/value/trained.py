"""Reads the directory of one run: scores by epoch, with the time and the Lambdas used until then.

1. A graph server's evaluations run beside training, on the same threads: they are part of its times. A baseline stops
   for evaluations: they are left out of its times.
2. ``setup_s`` is the time from the start of the roles or ranks to the start of training. Runs of older versions do not
   record it.

Reads files, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from run_coordinator.repeat import PLAN
from siafu import run_files
from siafu.baseline import BaselineConfig, load
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.machine import num_threads
from siafu.metrics import SPLITS
from siafu.pricing import cost
from siafu.run_files import CONFIG, METRICS, RESULT, Record
from siafu.tasks import TENSOR_KINDS, Kind


@dataclass(frozen=True)
class Evaluated:
    """The figures of a run after an epoch."""

    epoch: int  # counted from 1
    seconds: float  # since training began
    scores: Mapping[str, float]  # by split; empty: it was not evaluated
    lambda_usd: float
    requests: float
    gb_s: float
    # of the seconds that servers computed for training: AV, AE and their backwards; None: not known
    tensor_share: float | None = None
    evaluation_share: float | None = None  # of all seconds that servers computed; None: not known
    evaluation_s: float = 0.0  # of evaluations before, which ``seconds`` leaves out (rule 1)


@dataclass(frozen=True)
class Contender:
    """One run."""

    name: str
    where: str  # its directory
    config: Config
    evaluated: Sequence[Evaluated]
    last: Evaluated  # after its last epoch
    setup_s: float | None = None  # rule 2; None: not known
    stopped: str = ""  # "epochs", "target", "patience", "budget" or "time"; "": it is not finished
    error: str = ""  # why it failed; "": it did not
    content: str = ""  # digest of the graph, whatever it was cut into; "": not known
    machine: str = ""  # that it ran on, and how many cores it has
    threads: int | None = None  # of a graph server on this machine; None: not known, or there is none
    run_usd: float | None = None  # of the whole run where it ran, as siafu cost says; None: unfinished, or not priced
    # of a baseline's ranks: a GPU's name, or "cpu"; "cpu" of servers whose GPU backend does without one
    device: str = ""

    @property
    def seed(self) -> int:
        return self.config.train.seed

    def best(self, split: str) -> float | None:
        """The best score; None if no score of the split is known."""
        return max((one.scores[split] for one in self.evaluated if split in one.scores), default=None)

    def reaches(self, target: float, split: str) -> Evaluated | None:
        return next((one for one in self.evaluated if one.scores.get(split, float("-inf")) >= target), None)


def runs_in(folder: Path) -> list[Path]:
    """The run itself; for a folder of trials (``run_coordinator.repeat``), its finished runs."""
    if (folder / CONFIG).is_file() or not (folder / PLAN).is_file():
        return [folder]
    return sorted(result.parent for result in folder.glob(f"*/{RESULT}"))


def read(run_dir: Path, metric: str = "", name: str = "", error: str = "") -> Contender:
    """Reads a run. ConfigError if it is no run directory, or was never evaluated, unless it failed. ``metric``: "" for
    the first that evaluations have; ``name``: "" for the config's; ``error``: why it failed."""
    for needed in (CONFIG, METRICS):
        if not (run_dir / needed).is_file():
            raise ConfigError(f"{run_dir}: not a run directory: it has no {needed}")
    config, records = load(run_dir / CONFIG), run_files.records(run_dir)
    begun = next((record for record in reversed(records) if record["event"] == "start"), None)
    setup_s = begun.get("setup_s") if begun else None
    epochs = list(_epochs(records, config, metric, setup_s or 0.0))
    evaluated = [one for one in epochs if one.scores]
    if not evaluated and not error:
        raise ConfigError(f"{run_dir}: nothing was evaluated: there is no score to compare")
    made, result = run_files.manifest(run_dir), run_files.result(run_dir)
    is_baseline = isinstance(config, BaselineConfig)
    servers_here = "cores" in made and config.run.on != "aws" and not is_baseline
    return Contender(
        name or name_of(config),
        str(run_dir),
        config,
        evaluated,
        last=epochs[-1] if epochs else Evaluated(0, 0.0, {}, 0.0, 0, 0.0),
        setup_s=setup_s,
        stopped=result.get("stopped", "") if result else "",
        error=error,
        content=json.dumps(made["data"], sort_keys=True) if "data" in made else "",
        machine=f"{made['cores']} cores, {made['machine']}" if "cores" in made else "",
        threads=num_threads(config, made["cores"]) if servers_here else None,
        run_usd=bill["usd"] if result and (bill := result.get("cost")) else None,
        device="cpu"
        if config.servers.backend == "gpu" and config.servers.device == "cpu"
        else (result.get("device", "") if result else ""),
    )


def graphs(contenders: Iterable[Contender]) -> list[str]:
    """The graphs' sources; one if they all name the same graph."""
    found = list(contenders)
    sources = sorted({one.config.data.source for one in found})
    contents = {one.content for one in found}
    return sources[:1] if len(contents) == 1 and all(contents) else sources


def name_of(config: Config) -> str:
    """The name of a contender: "lambda async s=0", "cpu pipe", or a baseline's method and ranks. Runs that differ in
    the model, or the like, share a name."""
    if isinstance(config, BaselineConfig):
        return f"{config.baseline.method} ranks={config.baseline.ranks}"
    train = config.train
    staleness = f" s={train.staleness}" if train.mode == "async" else ""
    return f"{config.servers.backend} {train.mode}{staleness}"


def has_whole_cores(config: Config) -> bool:
    """Whether Lambdas have more cores than their memory buys on AWS."""
    lambdas = config.lambdas
    return config.servers.backend == "lambda" and lambdas.core > replace(lambdas, cpu_share="real").core


def reached_by_all(contenders: Iterable[Contender], split: str) -> float:
    """The highest score that every run has reached. ConfigError if a run has none."""
    scores = []
    for one in contenders:
        if (score := one.best(split)) is None:
            raise ConfigError(f"{one.where}: has no {split} score to compare: nothing of that split was scored")
        scores.append(score)
    return min(scores)


def _epochs(records: Sequence[Record], config: Config, metric: str, setup_s: float) -> Iterator[Evaluated]:
    evaluations = {record["epoch"]: record for record in records if record["event"] == "evaluation"}
    epochs = {record["epoch"]: record for record in records if record["event"] == "epoch"}
    apart_s = 0.0  # of evaluations that training has waited for (rule 1), where an older version's time_s has them
    for number, epoch in epochs.items():
        evaluation = evaluations.get(number)
        scores: dict[str, float] = {}
        for split in SPLITS:
            if evaluation and (found := evaluation.get(split)):
                scores[split] = found[metric or next(iter(found))]
        usage, usd = epoch.get("usage", {}), 0.0
        if config.servers.backend == "lambda":
            servers = cost.of_run(config, requests=0, gb_s=0, seconds=setup_s + epoch["time_s"]).usd
            usd = max(0.0, epoch["usd"] - servers)
        counts = usage.get("invocations", 0), usage.get("gb_s", 0.0)
        seconds, evaluation_s = epoch["time_s"] - apart_s, epoch.get("evaluation_s", apart_s)
        yield Evaluated(number, seconds, scores, usd, *counts, *_shares(usage), evaluation_s=evaluation_s)
        if evaluation and isinstance(config, BaselineConfig) and "evaluation_s" not in evaluation:
            apart_s += evaluation["time_s"] - epoch["time_s"]


def _shares(usage: Mapping[str, float]) -> tuple[float | None, float | None]:
    """The share of tensor tasks in the seconds of training, and of evaluation in all seconds
    (``graph_server.lambdas.step_times``); None if they were not counted."""
    seconds = {kind: usage.get(f"{kind.name}_s", 0.0) for kind in Kind}
    training, evaluation = sum(seconds.values()), usage.get("eval_s", 0.0)
    if not training:
        return None, None
    return sum(seconds[kind] for kind in TENSOR_KINDS) / training, evaluation / (training + evaluation)
