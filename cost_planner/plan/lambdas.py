"""Tells whether Lambdas pay on one cluster, and at which width, price or limit of cores they would.

1. The cluster is that of the best option of CPUs alone. On it both backends run in pipe mode, each with its best
   settings.
2. Width: a product's arithmetic grows with the square of the hidden width, the rows that travel to Lambdas only with
   the width itself. So the wider a model is, the more Lambdas gain: on servers with F flop/s and links of B bytes/s
   from about 8 F / 6 B columns on. Both are simulated with every one of ``WIDTHS`` that the cluster holds.
3. Price: a bill is linear in Lambda's prices.
4. Length: of all simulated options, the best with Lambdas and the best of CPUs alone are compared in runs of other
   numbers of epochs, too. Their epochs are not simulated again: a run takes its setup, its first epoch, and as many
   more as it needs. EC2 bills at least 60 s, Lambda has no minimum.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cost_planner.plan.asked import Asked
from cost_planner.plan.options import Catalogue, Option
from cost_planner.plan.ranking import Predicted, bill, first_epochs
from siafu.config import Model
from siafu.models import named
from siafu.pricing import cost

#: Of hidden layers.
WIDTHS = tuple(2**n for n in range(4, 13))
#: Options of a backend that are simulated: those whose floors promise most.
PROMISING = 2
#: Epochs of ``pipe`` in runs that are compared (rule 4).
LENGTHS = (*(count * 10**power for power in range(4) for count in (1, 3)), 10_000)


@dataclass(frozen=True)
class Pair:
    """The best options of CPUs alone and of Lambdas, on the same servers."""

    alone: Predicted
    beside: Predicted

    @property
    def faster(self) -> float:
        """Time of CPUs alone over that with Lambdas."""
        return self.alone.seconds / self.beside.seconds

    @property
    def worth(self) -> float:
        """Value with Lambdas over that of CPUs alone."""
        return self.beside.value / self.alone.value

    @property
    def free_usd(self) -> float:
        """Dollars of the bill with Lambdas that an unused month's free tier would pay."""
        amounts, config = self.beside.cost.amounts, self.beside.option.config
        return cost.free_usd(amounts["requests"], amounts["gb_s"], config.cloud.arch, config.lambdas.region)

    @property
    def usd_per_gb_s(self) -> float:
        """Lambda's price of a GB-s, the mean over the bill with Lambdas."""
        computed = [item for item in self.beside.cost.items if (item.part, item.unit) == ("lambda", "GB-s")]
        return sum(item.usd for item in computed) / sum(item.quantity for item in computed)

    @property
    def even_price(self) -> float | None:
        """The factor of Lambda's prices at which both have the same value; None: there is none."""
        of_lambda = self.beside.cost.parts["lambda"]
        may_cost = self.alone.seconds * self.alone.cost.usd / self.beside.seconds
        factor = (may_cost - (self.beside.cost.usd - of_lambda)) / of_lambda
        return factor if factor > 0 else None


@dataclass(frozen=True)
class Length:
    """The length of a run."""

    epochs: int  # of pipe
    seconds: float  # of the best option with Lambdas


@dataclass(frozen=True)
class Lengths:
    """Run lengths at which the best option with Lambdas is ahead of the best of CPUs alone."""

    first: Length
    last: Length | None  # None: longer runs than those of ``LENGTHS`` are not known


@dataclass(frozen=True)
class Lambdas:
    """Lambdas beside CPUs alone on one cluster: as asked, and with hidden layers of other widths. Over all simulated
    options, also in runs of other lengths."""

    asked: Pair
    by_width: Mapping[int, Pair]  # narrowest first; empty for a model without hidden layers
    worth_more: Sequence[Lengths]  # shortest first; empty: at none of ``LENGTHS``
    cheaper: Sequence[Lengths]
    max_vcpus: float  # of EC2, that the user allows; infinite: no limit


