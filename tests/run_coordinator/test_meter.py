"""What a run has cost so far. Rules are those of ``run_coordinator.meter``."""

from __future__ import annotations

import random
from typing import Any

import pytest

from run_coordinator.meter import Meter
from siafu.config import Config
from siafu.errors import PriceUnknown
from siafu.pricing import cost

GB_S = 0.0000133334  # arm
REQUEST = 0.0000002
ORDERS = 3600 * 0.0000004 + 720 * 0.000005  # of a server in an hour
LISTS = 3960 * 0.000005  # of a run


def meter(**settings: Any) -> Meter:
    """Environments of 1 GB, begun at 100."""
    changes = {key.replace("__", "."): value for key, value in settings.items()}
    made = Meter(Config().replace({"servers.backend": "lambda", "lambda.memory_mb": 1024, **changes}))
    made.begin(100.0)
    return made


def gb_s(of: Meter, now: float, requests: float) -> float:
    return (of.cost(now).usd - requests * REQUEST) / GB_S


def test_what_runs_and_is_not_billed_yet_is_counted():
    #  100: 3 environments    110: 5, two of them new: they may be as old as the last report
    core = meter()
    core.report(0, {"invocations": 3}, 100.0, alive=3)
    core.report(0, {"invocations": 5}, 110.0, alive=5)
    assert gb_s(core, 110.0, 5) == pytest.approx(50)
    assert gb_s(core, 112.0, 5) == pytest.approx(60)


def test_environments_that_came_and_went_between_two_reports_are_counted():
    core = meter()
    core.report(0, {"invocations": 0}, 100.0, alive=0)
    core.report(0, {"invocations": 7, "gb_s": 3.5}, 101.0, alive=0)
    assert gb_s(core, 200.0, 7) == pytest.approx(7)


def test_the_larger_of_billed_and_counted_is_the_cost_and_servers_add_up():
    core = meter()
    core.report(0, {"invocations": 2, "gb_s": 90.0}, 100.0, alive=0)  # reports were lost before it
    core.report(1, {"invocations": 1}, 100.0, alive=1)
    core.report(1, {"invocations": 1, "gb_s": 4.0}, 110.0, alive=1)
    assert gb_s(core, 110.0, 3) == pytest.approx(100)


def test_an_epochs_report_that_says_nothing_of_environments_takes_the_new_ones_for_alive():
    core = meter()
    core.report(0, {"invocations": 1}, 100.0, alive=1)
    core.report(0, {"invocations": 3}, 101.0)
    assert gb_s(core, 102.0, 3) == pytest.approx(3 + 3)


def test_what_was_refused_counts_until_that_is_known_and_is_not_billed():
    core = meter()
    core.report(0, {"invocations": 0}, 100.0, alive=0)
    core.report(0, {"invocations": 10}, 100.0, alive=10)  # on their way
    core.report(0, {"invocations": 0, "refused": 10}, 100.5, alive=0)
    assert gb_s(core, 200.0, 0) == pytest.approx(5)  # nobody could know
    core.last_word(0, {"invocations": 0, "refused": 10}, 200.0)
    assert core.cost(200.0).usd == 0


def test_the_last_word_is_the_bill():
    core = meter()
    core.report(0, {"invocations": 4}, 100.0, alive=4)
    core.report(0, {"invocations": 4}, 150.0, alive=4)
    core.last_word(0, {"invocations": 4, "gb_s": 180.0}, 150.0)
    assert gb_s(core, 1e6, 4) == pytest.approx(180)


def test_what_was_cut_is_counted_on_where_the_bill_does_not_know_of_it():
    core = meter()
    core.report(0, {"invocations": 4}, 100.0, alive=4)
    core.report(0, {"invocations": 4}, 150.0, alive=4)
    core.last_word(0, {"invocations": 4, "gb_s": 60.0, "cut": 3}, 152.0)
    assert gb_s(core, 152.0, 4) == pytest.approx(4 * 52)
    assert gb_s(core, 162.0, 4) == pytest.approx(4 * 52 + 3 * 10)


@pytest.mark.parametrize(
    ("now", "ahead", "limit"),
    [
        (190.0, 0.0, ""),
        (195.0, 0.0, "time"),  # 5 s are kept to wind down
        (180.0, 15.0, "time"),
    ],
)
def test_the_time_limit_is_reached_when_the_goodbye_would_exceed_it(now: float, ahead: float, limit: str):
    assert meter(run__max_seconds=100).reached(now, ahead) == limit


def test_of_a_short_limit_a_tenth_is_kept():
    core = meter(run__max_seconds=2)
    assert [core.reached(now) for now in (101.7, 101.9)] == ["", "time"]


