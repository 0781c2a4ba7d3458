"""The controller of Lambdas: how many there are, when they are asked for, and what follows when the service refuses.
What it shares with every backend is in ``tests/contracts/test_backends.py``, whose rig this borrows."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from graph_server import backends
from graph_server.backends import Job
from graph_server.lambdas.autotune import Autotuner
from graph_server.lambdas.backend import LambdaBackend, _kind
from graph_server.lambdas.dispatch import Assign
from graph_server.lambdas.out_of_memory import OUT_OF_MEMORY, MemoryShortage, Step
from graph_server.lambdas.shipping import Shipping
from graph_server.lambdas.throttle import FIRST_S, PATIENCE_S
from graph_server.lambdas.workforce import LEAST_COHORT, LEAVE_S, START_S
from lambda_funcs.desk import Desk
from siafu import wire
from siafu.address import Send, worker
from siafu.errors import RemoteProtocolError, WorkerError
from siafu.processor import MOST_KINDS, PROCESSOR
from siafu.sparse import EdgeRows
from siafu.tasks import Lane, TaskId
from siafu.tensor_task import MIN_ROWS_PER_PART, TensorWorker
from tests.contracts.test_backends import (
    CONFIG,
    HOME,
    INTERVALS,
    MODEL,
    ROWS,
    SPEC,
    Rig,
    clock,
    lambdas,
    launches,
    task,
)

THROTTLED = "TooManyRequestsException"


class Longest:
    """Draws the longest pause."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Fixed(Autotuner):
    """Wants what a test says."""

    def __init__(self, wanted: int, most: int):
        super().__init__(wanted, most, 1, 1, in_layers=False)

    def decide(self, now: float) -> bool:
        return False


def rig(count: int = 2, tuner: Autotuner | None = None) -> Rig:
    return Rig(LambdaBackend(CONFIG.lambdas, MODEL, count, "w0", tuner, Longest()))


def controller(of: Rig) -> LambdaBackend:
    assert isinstance(of.backend, LambdaBackend)
    return of.backend


def busy(of: Rig) -> Rig:
    """With a task of every interval, and workers that never answer."""
    of.hold = lambda send: send.to.role == "worker"
    of.submit(*(task(interval) for interval in range(INTERVALS)))
    return of


def starting(of: Rig) -> Rig:
    """With a task of every interval, and workers that have not pulled."""
    of.hold = lambda send: isinstance(send.message, wire.Pull)
    of.submit(*(task(interval) for interval in range(INTERVALS)))
    return of


def answer(of: Rig, name: str) -> None:
    """The worker does what it has been sent."""
    of.hold = lambda send: False
    mine = [send for send in of.held if send.to == worker(name)]
    of.held = [send for send in of.held if send.to != worker(name)]
    of.hold = lambda send: send.to.role == "worker"
    for send in mine:
        for reply in of.workers[name].handle(send.message):
            of.deliver(send.to, reply)
            while of.held and isinstance(of.held[-1].message, wire.Weights | wire.GradientAck):
                for following in of.workers[name].handle(of.held.pop().message):
                    of.deliver(send.to, following)


def told_to_leave(of: Rig) -> list[str]:
    return [send.to.name for send in of.sent if isinstance(send.message, wire.Leave)]


# --- rule 1: asked for early ------------------------------------------------------------------------------------------


def expect(of: Rig, *intervals: int) -> None:
    for interval in intervals:
        of.do(of.backend.expect(task(interval).id, of.now))


def test_a_worker_is_asked_for_when_its_first_task_is_expected():
    run = rig()
    run.hold = lambda send: isinstance(send.message, wire.Pull)
    expect(run, 0)
    assert launches(run) == 1
    run.submit(task(0))
    run.tick(0.1)
    assert launches(run) == 1
    run.hold = lambda send: False
    run.deliver(worker("w0-0"), run.held[0])
    assert [result.interval for result in run.results] == [0]


def test_nobody_is_asked_for_while_somebody_is_idle_or_starting():
    run = rig(count=4)
    run.hold = lambda send: isinstance(send.message, wire.Pull)
    expect(run, 0)
    expect(run, 0)
    assert launches(run) == 1
    expect(run, 1)
    assert launches(run) == 2
    run.hold = lambda send: False
    for pull in run.held:
        run.deliver(worker(pull.message.worker), pull)
    run.submit(task(0), task(1))
    assert len(run.results) == 2
    expect(run, 2, 3)  # both are idle
    assert launches(run) == 2
    expect(run, 4)
    assert launches(run) == 3


def test_one_task_invokes_one_environment_however_long_that_takes_to_start():
    run = rig(count=50)
    run.hold = lambda send: isinstance(send.message, wire.Pull)
    expect(run, 0)
    run.submit(task(0))
    for tenths in range(round(10 * START_S)):
        run.tick(tenths / 10)
    assert launches(run) == 1


