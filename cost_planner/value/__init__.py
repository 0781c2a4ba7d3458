"""The value of a run: 1 / (time x money). Pure."""

from __future__ import annotations

import math


def value(seconds: float, usd: float) -> float:
    """V = 1 / (T C) (Dorylus, Thorpe et al., OSDI 2021, section 7.3), per second and US dollar; infinite if it costs
    nothing."""
    spent = seconds * usd
    return 1 / spent if spent else float("inf")


def break_even(seconds: float, usd: float, usd_per_s: float) -> float:
    """Seconds in which something of this price has the same value: the T with value(T, T usd_per_s) = value(seconds,
    usd)."""
    return math.sqrt(seconds * usd / usd_per_s)
