"""What every tensor backend promises: each task is computed once, its gradients are with the parameter server before
its result is with us, and it says what it has used.

``Rig`` carries a backend's actions out with a real parameter server and, where there are Lambdas,
simulated workers. A new backend is one line in ``BACKENDS``; if it takes its tasks elsewhere than Job,
Launch and Send, the rig learns of it here.
"""

from __future__ import annotations

import heapq
import importlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from graph_server import backends
from graph_server.backends import BACKENDS, Action, Backend, Completed, Compute, Job, Launch, TensorTask
from graph_server.backends.cpu import CpuBackend
from graph_server.lambdas.backend import LambdaBackend
from graph_server.lambdas.workforce import LEAST_COHORT, START_S
from lambda_funcs.desk import Desk
from lambda_funcs.invocation import NO_ROOM
from param_server.replica import Replica
from siafu import models, wire
from siafu.address import COORDINATOR, Address, Send, graph_server, param_server, worker
from siafu.config import Config, Servers
from siafu.errors import RemoteProtocolError, WorkerError, WorkerTimeout
from siafu.models import ModelSpec
from siafu.setting import types_of
from siafu.sparse import Array, SparseRows
from siafu.tasks import Lane, TaskId
from siafu.tensor_task import MIN_ROWS_PER_PART, TensorWorker
from tests.fleet import ended

INTERVALS, ROWS = 6, 5
SPEC = ModelSpec("gcn", 3, 2, num_train=INTERVALS * ROWS, widths=(4,), dtype="float64", seed=1, narrow=False)
MODEL = models.build(SPEC)
PROGRAM = MODEL.program(Lane.TRAIN)
FUSED = 4  # the last AV, the loss and its backward: it reads Z1 and has rows, gradients and a loss
HOME = graph_server(0)
CONFIG = Config().replace(
    {
        "train.intervals": INTERVALS,
        "train.epochs": 3,
        "train.mode": "async",
        "servers.backend": "lambda",
        "model.dtype": "float64",
        "servers.device": "cpu",
        "model.hidden": 4,
        "lambda.relaunches": 3,
    }
)


def clock() -> Callable[[], float]:
    """Every look at it costs a second."""
    ticks = iter(range(10**6))
    return lambda: float(next(ticks))


def task(interval: int, *, priority: int = 0, num_rows: int = ROWS, train: int = 4) -> TensorTask:
    """``train``: of every 5 vertices those in training."""
    rng = np.random.default_rng(interval)
    rows: dict[str, Any] = {
        "Z1": rng.normal(size=(num_rows, 4)),
        "label": rng.integers(0, 2, num_rows),
        "train": np.arange(num_rows) % 5 < train,
    }
    return TensorTask(TaskId(Lane.TRAIN, 0, interval, FUSED), PROGRAM[FUSED], (priority,), 0, rows)


