"""Of a test with many cases, those that every run of the fast tests does.

``@pytest.mark.sampled(3)``: about one case in three; the others are ``long``. Every value of every parameter is in the
fast run at least once, but for a parameter that no two cases share a value of. Which cases those are hangs on their
names alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest


def mark_long(items: Sequence[pytest.Item]) -> None:
    """Those cases of sampled tests that are left out of the fast run."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for each in cases.values():
        _mark_long(each)


def _mark_long(cases: Sequence[pytest.Item]) -> None:
    # A value is one object in all cases that have it.
    values = [{(name, id(value)) for name, value in item.callspec.params.items()} for item in cases]  # type: ignore[attr-defined]
    different = Counter(name for name, _ in set().union(*values))
    missing = {one for one in set().union(*values) if different[one[0]] < len(cases)}
    (one_in,) = cases[0].get_closest_marker("sampled").args  # type: ignore[union-attr]
    shuffled = sorted(range(len(cases)), key=lambda number: hashlib.sha256(cases[number].nodeid.encode()).digest())
    taken = []
    for number in shuffled:
        if values[number] & missing:
            missing -= values[number]
            taken.append(number)
    others = [number for number in shuffled if number not in taken]
    for number in others[max(0, -(-len(cases) // one_in) - len(taken)) :]:
        cases[number].add_marker("long")