def test_a_worker_that_does_not_start_in_time_is_replaced_and_works_if_it_does_later():
    run = rig(count=1)
    run.hold = lambda send: isinstance(send.message, wire.Pull)
    run.submit(task(0))
    run.tick(0.9 * START_S)
    assert controller(run).workers == ["w0-0"]
    run.tick(START_S)
    assert controller(run).workers == ["w0-0", "w0-1"]
    run.tick(3 * START_S)  # twice as many as are wanted
    assert controller(run).workers == ["w0-0", "w0-1"]
    run.hold = lambda send: False
    run.deliver(worker("w0-0"), run.held[0])
    assert [result.worker for result in run.results] == ["w0-0"]


def test_a_worker_that_said_bye_gives_up_its_place_soon_although_its_answer_never_comes():
    run = busy(rig(count=1))
    run.now = 1.0
    run.deliver(worker("w0-0"), Send(HOME, wire.Bye("w0-0")))
    run.tick(1 + 0.9 * LEAVE_S)
    assert launches(run) == 1  # its answer is on its way, most likely: then its environment is warm, and there is room
    run.tick(1 + LEAVE_S)
    assert controller(run).workers == ["w0-0", "w0-1"]
    assert len(run.loads()["w0-1"]) == 2


def test_a_worker_that_said_bye_is_replaced_at_once_when_its_answer_comes():
    run = busy(rig(count=1))
    run.deliver(worker("w0-0"), Send(HOME, wire.Bye("w0-0")))
    run.end("w0-0")
    assert controller(run).workers == ["w0-1"]


def test_a_worker_whose_bye_overtook_its_pull_is_given_nothing():
    run = rig(count=1)
    run.hold = lambda send: isinstance(send.message, wire.Pull)
    run.submit(task(0))
    run.hold = lambda send: False
    run.deliver(worker("w0-0"), Send(HOME, wire.Bye("w0-0")))
    run.deliver(worker("w0-0"), run.held[0])
    assert run.sent == []
    run.tick(LEAVE_S)
    assert [result.worker for result in run.results] == ["w0-1"]


def test_no_more_are_asked_for_early_than_are_wanted():
    run = rig(count=2)
    run.hold = lambda send: isinstance(send.message, wire.Pull)
    expect(run, *range(INTERVALS))
    assert launches(run) == 2


def test_a_worker_that_left_before_its_task_came_is_replaced_when_the_task_is_there():
    run = rig()
    expect(run, 0)
    run.deliver(worker("w0-0"), Send(HOME, wire.Bye("w0-0")))
    run.end("w0-0")
    assert launches(run) == 1
    run.submit(task(0))
    assert launches(run) == 2
    assert len(run.results) == 1


def test_after_stop_nobody_is_expected():
    run = rig()
    run.backend.stop()
    expect(run, 0)
    assert launches(run) == 0


def test_jobs_say_which_tensor_task_they_lead_to():
    assert Job((0,), lambda: lambda: None, lambda value: []).leads_to is None
    found = task(0).id
    assert Job((0,), lambda: lambda: None, lambda value: [], found).leads_to == found


# --- rule 3: refusals -------------------------------------------------------------------------------------------------


def refuse(of: Rig, name: str, error: str = THROTTLED, reason: str = "") -> None:
    of.end(name, error, reason=reason, billed_ms=0)


def test_a_worker_that_has_pulled_was_invoked_whatever_its_end_is_called():
    run = busy(rig(count=1))
    refuse(run, "w0-0")
    assert controller(run).usage["invocations"] == 1
    never = starting(rig(count=1))
    refuse(never, "w0-0")
    assert controller(never).usage["invocations"] == 0


def test_after_a_refusal_nothing_is_invoked_until_the_pause_is_over():
    run = starting(rig(count=1))
    refuse(run, "w0-0", "EC2ThrottledException")
    assert controller(run).num_workers == 0
    run.tick(0.9 * FIRST_S)
    assert controller(run).num_workers == 0
    run.tick(FIRST_S)
    assert controller(run).workers == ["w0-1"]
    assert controller(run).usage["invocations"] == 1


def test_refusals_are_no_failed_launches_and_no_invocations():
    run = starting(rig(count=1))
    for number in range(2 * LEAST_COHORT):
        refuse(run, f"w0-{number}", reason="CallerRateLimitExceeded")
        run.tick(run.now + 40)
    usage = run.backend.usage
    assert usage["refused"] == usage["refused_CallerRateLimitExceeded"] == 2 * LEAST_COHORT
    assert usage["invocations"] == 1  # the one that is under way
    assert usage["lost_workers"] == usage["billed_ms"] == 0