class Rig:
    """A graph server's hands: whatever the backend wants done is done, one thing after the other."""

    def __init__(self, backend: Backend):
        self.backend = backend
        self.replica = Replica(0, CONFIG, MODEL, 1, INTERVALS)
        self.now = 0.0
        self.workers: dict[str, Desk] = {}
        self.jobs: list[tuple[tuple[int, ...], int, Job]] = []
        self._number = itertools.count()
        self.held: list[Send] = []  # to and from workers, while ``hold`` is set
        self.hold: Callable[[Send], bool] = lambda send: False
        self.events: list[tuple[str, int]] = []  # ("gradient" | "completed", interval)
        self.results: list[wire.TaskResult] = []
        self.sent: list[Send] = []  # by the backend

    def submit(self, *tasks: TensorTask) -> None:
        for each in tasks:
            self.do(self.backend.submit(each, self.now))

    def tick(self, now: float) -> None:
        self.now = now
        self.do(self.backend.tick(now))

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    wire.encode(action.message, bytes(16))  # it must be one that can travel
                    self.sent.append(action)
                    self.deliver(HOME, action)
                case Launch(worker=name, credits=credits):
                    self.workers[name] = Desk(HOME, TensorWorker(SPEC, name, clock()))
                    self.deliver(worker(name), Send(HOME, wire.Pull(name, credits)))
                case Completed(result):
                    self.events.append(("completed", result.interval))
                    self.results.append(result)
                case Job():
                    heapq.heappush(self.jobs, (action.priority, next(self._number), action))
                case Compute():
                    raise AssertionError("a backend queues jobs, the partition starts them")

    def deliver(self, sender: Address, send: Send) -> None:
        if self.hold(send):
            self.held.append(send)
        elif send.to.role == "worker":
            if send.to.name in self.workers:
                for answer in self.workers[send.to.name].handle(send.message):
                    self.deliver(send.to, answer)
        elif send.to.role == "param_server":
            if isinstance(send.message, wire.Gradient):
                self.events.append(("gradient", send.message.interval))
            for answer in self.replica.handle(sender, send.message):
                self.deliver(param_server(0), answer)
        else:
            self.do(self.backend.handle(sender, send.message, self.now))

    def work(self) -> None:
        """Runs queued computations until there are none."""
        while self.jobs:
            job = heapq.heappop(self.jobs)[2]
            self.do(job.then(job.begin()()))

    def end(self, name: str, error: str | None = None, **outcome: Any) -> None:
        del self.workers[name]
        assert isinstance(self.backend, LambdaBackend)
        self.do(self.backend.ended(ended(name, error, **outcome), self.now))

    def loads(self) -> dict[str, list[int]]:
        """Worker -> intervals of the tasks that it was sent."""
        loads: dict[str, list[int]] = {}
        for send in self.sent:
            if isinstance(send.message, wire.Task):
                loads.setdefault(send.to.name, []).append(send.message.interval)
        return loads


def lambdas(count: int = 2, **options: Any) -> Rig:
    config = CONFIG.replace({f"lambda.{name}": value for name, value in options.items()})
    return Rig(LambdaBackend(config.lambdas, MODEL, count, "w0"))


def gpu() -> Rig:
    torch = pytest.importorskip("torch")
    from graph_server.backends.gpu import Arithmetic, GpuBackend, Memory

    return Rig(GpuBackend(SPEC, "gpu", clock(), Arithmetic(Memory(torch.device("cpu")))))


MAKE: dict[str, Callable[[], Rig]] = {
    "cpu": lambda: Rig(CpuBackend(SPEC, "cpu", clock())),
    "gpu": gpu,
    "lambda": lambdas,
}


@pytest.fixture(params=BACKENDS)
def rig(request: pytest.FixtureRequest) -> Rig:
    return MAKE[request.param]()


# --- every backend ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BACKENDS)
def test_every_line_of_the_table_names_a_backend_of_this_contract(name: str):
    module, _, cls = BACKENDS[name].backend.partition(":")
    built = backends.build(CONFIG.replace({"servers.backend": name}), SPEC, 0, clock())
    assert type(MAKE[name]().backend) is type(built) is getattr(importlib.import_module(module), cls)


def test_the_setting_takes_the_names_of_the_table():
    assert {*get_args(types_of(Servers)["backend"])} == {"auto", *BACKENDS}


def test_every_task_is_completed_once(rig: Rig):
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    rig.work()
    assert sorted(result.interval for result in rig.results) == list(range(INTERVALS))
    assert {result.id for result in rig.results} == {task(interval).id for interval in range(INTERVALS)}


def test_gradients_are_with_the_parameter_server_before_the_result_is_with_us(rig: Rig):
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    rig.work()
    for interval in range(INTERVALS):
        assert rig.events.index(("gradient", interval)) < rig.events.index(("completed", interval))
    assert rig.replica.num_pending > 0


@pytest.mark.parametrize("train", [0, 1, 4, 5])
def test_the_result_is_that_of_the_models_step(rig: Rig, train: int):
    rig.submit(task(3, train=train))
    rig.work()
    expected = MODEL.run(PROGRAM[FUSED], task(3, train=train).rows, MODEL.init(), epoch=0, lane=Lane.TRAIN)
    (result,) = rig.results
    assert result.loss == pytest.approx(expected.loss, rel=1e-12)
    assert set(result.rows) == set(expected.rows) == {"dZ1"}
    np.testing.assert_allclose(np.asarray(result.rows["dZ1"]), expected.rows["dZ1"], rtol=1e-12)


