"""Measures this machine: short real runs of different shapes, and the constants that explain them best.

1. A run's processor seconds, by thread and role, are linear in ``Speeds``. So a column of the equations is the work of
   a run on a machine that is slow in one respect alone (1 ns, or 1 s, for its unit; 0 for all others).
2. For each kind of thread, the non-negative constants with the least relative errors are taken (scipy's NNLS). Runs
   with throttled environments (``lambda.cpu_share = real``) are left out here: their caches cool while they sleep, so
   everything but products takes more processor time.
3. Products, copies, gathers from a core's own cache and the memory's bandwidth are measured separately
   (``machine_rates``). Whole runs hardly separate the cost of an operation or a copy from that of a value: the fit
   alone has found more operations per second than the core has. No run here has words. The extra cost of gathering from
   a larger table is fitted: it depends on the order of real graphs.
4. Wall times are used only for constants without processor time: a hop from one process to another, waking a thread,
   the run's share of a shared processor, and the speed of throttled environments. Of several values, those are taken
   with which the simulator is closest to the same runs.
5. A poor fit is refused: the machine was busy, and plans would be wrong.

The runs use five synthetic graphs; most have as few intervals as ``run_coordinator.intervals`` chooses. They measure
nothing of networks.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from rich.console import Console
from scipy.optimize import nnls

from cost_planner.plan import machine_rates
from cost_planner.plan.calibration import OF_MEMORY, Calibration, own_path
from cost_planner.plan.here import local_plan
from cost_planner.plan.machine_rates import Rates
from cost_planner.plan.memory_traffic import Bandwidth
from cost_planner.plan.observe import Observed, observed
from cost_planner.plan.simulated_run import Plan
from cost_planner.plan.simulator import simulated
from cost_planner.plan.speeds import Speeds
from cost_planner.plan.work import Counts, processor_s
from run_coordinator import prepared
from siafu import allotment, outputs
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.models import ModelSpec
from siafu.shards import ShardSet

GRAPHS = {
    "dense": "synthetic:reddit-small?scale=0.05",
    # Fewer edges for each vertex, and fewer features: on one graph alone, what an edge costs could not be told from
    # what a vertex costs, nor what a value costs that is read from one that is made.
    "sparse": "synthetic:amazon?scale=0.004",
    "narrow": "synthetic:ogbn-products?scale=0.03",
    # Of one interval: each task waits for the one before, and epochs show how long it takes to wake a thread.
    "small": "synthetic:amazon?scale=0.0005",
    # Of rows that no cache holds.
    "large": "synthetic:ogbn-products?scale=0.08",
}
#: Thread, as ``processor_s`` names it -> constants that its time is made of, and the (role,
#: thread)s of ``Observed`` that it is.
THREADS: Mapping[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "pool": (
        ("task_s", "value_ns", "missed_ns", "score_ns", "copy_ns", "flop_ns", "read_ns", "element_ns", "tensor_s"),
        (("graph_server", "pool"),),
    ),
    "main": (("main_task_s", "main_tensor_s", "main_byte_ns"), (("graph_server", "main"),)),
    "io": (("io_message_s", "io_byte_ns"), (("graph_server", "io"),)),
    "lambda": (
        ("flop_ns", "read_ns", "element_ns", "tensor_s", "lambda_task_s", "lambda_byte_ns"),
        (("lambda_funcs", "main"), ("lambda_funcs", "pool")),
    ),
    "remote io": (("lambda_io_s", "lambda_io_byte_ns"), (("lambda_funcs", "io"),)),
    "param": (
        ("exchange_s", "exchange_byte_ns", "update_s", "update_byte_ns"),
        (("param_server", "main"), ("param_server", "io"), ("param_server", "pool")),
    ),
}
#: Found without a run.
BY_THEMSELVES = ("flop_ns", "word_ns", "word_back_ns", "copy_ns", "value_ns")
#: Of each setting's runs that in the middle is taken. The fastest would be that of a machine without neighbours: what
#: it predicts is then less than what most runs take.
ROUNDS, EPOCHS = 3, 13
#: The least share is of a machine that others keep as busy as we do.
SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5)
#: ``lambda.memory_mb`` of throttled environments: a quarter of a core.
THROTTLED_MB = 442
HOPS_S = (50e-6, 100e-6, 200e-6, 500e-6, 1e-3)
WAKES_S = (0.0, 50e-6, 100e-6, 200e-6, 300e-6)
#: Nine in ten of the predicted epochs must be closer than this, relative. 0.13 is usual on an idle machine.
POOR = 0.3


@dataclass(frozen=True)
class Setting:
    """A run to measure."""

    backend: str = "lambda"
    mode: str = "pipe"
    parts: int = 1
    intervals: int = 8
    hidden: int = 64
    environments: int = 2
    layers: int = 2
    staleness: int = 0
    graph: str = "dense"  # of ``GRAPHS``
    model: str = "gcn"
    eval_every: int = 0
    throttled: bool = False

    @property
    def words(self) -> str:
        return (
            f"{self.backend} {self.mode}, {self.parts} x {self.intervals} intervals, {self.model}, "
            f"{self.layers} layers, hidden {self.hidden}, {self.graph}{', evaluated' if self.eval_every else ''}"
            f"{', throttled' if self.throttled else ''}"
        )

    @property
    def epochs(self) -> int:
        """The number of epochs. Short epochs are repeated more often, so that start-up weighs less."""
        return 5 * EPOCHS if self.graph == "small" else EPOCHS

    @property
    def alone(self) -> bool:
        """Whether one server computes everything."""
        return self.backend == "cpu" and self.parts == 1

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that have an effect: others would be refused."""
        return {
            "servers.backend": self.backend,
            "train.mode": self.mode,
            "data.parts": self.parts,
            "train.intervals": self.intervals,
            "model.name": self.model,
            "model.hidden": (self.hidden,),
            "model.layers": self.layers,
            "train.eval_every": self.eval_every,
            **({"lambda.count": self.environments} if self.backend == "lambda" else {}),
            **({"train.staleness": self.staleness} if self.mode == "async" else {}),
            **({"lambda.cpu_share": "real", "lambda.memory_mb": THROTTLED_MB} if self.throttled else {}),
        }


