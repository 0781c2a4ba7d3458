"""Whether Lambdas pay on a cluster: beside CPUs alone, by width, by price."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from typing import Any

import pytest

from cost_planner.plan import graphs
from cost_planner.plan.asked import Asked
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.finding import line_of_lambdas, of_lambdas
from cost_planner.plan.lambdas import LENGTHS, Lambdas, Length, Lengths, Pair, lambdas_on, lengths
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


def test_widths_that_fit_with_a_better_cut_alone_are_not_compared():
    """Where the cut is assumed, such options are in the catalogue too."""
    graph = graphs.of_counts(25_000_000, 900_000_000, 32, 25)
    asked = replace(ASKED, graph=graph, servers=[8], modes=(("pipe", 0),), memories_mb=[1769], lambdas=8)
    wide = replace(asked, config=asked.config.replace({"model.hidden": (512,)}))
    waits = {one.backend: one.needs_low_cut for one in Catalogue(wide).options}
    assert (waits["cpu"], waits["lambda"]) == (True, False)
    found = lambdas_on(asked, predicted(asked))
    assert found is not None
    assert max(found.by_width) == 256


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
    assert of_lambdas(None) == line_of_lambdas(None) == []


def test_a_model_without_hidden_layers_has_no_widths():
    asked = replace(ASKED, config=ASKED.config.replace({"model.layers": 1}))
    found = lambdas_on(asked, predicted(asked))
    assert found is not None
    assert not found.by_width
    assert "hidden" not in of_lambdas(found)[0] + line_of_lambdas(found)[0]


def test_the_line_has_the_ratios_the_width_and_the_price(found):
    (line,) = line_of_lambdas(found)
    faster, worth = found.asked.faster, found.asked.worth
    assert line.startswith(
        f"On 2 x c5n.2xlarge, Lambdas give {faster:.2f} times the speed and {worth:.2f} times the value of CPUs alone."
    )
    width = min(width for width, pair in found.by_width.items() if pair.faster > 1)
    assert f"They are faster at hidden widths from {width:,} on." in line
    assert len(textwrap.wrap(line, 80)) <= 4


def test_the_line_names_the_limit_of_vcpus(found):
    (line,) = line_of_lambdas(replace(found, max_vcpus=64))
    assert line.startswith("On 2 x c5n.2xlarge, with at most 64 vCPUs, Lambdas give ")
    assert len(textwrap.wrap(line, 80)) <= 4
    within = replace(ASKED, max_vcpus=30)
    limited = lambdas_on(within, predicted(within))
    assert limited is not None
    assert limited.max_vcpus == 30


def test_the_price_of_a_gb_s_is_that_of_the_bill(found):
    pair = next(pair for pair in found.by_width.values() if pair.even_price is not None and pair.worth < 1)
    assert pair.usd_per_gb_s == 0.0000133334  # arm64, us-east-1
    even = f"${pair.even_price * 13.3334:.3g}"[1:]
    digits = even.replace(".", "").lstrip("0")
    (line,) = line_of_lambdas(replace(found, asked=pair))
    assert f"{digits} per GB-s of Lambda (today $0.0000133), the values are equal." in line
    slow = Pair(pair.alone, replace_seconds(pair.beside, 100 * pair.alone.seconds))
    assert "Even free Lambdas would have less value." in line_of_lambdas(replace(found, asked=slow))[0]


@pytest.mark.parametrize(
    ("so", "words"),
    [
        ("0000", "at no hidden width from 1 to 8"),
        ("1111", "at every hidden width from 1 to 8"),
        ("0011", "at hidden widths from 4 on"),
        ("1100", "at hidden widths up to 2"),
        ("0110", "at hidden widths from 2 to 4"),
        ("0100", "at hidden widths of 2"),
        ("1001", "at hidden widths up to 1 and from 8 on"),
    ],
)
def test_a_range_of_widths_in_words(found, so, words):
    fast = max(found.by_width.values(), key=lambda pair: pair.faster)
    pairs = [fast if one == "1" else slower(fast) for one in so]
    told = replace(found, by_width=dict(zip((1, 2, 4, 8), pairs, strict=True)))
    assert f"They are faster {words}." in line_of_lambdas(told)[0]


def slower(pair: Pair) -> Pair:
    return Pair(pair.alone, replace_seconds(pair.beside, 2 * pair.alone.seconds))


def test_the_free_tier_pays_for_no_more_than_the_lambdas_of_a_run(found):
    pair = found.asked
    assert 0 < pair.free_usd <= pair.beside.cost.parts["lambda"] * (1 + 1e-9)
    assert "free tier would pay $" in of_lambdas(found)[0]


# --- runs of other lengths --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    backend: str
    usd_per_s: float  # of servers, 60 s at least
    lambda_usd_per_s: float
    setup_s: float
    epochs: int = 100


@dataclass(frozen=True)
class Cost:
    usd: float


@dataclass(frozen=True)
class Simple:
    """An option whose time and bill can be computed by hand."""

    option: Option
    epoch_s: float

    @property
    def seconds(self) -> float:
        return self.option.setup_s + self.option.epochs * self.epoch_s

    @property
    def cost(self) -> Cost:
        return Cost(max(60.0, self.seconds) * self.option.usd_per_s + self.seconds * self.option.lambda_usd_per_s)

    @property
    def value(self) -> float:
        return value(self.seconds, self.cost.usd)


def worth_more(*options: Any) -> list[Lengths]:
    return lengths(options, 100, lambda one: one.value)


def cheaper(*options: Any) -> list[Lengths]:
    return lengths(options, 100, lambda one: -one.cost.usd)


CPU = Simple(Option("cpu", 0.10, 0.0, setup_s=10.0), epoch_s=1.0)
LAMBDA = Simple(Option("lambda", 0.02, 0.02, setup_s=10.0), epoch_s=2.0)


def test_lambdas_on_fewer_servers_are_worth_more_in_short_runs():
    """n epochs. CPUs: (10 + n) s at $6. Lambdas: T = 10 + 2n s at $0.04 T from 60 s on. The products are equal where
    T^2 - 75 T - 750 = 0: at T = 83.9 s, which is 36.97 epochs."""
    assert worth_more(CPU, LAMBDA) == [Lengths(Length(1, 12.0), Length(36, 82.0))]


def test_the_end_is_not_known_where_lambdas_stay_cheaper():
    """$0.1 (10 + n), and $0.04 (10 + 2n)."""
    assert cheaper(CPU, LAMBDA) == [Lengths(Length(1, 12.0), None)]


def test_epochs_of_other_modes_are_in_proportion():
    """Twice the epochs at half the time each."""
    slower_to_learn = replace(LAMBDA, option=replace(LAMBDA.option, epochs=200), epoch_s=1.0)
    assert worth_more(CPU, slower_to_learn) == worth_more(CPU, LAMBDA)


def test_the_best_of_each_kind_is_compared_at_every_length():
    """Half as dear: the other CPU option beats Lambdas from the first epoch on."""
    small = Simple(Option("cpu", 0.01, 0.0, setup_s=10.0), epoch_s=1.5)
    assert worth_more(CPU, small, LAMBDA) == []
    assert cheaper(CPU, small, LAMBDA) == []


def test_long_runs_may_be_those_that_lambdas_win():
    """A start of 40 s more, and half the time an epoch: $0.1 max(60, T) of both; n + 10 = 50 + n / 2 at 80 epochs."""
    quick = Simple(Option("lambda", 0.10, 0.0, setup_s=50.0), epoch_s=0.5)
    assert worth_more(CPU, quick) == [Lengths(Length(81, 90.5), None)]
    assert LENGTHS[-1] == 10_000


def test_short_and_long_runs_may_both_be_won():
    """Small servers with Lambdas win the first (as above), large ones that are fast win the last."""
    fast = Simple(Option("lambda", 0.20, 0.0, setup_s=60.0), epoch_s=0.25)
    short, long = worth_more(CPU, LAMBDA, fast)
    assert short == Lengths(Length(1, 12.0), Length(36, 82.0))
    epochs = long.first.epochs
    assert long.last is None
    for count, is_ahead in ((epochs - 1, False), (epochs, True)):
        cpu, lambdas = 0.1 * max(60, 10 + count) * (10 + count), 0.2 * (60 + count / 4) ** 2
        assert (lambdas < cpu) == is_ahead


ALWAYS, SHORT = Lengths(Length(1, 12.0), None), Lengths(Length(1, 12.0), Length(36, 82.0))
LONG = Lengths(Length(81, 90.5), None)


@pytest.mark.parametrize(
    ("cheaper", "worth_more", "words"),
    [
        ([], [], "cost less and have more value at no number of epochs."),
        ([ALWAYS], [], "cost less at any number of epochs, and have more value at no"),
        ([], [SHORT], "and have more value up to 36 epochs (82 s)."),
        ([], [LONG], "and have more value from 81 epochs (90.5 s) on."),
        ([], [Lengths(Length(2, 5.0), Length(9, 600.0))], "value from 2 epochs (5 s) to 9 epochs (10 min)."),
        ([SHORT, LONG], [], "cost less up to 36 epochs (82 s) and from 81 epochs (90.5 s) on, and have"),
    ],
)
def test_lengths_of_runs_in_words(found, cheaper, worth_more, words):
    (line,) = line_of_lambdas(replace(found, cheaper=cheaper, worth_more=worth_more))
    assert words in line
    assert "Of all options, those with Lambdas " in line
