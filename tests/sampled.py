"""Of a test with many cases, those that every run of the fast tests does.

``@pytest.mark.sampled(3)``: about one case in three; the others are ``long``. Every value of every parameter is in the
fast run at least once, but for a parameter that no two cases share a value of. Which cases those are hangs on their
names alone.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
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
    shared = {
        name
        for name, _ in set().union(*values)
        if len({one for each in values for one in each if one[0] == name}) < len(cases)
    }
    done: set[tuple[str, int]] = set()
    for item, each in zip(cases, values, strict=True):
        (one_in,) = item.get_closest_marker("sampled").args  # type: ignore[union-attr]
        if zlib.crc32(item.nodeid.encode()) % one_in and {one for one in each if one[0] in shared} <= done:
            item.add_marker("long")
        else:
            done |= each