def test_a_refusal_for_a_reason_in_words_is_counted_by_its_error():
    run = starting(rig(count=1))
    refuse(run, "w0-0", "ServiceException", "The service encountered an error. Try again.")
    assert run.backend.usage["refused_ServiceException"] == 1


def test_fewer_are_wanted_when_we_have_as_many_as_we_may_have():
    #  six are asked for, four are granted; another is tried after a while
    run = starting(rig(count=6))
    assert launches(run) == 6
    for name in ("w0-0", "w0-1", "w0-2", "w0-3"):
        run.do(run.backend.handle(worker(name), wire.Pull(name, 0), run.now))
    for name in ("w0-4", "w0-5"):
        refuse(run, name, reason="ConcurrentInvocationLimitExceeded")
    run.tick(0.9 * PATIENCE_S)
    assert controller(run).num_workers == 4
    run.tick(PATIENCE_S)
    assert controller(run).workers == ["w0-0", "w0-1", "w0-2", "w0-3", "w0-6"]
    refuse(run, "w0-6", reason="ConcurrentInvocationLimitExceeded")
    run.tick(1.9 * PATIENCE_S)
    assert controller(run).num_workers == 4


def test_a_refusal_that_time_does_not_mend_ends_the_run_and_says_why():
    run = starting(rig())
    with pytest.raises(WorkerError, match=r"^siafu: ResourceNotFoundException: .*deploy"):
        refuse(run, "w0-0", "ResourceNotFoundException")


def test_refused_for_too_long_with_nobody_at_work_ends_the_run_and_says_why():
    run = starting(rig(count=1))
    for number, now in enumerate((0, 150, 299, 339)):
        run.tick(now)
        if now < 300:
            refuse(run, f"w0-{number}", reason="CallerRateLimitExceeded")
    with pytest.raises(WorkerError, match=r"^siafu: every invocation refused for 339 s, lambda.refused_s allows 300: "):
        refuse(run, "w0-3", reason="CallerRateLimitExceeded")


def test_two_refusals_far_apart_are_no_long_time_in_vain():
    #  the first of a worker that was asked for early; then a long gather
    run = rig(count=1)
    run.hold = lambda send: isinstance(send.message, wire.Pull)
    expect(run, 0)
    refuse(run, "w0-0", reason="CallerRateLimitExceeded")
    run.now = 600.0
    run.submit(task(0))
    refuse(run, "w0-1", reason="CallerRateLimitExceeded")
    assert run.backend.usage["refused"] == 2


def test_processors_of_workers_are_named_and_no_worker_can_fill_the_report_with_made_up_ones():
    run = starting(rig(count=1))
    for kind in ("arm64", "x86_64 Zen", "\x1b[2J", *(f"kind{number}" for number in range(1000))):
        run.do(run.backend.handle(worker("w0-0"), wire.Pull("w0-0", 0, kind), run.now))
    named = [name for name in run.backend.usage if name.startswith(PROCESSOR)]
    assert {f"{PROCESSOR}arm64", f"{PROCESSOR}x86_64 Zen", f"{PROCESSOR}unknown"} < set(named)
    assert len(named) == MOST_KINDS


def test_refused_for_long_while_somebody_works_is_only_slow():
    run = starting(rig(count=2))
    refuse(run, "w0-0", reason="CallerRateLimitExceeded")
    run.do(run.backend.handle(worker("w0-1"), wire.Pull("w0-1", 0), run.now))
    run.tick(run.now + 400)
    refuse(run, "w0-2", reason="CallerRateLimitExceeded")


def test_workers_that_worked_until_their_deadline_are_no_time_in_vain():
    #  two of three work, the third is refused again and again;
    #  890 s  they leave, and those who follow are refused as well
    run = starting(rig(count=3))
    for name in ("w0-0", "w0-1"):
        run.do(run.backend.handle(worker(name), wire.Pull(name, 0), run.now))
    for now in range(0, 890, 100):
        run.tick(now)
        refuse(run, controller(run).workers[-1], reason="ConcurrentInvocationLimitExceeded")
    run.now = 890.0
    for name in ("w0-0", "w0-1"):
        run.deliver(worker(name), Send(HOME, wire.Bye(name)))
    run.end("w0-0")
    run.end("w0-1")
    for now in (890, 890 + 150, 890 + 299):
        run.tick(now)
        refuse(run, controller(run).workers[-1], reason="ConcurrentInvocationLimitExceeded")
    run.tick(890 + 340)
    with pytest.raises(WorkerError, match="every invocation refused for 340 s"):
        refuse(run, controller(run).workers[-1], reason="ConcurrentInvocationLimitExceeded")


