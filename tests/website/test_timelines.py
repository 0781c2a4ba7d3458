"""The timelines of docs/concepts are those of the code, and show what the pages say of them."""

from __future__ import annotations

from random import Random

import pytest

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra plot")

from cost_planner.plan.simulated_run import Plan  # noqa: E402
from cost_planner.plan.simulator import simulated  # noqa: E402
from cost_planner.report.series import Span  # noqa: E402
from website import timelines  # noqa: E402


def spans(figure: str, contender: str) -> tuple[list[Span], float]:
    return timelines.simulated(timelines.FIGURES[figure][contender])


@pytest.mark.parametrize("name", timelines.FIGURES)
def test_a_figure_is_what_the_code_draws(name: str) -> None:
    kept = (timelines.FOLDER / f"{name}.svg").read_text()
    if f"matplotlib {matplotlib.__version__} " not in kept:
        pytest.skip("drawn with another matplotlib, whose bytes may differ")
    assert kept == timelines.figure(name), "python -m website.timelines"


def test_without_a_pipe_no_interval_begins_a_step_before_all_are_through_the_one_before() -> None:
    found, _ = spans("intervals", "no-pipe")
    first, second = ([span for span in found if span.kind == kind] for kind in ("GA", "AV"))
    assert max(span.stop for span in first) <= min(span.start for span in second if span.start > first[0].start)


def test_a_pipe_overlaps_gathers_and_tensor_tasks_and_takes_less_time() -> None:
    found, seconds = spans("intervals", "pipe")
    gathers = [span for span in found if span.kind == "GA"]
    assert any(
        span.kind == "AV" and gather.start < span.stop and span.start < gather.stop
        for span in found
        for gather in gathers
    )
    assert seconds < spans("intervals", "no-pipe")[1]


@pytest.mark.parametrize("page", ["intervals", "staleness"])
def test_the_page_tells_how_often_an_epoch_ends(page: str) -> None:
    text = (timelines.FOLDER / f"{page}.md").read_text()
    for settings in timelines.FIGURES[page].values():
        plan = Plan(timelines.PROGRAM, timelines.WORK, **{**timelines.PLAN, **settings})
        ends = simulated(plan, 60, Random(1)).epoch_ends
        assert f"{1000 * (ends[-1] - ends[4]) / 55:.0f} ms" in text


def test_asynchrony_takes_less_time_and_only_with_s_1_are_two_epochs_under_way() -> None:
    found = {name: spans("staleness", name) for name in timelines.FIGURES["staleness"]}
    assert found["async, s = 0"][1] < found["pipe"][1]
    assert {name: all(span.own for span in one) for name, (one, _) in found.items()} == {
        "pipe": True,
        "async, s = 0": True,
        "async, s = 1": False,
    }