def test_in_flight_counts_what_is_submitted_and_not_completed(rig: Rig):
    rig.hold = lambda send: isinstance(send.message, wire.Weights)
    assert rig.backend.in_flight == 0
    rig.submit(task(0), task(1))
    assert rig.backend.in_flight == 2
    rig.work()
    assert rig.backend.in_flight == 2
    rig.hold = lambda send: False
    for send in rig.held:
        rig.deliver(param_server(0), send)
    rig.work()
    assert rig.backend.in_flight == 0


def test_usage_counts_tasks_and_the_time_they_took(rig: Rig):
    assert rig.backend.usage["tasks"] == rig.backend.usage["compute_s"] == 0
    rig.submit(*(task(interval) for interval in range(4)))
    rig.work()
    assert rig.backend.usage["tasks"] == 4
    assert rig.backend.usage["compute_s"] == 4.0  # one second each
    assert all(isinstance(value, int | float) for value in rig.backend.usage.values())


def test_what_belongs_to_no_open_task_is_ignored(rig: Rig):
    rig.submit(task(0))
    rig.work()
    usage = {**rig.backend.usage}
    late = [
        wire.Weights("train", 0, 0, (1,), 0, 0, {}),
        wire.GradientAck(0, 0, 1, 0),
        wire.GradientAck(2, 5, 0, 3),
        wire.WeightsReady(0, 1, 0),
    ]
    for message in late:
        assert rig.backend.handle(param_server(0), message, 1.0) == []
    assert rig.backend.usage == usage


def test_time_alone_changes_nothing_when_nothing_is_open(rig: Rig):
    assert rig.backend.tick(1e9) == []


@pytest.mark.parametrize("held", [wire.Weights, wire.GradientAck])
def test_after_stop_nothing_is_open_asked_for_or_wrong(rig: Rig, held: type[wire.Message]):
    rig.hold = lambda send: isinstance(send.message, held)
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    first = heapq.heappop(rig.jobs)[2] if rig.jobs else None
    computing = first.begin() if first is not None else None
    rig.work()
    rig.backend.stop()
    assert rig.backend.in_flight == 0
    usage, num_sent, results = {**rig.backend.usage}, len(rig.sent), [*rig.results]
    assert held is wire.GradientAck or not results  # the cpu backend waits for no acknowledgement
    rig.hold = lambda send: False
    if first is not None and computing is not None:
        rig.do(first.then(computing()))
    for send in rig.held:
        rig.deliver(param_server(0), send)
    rig.submit(task(0))
    rig.tick(1e9)
    rig.work()
    assert (rig.results, rig.backend.usage, len(rig.sent)) == (results, usage, num_sent)


def test_evaluation_pushes_no_gradient(rig: Rig):
    program = MODEL.program(Lane.EVAL)
    last = len(program) - 1
    rig.replica.handle(COORDINATOR, wire.GetModel("latest"))
    #  version 1 would be needed: there is one once every interval of epoch 0 is in
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    rig.work()
    for interval in range(INTERVALS):
        gradients: dict[str, Any] = {name: np.zeros_like(W) for name, W in MODEL.init().items() if name[0] == "0"}
        rig.replica.handle(HOME, wire.Gradient(0, interval, 0, 0, gradients))
        rig.replica.handle(HOME, wire.IntervalDone(0, interval))
    rig.replica.handle(HOME, wire.EpochDone(0, 0, INTERVALS))
    assert rig.replica.version == 1
    rig.events.clear()
    rig.submit(TensorTask(TaskId(Lane.EVAL, 0, 2, last), program[last], (0,), 0, {"Z1": task(2).rows["Z1"]}))
    rig.work()
    assert rig.events == [("completed", 2)]
    assert np.asarray(rig.results[-1].rows["H2"]).shape == (ROWS, 2)


