"""Plans for halo rows: the rules of ``gpu_baselines.halos.budget``, and every plan tried out where there are few."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpu_baselines.halos.budget import CHOICES, EXACT, Choice, Costs, Plan, Seen, chosen, epoch_seconds
from gpu_baselines.halos.codec import Stream

LATE = Choice(late=True, bits=None)
ONE = Stream("forward", 1)


def seen(*, change: float, rounding: float, rows: int = 1000, width: int = 64) -> Seen:
    """change, rounding: relative errors of lateness, and of rounding to two values."""
    return Seen(100.0, 100 * change**2, 100 * rounding**2, rows, width, 4)


def byte_s_for(seconds: float, *all_seen: Seen) -> float:
    """So that exact rows as they are take so long."""
    return seconds / sum(one.nbytes(EXACT) for one in all_seen)


def random_case(seed: int) -> tuple[dict[Stream, Seen], float, Costs]:
    rng = np.random.default_rng(seed)
    streams = [Stream("forward", 1), Stream("backward", 1), Stream("forward", 2)]
    found = {
        stream: seen(change=rng.uniform(0, 0.5), rounding=rng.uniform(0.1, 2), rows=int(rng.integers(100, 2000)))
        for stream in streams
    }
    return (
        found,
        rng.uniform(0, 0.6),
        Costs(1.0, byte_s_for(rng.uniform(0.1, 20), *found.values()), rng.uniform(0, 0.3), 1e-6),
    )


def test_errors_add_up_as_squares() -> None:
    """Rule 2."""
    one = seen(change=0.3, rounding=0.4)
    assert one.error(EXACT) == 0
    assert one.error(LATE) == pytest.approx(0.3)
    assert one.error(Choice(False, 4)) == pytest.approx(0.4 / 15)
    assert one.error(Choice(True, 2)) == pytest.approx(np.hypot(0.3, 0.4 / 3))


def test_rows_of_zeros_have_no_error_but_rows_that_became_zeros_do() -> None:
    assert Seen(0.0, 0.0, 0.0, 1, 1, 4).error(Choice(True, 2)) == 0
    assert Seen(0.0, 1.0, 0.0, 1, 1, 4).error(LATE) == float("inf")


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_is_over_the_budget(seed: int) -> None:
    """Rule 3."""
    all_seen, budget, costs = random_case(seed)
    assert all(all_seen[stream].error(choice) <= budget for stream, choice in chosen(all_seen, budget, costs).items())


@pytest.mark.parametrize("seed", range(20))
def test_no_allowed_plan_is_faster(seed: int) -> None:
    """Rule 5, against all plans of three streams."""
    all_seen, budget, costs = random_case(seed)
    allowed = [[c for c in CHOICES if one.error(c) <= budget] for one in all_seen.values()]
    plans: list[Plan] = [dict(zip(all_seen, choices, strict=True)) for choices in itertools.product(*allowed)]
    best = min(epoch_seconds(plan, all_seen, costs) for plan in plans)
    assert epoch_seconds(chosen(all_seen, budget, costs), all_seen, costs) <= best


@pytest.mark.parametrize(
    ("budget", "link_s", "wanted"),
    [
        (0.001, 9.0, EXACT),  # nothing else is allowed
        (0.11, 0.5, LATE),  # computing hides it: bits would gain nothing
        (0.14, 9.0, Choice(True, 4)),  # it does not: as few bits as lateness leaves
        (0.12, 9.0, Choice(False, 4)),  # sooner through than 8 bits that are late: 1 + 9 * 36/256 < 9 * 68/256
        (0.12, 5.0, Choice(True, 8)),  # and here not: 1 + 5 * 36/256 > 5 * 68/256
        (0.09, 0.5, Choice(False, 4)),  # too little for lateness
    ],
)
def test_what_is_chosen_for_one_stream(budget: float, link_s: float, wanted: Choice) -> None:
    """Off by .1 if late, .005 in 8 bits, .08 in 4, .4 in 2. Computing takes 1 s, 256 bytes a row link_s."""
    one = seen(change=0.1, rounding=1.2)
    assert chosen({ONE: one}, budget, Costs(1.0, byte_s_for(link_s, one), 0.0, 0.0)) == {ONE: wanted}


def test_exchanges_that_are_small_are_late_rather_than_in_few_bits() -> None:
    """What takes long there is not the bytes."""
    small = seen(change=0.1, rounding=0.3, rows=1)
    plan = chosen({ONE: small}, 0.15, Costs(1.0, byte_s_for(0.01, small), 0.2, 0.0))
    assert plan == {ONE: LATE}


def test_quantising_that_takes_longer_than_bytes_is_left_out() -> None:
    one = seen(change=1.0, rounding=0.3)
    byte_s = byte_s_for(0.5, one)
    assert chosen({ONE: one}, 0.15, Costs(1.0, byte_s, 0.0, 0.0)) == {ONE: Choice(False, 2)}
    assert chosen({ONE: one}, 0.15, Costs(1.0, byte_s, 0.0, 1.0 / (one.rows * one.width))) == {ONE: EXACT}


def test_where_nothing_costs_anything_rows_are_exact() -> None:
    """Rule 5: of plans that are as fast, the one whose errors are least."""
    assert chosen({ONE: seen(change=0.1, rounding=0.1)}, 10.0, Costs(1.0, 0.0, 0.0, 0.0)) == {ONE: EXACT}


def test_of_layers_that_change_those_alone_are_exact() -> None:
    still, moving = seen(change=0.01, rounding=50), seen(change=0.9, rounding=50)
    plan = chosen(
        {Stream("forward", 1): moving, Stream("forward", 2): still},
        0.1,
        Costs(1.0, byte_s_for(0.8, still, moving), 0.0, 0.0),
    )
    assert plan == {Stream("forward", 1): EXACT, Stream("forward", 2): LATE}


@pytest.mark.parametrize("seed", range(5))
def test_a_larger_budget_is_never_slower(seed: int) -> None:
    all_seen, _, costs = random_case(seed)
    seconds = [epoch_seconds(chosen(all_seen, b, costs), all_seen, costs) for b in (0.0, 0.05, 0.2, 0.5, 1.0)]
    assert all(later <= earlier * 1.02 for earlier, later in itertools.pairwise(seconds))
    assert seconds[0] == pytest.approx(epoch_seconds(dict.fromkeys(all_seen, EXACT), all_seen, costs))


def test_many_streams_are_planned_in_no_time() -> None:
    """GCNII with 32 layers."""
    streams = [Stream(way, layer) for way in ("forward", "backward") for layer in range(32)]
    rng = np.random.default_rng(0)
    all_seen = {stream: seen(change=rng.uniform(0, 0.5), rounding=rng.uniform(0, 2)) for stream in streams}
    costs = Costs(1.0, byte_s_for(5.0, *all_seen.values()), 0.0, 0.0)
    plan = chosen(all_seen, 0.3, costs)
    assert epoch_seconds(plan, all_seen, costs) < epoch_seconds(dict.fromkeys(streams, EXACT), all_seen, costs)