#: What is measured: sizes of tasks, of rows and of the fleet differ, each for itself.
SETTINGS = (
    Setting("cpu", intervals=2),
    Setting("cpu", intervals=32, hidden=16),
    Setting("cpu", intervals=2, hidden=256),
    Setting("cpu", intervals=24),
    Setting("cpu", intervals=6, layers=3, hidden=128),
    Setting("cpu", intervals=1, hidden=16, graph="small"),
    Setting("cpu", intervals=1, layers=4, graph="small"),
    Setting("cpu", parts=2, intervals=3, hidden=128),
    Setting(intervals=4),
    Setting(intervals=32, hidden=16),
    Setting(intervals=8, hidden=256),
    Setting(intervals=24, environments=1),
    Setting(mode="no-pipe", intervals=40, hidden=48, environments=1),
    Setting(mode="no-pipe", intervals=12, environments=1),
    Setting("cpu", intervals=3, graph="sparse"),
    Setting("cpu", intervals=16, hidden=16, graph="sparse"),
    Setting("cpu", parts=2, intervals=2, graph="sparse"),
    Setting(hidden=128, graph="sparse"),
    Setting("cpu", intervals=3, graph="narrow"),
    Setting("cpu", intervals=8, hidden=128, graph="narrow"),
    Setting(intervals=4, hidden=32, graph="narrow"),
    Setting(parts=2, intervals=4, environments=1, graph="sparse"),
    Setting(parts=2, intervals=8, hidden=128, environments=1),
    Setting(parts=2, intervals=24, hidden=32, environments=1, layers=3),
    # Other models, rows that no cache holds, and evaluations.
    Setting("cpu", intervals=3, graph="large"),
    Setting("cpu", intervals=3, layers=4, graph="narrow", model="gcnii"),
    Setting("cpu", intervals=2, layers=3, model="sage"),
    Setting("cpu", intervals=2, hidden=32, graph="sparse", model="gin"),
    Setting("cpu", intervals=2, graph="sparse", model="gat"),
    Setting("cpu", parts=2, intervals=1, hidden=32, graph="small", model="gat"),
    Setting("cpu", intervals=1, graph="sparse", model="appnp"),
    Setting("cpu", intervals=2, graph="sparse", eval_every=1),
    Setting("cpu", intervals=1, hidden=32, graph="small", eval_every=1),
    Setting(intervals=1, hidden=32, graph="small", environments=1, eval_every=1),
    Setting(intervals=2, hidden=32, graph="narrow", model="sage"),
    Setting(intervals=16, environments=4, graph="sparse", throttled=True),
    Setting(intervals=16, hidden=128, environments=4, graph="sparse", throttled=True),
    Setting(intervals=16, hidden=32, environments=4, throttled=True),
)


@dataclass(frozen=True)
class Measured:
    setting: Setting
    config: Config
    spec: ModelSpec
    counts: Counts
    seen: Observed

    def plan(self, speeds: Speeds, memory: Bandwidth | None = None) -> Plan:
        return local_plan(self.config, self.spec, self.counts, speeds, bandwidth=memory)


def measured(source: str, setting: Setting, epochs: int, more: Mapping[str, Any] | None = None) -> Measured:
    config = Config().replace({"data.source": source, **setting.settings, **(more or {})})
    shards = ShardSet.open(prepared.shards_of(config))
    spec = ModelSpec.of(config, shards.manifest)
    seen = observed(source, {**setting.settings, **(more or {})}, epochs)
    return Measured(setting, config, spec, Counts.of(shards.manifest, config.data.split), seen)


def calibrate(console: Console) -> Calibration:
    """Measures this machine, which must be idle, in some minutes. Saves the result where ``Calibration.load`` looks for
    it. Raises what ``siafu.train`` raises, and ConfigError for a poor fit, which is not saved."""
    path = own_path()
    outputs.check_file_in_folder("calibration", path)
    found: dict[Setting, list[Measured]] = {}
    with console.status("calibrating") as status:
        for number in range(ROUNDS):
            for setting in SETTINGS:
                status.update(f"calibrating, round {number + 1} of {ROUNDS}: {setting.words}")
                found.setdefault(setting, []).append(measured(GRAPHS[setting.graph], setting, setting.epochs))
    runs = [middle(several) for several in found.values()]
    calibration = fitted(runs, machine_rates.measured())
    refuse_poor(runs, calibration)
    calibration.save(path)
    return calibration


