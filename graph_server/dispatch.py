"""Which worker gets which tensor task, and when a task is given out again. Pure: the time is an argument.

Rules:
1. Tasks wait in order of priority; a worker is given no more than it asked for (credits); of several, the least busy.
   With affinity a task goes to the worker that had its interval last (its home, which still holds what does not change),
   and waits while that one is at work, unless another has nothing to do at all.
2. The first result of a task wins. A later one, or one of a task that nobody waits for, is a duplicate: counted, ignored.
3. A task that is not answered within ``timeout_s`` is given to another worker as well; the silent one gets nothing new
   until it speaks.
4. A worker that leaves or dies gives its unanswered tasks back at once.
5. A task given out more than ``1 + relaunches`` times ends the run: WorkerTimeout.
6. A task that was given out before goes to a worker that has not tried it. It waits while all of those are at work;
   only when every worker that speaks has tried it may it go back to one: the worker, not the task, may be at fault.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from siafu.errors import WorkerTimeout
from siafu.tasks import TaskId

Priority = tuple[int, ...]
#: Tasks that may be passed over in one look at the queue because they wait for their home.
WINDOW = 64


@dataclass(frozen=True)
class Assign:
    """Action: send this attempt of the task to the worker."""

    worker: str
    task: TaskId
    attempt: int


@dataclass
class _Open:
    """A task without a result."""

    priority: Priority
    attempts: int = 0
    holders: set[str] = field(default_factory=set)  # workers that may still answer
    tried: set[str] = field(default_factory=set)  # workers that it was given to
    due: float = 0.0  # when the latest attempt times out
    queued: bool = True


@dataclass
class _Worker:
    credits: int = 0
    holds: dict[TaskId, int] = field(default_factory=dict)  # task -> attempt
    silent: bool = False


class Dispatcher:
    def __init__(self, timeout_s: float, relaunches: int, *, affinity: bool = False):
        self.timeout_s, self.relaunches, self.affinity = timeout_s, relaunches, affinity
        # All mutable state:
        self._open: dict[TaskId, _Open] = {}
        self._queue: list[tuple[Priority, int, TaskId]] = []
        self._sequence = 0
        self._workers: dict[str, _Worker] = {}
        self._home: dict[int, str] = {}  # interval -> the worker that had it last
        self.num_queued = 0  # tasks that wait for a worker
        self.num_relaunches = 0
        self.num_duplicates = 0

    @property
    def num_open(self) -> int:
        return len(self._open)

    @property
    def num_silent(self) -> int:
        """Workers that rule 3 has given up on for now."""
        return sum(worker.silent for worker in self._workers.values())

    def submit(self, task: TaskId, priority: Priority, now: float) -> list[Assign]:
        assert task not in self._open, task
        self._open[task] = _Open(priority)
        self._push(task)
        return self._assign(now)

    def pull(self, worker: str, credits: int, now: float) -> list[Assign]:
        """A worker is ready for ``credits`` more tasks."""
        state = self._workers.setdefault(worker, _Worker())
        state.credits += credits
        state.silent = False
        return self._assign(now)

    def result(self, task: TaskId, worker: str, attempt: int, now: float) -> tuple[bool, list[Assign]]:
        """(whether this is the task's first result, what to send out now)."""
        state = self._workers.get(worker)
        if state is not None:
            state.silent = False
            if state.holds.get(task) == attempt:  # a repeated result gives no second credit
                del state.holds[task]
                state.credits += 1
        closed = self._open.pop(task, None)
        if closed is None:
            self.num_duplicates += 1
        else:
            self.num_queued -= closed.queued
        return closed is not None, self._assign(now)

    def failed(self, task: TaskId, worker: str, attempt: int, now: float) -> list[Assign]:
        """The worker could not do it (rule 4 for one task)."""
        state = self._workers.get(worker)
        if state is not None:
            state.silent = False
            if state.holds.get(task) == attempt:
                del state.holds[task]
                state.credits += 1
                self._give_back(task, worker)
        return self._assign(now)

    def lost(self, worker: str, now: float) -> list[Assign]:
        """The worker has left or died."""
        state = self._workers.pop(worker, None)
        if state is not None:
            for task in sorted(state.holds):
                self._give_back(task, worker)
        return self._assign(now)

    def tick(self, now: float) -> list[Assign]:
        """Rule 3."""
        for task, state in self._open.items():
            if not state.queued and now >= state.due:
                for worker in state.holders:
                    self._workers[worker].silent = True
                self._relaunch(task, state)
        return self._assign(now)

    def forget(self) -> None:
        """No task is waited for any more; workers keep what they hold, and it comes back to nobody."""
        self._open.clear()
        self._queue.clear()
        self.num_queued = 0

    def _give_back(self, task: TaskId, worker: str) -> None:
        state = self._open.get(task)
        if state is None:
            return
        state.holders.discard(worker)
        if not state.holders and not state.queued:
            self._relaunch(task, state)

    def _relaunch(self, task: TaskId, state: _Open) -> None:
        if state.attempts > self.relaunches:
            raise WorkerTimeout(
                f"{task}: no result after {state.attempts} attempts of {self.timeout_s:g} s, "
                f"lambda.relaunches allows {self.relaunches}"
            )
        self.num_relaunches += 1
        state.queued = True
        self._push(task)

    def _push(self, task: TaskId) -> None:
        self._sequence += 1
        self.num_queued += 1
        heapq.heappush(self._queue, (self._open[task].priority, self._sequence, task))

    def _assign(self, now: float) -> list[Assign]:
        """Rule 1."""
        assigned: list[Assign] = []
        free = {name for name, worker in self._workers.items() if worker.credits > 0 and not worker.silent}
        passed_over: list[tuple[Priority, int, TaskId]] = []
        while free and self._queue and len(passed_over) < WINDOW:
            entry = heapq.heappop(self._queue)
            task = entry[2]
            state = self._open.get(task)
            if state is None or not state.queued:  # answered meanwhile
                continue
            name = self._choose(task, state, free)
            if name is None:
                passed_over.append(entry)
                continue
            assigned.append(self._give(task, state, name, now))
            if not self._workers[name].credits:
                free.discard(name)
        for entry in passed_over:
            heapq.heappush(self._queue, entry)
        return assigned

    def _choose(self, task: TaskId, state: _Open, free: set[str]) -> str | None:
        """The worker for a task (rules 1 and 6); None if the task had better wait."""
        fresh = free - state.tried
        if not fresh:
            return None if self._untried_at_work(state) else self._least_busy(free)
        home = self._home.get(task.interval, "")
        if home in fresh:
            return home
        least = self._least_busy(fresh)
        at_work = home in self._workers and not self._workers[home].silent and home not in state.tried
        return None if at_work and self._workers[least].holds else least

    def _least_busy(self, names: set[str]) -> str:
        return min(names, key=lambda name: (len(self._workers[name].holds), name))

    def _untried_at_work(self, state: _Open) -> bool:
        """Whether somebody new to the task will be free or be found silent: then what it holds can time out."""
        timed = {task for task, other in self._open.items() if not other.queued}
        return any(
            name not in state.tried and not worker.silent and not timed.isdisjoint(worker.holds)
            for name, worker in self._workers.items()
        )

    def _give(self, task: TaskId, state: _Open, name: str, now: float) -> Assign:
        worker = self._workers[name]
        assign = Assign(name, task, state.attempts)
        worker.credits -= task not in worker.holds  # else it lost the earlier attempt
        worker.holds[task] = state.attempts
        state.attempts += 1
        state.holders.add(name)
        state.tried.add(name)
        state.queued = False
        state.due = now + self.timeout_s
        self.num_queued -= 1
        if self.affinity:
            self._home[task.interval] = name
        return assign
