"""How late and in how many bits the rows of each layer travel, so that they are off by no more than was asked for. Pure.

1. A stream (a layer in one direction) is late or not, and its rows have 2, 4 or 8 bits or are as they are: 8 choices.
2. What a choice does to rows is foretold from what was measured on the rows that were sent, relative to their size in the
   Frobenius norm: lateness  s = |H_t - H_{t-d}| / |H_t|;  b bits  r / (2^b - 1)  with  r² = Σ D (max - min)² / 6 / |H_t|²,
   the variance of stochastic rounding. Rounding is unbiased and knows nothing of lateness, so that squares add up.
3. A choice is allowed if its error is within the budget. Exact rows as they are always are.
4. An epoch lasts as long as its computing, quantising and all exchanges that are waited for; yet no less than the link needs
   for all bytes. Late rows cost nothing as long as computing hides them.
5. Of all allowed plans the fastest is wanted, and of those that are as fast one whose errors are small: no change of one
   stream makes it better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpu_baselines.halos.codec import Stream
from gpu_baselines.halos.quantise import PARAMETER_BYTES, row_bytes

WIDTHS = (None, 8, 4, 2)  # bits per value; None: as they are
MOST_PLANS = 200  # of one frontier; of more, every nth is followed


class Choice(NamedTuple):
    late: bool
    bits: int | None


EXACT = Choice(late=False, bits=None)
CHOICES = [Choice(late, bits) for late in (False, True) for bits in WIDTHS]


class Seen(NamedTuple):
    """Of the rows that all ranks sent on one stream in one epoch. Sums over ranks."""

    square: float  # |H_t|²
    change: float  # |H_t - H_{t-d}|²
    spread: float  # Σ over rows of D (max - min)² / 6
    rows: int  # of the rank that sends most
    width: int  # values of a row
    itemsize: int  # bytes of a value

    def error(self, choice: Choice) -> float:
        lateness = _ratio(self.change, self.square) if choice.late else 0.0
        rounding = 0.0 if choice.bits is None else _ratio(self.spread, self.square) / (2**choice.bits - 1) ** 2
        return math.sqrt(lateness + rounding)

    def nbytes(self, choice: Choice) -> int:
        if choice.bits is None:
            return self.rows * self.width * self.itemsize
        return self.rows * (PARAMETER_BYTES + row_bytes(self.width, choice.bits))


class Costs(NamedTuple):
    """Seconds, of the slowest rank."""

    compute_s: float  # of an epoch, without waiting and quantising
    byte_s: float  # that a rank's link needs for a byte
    exchange_s: float  # of an exchange of no bytes
    value_s: float  # to quantise a value there and back


Plan = dict[Stream, Choice]


def chosen(seen: Mapping[Stream, Seen], budget: float, costs: Costs) -> Plan:
    """The plan after rule 5; equal arguments give equal plans."""
    options = {
        stream: [Option.of(one, choice) for choice in CHOICES if one.error(choice) <= budget]
        for stream, one in seen.items()
    }
    return {stream: option.choice for stream, option in _refined(_fastest(options, costs), options, costs).items()}


class Load(NamedTuple):
    """What choices add to an epoch, in whole numbers: sums of them are the same in any order."""

    link: int = 0  # bytes
    waited: int = 0  # those of them that are waited for
    exchanges: int = 0  # that are waited for
    values: int = 0  # quantised

    def __add__(self, other: Load) -> Load:  # type: ignore[override]
        return Load(*(a + b for a, b in zip(self, other, strict=True)))

    def __sub__(self, other: Load) -> Load:
        return Load(*(a - b for a, b in zip(self, other, strict=True)))

    def both(self, costs: Costs) -> tuple[float, float]:
        """(seconds of the main thread beside computing, seconds of the link)."""
        waited_s = costs.byte_s * self.waited + costs.exchange_s * self.exchanges
        return costs.value_s * self.values + waited_s, costs.byte_s * self.link

    def seconds(self, costs: Costs) -> float:
        """Rule 4."""
        busy, link = self.both(costs)
        return max(costs.compute_s + busy, link)


class Option(NamedTuple):
    choice: Choice
    load: Load
    error: float  # squared

    @classmethod
    def of(cls, seen: Seen, choice: Choice) -> Option:
        nbytes = seen.nbytes(choice)
        values = 0 if choice.bits is None else seen.rows * seen.width
        waited, exchanges = (0, 0) if choice.late else (nbytes, 1)
        return cls(choice, Load(nbytes, waited, exchanges, values), seen.error(choice) ** 2)


def epoch_seconds(plan: Mapping[Stream, Choice], seen: Mapping[Stream, Seen], costs: Costs) -> float:
    return _whole(Option.of(seen[stream], choice) for stream, choice in plan.items()).seconds(costs)


def _whole(options: Iterable[Option]) -> Load:
    return sum((option.load for option in options), Load())


def _fastest(options: Mapping[Stream, list[Option]], costs: Costs) -> dict[Stream, Option]:
    """Stream by stream, all plans so far but those that another one beats in both times; of too many, every nth."""
    frontier: list[tuple[Load, tuple[Option, ...]]] = [(Load(), ())]
    for choices in options.values():
        longer = [(load + option.load, (*plan, option)) for load, plan in frontier for option in choices]
        longer.sort(key=lambda point: point[0].both(costs))
        frontier, least = [], math.inf
        for load, plan in longer:
            if (link := load.both(costs)[1]) < least:
                frontier.append((load, plan))
                least = link
        if len(frontier) > MOST_PLANS:
            step = (len(frontier) - 1) / (MOST_PLANS - 1)
            frontier = [frontier[round(i * step)] for i in range(MOST_PLANS)]
    _, plan = min(frontier, key=lambda point: point[0].seconds(costs))
    return dict(zip(options, plan, strict=True))


def _refined(
    plan: Mapping[Stream, Option], options: Mapping[Stream, list[Option]], costs: Costs
) -> dict[Stream, Option]:
    """One stream after the other takes what is best beside what the others have, until nothing changes."""
    found, before, load = dict(plan), None, _whole(plan.values())
    while found != before:  # every step is better by rule 5, and there are finitely many plans
        before = dict(found)
        for stream, choices in options.items():
            others = load - found[stream].load
            best = load.seconds(costs), found[stream].error
            for option in choices:
                value = (others + option.load).seconds(costs), option.error
                if value < best:
                    best, found[stream] = value, option
            load = others + found[stream].load
    return found


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0 if not part else math.inf