def test_a_function_that_hung_was_not_refused():
    run = starting(rig(count=1))
    refuse(run, "w0-0", reason="CallerRateLimitExceeded")
    run.tick(FIRST_S)
    run.now = 900.0
    run.end("w0-1", "Sandbox.Timedout")  # before it pulled
    refuse(run, "w0-2", reason="CallerRateLimitExceeded")
    assert run.backend.usage["refused"] == 2


def test_a_lost_connection_that_was_billed_is_no_refusal():
    run = starting(rig(count=1))
    run.end("w0-0", "ConnectionClosedError", billed_ms=1500)
    usage = run.backend.usage
    assert (usage["invocations"], usage["refused"], usage["lost_workers"], usage["billed_ms"]) == (1, 0, 1, 1500)
    run.tick(0.9 * FIRST_S)
    assert controller(run).num_workers == 0  # it is waited out all the same
    run.tick(FIRST_S)
    assert controller(run).workers == ["w0-1"]


def test_an_environment_that_dies_before_it_pulls_is_no_refusal_although_it_was_not_billed():
    run = starting(rig())
    run.end("w0-0", "Runtime.ExitError", billed_ms=0)
    usage = controller(run).usage
    assert (usage["refused"], usage["lost_workers"]) == (0, 1)


def test_a_worker_whose_invocation_has_ended_for_us_is_told_to_leave():
    run = starting(rig(count=1))
    run.do(run.backend.handle(worker("w0-7"), wire.Pull("w0-7", 2), run.now))
    assert told_to_leave(run) == ["w0-7"]


def test_after_stop_a_refusal_is_no_error():
    run = starting(rig())
    run.backend.stop()
    refuse(run, "w0-0", "ResourceNotFoundException")
    assert run.backend.usage["refused"] == 1


# --- rule 5: fewer ----------------------------------------------------------------------------------------------------


def test_the_tuner_sees_graph_tasks_open_tasks_and_workers_that_have_one():
    seen = []
    tuner = Fixed(2, 2)
    tuner.watch = lambda *what: seen.append(what)  # type: ignore[method-assign]
    run = busy(rig(2, tuner))
    run.backend.watch(5, 0.25)
    assert seen[-1] == (0.25, 5, INTERVALS, 2)


def test_as_many_are_invoked_as_the_tuner_wants():
    tuner = Fixed(1, 4)
    run = busy(rig(4, tuner))
    assert launches(run) == 1
    tuner.wanted = 3
    run.tick(1)
    assert launches(run) == 3
    assert (run.backend.usage["environments_wanted"], run.backend.usage["environments_wanted_peak"]) == (3, 3)


class Watched(Fixed):
    """Says what it was asked."""

    def __init__(self, wanted: int, most: int):
        super().__init__(wanted, most)
        self.asked: list[str] = []

    def decide(self, now: float) -> bool:
        self.asked.append("decide")
        return False

    def make_do(self, granted: int, now: float) -> bool:
        self.asked.append(f"make do with {granted}")
        return False

    def start_over(self, now: float) -> None:
        self.asked.append("start over")


def test_nothing_is_decided_while_most_are_starting_or_fewer_are_granted_than_are_wanted():
    tuner = Watched(3, 3)
    run = starting(rig(3, tuner))
    run.tick(0.1)
    for name in ("w0-0", "w0-1"):
        run.do(run.backend.handle(worker(name), wire.Pull(name, 0), run.now))
    run.tick(0.2)
    refuse(run, "w0-2", reason="ConcurrentInvocationLimitExceeded")
    run.tick(0.3)
    run.tick(0.3 + PATIENCE_S)
    assert tuner.asked == ["start over", "decide", "make do with 2", "decide"]


def test_workers_that_are_too_many_finish_what_they_have_and_leave():
    tuner = Fixed(3, 3)
    run = busy(rig(3, tuner))
    assert [len(load) for load in run.loads().values()] == [2, 2, 2]
    tuner.wanted = 1
    run.tick(1)
    assert told_to_leave(run) == []
    answer(run, "w0-2")
    assert told_to_leave(run) == ["w0-2"]
    answer(run, "w0-1")
    assert told_to_leave(run) == ["w0-2", "w0-1"]
    run.submit(*(task(interval)._replace(id=TaskId(task(interval).id.lane, 1, interval, 4)) for interval in range(4)))
    assert [len(load) for load in run.loads().values()] == [2, 2, 2]  # w0-0 has its two, and the others get nothing
    assert controller(run).num_workers == 3
    for name in ("w0-1", "w0-2"):
        run.end(name)
    assert launches(run) == 3


