"""Value: what a run is worth that took so long and so much money. Pure."""

from __future__ import annotations


def value(seconds: float, usd: float) -> float:
    """V = 1 / (T C) (Dorylus, Thorpe et al., OSDI 2021, section 7.3), per second and US
    dollar; infinite for what is free."""
    spent = seconds * usd
    return 1 / spent if spent else float("inf")


def break_even(seconds: float, usd: float, usd_per_s: float, fixed_usd: float = 0.0) -> float:
    """Seconds in which something of this price does as much for its money: the T with
    value(T, fixed_usd + T usd_per_s) = value(seconds, usd). One of the two amounts is not 0."""
    spent = seconds * usd
    # The positive root of usd_per_s T^2 + fixed_usd T = spent, without subtracting what may be nearly equal.
    return float(2 * spent / (fixed_usd + (fixed_usd**2 + 4 * usd_per_s * spent) ** 0.5))
