"""What a seed draws."""

from __future__ import annotations

from benchmarks.chaos.schedule import KINDS, draw


def test_a_seed_always_draws_the_same() -> None:
    assert draw(7, 3.0, 16) == draw(7, 3.0, 16)
    assert draw(7, 3.0, 16) != draw(9, 3.0, 16)


def test_many_seeds_draw_every_kind_within_the_window_in_order() -> None:
    plans = [draw(seed, 2.0, 16) for seed in range(200)]
    faults = [fault for plan in plans for fault in plan.faults]
    assert {fault.kind for fault in faults} == set(KINDS)
    assert all(0 <= fault.at_s <= 2 and 0 <= fault.luck < 1 for fault in faults)
    assert all(list(plan.faults) == sorted(plan.faults, key=lambda f: f.at_s) for plan in plans)
    assert {plan.mode for plan in plans} == {"pipe", "async"}
    assert all(plan.faults[0].at_s == 0 and 1 <= plan.epochs <= 8 for plan in plans)
    assert 40 < sum(plan.keys for plan in plans) < 95
    with_messages = sum(plan.messages.until_s > 0 for plan in plans)
    assert 50 < with_messages < 150


def test_kinds_can_be_chosen() -> None:
    assert {fault.kind for seed in range(20) for fault in draw(seed, 1, 16, ["cut connections"]).faults} == {
        "cut connections"
    }