# --- lambda: who is launched ------------------------------------------------------------------------------------------


def launches(rig: Rig) -> int:
    return int(rig.backend.usage["invocations"])


def test_no_more_workers_are_launched_than_tasks_wait():
    rig = lambdas(count=4)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0))
    assert launches(rig) == 1


def test_no_more_than_count_are_alive_while_they_speak():
    rig = lambdas(count=2)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    assert launches(rig) == 2
    assert {name: len(load) for name, load in rig.loads().items()} == {"w0-0": 2, "w0-1": 2}  # prefetch


def test_a_worker_that_has_left_is_replaced_when_there_is_work():
    rig = lambdas(count=1)
    rig.submit(task(0))
    rig.deliver(worker("w0-0"), Send(HOME, wire.Bye("w0-0")))
    rig.end("w0-0")
    assert launches(rig) == 1
    rig.submit(task(1))
    assert launches(rig) == 2
    assert len(rig.results) == 2


def test_silent_workers_are_replaced_but_no_more_than_count_of_them():
    #   0 s  w0-0 takes a task and says no more;  10 s  w0-1 is launched for it, and says no more either
    #  20 s  nobody is launched: two hang
    rig = lambdas(count=1)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0))
    for now, number in ((10, 2), (20, 2), (30, 2)):
        rig.tick(now)
        assert launches(rig) == number
    rig.hold = lambda send: False
    rig.end("w0-0", "Sandbox.Timedout")
    assert launches(rig) == 3
    assert rig.backend.in_flight == 0


def test_after_stop_nobody_is_launched_and_only_bills_count():
    #  w0-0 and w0-1 hold two tasks each, two wait; then the run stops, w0-0 leaves, w0-1 hangs until it is killed
    rig = lambdas(count=2)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    before = {**rig.backend.usage}
    rig.backend.stop()
    rig.deliver(worker("w0-0"), Send(HOME, wire.Bye("w0-0")))
    rig.end("w0-0", billed_ms=1000)
    rig.deliver(worker("w0-1"), Send(HOME, wire.TaskFailed("train", 0, 0, FUSED, 0, "w0-1", "too late")))
    rig.deliver(worker("w0-1"), Send(HOME, wire.TaskFailed("train", 0, 0, FUSED, 1, "w0-1", "too late")))
    rig.end("w0-1", "Sandbox.Timedout", billed_ms=2000)
    changed = {name: value for name, value in rig.backend.usage.items() if value != before[name]}
    assert changed == {"billed_ms": 3000, "gb_s": 3 * CONFIG.lambdas.memory_mb / 1024}
    assert isinstance(rig.backend, LambdaBackend)
    assert rig.backend.workers == []


def test_launches_that_fail_after_stop_are_no_error():
    rig = lambdas(count=LEAST_COHORT)
    rig.hold = lambda send: isinstance(send.message, wire.Pull)
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    rig.backend.stop()
    for number in range(LEAST_COHORT):
        rig.end(f"w0-{number}", "Runtime.ExitError")


def test_launches_that_fail_before_they_take_a_task_end_the_run():
    rig = lambdas(count=1)
    rig.hold = lambda send: isinstance(send.message, wire.Pull)
    rig.submit(task(0))
    outcome = {"payload": b'{"errorMessage": "No module named\\n numpy"}'}
    for number in range(LEAST_COHORT - 1):
        rig.end(f"w0-{number}", "Runtime.ImportModuleError", **outcome)
    with pytest.raises(WorkerError, match=r"Runtime\.ImportModuleError: No module named numpy$"):
        rig.end(f"w0-{LEAST_COHORT - 1}", "Runtime.ImportModuleError", **outcome)


def test_a_few_of_many_that_fail_to_start_are_no_broken_function():
    """Ten are asked for together: nine of them fail, and so do those that are invoked in their
    place, before the tenth comes up."""
    rig = lambdas(count=10)
    rig.hold = lambda send: isinstance(send.message, wire.Pull) or send.to.role == "worker"
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    first = launches(rig)
    assert first > LEAST_COHORT
    for number in range(first + 2 * LEAST_COHORT):
        if number != 1:
            rig.end(f"w0-{number}", "Runtime.ExitError")
    rig.do(rig.backend.handle(worker("w0-1"), wire.Pull("w0-1", 0), 0))
    assert isinstance(rig.backend, LambdaBackend)
    assert "w0-1" in rig.backend.workers


