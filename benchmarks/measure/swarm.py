"""One graph server's backend and 500 Lambdas in one process: how many tasks and bytes a server can hand out.

The server's half is real: ``LambdaBackend`` with its dispatcher, and every message encoded and decoded as on
the wire. The Lambdas are simulated: they decode what they are sent and answer at once, with rows that were
computed beforehand, any of them next (seeded). So what is timed is the rate at which a server could keep
Lambdas busy that compute in no time.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graph_server.backends import Action, Completed, Launch, TensorTask
from graph_server.lambdas.backend import LambdaBackend
from siafu import models, wire
from siafu.address import Send, worker
from siafu.config import Lambda
from siafu.kernels.checksum import crc32
from siafu.models import ModelSpec
from siafu.sparse import Array
from siafu.tasks import Lane, TaskId
from siafu.wire import Frame, Pull, Task, TaskPart, TaskResult

RUN_ID = bytes(wire.RUN_ID_BYTES)
WIDTH = 128  # of the rows of a task
INTERVALS_PER_WORKER = 4
PREFETCH = 2
TASK_BYTES = (64 << 10, 1 << 20)
#: Bytes of tasks in a round, and how many tasks at least and at most.
ROUND_BYTES, MIN_TASKS, MAX_TASKS = 256 << 20, 500, 3000


@dataclass
class _Worker:
    """A simulated Lambda."""

    name: str
    rows: Array  # what it answers
    inbox: deque[list[Frame]] = field(default_factory=deque)
    due: int = 0  # parts of its task that have not come yet

    def take(self, message: Task | TaskPart) -> TaskResult | None:
        """The result, once every part of a task is here. Parts of one task follow each other."""
        self.due = message.num_parts - 1 if isinstance(message, Task) else self.due - 1
        if self.due:
            return None
        m = message
        return TaskResult(m.lane, m.epoch, m.interval, m.pc, m.attempt, self.name, 0.1, 0.001, {"dZ1": self.rows})


class Swarm:
    def __init__(self, num_workers: int, task_bytes: int):
        spec = ModelSpec("gcn", WIDTH, 16, 1, widths=(WIDTH,), narrow=False)  # its rows are as wide as its input
        model = models.build(spec)
        self._program = model.program(Lane.TRAIN)
        self._pc = next(pc for pc, step in enumerate(self._program.steps) if step.fused)
        num_rows = max(1, task_bytes // (4 * WIDTH))
        self._rows = np.random.default_rng(0).random((num_rows, WIDTH), dtype=np.float32)  # Z1, and dZ1
        self._own = {"label": np.zeros(num_rows, np.int64), "train": np.ones(num_rows, bool)}
        self._backend = LambdaBackend(Lambda(count=num_workers), model, num_workers, "w0")
        self._num_intervals = INTERVALS_PER_WORKER * num_workers
        # All mutable state:
        self._workers: dict[str, _Worker] = {}
        self._expected: list[str] = []  # a worker, once for every message in its inbox
        self._to_server: deque[tuple[str, list[Frame]]] = deque()
        self._rng = random.Random(0)
        self._left = 0  # tasks to be submitted
        self._now = 0.0
        self.num_done = 0
        self.server_s = 0.0  # of the server's half

    def run(self, num_tasks: int) -> float:
        """Seconds until so many more tasks are done."""
        self._left, start = num_tasks, time.perf_counter()
        for interval in range(min(num_tasks, self._num_intervals)):
            self._serve([self._submit(interval, 0)])
        while self._expected or self._to_server:
            if self._to_server:
                self._hear(*self._to_server.popleft())
            else:
                self._deliver()
        assert self._backend.in_flight == 0
        return time.perf_counter() - start

    # --- the server's half --------------------------------------------------------------------------------------------

    def _hear(self, name: str, frames: list[Frame]) -> None:
        begun = time.perf_counter()
        message = wire.decode(frames, RUN_ID, crc32)
        actions = self._backend.handle(worker(name), message, self._now)
        self.server_s += time.perf_counter() - begun
        self._serve([actions])

    def _submit(self, interval: int, epoch: int) -> list[Action]:
        self._left -= 1
        task_id = TaskId(Lane.TRAIN, epoch, interval, self._pc)
        task = TensorTask(
            task_id,
            self._program[self._pc],
            (epoch, 0, self._pc, interval),
            0,
            {"Z1": self._rows, **self._own},
            tuple(self._own),
        )
        begun = time.perf_counter()
        actions = self._backend.submit(task, self._now)
        self.server_s += time.perf_counter() - begun
        return actions

    def _serve(self, todo: list[list[Action]]) -> None:
        while todo:
            for action in todo.pop():
                match action:
                    case Send(to=to, message=message):
                        begun = time.perf_counter()
                        frames = wire.encode(message, RUN_ID, crc32)
                        self.server_s += time.perf_counter() - begun
                        self._workers[to.name].inbox.append(frames)
                        self._expected.append(to.name)
                    case Launch(worker=name):
                        self._workers[name] = _Worker(name, self._rows)
                        self._to_server.append((name, wire.encode(Pull(name, PREFETCH), RUN_ID)))
                    case Completed(result=result):
                        self.num_done += 1
                        if self._left:
                            todo.append(self._submit(result.interval, result.epoch + 1))

    # --- the Lambdas' half --------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        pick = int(self._rng.random() * len(self._expected))
        self._expected[pick], self._expected[-1] = self._expected[-1], self._expected[pick]
        state = self._workers[self._expected.pop()]
        message = wire.decode(state.inbox.popleft(), RUN_ID)
        assert isinstance(message, Task | TaskPart)
        result = state.take(message)
        if result is not None:
            self._to_server.append((state.name, wire.encode(result, RUN_ID)))

    @property
    def tensor_bytes(self) -> float:
        """Of all tensors, there and back."""
        usage = self._backend.usage
        return usage["bytes_out"] + usage["bytes_in"]


@dataclass
class _Case:
    """A line of the table, and what its rounds gave."""

    swarm: Swarm
    num_workers: int
    task_bytes: int
    server_s: list[float] = field(default_factory=list)  # per task
    both_s: list[float] = field(default_factory=list)
    bytes_per_task: float = 0.0

    def round(self) -> None:
        num_tasks = min(MAX_TASKS, max(MIN_TASKS, ROUND_BYTES // self.task_bytes))
        server_s, sent = self.swarm.server_s, self.swarm.tensor_bytes
        self.both_s.append(self.swarm.run(num_tasks) / num_tasks)
        self.server_s.append((self.swarm.server_s - server_s) / num_tasks)
        self.bytes_per_task = (self.swarm.tensor_bytes - sent) / num_tasks

    def row(self) -> dict[str, Any]:
        server_s = statistics.median(self.server_s)
        return {
            "part": "lambdas",
            "case": f"{self.num_workers:,} Lambdas, {self.task_bytes >> 10:,} KiB tasks",
            "value": 1e6 * server_s,
            "unit": "µs/task",
            "tasks_per_s": 1 / server_s,
            "mb_per_s": self.bytes_per_task / server_s / 1e6,
            "tasks_per_s_both_ends": 1 / statistics.median(self.both_s),
            "workers": self.num_workers,
            "task_bytes": self.task_bytes,
        }


def rows(workers: list[int], rounds: int) -> list[dict[str, Any]]:
    """Lines of the table, their rounds interleaved, after a warm-up in which every
    worker gets to know its intervals."""
    cases = [_Case(Swarm(count, nbytes), count, nbytes) for count in workers for nbytes in TASK_BYTES]
    for case in cases:
        case.swarm.run(INTERVALS_PER_WORKER * case.num_workers)
    for _ in range(rounds):
        for case in cases:
            case.round()
    return [case.row() for case in cases]