def test_a_worker_with_nothing_to_do_leaves_at_once():
    tuner = Fixed(2, 2)
    run = rig(2, tuner)
    run.submit(task(0), task(1))
    expect(run, 2, 3)
    assert controller(run).num_workers == 2
    tuner.wanted = 1
    run.tick(1)
    assert told_to_leave(run) == ["w0-1"]
    run.tick(2)
    assert told_to_leave(run) == ["w0-1"]


def test_a_silent_worker_is_not_told_to_leave():
    tuner = Fixed(2, 2)
    run = busy(rig(2, tuner))
    run.tick(10)  # both are silent: two more
    assert launches(run) == 4
    tuner.wanted = 1
    run.tick(11)
    run.hold = lambda send: False
    assert controller(run).num_workers == 4
    assert told_to_leave(run) == []  # of w0-2 and w0-3 one is retired, and has something to do


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "wanted", "most"),
    [
        ({"lambda.count": 5}, 5, 10),
        ({"lambda.on": "aws"}, 64, 128),
        ({"lambda.on": "aws", "train.intervals": 300}, 100, 600),
        ({"lambda.on": "aws", "lambda.count": 7}, 7, 14),
    ],
)
def test_the_number_wanted_at_first_is_the_configured_one_or_that_of_the_paper(settings, wanted, most):
    built = backends.build(CONFIG.replace({"train.intervals": 64, **settings}), SPEC, 0, clock())
    assert isinstance(built, LambdaBackend)
    assert built.usage["environments_wanted"] == wanted
    assert built.max_environments == most


@pytest.mark.parametrize("on", ["local", "localstack"])
def test_this_machine_has_twice_its_cores_of_environments_but_two_to_eight(on: str, monkeypatch: pytest.MonkeyPatch):
    found = {}
    for cores, parts in ((1, 1), (2, 1), (3, 1), (64, 1), (64, 16)):
        monkeypatch.setattr("siafu.allotment.cores", lambda cores=cores: cores)
        config = CONFIG.replace({"train.intervals": 64, "lambda.on": on, "data.parts": parts})
        found[cores, parts] = backends.build(config, SPEC, 0, clock()).usage["environments_wanted"]
    assert found == {(1, 1): 2, (2, 1): 4, (3, 1): 6, (64, 1): 8, (64, 16): 8}


def test_the_launchers_limit_bounds_what_is_wanted():
    built = backends.build(CONFIG.replace({"train.intervals": 64, "lambda.on": "aws"}), SPEC, 0, clock())
    assert isinstance(built, LambdaBackend)
    built.limit(10)
    run = busy(Rig(built))
    assert launches(run) <= 10
    assert built.usage["environments_wanted"] == 10
    run.tick(10)
    run.tick(20)  # however many are silent
    assert built.num_workers <= 10


# --- counts -----------------------------------------------------------------------------------------------------------


def test_cold_starts_are_counted_and_their_time_is_that_which_was_billed():
    run = lambdas(count=1)
    for number, init_ms in enumerate((120.5, 0.0)):
        run.submit(task(number))
        run.deliver(worker(f"w0-{number}"), Send(HOME, wire.Bye(f"w0-{number}")))
        run.end(f"w0-{number}", billed_ms=1000, init_ms=init_ms)
    usage = run.backend.usage
    assert (usage["cold_starts"], usage["init_ms"], usage["billed_ms"]) == (1, 120.5, 2000)


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prefetch", "held"), [(0, INTERVALS), (2, 2), (4, 4)])
def test_small_tasks_of_workers_far_away_travel_in_batches(prefetch: int, held: int):
    """Tasks wait, and their worker computes a thousandth of the time that they take there and back."""
    config = CONFIG.replace({"train.mode": "pipe", "lambda.count": 1, "lambda.prefetch": prefetch})
    run = Rig(backends.build(config, SPEC, 0, clock()))
    run.workers["w0-0"] = Desk(HOME, TensorWorker(SPEC, "w0-0", lambda: 0.0))
    run.hold = lambda send: send.to.role == "worker"
    for epoch in range(5):
        before = len(run.held)
        run.submit(
            *(task(interval)._replace(id=TaskId(Lane.TRAIN, epoch, interval, 4)) for interval in range(INTERVALS))
        )
        sent = len(run.held) - before
        for number in range(INTERVALS):  # in the order of intervals, as they are as urgent as each other
            run.backend.watch(0, run.now)
            run.now += 0.1
            result = wire.TaskResult("train", epoch, number, 4, 0, "w0-0", 0.0, 0.0001, {"dZ1": np.zeros((ROWS, 4))})
            run.deliver(worker("w0-0"), Send(HOME, result))
        run.backend.watch(0, run.now)
        run.tick(run.now)
    assert sent == held