def test_a_cohort_of_which_nobody_came_up_ends_the_run():
    rig = lambdas(count=10)
    rig.hold = lambda send: isinstance(send.message, wire.Pull) or send.to.role == "worker"
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    first = launches(rig)
    for number in range(first - 1):
        rig.end(f"w0-{number}", "Runtime.ExitError")
    with pytest.raises(
        WorkerError, match=f"^{first} invocations of .* in a row ended before they took a task: Runtime.ExitError"
    ):
        rig.end(f"w0-{first - 1}", "Runtime.ExitError")


def test_workers_that_hang_do_not_keep_a_broken_function_alive():
    rig = lambdas(count=4)
    rig.hold = lambda send: isinstance(send.message, wire.Pull) or send.to.role == "worker"
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    for number in range(3):
        rig.end(f"w0-{number}", "Runtime.ExitError")
    rig.tick(START_S)  # nobody waits for the fourth any more
    with pytest.raises(WorkerError, match="in a row ended before they took a task"):
        _ = [rig.end(f"w0-{number}", "Runtime.ExitError") for number in range(4, 8)]


def test_a_machine_without_room_means_fewer_are_wanted_and_is_said_once(caplog):
    rig = lambdas(count=4)
    rig.hold = lambda send: isinstance(send.message, wire.Pull) or send.to.role == "worker"
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    rig.do(rig.backend.handle(worker("w0-0"), wire.Pull("w0-0", 0), 0))
    for number in range(1, 2 + 2 * LEAST_COHORT):
        if number >= launches(rig):
            rig.tick(rig.now + 40)
        rig.end(f"w0-{number}", NO_ROOM, reason="Too many open files", billed_ms=0)
    assert isinstance(rig.backend, LambdaBackend)
    assert rig.backend.usage["lost_workers"] == 0
    said = [message for message in caplog.messages if "no room for another environment" in message]
    assert len(said) == 1


def test_a_worker_that_pulls_forgives_the_failures_before_it():
    rig = lambdas(count=1)
    rig.hold = lambda send: isinstance(send.message, wire.Pull) or send.to.role == "worker"
    rig.submit(task(0))
    for number in range(3 * LEAST_COHORT):
        if number % LEAST_COHORT == LEAST_COHORT - 1:
            rig.do(rig.backend.handle(worker(f"w0-{number}"), wire.Pull(f"w0-{number}", 0), 0))
        rig.end(f"w0-{number}", "Runtime.ExitError")
    assert launches(rig) == 3 * LEAST_COHORT + 1


def test_a_word_of_a_worker_that_is_gone_brings_nobody_to_life():
    #  w0-0 says that it is ready and dies; we hear of its end first
    rig = lambdas(count=1)
    rig.hold = lambda send: isinstance(send.message, wire.Pull)
    rig.submit(task(0))
    (pull,) = rig.held
    rig.hold = lambda send: False
    rig.end("w0-0", "Runtime.ExitError")
    assert rig.loads() == {"w0-1": [0]}
    assert told_to_leave(rig.backend.handle(worker("w0-0"), pull.message, 1.0)) == ["w0-0"]
    assert isinstance(rig.backend, LambdaBackend)
    assert rig.backend.workers == ["w0-1"]


def test_a_stranger_is_given_nothing():
    rig = lambdas(count=1)
    rig.hold = lambda send: isinstance(send.message, wire.Pull)
    rig.submit(task(0))
    assert told_to_leave(rig.backend.handle(worker("nobody"), wire.Pull("nobody", 5), 0.0)) == ["nobody"]


def told_to_leave(actions: list[Action]) -> list[str]:
    """Names of the workers, where nothing else is done."""
    assert all(isinstance(action, Send) and isinstance(action.message, wire.Leave) for action in actions)
    return [action.to.name for action in actions if isinstance(action, Send)]


