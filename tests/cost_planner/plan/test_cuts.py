"""What is said of a graph that nobody has cut."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cost_planner.plan import cuts, graphs
from cost_planner.plan.asked import Asked
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.options import Catalogue
from cost_planner.plan.ranking import Limits, Predicted, Ranking
from cost_planner.plan.speeds import Speeds
from siafu.config import Config

GRAPH = graphs.of_counts(5_000_000, 200_000_000, 64, 10)
ASKED = Asked(
    Config().replace({"train.eval_every": 0, "model.hidden": 64}),
    GRAPH,
    Epochs(100),
    Speeds(),
    instances=["c5n.2xlarge"],
    servers=[4],
    backends=["cpu"],
    modes=[("pipe", 0)],
)


@pytest.fixture(scope="module")
def best() -> Predicted:
    return Ranking(Catalogue(ASKED).options, 0.15, Limits(), top=1).predicted[0]


def minutes(line: str) -> list[float]:
    found = re.findall(r"takes ([\d.]+) (s|min)", line)
    return [float(number) * (60 if unit == "min" else 1) for number, unit in found]


def test_the_first_row_is_told_for_a_better_cut_and_a_worse_one(best):
    (line,) = cuts.of(ASKED, best)
    low, high = minutes(line)
    assert low < best.seconds < high
    assert line.endswith("(siafu prepare --parts counts it, --cut sets it).")


def test_where_a_worse_cut_does_not_fit_it_says_so(best):
    larger = replace(GRAPH, vertices=58_000_000, edges=464_000_000)
    (line,) = cuts.of(replace(ASKED, graph=larger), best)
    assert "with 0.9 it does not fit" in line


def test_nothing_is_said_of_a_cut_that_is_known_or_told_or_of_one_server(best):
    told = graphs.of_counts(5_000_000, 200_000_000, 64, 10, cut=0.5)
    assert cuts.of(replace(ASKED, graph=told), best) == []
    alone = replace(ASKED, servers=[1], instances=["r7g.2xlarge"])
    only = Ranking(Catalogue(alone).options, 0.15, Limits(), top=1).predicted[0]
    assert cuts.of(alone, only) == []


def test_what_fits_with_a_low_cut_alone_stays_and_comes_last():
    graph = graphs.of_counts(20_000_000, 900_000_000, 300, 25)
    asked = replace(ASKED, graph=graph, instances=["c5n.2xlarge", "r7g.2xlarge"], servers=[8], backends=["cpu"])
    catalogue = Catalogue(asked)
    waits = {option.machine.name: option.needs_low_cut for option in catalogue.options}
    assert waits == {"c5n.2xlarge": True, "r7g.2xlarge": False}
    for cut, fits in ((graphs.LOW_CUT, 2), (graphs.CUT, 1)):  # as told, a cut is no assumption
        told = replace(asked, graph=replace(graph, cut=cut, cut_source="as told"))
        assert [option.needs_low_cut for option in Catalogue(told).options] == [False] * fits
    found = Ranking(catalogue.options, 0.15, Limits(), top=5)
    assert [one.option.machine.name for one in found.predicted] == ["r7g.2xlarge", "c5n.2xlarge"]
    assert [one.option.machine.name for one in found.front] == ["r7g.2xlarge"]
    (line,) = cuts.waiting(asked, catalogue.options)
    assert "(†): 1. They have too little memory with 0.5 " in line
    alone = Catalogue(replace(asked, instances=["c5n.2xlarge"]))
    assert Ranking(alone.options, 0.15, Limits(), top=5).front  # where nothing else is left


def test_what_does_not_fit_says_up_to_which_cut_it_would():
    graph = graphs.of_counts(20_000_000, 900_000_000, 300, 25)
    asked = replace(ASKED, graph=graph, servers=[6])
    catalogue = Catalogue(asked)
    assert not catalogue.options  # not with a low cut either
    (cut,) = re.findall(r"it fits if at most (0\.\d+) of the edges cross, not 0\.5 ", catalogue.why_nothing_fits)
    assert Catalogue(replace(asked, graph=replace(graph, cut=float(cut)))).options
    assert not Catalogue(replace(asked, graph=replace(graph, cut=float(cut) + 0.02))).options
    told = Catalogue(replace(asked, graph=replace(graph, cut_source="as told"))).why_nothing_fits
    assert told.endswith("the largest machine has 21; model.rows=bfloat16 takes less")