@pytest.mark.parametrize("mode", ["pipe", "async", "no-pipe"])
def test_long_tasks_travel_in_two_parts_where_anything_overlaps(mode: str):
    config = CONFIG.replace({"train.mode": mode, "lambda.count": 1})
    run = Rig(backends.build(config, SPEC, 0, clock()))
    run.submit(task(1, num_rows=2 * MIN_ROWS_PER_PART))
    sent = [send.message for send in run.sent if isinstance(send.message, wire.Task)]
    assert [message.num_parts for message in sent] == [1 if mode == "no-pipe" else 2]


# --- rule 6: memory ---------------------------------------------------------------------------------------------------


def unanswered(of: Rig) -> dict[str, list[int]]:
    """Worker -> intervals of the tasks that it was sent and has not answered."""
    loads: dict[str, list[int]] = {}
    for send in of.held:
        if isinstance(send.message, wire.Task) and send.to.name in of.workers:
            loads.setdefault(send.to.name, []).append(send.message.interval)
    return loads


def test_after_an_environment_ran_out_of_memory_workers_hold_one_task_and_keep_nothing(caplog):
    run = busy(Rig(LambdaBackend(CONFIG.lambdas, MODEL, 2, "w0")))
    assert max(map(len, unanswered(run).values())) > 1
    run.end("w0-0", OUT_OF_MEMORY)
    run.end("w0-1")
    later = unanswered(run)
    assert {len(intervals) for intervals in later.values()} == {1}
    assert "one task at a time" in caplog.text
    assert all(not send.message.constants for send in run.held if send.to.name in later and send.message.tag == 41)


