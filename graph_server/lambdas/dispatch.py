"""Gives tensor tasks to workers, and decides when a task is given out again. Pure: the time is an argument.

Rules:
1. Tasks wait in order of priority. A worker is given no more than it asked for (credits), and holds no more than
   ``max_held``; of several workers, the least busy is given the task. With affinity a task goes to its home: the worker
   that had its interval last, and still holds the interval's constants. It waits while its home is at work, unless
   another worker is idle. A home at work takes no task ahead if an idle worker is home to at least two intervals fewer:
   otherwise the first worker that started would remain the home of all intervals.
2. The first result of a task wins. A later one, or one of a task that is not open, is a duplicate: counted, ignored.
3. A task that is not answered in the time that ``graph_server.lambdas.task_timeouts`` allows is given to another worker
   as well; the silent worker gets nothing new until it sends a message.
4. A worker that leaves or dies gives its unanswered tasks back at once.
5. A task given out more than ``1 + relaunches`` times ends the run: WorkerTimeout.
6. A task that was given out before goes to a worker that has not tried it, and waits while all of those are at work.
   It goes back to a worker only when every worker that is not silent has tried it: the worker, not the task, may be at
   fault.
7. A retired worker gets nothing new and is home to no interval; it finishes the tasks that it holds.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from graph_server.lambdas.task_timeouts import Likeness, Timing
from graph_server.lambdas.waiting import Entry, FreeWorkers, Priority, Tasks
from siafu.errors import WorkerTimeout
from siafu.tasks import TaskId


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
    kind: Likeness  # decides its time limit
    given: list[str] = field(default_factory=list)  # the worker of each attempt
    excused: int = 0  # attempts that rule 5 does not count
    holders: set[str] = field(default_factory=set)  # workers that may still answer
    due: float = 0.0  # when the latest attempt times out
    queued: bool = True

    @property
    def attempts(self) -> int:
        return len(self.given)

    @property
    def tried(self) -> set[str]:
        """The workers that the task was given to."""
        return set(self.given)


@dataclass
class _Held:
    """A task that a worker has."""

    attempt: int
    kind: Likeness
    sent: float  # when


@dataclass
class _Worker:
    credits: int = 0
    holds: dict[TaskId, _Held] = field(default_factory=dict)
    silent: bool = False
    retired: bool = False
    busy: bool = False  # it is not silent, and has a task

    @property
    def gone_quiet(self) -> bool:
        """Whether the worker gets nothing new: rules 3 and 7."""
        return self.silent or self.retired


class Dispatcher:
    def __init__(self, timing: Timing, relaunches: int, *, affinity: bool = False):
        self.timing, self.relaunches, self.affinity = timing, relaunches, affinity
        # All mutable state:
        self._open: dict[TaskId, _Open] = {}
        self._new = Tasks()  # tasks that were not given out yet
        self._again: dict[TaskId, Entry] = {}  # tasks to give out once more: few
        self._sequence = 0
        self._workers: dict[str, _Worker] = {}
        self._free = FreeWorkers()  # with credits, neither silent nor retired
        self._home: dict[int, str] = {}  # interval -> the worker that had it last
        self._num_homed = Counter[str]()  # worker -> intervals whose home it is
        self._homes: set[str] = set()  # workers that were ever a home
        self._called: set[str] = set()  # workers that may be free for tasks filed under them: looked at next
        self.max_held: float = math.inf
        self.num_silent = 0  # workers silent by rule 3
        self.num_busy = 0  # workers that have a task, and are not silent
        self.num_relaunches = 0
        self.num_duplicates = 0

    @property
    def num_open(self) -> int:
        return len(self._open)

    @property
    def num_queued(self) -> int:
        """The number of tasks that wait for a worker."""
        return len(self._new) + len(self._again)

    @property
    def num_idle(self) -> int:
        """The number of workers that have no task and may be given one."""
        return self._free.num_idle

    def has_tasks(self, worker: str) -> bool:
        return worker in self._workers and bool(self._workers[worker].holds)

    def attempts_of(self, worker: str) -> dict[TaskId, int]:
        """Returns the tasks that the worker holds, in their order, each with its attempt."""
        holds = self._workers[worker].holds if worker in self._workers else {}
        return {task: holds[task].attempt for task in sorted(holds)}

    def gave(self, task: TaskId, worker: str, attempt: int) -> bool:
        """Whether this attempt of an open task was given to that worker. True for a task that is not open: rule 2."""
        state = self._open.get(task)
        return state is None or (0 <= attempt < len(state.given) and state.given[attempt] == worker)

    def submit(self, task: TaskId, priority: Priority, now: float, num_rows: int = 0) -> list[Assign]:
        assert task not in self._open, task
        self._open[task] = _Open(priority, Likeness.of(task, num_rows))
        self._new.add(self._entry(task), self._waits_for(task))
        return self._assign(now)

    def pull(self, worker: str, credits: int, now: float) -> list[Assign]:
        """Records that a worker is ready for ``credits`` more tasks."""
        state = self._workers.get(worker)
        if state is None:
            state = self._workers[worker] = _Worker()
            if worker in self._homes:
                self._refile(self._new.of(""))  # tasks of its intervals are among them
        state.credits += credits
        self._spoke(worker)
        return self._assign(now)

    def result(self, task: TaskId, worker: str, attempt: int, now: float) -> tuple[bool, list[Assign]]:
        """Takes a result. Returns (whether it is the task's first, tasks to send out now)."""
        self._answered(task, worker, attempt, now, timed=True)
        closed = self._open.pop(task, None)
        self.num_duplicates += closed is None
        if closed is not None and closed.queued:
            self._unqueue(task)
        return closed is not None, self._assign(now)

    def failed(self, task: TaskId, worker: str, attempt: int, now: float) -> list[Assign]:
        """Takes back one task that the worker could not do (rule 4)."""
        if self._answered(task, worker, attempt, now):
            self._give_back(task, worker)
        return self._assign(now)

    def lost(self, worker: str, now: float, *, excused: bool = False) -> list[Assign]:
        """Removes a worker that has left or died (rule 4). ``excused``: rule 5 does not count these attempts, because
        the caller limits this cause itself."""
        state = self._workers.pop(worker, None)
        if state is not None:
            self.num_silent -= state.silent
            self.num_busy -= state.busy
            self._free.drop(worker)
            self._refile(self._new.of(worker))
            for task in sorted(state.holds):
                if excused and task in self._open:
                    self._open[task].excused += 1
                self._give_back(task, worker)
        return self._assign(now)

    def tick(self, now: float) -> list[Assign]:
        """Gives tasks that have timed out to other workers (rule 3)."""
        for task, state in self._open.items():
            if not state.queued and now >= state.due:
                for worker in state.holders:
                    self._hush(worker)
                self._relaunch(task, state)
        return self._assign(now)

    def retire(self, worker: str) -> bool:
        """Retires the worker (rule 7). False if it is silent, retired or gone already."""
        state = self._workers.get(worker)
        if state is None or state.gone_quiet:
            return False
        state.retired = True
        self._refile(self._new.of(worker))
        self._note(worker)
        return True

    def hold_at_most(self, number: float, now: float) -> list[Assign]:
        """Limits the tasks that each worker holds (rule 1), and returns the tasks to give out because of it."""
        self.restrain(number)
        return self._assign(now)

    def restrain(self, number: float) -> None:
        """Limits the tasks that each worker holds, as ``hold_at_most`` does, but gives nothing out now."""
        self.max_held = number
        for worker in self._workers:
            self._note(worker)

    def forget(self) -> None:
        """Forgets all tasks. Workers still count as holding theirs, but the tasks are not given out again."""
        self._open.clear()
        self._new.clear()
        self._again.clear()

    # --- workers ------------------------------------------------------------------------------------------------------

    def _answered(self, task: TaskId, worker: str, attempt: int, now: float, *, timed: bool = False) -> bool:
        """Records an answer of the worker, and takes the attempt from it. Returns whether it held that attempt."""
        state = self._workers.get(worker)
        if state is None:
            return False
        held = state.holds.get(task)
        answered = held is not None and held.attempt == attempt  # a repeated answer gives no second credit
        if held is not None and answered:
            if timed:
                self.timing.observe(held.kind, now - held.sent)
            del state.holds[task]
            state.credits += 1
        self._spoke(worker)
        return answered

    def _spoke(self, worker: str) -> None:
        state = self._workers[worker]
        if state.silent:
            state.silent = False
            self.num_silent -= 1
            self._refile(self._new.of(""))  # tasks of its intervals are among them
        self._note(worker)

    def _hush(self, worker: str) -> None:
        state = self._workers[worker]
        if not state.gone_quiet:
            state.silent = True
            self.num_silent += 1
            self._refile(self._new.of(worker))
        self._note(worker)

    def _note(self, worker: str) -> None:
        """Updates counters and the queue of free workers after a change of the worker's state."""
        state = self._workers[worker]
        busy = bool(state.holds) and not state.silent
        self.num_busy += busy - state.busy
        state.busy = busy
        if state.credits > 0 and len(state.holds) < self.max_held and not state.gone_quiet:
            self._free.put(worker, len(state.holds))
            self._called.add(worker)
        else:
            self._free.drop(worker)

    def _refile(self, tasks: list[TaskId]) -> None:
        """Files these new tasks again, under their current homes."""
        for task in tasks:
            self._new.move(task, self._waits_for(task))

    def _waits_for(self, task: TaskId) -> str:
        """Returns the home of a new task; "" if it has none, or its home is silent, retired or gone."""
        home = self._home.get(task.interval, "")
        if home not in self._workers or self._workers[home].gone_quiet:
            return ""
        self._called.add(home)
        return home

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _give_back(self, task: TaskId, worker: str) -> None:
        state = self._open.get(task)
        if state is None:
            return
        state.holders.discard(worker)
        if not state.holders and not state.queued:
            self._relaunch(task, state)

    def _relaunch(self, task: TaskId, state: _Open) -> None:
        if state.attempts - state.excused > self.relaunches:
            raise WorkerTimeout(
                f"{task}: no result after {state.attempts} attempts of {self.timing.limit_s(state.kind, 0):g} s, "
                f"lambda.relaunches allows {self.relaunches}"
            )
        self.num_relaunches += 1
        state.queued = True
        self._again[task] = self._entry(task)

    def _entry(self, task: TaskId) -> Entry:
        self._sequence += 1
        return self._open[task].priority, self._sequence, task

    def _unqueue(self, task: TaskId) -> None:
        if self._again.pop(task, None) is None:
            self._new.remove(task)

    # --- who gets what ------------------------------------------------------------------------------------------------

    def _assign(self, now: float) -> list[Assign]:
        """Gives out tasks by rules 1 and 6: the first that a free worker may have, until there is none."""
        assigned: list[Assign] = []
        while self.num_queued and (least := self._free.least_busy()) is not None:
            choices = [*self._first_new(*least), *self._first_again()]
            if not choices:
                break
            entry, name = min(choices)
            assigned.append(self._give(entry[2], name, now))
        return assigned

    def _first_new(self, load: int, least: str) -> list[tuple[Entry, str]]:
        """Returns the new tasks that may be next, each with its worker: the first of every free home, the first without
        a home, and the first of all if the least busy worker is idle. ``load``: the tasks of ``least``, that worker."""
        choices = []
        for home in list(self._called):
            entry = self._new.first(home) if home in self._free else None
            if entry is None:
                self._called.discard(home)
            elif not load and self._workers[home].holds and self._num_homed[least] + 2 <= self._num_homed[home]:
                choices.append((entry, least))
            else:
                choices.append((entry, home))
        if (entry := self._new.first("")) is not None:
            choices.append((entry, least))
        first = self._new.first_of_all() if not load else None
        if first is not None and all(entry != first for entry, _ in choices):
            choices.append((first, least))
        return choices

    def _first_again(self) -> list[tuple[Entry, str]]:
        """Returns the first task to give out again that some free worker may have now, if any."""
        for entry in sorted(self._again.values()):
            if (name := self._choose(entry[2])) is not None:
                return [(entry, name)]
        return []

    def _choose(self, task: TaskId) -> str | None:
        """Returns the worker for a task that was given out before; None if the task waits."""
        state, free = self._open[task], self._free.names
        fresh = free - state.tried
        if not fresh:
            return None if self._untried_at_work(state) else self._least_busy(free)
        home = self._home.get(task.interval, "")
        if home in fresh:
            return home
        least = self._least_busy(fresh)
        at_work = home in self._workers and not self._workers[home].gone_quiet and home not in state.tried
        return None if at_work and self._workers[least].holds else least

    def _least_busy(self, names: set[str]) -> str:
        return min(names, key=lambda name: (len(self._workers[name].holds), name))

    def _untried_at_work(self, state: _Open) -> bool:
        """Whether a worker that has not tried the task holds tasks that can time out: it will become free or silent."""
        timed = {task for task, other in self._open.items() if not other.queued}
        return any(
            name not in state.tried and not worker.gone_quiet and not timed.isdisjoint(worker.holds)
            for name, worker in self._workers.items()
        )

    def _give(self, task: TaskId, name: str, now: float) -> Assign:
        state, worker = self._open[task], self._workers[name]
        self._unqueue(task)
        assign = Assign(name, task, state.attempts)
        worker.credits -= task not in worker.holds  # if it holds the task, it lost the earlier attempt
        worker.holds[task] = _Held(state.attempts, state.kind, now)
        state.due = now + self.timing.limit_s(state.kind, state.attempts)
        state.given.append(name)
        state.holders.add(name)
        state.queued = False
        self._note(name)
        if self.affinity and self._home.get(task.interval) != name:
            self._num_homed[self._home.get(task.interval, "")] -= 1
            self._num_homed[name] += 1
            self._home[task.interval] = name
            self._homes.add(name)
            self._refile(self._new.of_interval(task.interval))
        return assign
