"""Ranks the options: compares thousands by their lower bound, and simulates the promising ones.

1. Until an option is simulated, its epoch is estimated as its floor (``cost_planner.plan.bounds``) times a factor: the
   median ratio of simulated epochs to floors for its kind (backend, mode, staleness). Without a simulated one the
   factor is 1, so that every kind gets its chance.
2. In rounds, these options are simulated until all are, or ``BUDGET`` is used up: the best of every kind, the answers
   to the user's limits, some of the Pareto front of time and dollars, and the best by value. Only simulated options are
   shown. Options that need a lower cut than the assumed one come last, and only the best of them by value is simulated.
   They are shown if they have more value than the best of the others.
3. Only the first epochs are simulated: the others take as long as the last of them. Evaluations that are not in every
   epoch are left out of the simulation, and lengthen epochs by their share of the floor. Interruptions of spot machines
   (``cost_planner.plan.interruptions``) are counted for simulated options alone.
4. The error of a time combines those of the calibration, of the assumed speed of cores (``cost_planner.plan.cores``)
   and of GPUs (``cost_planner.plan.cards``), and the spread among seeds, as independent errors add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from statistics import median
from typing import NamedTuple

import numpy as np

from cost_planner.plan import interruptions
from cost_planner.plan.bounds import Floors
from cost_planner.plan.cores import SPEED_ERROR
from cost_planner.plan.interruptions import Interruptions
from cost_planner.plan.options import Option
from cost_planner.plan.simulated_run import Plan
from cost_planner.plan.simulator import REPRESENTATIVES, simulated
from cost_planner.value import value
from siafu.config import Config
from siafu.pricing import cost
from siafu.pricing.cost import Cost
from siafu.sparse import Array

#: Epochs that are simulated: environments start and asynchrony warms up in the first.
EPOCHS = 3
#: Steps of intervals that are simulated: about half a minute of one core. And options, where they are small.
BUDGET, MOST = 24 * EPOCHS * REPRESENTATIVES * 64 * 9, 60
#: Simulations of the best option, whose spread is taken for everybody's.
SEEDS = 3
FRONT = 6


@dataclass(frozen=True)
class Limits:
    seconds: float = math.inf
    usd: float = math.inf


class Simulated(NamedTuple):
    epoch_s: float
    first_s: float  # the first epoch
    environments: int  # of all servers, at the end


@dataclass(frozen=True, eq=False)
class Predicted:
    """A simulated option."""

    option: Option
    simulated: Simulated
    error: float  # of times, relative

    @property
    def epoch_s(self) -> float:
        return self.simulated.epoch_s

    @property
    def first_s(self) -> float:
        return self.simulated.first_s

    @property
    def training_s(self) -> float:
        return self.first_s + (self.option.epochs - 1) * self.epoch_s

    @cached_property
    def interruptions(self) -> Interruptions:
        """Interruptions of spot machines; none on demand."""
        return interruptions.of(self.option, self.training_s, self.epoch_s)

    @cached_property
    def seconds(self) -> float:
        return self.option.setup_s + self.training_s + self.interruptions.seconds

    @property
    def seconds_range(self) -> tuple[float, float]:
        return self.seconds / (1 + self.error), self.seconds * (1 + self.error)

    @cached_property
    def cost(self) -> Cost:
        return bill(self.option, self.seconds, self.simulated.environments)

    @property
    def usd_range(self) -> tuple[float, float]:
        low, high = (bill(self.option, seconds, self.simulated.environments).usd for seconds in self.seconds_range)
        return low, high

    @property
    def value(self) -> float:
        return value(self.seconds, self.cost.usd)


def bill(option: Option, seconds: float, environments: int) -> Cost:
    """The cost if all environments run from start to end, reinvoked before Lambda's time limit. For a baseline, its
    machine alone."""
    if option.backend == "vanilla":
        found = cost.of_baseline(option.config, seconds=seconds)
        assert found is not None, "cloud.gpu_instance says on what"
        return found
    return bill_of_servers(option.config, seconds, environments)


def bill_of_servers(config: Config, seconds: float, environments: int) -> Cost:
    lambdas = config.lambdas
    requests = environments * math.ceil(seconds / (lambdas.timeout_s - lambdas.margin_s))
    gb_s = environments * seconds * lambdas.memory_mb / 1024
    return cost.of_run(config, requests=requests, gb_s=gb_s, seconds=seconds)


class Ranking:
    def __init__(self, options: Sequence[Option], error: float, limits: Limits, top: int, budget: int = BUDGET):
        self.options, self.limits, self.top = options, limits, top
        self._floor_s = np.array([option.floor_s for option in options])
        self._epochs = np.array([option.epochs for option in options])
        self._setup_s = np.array([option.setup_s for option in options])
        self._usd_per_s = np.array(_rates(options))
        self._kinds = [option.kind for option in options]
        self._fits = np.array([not option.needs_low_cut for option in options])
        if not self._fits.any():
            self._fits[:] = True
        self._error = math.hypot(error, SPEED_ERROR)
        # All mutable state:
        self._found: dict[int, Simulated] = {}  # by the option's number
        self._left = budget
        self._simulate()
        best = max(self._found, key=lambda index: (bool(self._fits[index]), self._predicted(index).value))
        self._error = math.hypot(self._error, self._spread(best))
        self.predicted = sorted(
            map(self._predicted, self._found), key=lambda one: (one.option.needs_low_cut, -one.value)
        )

    @property
    def error(self) -> float:
        """Relative error of times without a GPU."""
        return self._error

    # --- what comes of it -------------------------------------------------------------------------------------------

    @property
    def shown(self) -> list[Predicted]:
        """The best ``top``, the Pareto front, and the answers to limits: best first."""
        return self.rows(self.top)

    def rows(self, top: int) -> list[Predicted]:
        """The options of ``shown``, with another ``top``."""
        found = _different(range(len(self.predicted)), [one.option for one in self.predicted], top)
        kept = {id(one) for one in [*(self.predicted[index] for index in found), *self.front]}
        limited = self.limits.seconds < math.inf, self.limits.usd < math.inf
        answers = zip(limited, (self.cheapest_within, self.fastest_within), strict=True)
        kept |= {id(one) for is_asked, one in answers if is_asked and one}
        kept |= {id(one) for one in self.predicted if one.value > self.predicted[0].value}
        return [one for one in self.predicted if id(one) in kept]

    @cached_property
    def front(self) -> list[Predicted]:
        """Options that no other beats in both time and cost; fastest first."""
        found: list[Predicted] = []
        for one in sorted(self._fitting, key=lambda one: (one.seconds, one.cost.usd)):
            if not found or one.cost.usd < found[-1].cost.usd:
                found.append(one)
        return found

    @property
    def cheapest_within(self) -> Predicted | None:
        """The cheapest option within ``limits.seconds``."""
        found = [one for one in self._fitting if one.seconds <= self.limits.seconds]
        return min(found, key=lambda one: one.cost.usd, default=None)

    @property
    def fastest_within(self) -> Predicted | None:
        """The fastest option within ``limits.usd``."""
        found = [one for one in self._fitting if one.cost.usd <= self.limits.usd]
        return min(found, key=lambda one: one.seconds, default=None)

    @property
    def _fitting(self) -> list[Predicted]:
        """Options that fit with the assumed cut; all, if none does."""
        return [one for one in self.predicted if not one.option.needs_low_cut] or self.predicted

    # --- simulating -------------------------------------------------------------------------------------------------

    def _predicted(self, index: int) -> Predicted:
        option = self.options[index]
        return Predicted(option, self._found[index], math.hypot(self._error, option.error))

    def _simulate(self) -> None:
        while wanted := [index for index in dict.fromkeys(self._wishes()) if index not in self._found]:
            for index in wanted:
                plan = self.options[index].in_pipe
                work = EPOCHS * min(plan.servers, REPRESENTATIVES) * plan.intervals * len(plan.program)
                if self._found and (work > self._left or len(self._found) >= MOST):
                    return
                self._left -= work
                self._found[index] = first_epochs(self.options[index], seed=0)

    def _wishes(self) -> Iterator[int]:
        """Options to simulate next, by rule 2."""
        seconds, usd = self._estimated()
        if_low = np.flatnonzero(~self._fits)
        if len(if_low):
            low = int(if_low[(seconds * usd)[if_low].argmin()])
            seconds[if_low] = usd[if_low] = np.inf
        order = [int(index) for index in np.argsort(seconds * usd, kind="stable") if self._fits[index]]
        best: dict[tuple[str, str, int], int] = {}
        for index in order:
            best.setdefault(self._kinds[index], index)
        yield order[0]
        yield from best.values()
        if len(within := np.flatnonzero(seconds <= self.limits.seconds)):
            yield int(within[usd[within].argmin()])
        if len(within := np.flatnonzero(usd <= self.limits.usd)):
            yield int(within[seconds[within].argmin()])
        yield from thinned(front_of(seconds, usd), seconds, FRONT)
        yield from _different(order, self.options, self.top)
        if len(if_low):
            yield low

    def _estimated(self) -> tuple[Array, Array]:
        """Estimated seconds and US dollars of every option."""
        ratios: dict[tuple[str, str, int], list[float]] = {}
        for index, found in self._found.items():
            ratios.setdefault(self._kinds[index], []).append(found.epoch_s / float(self._floor_s[index]))
        factors = {kind: median(several) for kind, several in ratios.items()}
        epoch_s = self._floor_s * [factors.get(kind, 1.0) for kind in self._kinds]
        seconds = self._setup_s + self._epochs * epoch_s
        for index in self._found:
            seconds[index] = self._predicted(index).seconds
        return seconds, np.maximum(seconds, cost.EC2_MINIMUM_S) * self._usd_per_s

    def _spread(self, index: int) -> float:
        """Half the range of epoch times over seeds, relative to the median."""
        found = [
            self._found[index].epoch_s,
            *(first_epochs(self.options[index], seed).epoch_s for seed in range(1, SEEDS)),
        ]
        return (max(found) - min(found)) / 2 / median(found)


def first_epochs(option: Option, seed: int) -> Simulated:
    """Simulates the first epochs of an option: rule 3."""
    return simulated_epochs(option.plan, option.floors, seed)


def simulated_epochs(plan: Plan, floors: Floors, seed: int) -> Simulated:
    """Simulates the first epochs of any run: rule 3. ``floors``: its own."""
    share, mode = 1.0, plan.mode
    if plan.eval_every > 1:
        plan = replace(plan, eval_every=0)
        share = floors.epoch_s(mode) / floors_of(plan).epoch_s(mode)
    outcome = simulated(plan, EPOCHS, Random(seed))
    return Simulated(outcome.epoch_s * share, outcome.epoch_ends[0] * share, outcome.environments * plan.servers)


def floors_of(plan: Plan) -> Floors:
    """Bounds of a run with its environments, if it has any; with the autotuner, as many as find a task."""
    floors, kind = Floors.of(plan), plan.environments
    return floors.with_environments(kind.count or min(plan.intervals, kind.most), kind.core) if kind else floors


def _different(order: Iterable[int], options: Sequence[Option], most: int) -> list[int]:
    """The first ``most`` options that are each the first of their kind on their type of machine."""
    first: dict[tuple[object, ...], int] = {}
    for index in order:
        first.setdefault((options[index].kind, options[index].machine.name), index)
    return list(first.values())[:most]


def front_of(seconds: Array, usd: Array) -> list[int]:
    """Options that no other beats in both; fastest first."""
    order = np.lexsort((usd, seconds))
    cheaper = usd[order] < np.minimum.accumulate(np.concatenate([[np.inf], usd[order][:-1]]))
    return [int(index) for index in order[cheaper]]


def thinned(front: Sequence[int], seconds: Array, most: int) -> list[int]:
    """At most ``most`` options of the front, both ends included, evenly spaced in the logarithm of time."""
    if len(front) <= most:
        return list(front)
    where = np.log(seconds[list(front)])
    return [front[int(np.abs(where - goal).argmin())] for goal in np.linspace(where[0], where[-1], most)]


def _rates(options: Sequence[Option]) -> list[float]:
    """US dollars per second of a one-hour run: the modes of a plan cost the same."""
    found: dict[int, float] = {}
    for option in options:
        if id(option.in_pipe) not in found:
            found[id(option.in_pipe)] = bill(option, cost.HOUR_S, option.environments).usd / cost.HOUR_S
    return [found[id(option.in_pipe)] for option in options]