# --- lambda: what becomes of tasks ------------------------------------------------------------------------------------


def test_a_task_whose_worker_is_silent_goes_to_another_and_counts_once():
    #   0 s  w0-0 takes interval 0, computes, and its result is on its way for long
    #  10 s  w0-1 is launched and answers;  11 s  the first result comes: a duplicate
    rig = lambdas(count=1)
    rig.hold = lambda send: isinstance(send.message, wire.TaskResult)
    rig.submit(task(0))
    rig.hold = lambda send: False
    rig.tick(9.9)
    assert rig.results == []
    rig.tick(10)
    assert [result.worker for result in rig.results] == ["w0-1"]
    rig.deliver(worker("w0-0"), rig.held[0])
    assert len(rig.results) == 1
    usage = rig.backend.usage
    assert (usage["relaunches"], usage["duplicates"], usage["tasks"]) == (1, 1, 1)
    assert rig.events.count(("gradient", 0)) == 2
    assert rig.replica.duplicates["Gradient"] == 1


def test_the_end_of_an_invocation_that_nobody_asked_for_is_billed_and_harms_nothing():
    rig = lambdas(count=1)
    rig.submit(task(0))
    assert isinstance(rig.backend, LambdaBackend)
    before, known = rig.backend.usage, rig.backend.workers
    assert len(known) == 1
    rig.do(rig.backend.ended(ended("w-99", None, billed_ms=2000), rig.now))
    assert rig.backend.usage["billed_ms"] == before["billed_ms"] + 2000
    assert rig.backend.workers == known


def test_a_result_that_comes_twice_counts_once():
    rig = lambdas(count=1)
    rig.submit(task(0))
    again = rig.backend.handle(worker("w0-0"), rig.results[0], 1.0)
    assert again == []
    assert rig.backend.usage["duplicates"] == 1
    assert rig.backend.usage["tasks"] == 1


@pytest.mark.parametrize("how", ["dies", "leaves"])
def test_tasks_of_a_worker_that_is_gone_go_to_others_at_once(how: str):
    rig = lambdas(count=1)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0), task(1), task(2))
    rig.hold = lambda send: False
    if how == "leaves":
        rig.deliver(worker("w0-0"), Send(HOME, wire.Bye("w0-0")))
    rig.end("w0-0", "Runtime.ExitError" if how == "dies" else None)
    assert sorted(result.interval for result in rig.results) == [0, 1, 2]
    assert {result.worker for result in rig.results} == {"w0-1"}
    assert rig.backend.usage["lost_workers"] == (how == "dies")
    assert rig.backend.usage["relaunches"] == 2


def test_a_task_that_raises_is_tried_once_more():
    rig = lambdas(count=1)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0))
    rig.hold = lambda send: False
    failed = wire.TaskFailed("train", 0, 0, FUSED, 0, "w0-0", "Traceback: MemoryError")
    rig.deliver(worker("w0-0"), Send(HOME, failed))
    assert [result.attempt for result in rig.results] == [1]
    assert rig.backend.handle(worker("w0-0"), failed, 0.0) == []  # said twice: the task is done long ago


def test_a_task_that_raises_twice_ends_the_run_with_the_remote_traceback():
    rig = lambdas(count=1)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0))
    for repeated in range(2):  # the same failure may be said twice
        assert repeated == 0 or rig.backend.in_flight == 1
        rig.deliver(worker("w0-0"), Send(HOME, wire.TaskFailed("train", 0, 0, FUSED, 0, "w0-0", "first")))
    again = wire.TaskFailed("train", 0, 0, FUSED, 1, "w0-0", "Traceback\n  File x\nValueError: 7 is not 8")
    with pytest.raises(WorkerError, match=r"(?s)^train epoch 0 interval 0 step 4 failed on w0-0:\nTrace.*7 is not 8$"):
        rig.deliver(worker("w0-0"), Send(HOME, again))


