"""Two queues: tasks that wait for workers, and workers that wait for tasks. The next is found in O(log n). Pure.

A server of hundreds of Lambdas looks at both at every message. Outdated entries stay in a heap until they come up; the
dictionaries beside it hold the current state.
"""

from __future__ import annotations

import heapq

from siafu.tasks import TaskId

Priority = tuple[int, ...]
Entry = tuple[Priority, int, TaskId]  # the number is the order of arrival: among equals the first goes first


class Tasks:
    """Tasks in order, each filed under its home: the worker that it waits for, or "" if any worker may have it."""

    def __init__(self) -> None:
        # All mutable state:
        self._entry: dict[TaskId, tuple[Entry, str]] = {}  # with its home
        self._of_interval: dict[int, set[TaskId]] = {}
        self._heaps: dict[str, list[Entry]] = {}  # by home
        self._all: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entry)

    def add(self, entry: Entry, home: str) -> None:
        task = entry[2]
        heapq.heappush(self._all, entry)
        self._of_interval.setdefault(task.interval, set()).add(task)
        self._file(entry, home)

    def remove(self, task: TaskId) -> None:
        del self._entry[task]
        self._of_interval[task.interval].discard(task)
        if not self._entry:
            self.clear()

    def move(self, task: TaskId, home: str) -> None:
        entry, old = self._entry[task]
        if old != home:
            self._file(entry, home)

    def of_interval(self, interval: int) -> list[TaskId]:
        return list(self._of_interval.get(interval, ()))

    def of(self, home: str) -> list[TaskId]:
        return [entry[2] for entry in self._heaps.get(home, ()) if self._entry.get(entry[2]) == (entry, home)]

    def first(self, home: str) -> Entry | None:
        """Returns the first of the tasks filed under ``home``; None if there is none."""
        heap = self._heaps.get(home)
        while heap:
            if self._entry.get(heap[0][2]) == (heap[0], home):
                return heap[0]
            heapq.heappop(heap)
        self._heaps.pop(home, None)
        return None

    def first_of_all(self) -> Entry | None:
        while self._all:
            known = self._entry.get(self._all[0][2])
            if known is not None and known[0] == self._all[0]:
                return self._all[0]
            heapq.heappop(self._all)
        return None

    def clear(self) -> None:
        self._entry.clear()
        self._of_interval.clear()
        self._heaps.clear()
        self._all.clear()

    def _file(self, entry: Entry, home: str) -> None:
        self._entry[entry[2]] = entry, home
        heapq.heappush(self._heaps.setdefault(home, []), entry)


class FreeWorkers:
    """Workers with credits, the least busy first; equally busy ones by name."""

    def __init__(self) -> None:
        # All mutable state:
        self._load: dict[str, int] = {}  # worker -> tasks it holds
        self.num_idle = 0  # workers that hold no task
        self._heap: list[tuple[int, str]] = []
        self._listed: set[tuple[int, str]] = set()  # entries in the heap: none twice

    def __contains__(self, name: str) -> bool:
        return name in self._load

    @property
    def names(self) -> set[str]:
        return set(self._load)

    def put(self, name: str, load: int) -> None:
        self.num_idle += (not load) - (self._load.get(name) == 0)
        self._load[name] = load
        if (load, name) not in self._listed:
            self._listed.add((load, name))
            heapq.heappush(self._heap, (load, name))

    def drop(self, name: str) -> None:
        self.num_idle -= self._load.pop(name, None) == 0

    def least_busy(self) -> tuple[int, str] | None:
        """Returns the least busy worker as (number of tasks it holds, name); None if no worker is free."""
        while self._heap:
            load, name = self._heap[0]
            if self._load.get(name) == load:
                return load, name
            self._listed.discard(heapq.heappop(self._heap))
        return None
