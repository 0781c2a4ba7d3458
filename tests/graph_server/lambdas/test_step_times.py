"""What a graph server spent its time on."""

from __future__ import annotations

from graph_server.lambdas.step_times import StepTimes, name_of
from siafu.tasks import Kind, Lane


def test_seconds_add_up_by_kind_of_step_and_those_of_evaluations_together():
    sheet = StepTimes()
    for lane, kind, seconds in [
        (Lane.TRAIN, Kind.GA, 1.0),
        (Lane.TRAIN, Kind.GA, 2.0),
        (Lane.TRAIN, Kind.AV_B, 4.0),
        (Lane.EVAL, Kind.GA, 8.0),
        (Lane.EVAL, Kind.AV, 16.0),
    ]:
        sheet.worked(name_of(lane, kind), seconds)
    assert sheet.totals == {"GA_s": 3, "AV_B_s": 4, "eval_s": 24}


def test_bytes_are_counted_by_lane_and_those_of_training_by_link():
    sheet = StepTimes()
    for lane, peer, nbytes in [(Lane.TRAIN, 1, 100), (Lane.TRAIN, 3, 7), (Lane.EVAL, 1, 50), (Lane.TRAIN, 1, 20)]:
        sheet.sent(lane, peer, nbytes)
    assert (sheet.totals["bytes_to_1"], sheet.totals["bytes_to_3"]) == (120, 7)
    assert (sheet.totals["train_ghost_bytes"], sheet.totals["eval_ghost_bytes"]) == (127, 50)


def test_tensor_tasks_are_counted_by_lane():
    sheet = StepTimes()
    for lane, kind, seconds in [(Lane.TRAIN, Kind.AV, 1.0), (Lane.EVAL, Kind.AV, 4.0), (Lane.TRAIN, Kind.AV_B, 2.0)]:
        sheet.answered(lane, kind, seconds)
    assert {name: sheet.totals[name] for name in ("train_tasks", "eval_tasks", "AV_s", "AV_B_s", "eval_s")} == {
        "train_tasks": 2,
        "eval_tasks": 1,
        "AV_s": 1,
        "AV_B_s": 2,
        "eval_s": 4,
    }


def test_totals_are_a_copy():
    sheet = StepTimes()
    sheet.totals["GA_s"] = 1.0
    assert sheet.totals == {}