def test_a_broken_worker_does_not_end_the_run():
    #  w0-0 fails whatever it is given, w0-1 is well: every task that w0-0 had is done by w0-1
    rig = lambdas(count=2)
    rig.hold = lambda send: send.to == worker("w0-0")
    rig.submit(*(task(interval) for interval in range(INTERVALS)))
    while rig.held:
        broken = rig.held.pop(0).message
        failed = wire.TaskFailed("train", 0, broken.interval, FUSED, broken.attempt, "w0-0", "MemoryError")
        rig.deliver(worker("w0-0"), Send(HOME, failed))
    assert sorted(result.interval for result in rig.results) == list(range(INTERVALS))
    assert {result.worker for result in rig.results} == {"w0-1"}
    assert rig.backend.usage["failures"] == len(rig.loads()["w0-0"]) > 0


BAD_ROWS: dict[str, dict[str, Any]] = {
    "no slot": {},
    "another slot": {"dZ1": np.zeros((ROWS, 4)), "H1": np.zeros((ROWS, 4))},
    "rows": {"dZ1": np.zeros((ROWS - 1, 4))},
    "width": {"dZ1": np.zeros((ROWS, 5))},
    "dimensions": {"dZ1": np.zeros(ROWS)},
    "dtype": {"dZ1": np.zeros((ROWS, 4), np.float32)},
    "sparse": {"dZ1": SparseRows(np.zeros(ROWS + 1, np.int64), np.zeros(0, np.int32), np.zeros(0), 4)},
}


@pytest.mark.parametrize("bad", BAD_ROWS)
def test_a_result_that_does_not_fit_its_task_is_a_failure_of_its_worker(bad: str, caplog: pytest.LogCaptureFixture):
    rig = lambdas(count=2)
    rig.hold = lambda send: isinstance(send.message, wire.TaskResult) and send.message.worker == "w0-0"
    rig.submit(task(0))
    (result,) = rig.held
    rig.hold = lambda send: False
    rig.deliver(worker("w0-0"), Send(HOME, replace(result.message, rows=BAD_ROWS[bad])))
    assert [(each.interval, each.attempt) for each in rig.results if each.interval == 0] == [(0, 1)]
    assert rig.backend.usage["failures"] == rig.backend.usage["relaunches"] == 1
    assert "train epoch 0 interval 0 step 4 of worker w0-0: the result is {" in caplog.text


def test_two_results_that_do_not_fit_end_the_run():
    rig = lambdas(count=1)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0))
    bad = wire.TaskResult("train", 0, 0, FUSED, 0, "w0-0", 0.0, 0.0, {})
    rig.deliver(worker("w0-0"), Send(HOME, bad))
    with pytest.raises(WorkerError, match=r"failed on w0-0:\nthe result is {}, must be {'dZ1': 'float64 \[5, 4\]'}$"):
        rig.deliver(worker("w0-0"), Send(HOME, replace(bad, attempt=1)))


def test_a_task_that_nobody_answers_ends_the_run():
    rig = lambdas(count=4)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0))
    for attempt in range(3):
        rig.tick(10.0 * (attempt + 1))
    assert launches(rig) == 4
    with pytest.raises(WorkerTimeout, match="no result after 4 attempts"):
        rig.tick(40)


def test_older_work_goes_first():
    rig = lambdas(count=1)
    rig.hold = lambda send: isinstance(send.message, wire.Pull)
    rig.submit(task(0, priority=5), task(1, priority=1), task(2, priority=3))
    rig.hold = lambda send: send.to.role == "worker"
    rig.deliver(worker("w0-0"), rig.held[0])
    assert rig.loads() == {"w0-0": [1, 2]}