def test_a_task_that_is_too_large_alone_is_split_and_its_parts_travel_when_they_are_asked_for(caplog):
    run = busy(Rig(LambdaBackend(CONFIG.lambdas, MODEL, 1, "w0")))
    run.end("w0-0", OUT_OF_MEMORY)  # by what it held, perhaps
    run.end("w0-1", OUT_OF_MEMORY)
    assert "tasks are split into 2 parts" in caplog.text
    (first,) = (s.message for s in run.held if s.to.name in run.workers and isinstance(s.message, wire.Task))
    assert (first.num_parts, first.on_request, len(next(iter(first.rows.values())))) == (2, True, ROWS // 2)
    assert not any(isinstance(send.message, wire.TaskPart) for send in run.held if send.to.name in run.workers)
    run.held.clear()
    (name,) = run.workers
    missing = wire.RowsMissing(first.lane, first.epoch, first.interval, first.pc, first.attempt, name, 1)
    run.deliver(worker(name), Send(HOME, missing))
    (second,) = (send.message for send in run.held if send.to.name == name)
    assert isinstance(second, wire.TaskPart)
    assert (second.part, len(next(iter(second.rows.values())))) == (1, ROWS - ROWS // 2)
    assert run.backend.usage["split_in"] == 2


def test_workers_from_before_are_retired_and_given_nothing_of_what_the_dead_one_held():
    run = Rig(LambdaBackend(CONFIG.lambdas, MODEL, 3, "w0"))
    run.hold = lambda send: send.to.role == "worker"
    run.submit(*(task(interval) for interval in range(5)))
    assert unanswered(run) == {"w0-0": [0, 1], "w0-1": [2, 3], "w0-2": [4]}  # the last could take another one
    run.held.clear()
    run.end("w0-0", OUT_OF_MEMORY)
    assert {len(intervals) for intervals in unanswered(run).values()} == {1}
    assert all(name not in ("w0-0", "w0-1", "w0-2") for name in unanswered(run))


def test_workers_that_ran_out_together_are_one_piece_of_news():
    run = busy(Rig(LambdaBackend(CONFIG.lambdas, MODEL, 3, "w0")))
    for name in list(run.workers)[:3]:
        run.end(name, OUT_OF_MEMORY)
    assert run.backend.usage["split_in"] == 0


def test_a_worker_that_waits_for_rows_of_what_is_done_may_go():
    run = Rig(LambdaBackend(CONFIG.lambdas, MODEL, 1, "w0"))
    run.hold = lambda send: send.to.role == "worker"
    run.submit(task(0))
    run.end("w0-0", OUT_OF_MEMORY)
    run.end("w0-1", OUT_OF_MEMORY)
    (first,) = (s.message for s in run.held if s.to.name in run.workers and isinstance(s.message, wire.Task))
    (name,) = run.workers
    tag = (first.lane, first.epoch, first.interval, first.pc)
    missing = Send(HOME, wire.RowsMissing(*tag, first.attempt, name, 1))
    late = wire.TaskResult(*tag, first.attempt - 1, "w0-1", 0.0, 0.1, {"dZ1": np.zeros((ROWS, 4))})
    run.deliver(worker("w0-1"), Send(HOME, late))  # said before its end
    assert [result.interval for result in run.results] == [first.interval]
    before = len(told_to_leave(run))
    run.deliver(worker(name), missing)
    assert told_to_leave(run)[before:] == [name]


def test_an_attempt_from_before_the_split_is_sent_parts_of_its_own_length():
    shipping = Shipping(keep_bytes=0, num_parts=1)
    shipping.ship(task(0), Assign("a", task(0).id, 0))
    shipping.split_in = 4
    shipping.ship(task(0), Assign("b", task(0).id, 1))
    of = task(0).id
    missing = [wire.RowsMissing(of.lane.value, of.epoch, of.interval, of.pc, attempt, "w0", 0) for attempt in (0, 1, 2)]
    sent = [shipping.again(task(0), message) for message in missing]
    rows = [send and len(next(iter(send.message.rows.values()))) for send in sent]  # type: ignore[union-attr]
    assert rows == [ROWS, ROWS // 4, None]


def test_tasks_that_no_environment_has_memory_for_end_the_run_and_it_says_what_to_change():
    run = busy(Rig(LambdaBackend(CONFIG.lambdas, MODEL, 1, "w0", intervals=INTERVALS)))
    for number in range(6):  # rule 1; 2, 4 and 8 parts of 5 rows; twice in as many as there are
        run.end(f"w0-{number}", OUT_OF_MEMORY)
    words = rf"memory_mb = {CONFIG.lambdas.memory_mb} .* in {ROWS} parts; .* train.intervals = {INTERVALS} "
    with pytest.raises(WorkerError, match=words):
        run.end("w0-6", OUT_OF_MEMORY)


def test_a_task_that_is_answered_is_forgiven():
    shortage = MemoryShortage(192, 16)
    first, second = task(0).id, task(1).id
    assert shortage.ran_out([first, second], 10) is Step.ALONE
    assert shortage.ran_out([first, second], 10) is Step.NOTHING  # sent before rule 1 was known
    assert shortage.ran_out([first], 10, 1, at_most=2) is Step.SPLIT
    assert shortage.ran_out([first], 10, 1, at_most=2) is Step.NOTHING  # sent before rule 2 was
    assert shortage.ran_out([first], 10, 2, at_most=2) is Step.NOTHING
    shortage.done(first)
    assert shortage.ran_out([first], 10, 2, at_most=2) is Step.NOTHING
    with pytest.raises(WorkerError, match=r"in 2 parts; its rows are 2\.0 MiB"):
        shortage.ran_out([first], 2 << 20, 2, at_most=2)


# --- rule 8: a worker speaks for itself alone -------------------------------------------------------------------------


def held_task(of: Rig, name: str) -> wire.Task:
    """The first task that this worker was sent."""
    return next(send.message for send in of.held if send.to == worker(name) and isinstance(send.message, wire.Task))


def result_of(name: str, given: wire.Task, **changes: Any) -> wire.TaskResult:
    rows = {"dZ1": np.zeros((ROWS, 4))}
    result = wire.TaskResult(given.lane, given.epoch, given.interval, given.pc, given.attempt, name, 0.5, 0.1, rows)
    return dataclasses.replace(result, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"worker": "w0-1"}, "it names worker 'w0-1'"),
        ({"attempt": 1}, "it was not given attempt 1 of train epoch 0"),
        ({"attempt": -1}, "it was not given attempt -1 of train epoch 0"),
        ({"compute_s": math.nan}, "compute_s = nan"),
        ({"compute_s": math.inf}, "compute_s = inf"),
        ({"compute_s": -1.0}, r"compute_s = -1\.0"),
        ({"compute_s": 1e308}, r"compute_s = 1e\+308, must be 0 to 900"),  # the sum of two would be infinite
        ({"loss": -1.0}, r"loss = -1\.0"),
        ({"loss": -math.inf}, "loss = -inf"),
    ],
    ids=str,
)
def test_what_no_worker_can_say_of_a_task_completes_nothing(changes: dict[str, Any], words: str):
    run = busy(rig())
    given = held_task(run, "w0-0")
    before = run.backend.usage
    with pytest.raises(RemoteProtocolError, match=rf"^TaskResult of worker w0-0: {words}"):
        run.backend.handle(worker("w0-0"), result_of("w0-0", given, **changes), 1.0)
    assert (run.results, run.backend.usage) == ([], before)
    run.deliver(worker("w0-0"), Send(HOME, result_of("w0-0", given)))  # the truth still counts
    assert [result.interval for result in run.results] == [given.interval]


