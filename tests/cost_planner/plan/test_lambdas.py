"""Whether Lambdas pay on a cluster: beside CPUs alone, by width, by price."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost_planner.plan import graphs
from cost_planner.plan.asked import Asked
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.finding import of_lambdas
from cost_planner.plan.lambdas import Lambdas, Pair, lambdas_on
from cost_planner.plan.options import Catalogue
from cost_planner.plan.ranking import Limits, Predicted, Ranking
from cost_planner.plan.speeds import Speeds
from cost_planner.value import value
from siafu.config import Config

GRAPH = graphs.of_counts(500_000, 5_000_000, 64, 10, cut=0.1)
ASKED = Asked(
    Config().replace({"train.eval_every": 0}), GRAPH, Epochs(100), Speeds(), instances=["c5n.2xlarge"], servers=[2]
)


def predicted(asked: Asked) -> list[Predicted]:
    return Ranking(Catalogue(asked).options, 0.15, Limits(), top=3).predicted


@pytest.fixture(scope="module")
def found() -> Lambdas:
    found = lambdas_on(ASKED, predicted(ASKED))
    assert found is not None
    return found


def test_both_are_on_the_same_servers(found):
    pairs = [found.asked, *found.by_width.values()]
    assert {(one.option.machine.name, one.option.machines) for pair in pairs for one in (pair.alone, pair.beside)} == {
        ("c5n.2xlarge", 2)
    }
    assert {(pair.alone.option.backend, pair.beside.option.backend) for pair in pairs} == {("cpu", "lambda")}


def test_the_width_that_was_asked_for_is_not_simulated_twice(found):
    assert ASKED.config.model.hidden == (16,)
    assert found.by_width[16] is found.asked


def test_the_wider_a_model_is_the_more_lambdas_gain(found):
    faster = [pair.faster for pair in found.by_width.values()]
    assert list(found.by_width) == sorted(found.by_width)
    assert faster[-1] > 1 > faster[0]
    hidden = {width: pair.alone.option.config.model.hidden for width, pair in found.by_width.items()}
    assert all(widths == (width,) for width, widths in hidden.items())


def test_a_price_at_which_they_are_even_makes_them_worth_the_same(found):
    pair = next(pair for pair in found.by_width.values() if pair.even_price is not None and pair.worth < 1)
    of_lambda = pair.beside.cost.parts["lambda"]
    usd = pair.beside.cost.usd + (pair.even_price - 1) * of_lambda
    assert value(pair.beside.seconds, usd) == pytest.approx(pair.alone.value)
    assert pair.even_price < 1


def test_where_lambdas_lose_time_for_more_than_they_could_save_no_price_helps(found):
    pair = Pair(alone=found.asked.alone, beside=replace_seconds(found.asked.beside, 100 * found.asked.alone.seconds))
    assert pair.even_price is None


def replace_seconds(one: Predicted, seconds: float) -> Predicted:
    return replace(one, simulated=one.simulated._replace(epoch_s=seconds / one.option.epochs))


def test_nothing_is_said_of_what_was_not_asked_for(found):
    alone = replace(ASKED, backends=["cpu"])
    assert lambdas_on(alone, predicted(alone)) is None
    lambdas = replace(ASKED, backends=["lambda"])
    assert lambdas_on(lambdas, predicted(lambdas)) is None
    assert of_lambdas(None) == []


def test_a_model_without_hidden_layers_has_no_widths():
    asked = replace(ASKED, config=ASKED.config.replace({"model.layers": 1}))
    found = lambdas_on(asked, predicted(asked))
    assert found is not None
    assert not found.by_width
    assert "hidden" not in of_lambdas(found)[0]


def test_the_words_say_where_they_pay(found):
    (line,) = of_lambdas(found)
    assert line.startswith("Lambdas on 2 x c5n.2xlarge: with ")
    faster = [width for width, pair in found.by_width.items() if pair.faster > 1]
    assert f"they are faster from {min(faster):,} on, and have more value " in line


@pytest.mark.parametrize(
    ("so", "words"),
    [("0000", "at none"), ("1111", "at all"), ("0011", "from 4 on"), ("1100", "up to 2"), ("0110", "from 2 to 4")],
)
def test_a_range_of_widths_in_words(found, so, words):
    fast = max(found.by_width.values(), key=lambda pair: pair.faster)
    pairs = [fast if one == "1" else slower(fast) for one in so]
    told = Lambdas(fast, dict(zip((1, 2, 4, 8), pairs, strict=True)))
    assert f"they are faster {words}, and have" in of_lambdas(told)[0]


def slower(pair: Pair) -> Pair:
    return Pair(pair.alone, replace_seconds(pair.beside, 2 * pair.alone.seconds))


def test_the_free_tier_pays_for_no_more_than_the_lambdas_of_a_run(found):
    pair = found.asked
    assert 0 < pair.free_usd <= pair.beside.cost.parts["lambda"] * (1 + 1e-9)
    assert "free tier would pay $" in of_lambdas(found)[0]
