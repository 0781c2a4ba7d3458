"""Tables with what goes wrong on a user's way are loaded to the right graph or refused: none is wrong in silence."""

from collections import Counter

import pytest

from tests.fuzz import mishaps

pytest.importorskip("pyarrow")


@pytest.mark.long
def test_every_table_is_loaded_right_or_refused():
    found = mishaps.campaign(300, seed=1)
    assert [case for case in found if case[2] == "WRONG"] == []
    assert Counter(what for _, _, what, _ in found)["right"] > 100


def test_a_graph_that_is_another_is_a_finding(monkeypatch):
    """Of the comparison itself: a mishap that changes a value makes another graph."""
    monkeypatch.setitem(
        mishaps.MISHAPS, "changed", lambda base, e, v, rng: v.column("age", lambda x: "1" + x.lstrip("-"))
    )
    base = mishaps.bases(1)[0]
    assert mishaps.outcome(base, ["changed"], mishaps.random.Random(0))[0] == "WRONG"
    assert mishaps.outcome(base, [], mishaps.random.Random(0))[0] == "right"
