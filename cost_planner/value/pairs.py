"""The ratio of two contenders' values, with an interval: seeds are paired.

1. A contender's value over many runs is 1 / (T C): T and C are what all its runs spent, failures included, divided by
   the number of runs that reached the target. So they are the expected time and money of training until it succeeds.
2. Runs of one seed begin with the same weights and come one after the other on the machine: what they have in common
   leaves the ratio when seeds, not runs, are what varies.
3. The interval is the jackknife's over the seeds (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch.
   11), of the logarithm of the ratio, with Student's t. With no failures this is nearly the t interval of the seeds'
   own log ratios; a percentile bootstrap of so few seeds is too narrow.
4. Of speeds, 1 / T, ratios and intervals are made in the same way.
5. With fewer than ``MIN_SEEDS`` seeds, or fewer than two successes of either, there is no interval and no claim.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

MIN_SEEDS = 5
#: Intervals are of 1 - ALPHA: 95%.
ALPHA = 0.05


@dataclass(frozen=True)
class Attempt:
    """A run that reached the target, or trained to its end without reaching it."""

    seed: int
    reached: bool
    seconds: float
    usd: float


@dataclass(frozen=True)
class Ratio:
    times: float
    seeds: int  # that both have
    low: float | None = None  # of the interval; None: rule 5
    high: float | None = None

    @property
    def interval(self) -> list[float] | None:
        return None if self.low is None or self.high is None else [self.low, self.high]

    @property
    def certain(self) -> bool | None:
        """Whether the two are distinguishable; None: unknown (rule 5)."""
        if self.low is None or self.high is None:
            return None
        return self.low > 1 or self.high < 1


#: The logarithm of what runs are compared by; None without success, or where something cost nothing.
LogOf = Callable[[Sequence[Attempt]], float | None]


def log_value(attempts: Sequence[Attempt]) -> float | None:
    """The logarithm of a value: rule 1."""
    successes = sum(one.reached for one in attempts)
    seconds, usd = sum(one.seconds for one in attempts), sum(one.usd for one in attempts)
    if not successes or not seconds or not usd:
        return None
    return 2 * math.log(successes) - math.log(seconds) - math.log(usd)


def log_speed(attempts: Sequence[Attempt]) -> float | None:
    """The logarithm of a speed: rule 4."""
    successes, seconds = sum(one.reached for one in attempts), sum(one.seconds for one in attempts)
    return math.log(successes) - math.log(seconds) if successes and seconds else None


def ratio(
    mine: Sequence[Attempt], others: Sequence[Attempt], choices: int = 1, log_of: LogOf = log_value
) -> Ratio | None:
    """The ratio over the seeds that both have; None if one of them has no success in these. ``choices``: number of
    pairs from which this one was chosen after the runs: the interval is widened for it (Bonferroni)."""
    seeds = sorted({one.seed for one in mine} & {one.seed for one in others})
    whole = _log_ratio(mine, others, seeds, log_of)
    if whole is None:
        return None
    count = len(seeds)
    without = [_log_ratio(mine, others, [*seeds[:n], *seeds[n + 1 :]], log_of) for n in range(count)]
    known = [one for one in without if one is not None]
    if count < MIN_SEEDS or len(known) < count:
        return Ratio(math.exp(whole), count)
    centre = sum(known) / count
    error = math.sqrt((count - 1) / count * sum((one - centre) ** 2 for one in known))
    around = float(stdtrit(count - 1, 1 - ALPHA / choices / 2)) * error
    return Ratio(math.exp(whole), count, math.exp(whole - around), math.exp(whole + around))


def _log_ratio(
    mine: Sequence[Attempt], others: Sequence[Attempt], seeds: Collection[int], log_of: LogOf
) -> float | None:
    found = [log_of([one for one in attempts if one.seed in seeds]) for attempts in (mine, others)]
    return None if found[0] is None or found[1] is None else found[0] - found[1]
