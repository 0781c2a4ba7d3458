"""Steps, programs, and the names of tasks."""

from __future__ import annotations

import random

import pytest

from siafu.tasks import BACKWARD_KINDS, TENSOR_KINDS, Kind, Lane, Program, Step, TaskId

PROGRAM = Program(
    (
        Step(Kind.GA, 0, writes=("Z0",), gathers="H0"),
        Step(Kind.AV, 0, reads=("Z0",), writes=("H1",)),
        Step(Kind.SC, 0, reads=("H1",), publishes="H1"),
        Step(Kind.GA, 1, writes=("Z1",), gathers="H1"),
        Step(Kind.AV, 1, reads=("Z1", "label"), writes=("dZ1", "unread"), fused=True),
        Step(Kind.SC_B, 1, reads=("dZ1",), publishes="dZ1"),
        Step(Kind.GA_B, 1, writes=("dH1",), gathers="dZ1"),
        Step(Kind.AV_B, 0, reads=("Z0", "dH1")),
        Step(Kind.WU, 0),
    )
)


def test_there_are_nine_kinds():
    assert [kind.value for kind in Kind] == ["GA", "AV", "SC", "AE", "GA'", "AV'", "SC'", "AE'", "WU"]


def test_every_kind_but_the_weight_update_has_one_backward():
    assert {kind.value for kind in BACKWARD_KINDS} == {f"{name}'" for name in ("GA", "AV", "SC", "AE")}


def test_tensor_kinds_never_touch_the_adjacency():
    assert not TENSOR_KINDS & {Kind.GA, Kind.SC, Kind.GA_B, Kind.SC_B, Kind.WU}


def test_a_step_is_named_by_kind_and_layer():
    names = ["GA0", "AV0", "SC0", "GA1", "AV1", "SC'1", "GA'1", "AV'0", "WU0"]
    assert [step.name for step in PROGRAM.steps] == names


def test_fused_and_backward_tensor_steps_have_gradients():
    assert [step.name for step in PROGRAM.steps if step.has_gradient] == ["AV1", "AV'0"]
    assert Step(Kind.AE_B, 0).has_gradient


def test_backward_steps_walk_edges_backwards():
    assert [step.name for step in PROGRAM.steps if step.backward] == ["SC'1", "GA'1", "AV'0"]


def test_a_gather_waits_for_the_scatter_of_its_slot():
    assert PROGRAM.publisher == {"H1": 2, "dZ1": 5}
    assert PROGRAM.waits_for == (None, None, None, 2, None, None, 5, None, None)


def test_a_slot_is_kept_until_its_last_reader():
    assert PROGRAM.last_reader == {"Z0": 7, "H1": 2, "Z1": 4, "label": 4, "dZ1": 5, "unread": 4, "dH1": 7}


def test_what_is_gathered_of_rows_that_nobody_publishes_is_constant():
    assert PROGRAM.constants == {"Z0"}
    assert not Program(PROGRAM.steps[2:]).constants


def test_a_program_is_a_sequence_of_steps():
    assert len(PROGRAM) == 9
    assert PROGRAM[8].kind is Kind.WU
    with pytest.raises(IndexError):
        PROGRAM[9]


def test_equal_programs_are_equal_and_hashable():
    same = Program(tuple(PROGRAM.steps))
    assert same == PROGRAM
    assert hash(same) == hash(PROGRAM)


def test_task_ids_sort_by_lane_epoch_interval_and_step():
    ids = [TaskId(lane, e, i, pc) for lane in (Lane.EVAL, Lane.TRAIN) for e in (0, 2) for i in (0, 10) for pc in (3, 4)]
    assert sorted(random.Random(1).sample(ids, len(ids))) == ids
    assert len(set(ids)) == len(ids)


def test_a_task_id_reads_as_a_sentence():
    assert str(TaskId(Lane.TRAIN, 3, 17, 5)) == "train epoch 3 interval 17 step 5"


def test_kinds_and_lanes_are_found_by_the_value_that_travels():
    assert Kind("AV'") is Kind.AV_B
    assert Lane("train") is Lane.TRAIN