def lambdas_on(asked: Asked, predicted: Sequence[Predicted]) -> Lambdas | None:
    """Compares Lambdas with CPUs alone. None if one of them was not asked for, or does not fit. ``predicted``: best
    first."""
    predicted = [one for one in predicted if not one.option.needs_low_cut] or predicted
    best = next((one for one in predicted if one.option.backend == "cpu"), None)
    if best is None or "lambda" not in asked.backends:
        return None
    machine, servers = best.option.machine.name, best.option.machines
    cluster = replace(asked, instances=[machine], servers=[servers], backends=("cpu", "lambda"), modes=(("pipe", 0),))
    pair = _pair(cluster, best.error)
    if pair is None:
        return None
    there = [one for one in predicted if (one.option.machine.name, one.option.machines) == (machine, servers)]
    pair = Pair(*(_better(one, there) for one in (pair.alone, pair.beside)))
    by_width: dict[int, Pair] = {}
    for width in _widths(asked.config.model):
        config = asked.config.replace({"model.hidden": (width,)})
        found = pair if config == asked.config else _pair(replace(cluster, config=config), best.error)
        if found is not None:
            by_width[width] = found
    every = [*predicted, pair.alone, pair.beside]
    worth_more = lengths(every, asked.epochs.of_pipe, lambda one: one.value)
    cheaper = lengths(every, asked.epochs.of_pipe, lambda one: -one.cost.usd)
    return Lambdas(pair, by_width, worth_more, cheaper, asked.max_vcpus)


def lengths(predicted: Sequence[Predicted], of_pipe: float, good: Callable[[Predicted], float]) -> list[Lengths]:
    """Run lengths by rule 4, shortest first; more of ``good`` is better. of_pipe: epochs of ``pipe`` in
    ``predicted``."""

    def best(backend: str, epochs: int) -> Predicted:
        found = [_lasting(one, epochs / of_pipe) for one in predicted if one.option.backend == backend]
        return max(found, key=good)

    def ahead(epochs: int) -> bool:
        return good(best("lambda", epochs)) > good(best("cpu", epochs))

    def length(epochs: int) -> Length:
        return Length(epochs, best("lambda", epochs).seconds)

    def first_unlike(epochs: int, longer: int) -> int:
        was, others = ahead(epochs), range(epochs + 1, longer)
        return epochs + 1 + bisect_left(others, True, key=lambda one: ahead(one) != was)

    found: list[Lengths] = []
    begun = 1 if ahead(LENGTHS[0]) else 0  # epochs since which they have been ahead; 0: they are not
    for shorter, longer in pairwise(LENGTHS):
        if ahead(longer) == bool(begun):
            continue
        changed = first_unlike(shorter, longer)
        if begun:
            found.append(Lengths(length(begun), length(changed - 1)))
        begun = 0 if begun else changed
    return [*found, Lengths(length(begun), None)] if begun else found


def _lasting(one: Predicted, times: float) -> Predicted:
    """The same option with ``times`` its epochs."""
    return replace(one, option=replace(one.option, epochs=max(1, round(times * one.option.epochs))))


def _widths(model: Model) -> tuple[int, ...]:
    """Widths that the model's hidden layers can have; empty without hidden layers."""
    made = named(model.name)
    heads = model.heads if "heads" in made.takes else 1
    has_hidden = model.num_hidden and "hidden" not in made.unused_settings
    return tuple(width for width in WIDTHS if has_hidden and width % heads == 0)


def _pair(asked: Asked, error: float) -> Pair | None:
    """The best options of both; None if one does not fit."""
    options = Catalogue(asked).options
    options = [one for one in options if not one.needs_low_cut] or options
    alone, beside = (_best([one for one in options if one.backend == name], error) for name in ("cpu", "lambda"))
    return None if alone is None or beside is None else Pair(alone, beside)


def _better(found: Predicted, others: Sequence[Predicted]) -> Predicted:
    """The best of ``found`` and the others of its kind."""
    return max([found, *(one for one in others if one.option.kind == found.option.kind)], key=lambda one: one.value)


def _best(options: Sequence[Option], error: float) -> Predicted | None:
    promising = sorted(options, key=_spent)[:PROMISING]
    found = [Predicted(option, first_epochs(option, seed=0), error) for option in promising]
    return max(found, key=lambda one: one.value, default=None)


def _spent(option: Option) -> float:
    """Lower bound of seconds times US dollars."""
    seconds = option.setup_s + option.epochs * option.floor_s
    return seconds * bill(option, seconds, option.environments).usd
