"""Schedules of a failing fleet, by the thousand, and what must hold of each whatever happens.

    python -m tests.chaos.schedules --count 100000 --seed 0 --processes 2

A seed is one run on a toy graph: in a setting drawn by it (mode, staleness, servers, backend), with every order of
events and every fault drawn by it too. Checked: it ends; no gradient counts twice or after its step, and none is
missing from a step; in ``pipe`` the bits are those of an undisturbed run; in ``async`` nobody is further ahead, and
nothing that is read is older, than the staleness allows; nothing is left over.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import logging
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from graph_data.prepare import prepare
from siafu import models
from siafu.config import Config
from siafu.models import Model, ModelSpec, build
from siafu.shards import ShardSet
from tests.chaos.failing import FailingFleet, Outcome, ServerFaults, train
from tests.fleet import Faults
from tests.integration.test_fleet import Ledger, sources
from tests.toy_graphs import random_graph

FAULTS = Faults(kill=0.01, hang=0.005, stillborn=0.05, refuse=0.05, twice=0.03, lose=0.01)
TROUBLES = ServerFaults()
GRAPH = random_graph(1, 12, num_edges=30, num_features=3, num_classes=2)
SETTINGS: dict[str, Any] = {
    "data.directed": True,
    "data.parts": 2,
    "model.hidden": 2,
    "model.dropout": 0.3,
    "train.lr": 0.05,
    "train.epochs": 3,
    "servers.param_servers": 2,
    "servers.backend": "cpu",
    "lambda.count": 2,
    "lambda.relaunches": 100,
    "run.restarts": 100,
    "run.checkpoint_every": 1,
}


class Lab:
    """Shards and expected bits, made once for all schedules of a process."""

    def __init__(self, folder: Path, troubles: ServerFaults = TROUBLES):
        self._troubles = troubles
        self._shards = lru_cache(None)(lambda parts: self._prepare(folder, parts))
        self._expected = lru_cache(None)(self._undisturbed)
        self._config = lru_cache(None)(lambda options: Config().replace(dict(options)))
        self._sources: dict[tuple[int, int], Any] = {}
        self._crossings: dict[tuple[int, int, int], dict[bool, Any]] = {}  # (parts, intervals, server) -> by direction

    def run(self, seed: int) -> Outcome:
        """One schedule. Raises AssertionError if something does not hold."""
        options = tuple(sorted(settings(seed).items()))
        config = self._config(options)
        ledgers: list[Ledger] = []

        def watch(fleet: FailingFleet) -> None:
            key = config.data.parts, config.train.intervals
            if key not in self._sources:
                self._sources[key] = sources(GRAPH, fleet)
            for partition in fleet.partitions:
                known = self._crossings.setdefault((*key, partition.index), {})
                vars(partition.ghosts)["crossing"] = _remembered(partition.ghosts.crossing, known)
            ledgers[:] = [Ledger(fleet, partition, self._sources[key]) for partition in fleet.partitions]
            for partition, ledger in zip(fleet.partitions, ledgers, strict=True):
                partition.trace = ledger

        faults = FAULTS if config.servers.backend == "lambda" else None
        outcome = train(config, self._shards(config.data.parts), seed, faults, self._troubles, watch)
        check(outcome)
        if config.train.mode == "pipe":
            digest, losses = self._expected(options)
            assert outcome.result["loss_history"] == losses
            assert outcome.result["weights_digest"] == digest, "other weights than undisturbed"
        return outcome

    def _undisturbed(self, options: tuple[tuple[str, Any], ...]) -> tuple[str, list[float]]:
        config = self._config(options)
        result = FailingFleet(config, self._shards(config.data.parts), 0, None, ServerFaults(0, 0, 0, 0, 0)).train()
        return result["weights_digest"], result["loss_history"]

    @staticmethod
    def _prepare(folder: Path, parts: int) -> ShardSet:
        target = folder / str(parts)
        return prepare(GRAPH, target, parts=parts, partitioner="random", order="random", directed=True)


def _remembered(crossing: Callable[..., Any], known: dict[bool, Any]) -> Callable[..., Any]:
    """``Ghosts.crossing``, computed once for all attempts and runs on the same shards: nobody changes it."""

    def remembered(*, backward: bool) -> Any:
        if backward not in known:
            known[backward] = crossing(backward=backward)
        return known[backward]

    return remembered


def _build(spec: ModelSpec, *arithmetic: Any) -> Model:
    """``models.build``, whose programs are made once."""
    model = build(spec, *arithmetic)
    vars(model)["program"] = lru_cache(None)(model.program)
    return model


def settings(seed: int) -> dict[str, Any]:
    rng = random.Random(-1 - seed)
    mode = ("pipe", "async")[seed % 2]
    staleness = rng.choice([0, 1, 2]) if mode == "async" else 0
    return {
        **SETTINGS,
        "train.mode": mode,
        "train.staleness": staleness,
        "train.intervals": rng.choice([1, 1, 2]),
        "servers.param_servers": rng.choice([1, 2, 2, 3]),
        "servers.backend": rng.choice(["cpu", "cpu", "cpu", "lambda"]),
        "train.optimizer": rng.choice(["adam", "sgd"]),
        "train.patience": rng.choice([0, 0, 1]),
        "train.eval_every": rng.choice([2, 3]),  # epochs 1 and 2, or 2 alone
    }


def check(outcome: Outcome) -> None:
    """What must hold at the end of every run."""
    fleet, result = outcome.fleet, outcome.result
    train, epochs = fleet.config.train, result["epochs"]
    assert 0 < epochs <= train.epochs
    assert len(result["loss_history"]) == epochs
    assert result["stash_peak_versions"] <= train.staleness + 2
    num_leaves = fleet.config.data.parts * train.intervals
    first = fleet.coordinator.before.version if fleet.coordinator.before is not None else 0
    for epoch in range(first, epochs):
        of_epoch = Counter(layer for e, _, layer in fleet.accepted if e == epoch)
        assert of_epoch, f"epoch {epoch}: no gradient"
        assert set(of_epoch.values()) == {num_leaves}, f"epoch {epoch}: gradients by layer {dict(of_epoch)}"
    if epochs < train.epochs:
        return  # stopped early: intervals are in the midst of what nobody needs any more
    for partition in fleet.partitions:
        assert all(scheduler.finished for scheduler in partition.schedulers.values())
        assert partition.backend.in_flight == 0
        assert partition.param_servers.stashes == 0
    for replica in fleet.replicas:
        assert replica.version == epochs
        assert replica.stash_references == {}
        assert replica.num_pending == 0
        assert len(replica.versions_held) <= 2  # final and best


# --- many -------------------------------------------------------------------------------------------------------------


def tally(seeds: range, lab: Lab) -> Counter[str]:
    """Runs the seeds; counts what happened. A seed that fails is told, and counted under "failed"."""
    counts = Counter[str]()
    begun = time.process_time()
    for seed in seeds:
        counts["schedules"] += 1
        try:
            outcome = lab.run(seed)
        except Exception:
            counts["failed"] += 1
            print(f"seed {seed}: {traceback.format_exc(limit=-3)}", file=sys.stderr, flush=True)
            continue
        counts.update({f"fault: {name}": number for name, number in outcome.injected.items()})
        for name in ("restarts", "resumes", "restored", "lost_epochs", "deliveries"):
            counts[name] += getattr(outcome, name)
    counts["CPU ms"] += int(1000 * (time.process_time() - begun))
    return counts


def _work(seeds: range) -> Counter[str]:
    return tally(seeds, _lab())


@lru_cache(1)
def _lab() -> Lab:
    """One for each process."""
    gc.set_threshold(200_000)  # a fleet is all cycles, and short-lived
    known = lru_cache(None)(_build)  # a model is a value; what a server's threads compute with is none
    vars(models)["build"] = lambda spec, *arithmetic: _build(spec, *arithmetic) if arithmetic else known(spec)
    logging.disable(logging.CRITICAL)  # workers that fail are told of, and here nothing else happens
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Lab(Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.schedules", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first of N")
    parser.add_argument("--processes", type=int, default=1, metavar="P")
    args = parser.parse_args()
    begun = time.monotonic()
    stop, share = args.seed + args.count, 50
    shares = [range(first, min(first + share, stop)) for first in range(args.seed, stop, share)]
    counts: Counter[str] = Counter()
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for found in pool.imap_unordered(_work, shares):
            counts.update(found)
            seconds = time.monotonic() - begun
            print(
                f"\r{counts['schedules']} schedules, {counts['failed']} failed, "
                f"{60 * counts['schedules'] / seconds:.0f} a minute",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    for name, number in sorted(counts.items()):
        print(f"{name:24}{number:>12,}")
    print(f"{'a minute':24}{60 * counts['schedules'] / (time.monotonic() - begun):>12,.0f}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