# --- lambda: what travels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "num_rows", "parts"),
    [
        (True, 2 * MIN_ROWS_PER_PART, [MIN_ROWS_PER_PART, MIN_ROWS_PER_PART]),
        (True, 2 * MIN_ROWS_PER_PART + 1, [MIN_ROWS_PER_PART, MIN_ROWS_PER_PART + 1]),
        (True, 2 * MIN_ROWS_PER_PART - 1, [2 * MIN_ROWS_PER_PART - 1]),
        (False, 2 * MIN_ROWS_PER_PART, [2 * MIN_ROWS_PER_PART]),
    ],
)
def test_inputs_travel_in_halves_where_they_are_worth_it(stream: bool, num_rows: int, parts: list[int]):
    rig = lambdas(count=1, stream=stream)
    rig.submit(task(0, num_rows=num_rows))
    assert [len(send.message.rows["Z1"]) for send in rig.sent] == parts
    assert rig.sent[0].message.num_parts == len(parts)
    whole: list[Array] = [np.asarray(send.message.rows["Z1"]) for send in rig.sent]
    assert np.concatenate(whole).tolist() == np.asarray(task(0, num_rows=num_rows).rows["Z1"]).tolist()
    (result,) = rig.results
    assert np.asarray(result.rows["dZ1"]).shape == (num_rows, 4)
    assert rig.backend.usage["compute_s"] == len(parts)


def test_usage_counts_bytes_and_what_is_billed():
    rig = lambdas(count=1)
    rig.submit(task(0))
    rig.end("w0-0", billed_ms=2000)
    usage = rig.backend.usage
    assert usage["bytes_out"] == sum(rows.nbytes for rows in task(0).rows.values())
    assert usage["bytes_in"] == np.asarray(rig.results[0].rows["dZ1"]).nbytes
    assert usage["billed_ms"] == 2000
    assert usage["gb_s"] == 2 * CONFIG.lambdas.memory_mb / 1024


# --- lambda: rows that were let go ------------------------------------------------------------------------------------


def missing(**changes: Any) -> wire.RowsMissing:
    return replace(wire.RowsMissing("train", 0, 0, FUSED, 0, "w0-0", 0), **changes)


def test_rows_that_a_worker_misses_are_sent_again():
    rig = lambdas(count=1)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0))
    (again,) = rig.backend.handle(worker("w0-0"), missing(), 1.0)
    assert isinstance(again, Send)
    assert isinstance(again.message, wire.TaskPart)
    assert set(again.message.rows) == set(task(0).rows)
    assert rig.backend.usage["ignored"] == 0


@pytest.mark.parametrize("changes", [{"part": 1}, {"part": -1}, {"interval": 1}], ids=str)
def test_a_request_for_rows_that_there_are_not_is_ignored_and_counted(changes: dict[str, Any]):
    rig = lambdas(count=1)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0))
    assert rig.backend.handle(worker("w0-0"), missing(**changes), 1.0) == []
    assert rig.backend.usage["ignored"] == 1


@pytest.mark.parametrize("changes", [{"worker": "w0-9"}, {"attempt": 1}, {"attempt": -1}], ids=str)
def test_a_request_for_rows_that_somebody_else_was_sent_is_the_senders_fault(changes: dict[str, Any]):
    rig = lambdas(count=1)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0))
    with pytest.raises(RemoteProtocolError, match=r"^RowsMissing of worker w0-0: "):
        rig.backend.handle(worker("w0-0"), missing(**changes), 1.0)


def test_a_worker_that_is_gone_is_sent_no_rows():
    rig = lambdas(count=2)
    rig.hold = lambda send: send.to.role == "worker"
    rig.submit(task(0), task(1))
    rig.end("w0-0", "Runtime.ExitError")
    assert rig.backend.handle(worker("w0-0"), missing(), 1.0) == []
    assert rig.backend.usage["ignored"] == 1


# --- no-pipe ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "num_parts"), [("no-pipe", 1), ("pipe", 2), ("async", 2)])
def test_without_a_pipe_inputs_travel_in_one_piece(mode: str, num_parts: int):
    config = CONFIG.replace({"train.mode": mode, "servers.backend": "lambda", "lambda.count": 1})
    rig = Rig(backends.build(config, SPEC, 0, clock()))
    rig.submit(task(0, num_rows=2 * MIN_ROWS_PER_PART))
    assert [send.message.num_parts for send in rig.sent if isinstance(send.message, wire.Task)] == [num_parts]
    assert list(rig.workers) == ["w0-0"]