def refuse_poor(runs: Sequence[Measured], found: Calibration) -> None:
    """Raises ConfigError for a poor fit (rule 5)."""
    if found.error <= POOR:
        return
    offs = errors(runs, found.speeds, found.memory)
    off, worst = max(zip(offs, runs, strict=True), key=lambda one: abs(one[0]))
    raise ConfigError(
        f"poor calibration, not kept: a tenth of the runs is off by more than {found.error:.0%}, must be {POOR:.0%}; "
        f"the worst, {worst.setting.words}, took {1000 * worst.seen.epoch_s:.0f} ms an epoch and is fitted with "
        f"{off:+.0%}. Other programs were probably running: repeat siafu plan --calibrate on an idle machine"
    )


def middle(runs: Sequence[Measured]) -> Measured:
    """The run with the median epoch time, the faster of two."""
    return sorted(runs, key=lambda run: run.seen.epoch_s)[(len(runs) - 1) // 2]


def fitted(runs: Sequence[Measured], rates: Rates | None = None) -> Calibration:
    """The constants that explain the runs best. With ``rates``, products, copies and memory have the speeds that were
    measured separately."""
    known_memory = {} if rates is None else {name: getattr(rates, name) for name in OF_MEMORY}
    memory = Calibration(**known_memory).memory
    speeds = Speeds().scaled(0.0)
    known = {name: getattr(rates, name) for name in BY_THEMSELVES} if rates else {}
    awake, throttled = ([run for run in runs if run.setting.throttled is one] for one in (False, True))
    for thread, (names, where) in THREADS.items():
        wanted = [name for name in names if name not in known]
        rows, right = [], []
        for run in awake:
            total = sum(run.seen.cpu_s.get(key, 0.0) for key in where)
            columns = [processor_s(run.plan(replace(speeds, **{name: 1.0}))).get(thread, 0.0) for name in wanted]
            before = processor_s(run.plan(replace(speeds, **known))).get(thread, 0.0)
            if any(columns) and total > 0:
                rows.append(np.array(columns) / total)
                right.append((total - before) / total)
        if not rows:
            continue
        # In built-in ones, so that nanoseconds and seconds are alike to the solver; one that is 0 there, as a value's.
        built_in = np.array([getattr(Speeds(), name) or Speeds().value_ns for name in wanted])
        factors, _ = nnls(np.array(rows) * built_in, np.array(right))
        known.update(zip(wanted, (factors * built_in).tolist(), strict=True))
    speeds = replace(speeds, **known)
    speeds = _with_walls(awake, replace(speeds, hop_s=HOPS_S[0], throttled=1.0), memory)
    asleep = [replace(speeds, throttled=share) for share in SHARES]
    speeds = min(asleep, key=lambda one: _squares(throttled, one, memory))
    offs = sorted(abs(off) for off in errors(runs, speeds, memory))
    error = offs[int(0.9 * (len(offs) - 1))]
    return Calibration(speeds, error, _machine(), date.today().isoformat(), **known_memory)


def _with_walls(runs: Sequence[Measured], speeds: Speeds, memory: Bandwidth) -> Speeds:
    """Fits the constants that are not processor time, from the values tried, until none fits the runs better. Late
    wake-ups and a small share of a processor look much alike, so these two are tried together."""
    while True:
        before = speeds
        woken = [_with_shares(runs, replace(speeds, wake_s=wake_s), memory) for wake_s in WAKES_S]
        speeds = min(woken, key=lambda one: _squares(runs, one, memory))
        hops = [replace(speeds, hop_s=hop_s) for hop_s in HOPS_S]
        speeds = min(hops, key=lambda one: _squares(runs, one, memory))
        if speeds == before:
            return speeds


def _with_shares(runs: Sequence[Measured], speeds: Speeds, memory: Bandwidth) -> Speeds:
    """Fits each share to the runs that it applies to."""
    for name, alone in (("usable", True), ("usable_among", False)):
        alike = [run for run in runs if run.setting.alone is alone]
        each = [replace(speeds, **{name: share}) for share in SHARES]
        speeds = min(each, key=lambda one: _squares(alike, one, memory))
    return speeds


def _squares(runs: Sequence[Measured], speeds: Speeds, memory: Bandwidth) -> float:
    return sum(off * off for off in errors(runs, speeds, memory))


def errors(runs: Sequence[Measured], speeds: Speeds, memory: Bandwidth | None = None) -> list[float]:
    """Relative errors of predicted epoch times: 0.1 is a tenth too long."""
    return [predicted_s(run.plan(speeds, memory)) / run.seen.epoch_s - 1 for run in runs]


def predicted_s(plan: Plan) -> float:
    return simulated(plan, 8, Random(0)).epoch_s


def _machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{allotment.cores()} cores of {name}"