def test_the_budget_is_reached_when_the_goodbye_would_exceed_it():
    #  1 environment, 100 GB-s: after 95 s the last 5 would be too much
    core = meter(run__budget_usd=100 * GB_S + REQUEST)
    core.report(0, {"invocations": 1}, 100.0, alive=1)
    assert [core.reached(now) for now in (194.0, 195.1)] == ["", "budget"]
    assert core.reached(190.0, ahead_s=5.1) == "budget"


def test_servers_on_aws_cost_from_the_start_a_minute_at_least():
    core = meter(run__on="aws", lambda__on="aws", data__parts=2, cloud__volume_gib=50)
    per_second = (2 * 0.29 + 0.145 + 0.02 + 3 * 50 * 0.08 / 730 + 3 * ORDERS + LISTS) / 3600
    assert core.cost(101.0).usd == pytest.approx(60 * per_second)
    assert core.cost(1100.0).usd == pytest.approx(1000 * per_second)


def test_a_budget_is_held_to_on_demand_prices_and_the_cost_is_that_of_spot():
    hour = 2 * 0.29 + 0.02 + 2 * 50 * 0.08 / 730 + 2 * ORDERS + LISTS
    on_aws = {"run__on": "aws", "lambda__on": "aws", "cloud__volume_gib": 50, "run__budget_usd": hour}
    core = meter(cloud__spot=True, cloud__param_instance="c7g.2xlarge", **on_aws)
    assert [core.reached(100.0 + now) for now in (3590, 3596)] == ["", "budget"]
    assert core.cost(3700.0).usd < 0.5 * hour


def test_what_goes_on_what_is_over_and_what_was_planned_have_one_price():
    core = meter(run__on="aws", lambda__on="aws")
    core.report(0, {"invocations": 3, "gb_s": 7.5, "init_ms": 1500.0}, 1000.0, alive=0)
    goes_on = core.cost(1000.0)
    core.last_word(0, {"invocations": 3, "gb_s": 7.5, "init_ms": 1500.0}, 1000.0)
    over = core.cost(1000.0)
    planned = cost.of_run(core.config, requests=3, gb_s=3 * (0.5 + 2.0), init_gb_s=3 * 0.5, seconds=900)  # of 1 GB
    assert goes_on == over
    assert over.amounts == pytest.approx(planned.amounts)
    assert over.parts == pytest.approx(planned.parts)


def test_what_functions_send_to_servers_outside_of_aws_is_counted_as_it_goes():
    core = meter(lambda__on="aws")
    before = core.cost(110.0).usd
    core.report(0, {"invocations": 0, "bytes_in": 2e9}, 110.0, alive=0)
    assert core.cost(110.0).usd - before == pytest.approx(2 * 0.09)


def test_a_budget_needs_prices_and_a_run_without_one_says_that_it_has_none():
    unpriced = {"run__on": "aws", "cloud__graph_instance": "x9.huge"}
    with pytest.raises(PriceUnknown, match=r"^run\.budget_usd = 5: x9\.huge in us-east-1: not among the"):
        meter(run__budget_usd=5, **unpriced)
    found = meter(**unpriced).cost(200.0)
    assert found.usd == 0
    assert found.counted.startswith("nothing: x9.huge in us-east-1: not among")


@pytest.mark.parametrize("seed", range(20))
def test_what_is_said_is_never_less_than_what_was_used(seed: int):
    """Environments of random lives, reports every second or so: the cost said is at least that of all time so far."""
    rng = random.Random(seed)
    lives = [
        (start, start + rng.choice((0.2, 3, 40)) * rng.random()) for start in (60 * rng.random() for _ in range(80))
    ]
    core, now = meter(), 100.0
    while now < 220:
        t = now - 100
        begun, over = [life for life in lives if life[0] <= t], [life for life in lives if life[1] <= t]
        totals = {"invocations": len(begun), "gb_s": sum(end - start for start, end in over)}
        if rng.random() < 0.2:
            core.report(0, totals, now)  # an epoch's report
        else:
            core.report(0, totals, now, alive=len(begun) - len(over))
        used = sum(min(end, t) - start for start, end in begun)
        assert used - 1e-6 <= gb_s(core, now, len(begun)) <= 3 * used + 80
        now += 0.5 + rng.random()


def test_what_attempts_before_have_cost_comes_on_top_of_what_is_counted():
    core = meter()
    core.carry(0, {"invocations": 5, "gb_s": 1000.0}, 100.0)
    # those of before, and two that are not billed yet
    core.report(0, {"invocations": 7, "gb_s": 1000.0}, 100.0, alive=2)
    assert gb_s(core, 110.0, 7) == pytest.approx(1020)
    core.report(0, {"invocations": 7, "gb_s": 1050.0}, 110.0, alive=0)  # billed now, and more than was counted
    assert gb_s(core, 110.0, 7) == pytest.approx(1050)
