"""Chooses the bits of each halo row: AdaQP's trade-off of variance and time (Wan et al., MLSys 2023, section 4.2).
Pure.

1. One problem for each layer, direction and round of the ring: in a round every rank sends to one other, and the
   slowest pair makes all wait. Over widths b of groups g of the pairs i (equation 12, both terms normalised):

       min  balance * (V - V_8) / (V_2 - V_8) + (1 - balance) * (T - T_2) / (T_8 - T_2)
       V = sum_ig beta_g / (2^b_g - 1)^2           V_b, T_b: if all groups had b bits
       T = max_i  theta_i sum_g n_g b_g + gamma_i  n_g: values of the group

2. beta of a row of F values is w F (max - min)^2 / 6, where w is the sum of the squared coefficients that its
   neighbours on the other rank have it with (in sums over an epoch's rows, it is summed too).
3. Rows are sorted by beta, the largest first, and cut into groups of equal size; the last may be smaller.
4. Time that a pair has left while the slowest one sends is used: the variance counts at least ``LEAST_BALANCE``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpu_baselines.halos.quantise import WIDTHS
from siafu.sparse import Array

LEAST_BALANCE = 1e-3
_BITS = np.array(WIDTHS, np.float64)
_FACTORS = 1 / (2.0**_BITS - 1) ** 2  # of beta, by width


@dataclass(frozen=True, eq=False)
class Pair:
    """The message from one rank to another in a round."""

    beta: Array  # float64 [g], of groups as ``grouped`` makes them
    values: Array  # int64 [g], n_g
    theta: float = 1.0  # seconds per bit, or whatever all pairs are measured in
    gamma: float = 0.0


class Terms(NamedTuple):
    """Parts of the objective: V_8 and V_2 - V_8, T_2 and T_8 - T_2. Both ranges are above 0."""

    least_variance: float
    variance_range: float
    least_seconds: float
    seconds_range: float
    balance: float

    def objective(self, V: Any, T: Any) -> Any:
        return (
            self.balance * (V - self.least_variance) / self.variance_range
            + (1 - self.balance) * (T - self.least_seconds) / self.seconds_range
        )


def grouped(beta: Array, width: int, size: int) -> tuple[Array, Array, Array]:
    """Groups of ``size`` rows, for rows with these betas [k] and ``width`` values each: the order in which rows are
    grouped (int64 [k]), and each group's sum of beta and number of values."""
    order = np.argsort(-beta, kind="stable")
    starts = np.arange(0, len(beta), size)
    sums = np.add.reduceat(beta[order], starts) if len(beta) else np.zeros(0)
    return order, sums, np.diff(np.append(starts, len(beta))) * width


def assigned(pairs: Sequence[Pair], balance: float) -> list[Array]:
    """The widths of one round: uint8 [g] for each pair. T is the time of some pair: so each such time is tried, with
    the best that each pair can do within it. The result is optimal."""
    if not any(len(pair.values) for pair in pairs):
        return [np.zeros(0, np.uint8) for _ in pairs]
    terms = terms_of(pairs, balance)
    fronts = [frontier(pair.beta, pair.values) for pair in pairs]
    times = [pair.theta * front.bits + pair.gamma for pair, front in zip(pairs, fronts, strict=True)]
    tried = np.unique(np.concatenate(times))
    tried = tried[tried >= terms.least_seconds]
    places = [np.searchsorted(time, tried, side="right") - 1 for time in times]
    V = np.sum([front.V[place] for front, place in zip(fronts, places, strict=True)], axis=0)
    best = int(np.argmin(terms.objective(V, tried)))
    return [
        _widths(front, int(place[best]), len(pair.values))
        for pair, front, place in zip(pairs, fronts, places, strict=True)
    ]


def terms_of(pairs: Sequence[Pair], balance: float) -> Terms:
    total = sum(float(pair.beta.sum()) for pair in pairs)
    least_variance, most_V = total * _FACTORS[-1], total * _FACTORS[0]
    least_seconds, most_T = (
        max(pair.theta * b * pair.values.sum() + pair.gamma for pair in pairs) for b in (WIDTHS[0], WIDTHS[-1])
    )
    return Terms(
        least_variance,
        most_V - least_variance or 1.0,
        least_seconds,
        most_T - least_seconds or 1.0,
        max(balance, LEAST_BALANCE),
    )


def cost(pairs: Sequence[Pair], widths: Sequence[Array]) -> tuple[float, float]:
    """V and T of an assignment."""
    V = sum(float(pair.beta @ (1 / (2.0**b - 1) ** 2)) for pair, b in zip(pairs, widths, strict=True))
    T = max(
        pair.theta * float(pair.values @ b.astype(np.int64)) + pair.gamma for pair, b in zip(pairs, widths, strict=True)
    )
    return V, T


# --- what a pair can do -----------------------------------------------------------------------------------------------


class Frontier(NamedTuple):
    """The least variance of a pair for each number of bits that it may send, in increasing order."""

    bits: Array  # int64 [c]
    V: Array  # float64 [c], decreasing
    eights: Array  # int64 [c], how many of the full groups get 8 bits, the first ones
    fours: Array  # int64 [c], how many after these get 4
    last: Array  # int64 [c], bits of the last group, if it is smaller; else 0


def frontier(beta: Array, values: Array) -> Frontier:
    """The frontier of a pair's groups. Their betas decrease, and their values are equal, except those of the last,
    which may be fewer.

    In an optimum, of two groups of one size the one with the larger beta has at least as many bits: swapping them would
    not harm. So the full groups are cut in three runs, and only the two cuts are tried.
    """
    smaller = bool(len(values)) and values[-1] < values[0]
    full = len(values) - smaller
    B = np.concatenate([[0.0], np.cumsum(beta[:full])])
    two, four, eight = _FACTORS
    V, eights = np.full(3 * full + 1, np.inf), np.zeros(3 * full + 1, np.int64)  # by units of 2 bits above 2 for all
    for a in range(full + 1):
        run = two * B[full] + (eight - four) * B[a] + (four - two) * B[a:]  # [fours + 1]
        place = slice(3 * a, 3 * a + len(run))
        better = run < V[place]
        V[place][better], eights[place][better] = run[better], a
    units = np.arange(3 * full + 1)
    bits: Array = (2 * full + 2 * units) * int(values[0]) if full else np.zeros(1, np.int64)
    found = Frontier(bits, V, eights, units - 3 * eights, np.zeros_like(bits))
    if smaller:
        each = [
            found._replace(bits=bits + b * int(values[-1]), V=V + beta[-1] * factor, last=np.full_like(bits, b))
            for b, factor in zip(WIDTHS, _FACTORS, strict=True)
        ]
        found = Frontier(*(np.concatenate(parts) for parts in zip(*each, strict=True)))
    return _pruned(found)


def _pruned(front: Frontier) -> Frontier:
    """The frontier by bits, without points that send more bits and lower no variance."""
    order = np.lexsort((front.V, front.bits))
    V = front.V[order]
    better = np.append(True, V[1:] < np.minimum.accumulate(V)[:-1])
    return Frontier(*(part[order][better] for part in front))


def _widths(front: Frontier, choice: int, groups: int) -> Array:
    widths = np.full(groups, WIDTHS[0], np.uint8)
    eights, fours, last = (int(part[choice]) for part in (front.eights, front.fours, front.last))
    widths[:eights], widths[eights : eights + fours] = 8, 4
    if last:
        widths[-1] = last
    return widths