def test_a_worker_answers_no_task_that_another_one_has():
    run = busy(rig())
    given = held_task(run, "w0-1")
    with pytest.raises(RemoteProtocolError, match=r"^TaskResult of worker w0-0: it was not given attempt 0"):
        run.backend.handle(worker("w0-0"), result_of("w0-0", given), 1.0)
    failed = wire.TaskFailed(given.lane, given.epoch, given.interval, given.pc, given.attempt, "w0-0", "a lie")
    with pytest.raises(RemoteProtocolError, match=r"^TaskFailed of worker w0-0: it was not given attempt 0"):
        run.backend.handle(worker("w0-0"), failed, 1.0)
    assert run.backend.usage["failures"] == 0


@pytest.mark.parametrize(
    "message", [wire.Pull("w0-1", 1), wire.Bye("w0-1")], ids=lambda message: type(message).__name__
)
def test_a_worker_neither_pulls_nor_leaves_for_another(message: wire.Message):
    run = busy(rig())
    with pytest.raises(RemoteProtocolError, match="of worker w0-0: it names worker 'w0-1'"):
        run.backend.handle(worker("w0-0"), message, 1.0)
    answer(run, "w0-1")
    assert {result.worker for result in run.results} == {"w0-1"}


@pytest.mark.parametrize("credits", [-1, 9, 1 << 62])
def test_a_worker_asks_for_no_other_number_of_tasks_than_it_may_hold(credits: int):
    run = rig(count=1)
    run.hold = lambda send: isinstance(send.message, wire.Pull)
    run.submit(task(0))
    with pytest.raises(RemoteProtocolError, match=rf"{credits} credits, must be 0 to 8"):
        run.backend.handle(worker("w0-0"), wire.Pull("w0-0", credits), 0.0)
    assert run.loads() == {}


def test_a_worker_whose_times_are_no_numbers_crashes_no_controller():
    config = CONFIG.replace({"train.mode": "async", "lambda.count": 1})
    run = Rig(backends.build(config, SPEC, 0, clock()))
    run.hold = lambda send: send.to.role == "worker"
    for epoch in range(20):
        run.submit(task(0)._replace(id=TaskId(Lane.TRAIN, epoch, 0, 4)))
        run.now += 0.1
        given = held_task(run, "w0-0")
        run.held.clear()
        with pytest.raises(RemoteProtocolError):
            run.backend.handle(worker("w0-0"), result_of("w0-0", given, compute_s=math.nan), run.now)
        run.deliver(worker("w0-0"), Send(HOME, result_of("w0-0", given, compute_s=0.01)))
    run.tick(run.now + 2)
    usage = run.backend.usage
    assert usage["tasks"] == 20
    assert all(math.isfinite(value) for value in usage.values())


@pytest.mark.parametrize("loss", [math.nan, math.inf, 0.0, -1e-9])
def test_a_loss_that_diverged_gets_through_as_on_nan_is_about_it(loss: float):
    run = busy(rig())
    run.deliver(worker("w0-0"), Send(HOME, result_of("w0-0", held_task(run, "w0-0"), loss=loss)))
    (result,) = run.results
    assert result.loss == loss or (math.isnan(loss) and math.isnan(result.loss))


# --- tasks with the loss ----------------------------------------------------------------------------------------------


def test_a_worker_gets_and_gives_training_rows_and_the_server_puts_them_among_all():
    run, one = rig(), task(0, train=2)
    train = np.asarray(one.rows["train"])
    run.submit(one)
    (sent,) = (send.message for send in run.sent if isinstance(send.message, wire.Task))
    assert sent.subset == "training"
    assert {len(rows) for rows in sent.rows.values()} == {train.sum()}
    (result,) = run.results
    expected = MODEL.run(one.step, one.rows, MODEL.init(), epoch=0, lane=Lane.TRAIN)
    np.testing.assert_allclose(np.asarray(result.rows["dZ1"]), np.asarray(expected.rows["dZ1"]), rtol=1e-12)
    assert not np.asarray(result.rows["dZ1"])[~train].any()


def test_a_results_edges_that_share_values_are_not_taken_for_one_value_of_each():
    own = EdgeRows(np.array([0, 2]), np.ones((2, 1), np.float32))
    shared = EdgeRows(own.indptr, own.values[:1], np.zeros(2, np.int32))
    assert _kind(own) == "float32 2 edges [1, 1]"
    assert _kind(shared) == "shared float32 2 edges [1, 1]"


def test_a_result_of_all_rows_where_training_rows_were_asked_for_is_a_fault(caplog):
    run, one = rig(), task(0, train=2)
    run.hold = lambda send: send.to.role == "worker"
    run.submit(one)
    held = run.held[-1]
    rows: wire.Tensors = {"dZ1": np.zeros((ROWS, 4))}
    result = wire.TaskResult("train", 0, 0, one.id.pc, 0, held.to.name, 0.5, 0.1, rows)
    run.deliver(held.to, Send(HOME, result))
    assert run.results == []
    assert "must be {'dZ1': 'float64 [2, 4]'}" in caplog.text
