"""Whether a run that has failed starts again."""

from __future__ import annotations

import pytest

from run_coordinator.recovery.supervisor import Supervisor
from siafu.errors import ConfigError, GnnError, PeerLost, UnknownError, WorkerError

LOST = PeerLost("graph_server 1 died: killed by SIGKILL")


def test_what_can_pass_is_tried_again_and_what_always_comes_back_is_not():
    supervisor = Supervisor(restarts=2)
    assert supervisor.again(LOST, 5, joined=True)
    assert supervisor.again(LOST, 5, joined=True)
    assert not supervisor.again(LOST, 5, joined=True)
    assert str(supervisor.last_words(LOST)) == (
        "graph_server 1 died: killed by SIGKILL; that was failure 3 in a row after 5 epochs, run.restarts = 2"
    )


def test_an_epoch_between_two_failures_counts_them_anew():
    supervisor = Supervisor(restarts=1)
    assert all(supervisor.again(LOST, version, joined=True) for version in (0, 1, 2, 7))
    assert not supervisor.again(LOST, 7, joined=True)


@pytest.mark.parametrize("error", [ConfigError("a"), WorkerError("b"), GnnError("epoch 3: the loss is nan")])
def test_what_would_come_again_ends_the_run(error: GnnError):
    supervisor = Supervisor(restarts=3)
    assert not supervisor.again(error, 5, joined=True)
    assert supervisor.last_words(error) is error


def test_a_run_that_never_began_and_one_that_may_not_start_again_end_with_the_reason_alone():
    supervisor = Supervisor(restarts=3)
    assert not supervisor.again(LOST, 0, joined=False)
    assert supervisor.last_words(LOST) is LOST
    never = Supervisor(restarts=0)
    assert not never.again(LOST, 5, joined=True)
    assert never.last_words(LOST) is LOST


def unknown(role: str, what: str) -> UnknownError:
    error = UnknownError(f"{role}: {what}")
    error.what = what
    return error


def test_the_same_exception_twice_at_one_version_ends_the_run_whichever_role_it_was():
    supervisor = Supervisor(restarts=3)
    assert supervisor.again(unknown("graph_server 0", "KeyError: 3 (a.py:1)"), 5, joined=True)
    again = unknown("graph_server 1", "KeyError: 3 (a.py:1)")
    assert not supervisor.again(again, 5, joined=True)
    assert str(supervisor.last_words(again)) == (
        "graph_server 1: KeyError: 3 (a.py:1); it came twice after 5 epochs, and would come again"
    )


def test_another_exception_or_the_same_one_at_another_version_may_be_an_accident():
    supervisor = Supervisor(restarts=3)
    for what, version in (("KeyError: 3", 5), ("KeyError: 4", 5), ("KeyError: 4", 6), ("KeyError: 4", 7)):
        assert supervisor.again(unknown("graph_server 0", what), version, joined=True)
