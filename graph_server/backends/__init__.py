"""Backends: the places where tensor tasks run. A backend is a state machine: events in, actions out.

To add one: write ``graph_server/backends/<name>.py``, its line in ``BACKENDS``, and its name in ``servers.backend``
(``siafu.config``). ``tests/contracts/test_backends.py`` holds every backend in the table to the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from siafu import views
from siafu.address import Address, Send
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.sparse import Array
from siafu.table import loaded
from siafu.tasks import Step, TaskId
from siafu.wire import Message, Subset, TaskResult, Tensors


class Row(NamedTuple):
    backend: str  # "module:Class"
    #: Operator -> "module:Class" in place of ``operators.OPERATORS``', where rows and edges lie in a device's memory.
    on_device: Mapping[str, str] = {}


BACKENDS = {
    "cpu": Row("graph_server.backends.cpu:CpuBackend"),
    "gpu": Row("graph_server.backends.gpu:GpuBackend", {"linear": "graph_server.backends.gpu:DeviceLinear"}),
    "lambda": Row("graph_server.lambdas.backend:LambdaBackend"),
}


def on_device(config: Config) -> Mapping[str, str]:
    """Returns the ``on_device`` operators of the configured backend; none while ``servers.backend = auto`` is not
    decided."""
    return {} if config.servers.backend == "auto" else BACKENDS[config.servers.backend].on_device


Priority = tuple[int, ...]
_T = TypeVar("_T")  # what a computation gives


class TensorTask(NamedTuple):
    """A tensor step of one interval, with its rows."""

    id: TaskId
    step: Step
    priority: Priority  # lower runs first
    param_server: int  # where its weights are stashed and its gradients go
    rows: Tensors
    constants: tuple[str, ...] = ()  # slots of these rows that are the same in every epoch
    chosen: Subset = ""  # of the interval's rows, those that these are

    @property
    def of_training(self) -> bool:
        """Whether to send rows of training vertices alone: the task computes the loss, and this leaves out a good part
        of its rows (docs/adr/0038)."""
        if "train" not in self.rows:
            return False
        train = np.asarray(self.rows["train"])
        return views.share_of_loss(int(np.count_nonzero(train)) / max(1, len(train))) < 1.0

    @property
    def subset(self) -> Subset:
        """The subset of the interval's rows that is sent to a worker."""
        return "training" if self.of_training else self.chosen


@dataclass(frozen=True)
class Job(Generic[_T]):
    """Action: queue a computation for the pool.

    ``begin`` is called on the server's thread when a pool thread is free for it, and returns the work: so a job sees
    the state as it is when it starts, not when it was queued. ``then`` is called on the server's thread with the work's
    value. ``leads_to``: the tensor task that follows the job, if any. ``counted_as``: the total of
    ``graph_server.lambdas.step_times`` that its seconds go to; "" if the work's value says how long it took.
    ``may_begin``: False while the job must wait for a running computation; None: it never waits. ``like``: jobs with
    the same value take about equally long: those of one step of one interval, since intervals differ in their numbers
    of edges and of vertices that count.
    """

    priority: Priority
    begin: Callable[[], Callable[[], _T]]
    then: Callable[[_T], list[Action]]
    leads_to: TaskId | None = None
    counted_as: str = ""
    may_begin: Callable[[], bool] | None = None
    like: Hashable = None


@dataclass(frozen=True)
class Compute(Generic[_T]):
    """Action: run ``work`` now, on a pool thread or, if it is short, on the server's. Other fields: as in ``Job``."""

    work: Callable[[], _T]
    then: Callable[[_T], list[Action]]
    counted_as: str = ""
    like: Hashable = None


@dataclass(frozen=True)
class Completed:
    """Action: a tensor task's first result is in."""

    result: TaskResult


@dataclass(frozen=True)
class Launch:
    """Action: invoke the Lambda function once, for a worker of this name that will ask for ``credits`` tasks."""

    worker: str
    credits: int


@dataclass(frozen=True)
class Keep:
    """Action: write these rows of ``run.write``'s slot to the file; they belong to the inner vertices from ``start``
    on."""

    start: int
    rows: Array


Action = Send | Job[Any] | Compute[Any] | Completed | Launch | Keep


class Invoker(Protocol):
    """Carries out ``Launch``; made by the server for a backend that names one (``graph_server.lambdas.invoker``)."""

    def invoke(self, worker: str, credits: int) -> None: ...

    def leave(self, poll: Callable[[], None]) -> int:
        """Ends the invocations. Returns how many go on at a cost that is not known yet. ``poll``: waits briefly for
        messages and events."""


class Backend(Protocol):
    """The contract of backends. Only ``Partition`` calls it, on the server's thread; ``now``: seconds of a monotonic
    clock."""

    #: "module:Class" of its ``Invoker``; "": it launches nothing.
    invoker: ClassVar[str]

    @classmethod
    def make(cls, config: Config, spec: ModelSpec, index: int, clock: Callable[[], float]) -> Backend:
        """Makes the backend of graph server ``index``. ``clock`` gives seconds; it times what the server's own threads
        compute."""

    def expect(self, task: TaskId, now: float) -> list[Action]:
        """Announces a tensor task: the step before it has started, so it is submitted soon, unless the run ends."""

    def submit(self, task: TensorTask, now: float) -> list[Action]: ...

    def watch(self, graph_tasks: int, now: float) -> None:
        """Records the number of graph tasks of the server that run or are queued from now on. Called after every
        event."""

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        """Handles a message of a worker or a parameter server. Ignores a message that belongs to no open task."""

    def tick(self, now: float) -> list[Action]:
        """Handles timeouts. Called every ``graph_server.server.TICK_S``."""

    def stop(self) -> None:
        """Ends the run: no task is open any more, nothing is asked for, and late messages are not errors."""

    @property
    def in_flight(self) -> int:
        """The number of tasks submitted and not completed."""

    @property
    def num_workers(self) -> int:
        """The number of environments alive; 0 for a backend that invokes none."""

    @property
    def usage(self) -> dict[str, float]:
        """Totals so far, by name."""


def build(config: Config, spec: ModelSpec, index: int, clock: Callable[[], float]) -> Backend:
    """The backend that the config names, for graph server ``index``."""
    backend: Backend = loaded(BACKENDS[config.servers.backend].backend).make(config, spec, index, clock)
    return backend
