"""Which cases of a test with many stay in the fast run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests import sampled


class Case(SimpleNamespace):
    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)

    def add_marker(self, name: str) -> None:
        self.marks[name] = True


def cases_of(test: str, **params: list[Any]) -> list[Any]:
    """One for each position in the lists."""
    return [
        Case(
            nodeid=f"{test}[{'-'.join(map(str, values))}]",
            callspec=SimpleNamespace(params=dict(zip(params, values, strict=True))),
            marks={"sampled": SimpleNamespace(args=(4,))},
        )
        for values in zip(*params.values(), strict=True)
    ]


def fast(cases: list[Any]) -> list[Any]:
    sampled.mark_long(cases)
    return [case for case in cases if "long" not in case.marks]


def test_about_one_case_in_so_many_stays_and_always_the_same_ones():
    cases = cases_of("test_seeds", seed=[f"seed {number}" for number in range(400)])
    stays = fast(cases)
    assert len(stays) == 100
    again = cases_of("test_seeds", seed=[f"seed {number}" for number in reversed(range(400))])
    assert {one.nodeid for one in fast(again)} == {one.nodeid for one in stays}


@pytest.mark.parametrize("test", ["test_a", "test_b", "test_c"])
def test_every_value_of_every_parameter_stays_though_not_every_pair(test):
    widths, kinds = [f"width {n}" for n in range(9)], ["a", "b", "c"]
    pairs = [(width, kind) for width in widths for kind in kinds]
    stays = fast(cases_of(test, width=[one for one, _ in pairs], kind=[one for _, one in pairs]))
    assert {one.callspec.params["width"] for one in stays} == set(widths)
    assert {one.callspec.params["kind"] for one in stays} == set(kinds)
    assert len(stays) <= 11


def test_tests_that_are_not_sampled_stay_whole():
    cases = cases_of("test_whole", seed=[f"seed {number}" for number in range(40)])
    for case in cases:
        del case.marks["sampled"]
    assert len(fast(cases)) == 40
