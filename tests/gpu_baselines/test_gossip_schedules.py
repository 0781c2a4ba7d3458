"""GossipGCN's workers in thousands of orders, lock by lock: the rules of
``gpu_baselines.work_pool``, cited by number."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from gpu_baselines.work_pool import (
    AVAILABLE,
    NONE,
    PARTNER,
    POOLS,
    AllChoose,
    Ask,
    Average,
    Compute,
    Pool,
    Program,
    Reply,
    Section,
    Update,
    program,
)

SCHEDULES = 1000


class Deadlock(Exception):
    pass


class Schedule:
    """One order: at each step a drawn worker does one thing, or goes on to its next lock."""

    def __init__(
        self,
        version: Any,
        workers: int,
        batches: int,
        interval: int,
        seed: int,
        made: Callable[..., Pool] | None = None,
    ):
        self.rng = random.Random(seed)
        self.pool = (made or POOLS[version])(workers, range(batches), self._draw)
        self.programs = [program(version, worker, workers, interval, 0) for worker in range(workers)]
        self.actions: list[Any] = [next(one) for one in self.programs]  # what each does next; None: it has ended
        self.asked: set[int] = set()  # workers whose section is open
        # Some are slow: they are drawn up to fifty times as seldom.
        self.pace = [50 ** -self.rng.random() for _ in range(workers)]
        self.computed: Counter[int] = Counter()
        self.averaged: list[tuple[int, int]] = []
        self.updates = 0

    def run(self) -> Schedule:
        while any(action is not None for action in self.actions):
            able = [worker for worker in range(len(self.actions)) if self._able(worker)]
            if not able:
                raise Deadlock(f"{self.actions}, locks {self.pool.holder}")
            self._step(self.rng.choices(able, [self.pace[worker] for worker in able])[0])
            self._check()
        return self

    def _draw(self, count: int) -> int:
        return self.rng.randrange(count)

    def _able(self, worker: int) -> bool:
        action = self.actions[worker]
        if isinstance(action, Ask):
            return worker not in self.asked or worker in self.pool.ready()
        if isinstance(action, Average):
            return self.actions[action.partner] == Average(worker)
        return action is not None

    def _step(self, worker: int) -> None:
        action = self.actions[worker]
        if isinstance(action, Ask):
            self._asks(worker, action)
        elif isinstance(action, Average):
            self.averaged.append((worker, action.partner))
            self._go_on(action.partner)
            self._go_on(worker)
        else:
            if isinstance(action, Compute):
                self.computed[action.batch] += 1
            else:
                assert isinstance(action, Update)
                self.updates += 1
            self._go_on(worker)

    def _asks(self, worker: int, action: Ask) -> None:
        if worker not in self.asked:
            self.pool.ask(worker, action)
            self.asked.add(worker)
            return
        answer = self.pool.advance(worker)
        if answer is not None:
            self.asked.remove(worker)
            self._go_on(worker, answer)

    def _go_on(self, worker: int, answer: int = NONE) -> None:
        try:
            self.actions[worker] = self.programs[worker].send(answer)
        except StopIteration:
            self.actions[worker] = None

    def _check(self) -> None:
        """Rule 3: of those that have not left, and have not just been answered."""
        pool = self.pool
        assert len(set(pool.available)) == len(pool.available)
        if isinstance(pool, AllChoose) and not pool.holder:
            assert all(pool.partner[worker] == NONE for worker in pool.available)
            for worker, other in enumerate(pool.partner):
                assert other == NONE or worker != other


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_no_order_of_workers_is_a_deadlock_and_every_batch_is_done_once(version: str) -> None:
    """Rules 1, 4 and 5."""
    shapes, averages = random.Random(7), 0
    for seed in range(SCHEDULES):
        workers, batches, interval = shapes.randrange(1, 7), shapes.randrange(13), shapes.randrange(1, 4)
        done = Schedule(version, workers, batches, interval, seed).run()
        assert done.computed == Counter(range(batches)), seed
        assert done.updates == batches
        assert not done.pool.holder
        assert not done.pool.left
        if version == "v2":
            assert done.pool.partner == [NONE] * workers
        assert not done.pool.available
        averages += len(done.averaged)
    assert averages > SCHEDULES // 2


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_locks_are_taken_in_one_order(version: str) -> None:
    """Rule 2: nobody takes available_workers while it holds another lock."""

    taken = 0

    class Watched(POOLS[version]):  # type: ignore[misc]
        def advance(self, worker: int) -> int | None:
            nonlocal taken
            if self._wants.get(worker) == AVAILABLE:
                assert worker not in self.holder.values()
                taken += 1
            return super().advance(worker)

    for seed in range(100):
        Schedule(version, 4, 9, 1, seed, Watched).run()
    assert taken > 500


def test_the_explorer_finds_the_deadlock_of_locks_in_two_orders() -> None:
    class Swapped(AllChoose):
        def _free(self, me: int) -> Section:
            yield PARTNER
            yield AVAILABLE
            self.partner[me] = NONE
            self.available.append(me)
            self._unlock(me, AVAILABLE, PARTNER)
            return NONE

    with pytest.raises(Deadlock):
        explore(Swapped)


def test_the_explorer_finds_the_deadlock_of_a_worker_that_leaves_whoever_has_chosen_it() -> None:
    class Forgetful(AllChoose):
        def _leave(self, me: int) -> Section:
            yield AVAILABLE
            yield PARTNER
            if me in self.available:
                self.available.remove(me)
            self._unlock(me, AVAILABLE, PARTNER)
            return NONE

    with pytest.raises(Deadlock):
        explore(Forgetful)


def explore(pool: Callable[..., Pool]) -> None:
    for seed in range(SCHEDULES):
        Schedule("v2", 4, 9, 1, seed, pool).run()


def first(count: int) -> int:
    return 0


def test_a_pair_meets_and_is_free_again() -> None:
    pool = AllChoose(3, [7, 8, 9], first)
    assert [pool.handle(worker, Ask.TAKE) for worker in (0, 1)] == [[Reply(0, 7)], [Reply(1, 8)]]
    assert pool.handle(0, Ask.PAIR) == [Reply(0, 1)]  # available 1, 2: the first
    assert (pool.available, pool.partner) == ([2], [1, 0, NONE])
    assert pool.handle(1, Ask.PAIR) == [Reply(1, 0)]  # it is waited for
    assert [pool.handle(worker, Ask.FREE) for worker in (0, 1)] == [[Reply(0, NONE)], [Reply(1, NONE)]]
    assert (pool.available, pool.partner) == ([2, 0, 1], [NONE] * 3)


def test_a_worker_alone_has_no_partner() -> None:
    pool = AllChoose(1, [5], first)
    assert pool.handle(0, Ask.TAKE) == [Reply(0, 5)]
    assert pool.handle(0, Ask.PAIR) == [Reply(0, NONE)]
    assert pool.handle(0, Ask.TAKE) == [Reply(0, NONE)]
    assert pool.handle(0, Ask.LEAVE) == [Reply(0, NONE)]


def test_who_leaves_serves_who_waits_for_it_and_others_wait_for_its_locks() -> None:
    pool = AllChoose(3, [5, 6], first)
    pool.handle(0, Ask.TAKE), pool.handle(2, Ask.TAKE)
    assert pool.handle(0, Ask.PAIR) == [Reply(0, 1)]
    assert pool.handle(1, Ask.TAKE) == [Reply(1, NONE)]
    assert pool.handle(1, Ask.LEAVE) == [Reply(1, 0)]  # and keeps both locks while they average
    assert pool.handle(2, Ask.PAIR) == []
    assert pool.handle(1, Ask.LEFT) == [Reply(1, NONE), Reply(2, NONE)]  # 0 still has a partner, 1 is gone
    assert pool.handle(0, Ask.FREE) == [Reply(0, NONE)]
    assert pool.available == [2, 0]


def test_passive_workers_are_chosen_and_never_choose() -> None:
    pool = POOLS["v1"](4, range(8), first)
    assert pool.handle(0, Ask.PAIR) == [Reply(0, NONE)]
    assert pool.handle(2, Ask.PAIR) == [Reply(2, 0)]
    assert pool.handle(3, Ask.PAIR) == [Reply(3, 1)]
    assert pool.handle(0, Ask.PAIR) == [Reply(0, 2)]
    assert pool.handle(0, Ask.FREE) == [Reply(0, NONE)]
    assert pool.handle(1, Ask.LEAVE) == [Reply(1, 3)]
    assert pool.available == [0]


def test_averages_come_every_interval_batches_counted_over_all_pools() -> None:
    asks = {}
    for before in (0, 2):
        one, paired, answer = program("v2", 0, 1, 3, before), [], iter([10, 11, 12, NONE])
        action, number = next(one), before
        while not isinstance(action, Ask) or action is not Ask.LEAVE:
            number += isinstance(action, Compute)
            if action is Ask.PAIR:
                paired.append(number)
            action = one.send(next(answer) if action is Ask.TAKE else NONE)
        asks[before] = paired
    assert asks == {0: [3], 2: [3]}


# --- in virtual time: a batch takes a worker its pace, everything else nothing ----------------------------------------


def makespan(version: Any, paces: list[float], batches: int, interval: int, seed: int) -> float:
    """When the last worker ends."""
    workers, rng = len(paces), random.Random(seed)
    pool = POOLS[version](workers, range(batches), rng.randrange)
    programs = [program(version, worker, workers, interval, 0) for worker in range(workers)]
    actions: list[Any] = [next(one) for one in programs]
    now, waits = [0.0] * workers, set[int]()

    def go_on(worker: int, time: float, answer: int = NONE) -> None:
        now[worker] = max(now[worker], time)
        actions[worker] = next_of(programs[worker], answer)

    def starts(worker: int) -> float:
        """When it can do what is next; never while it waits for an answer or for its partner."""
        action = actions[worker]
        if action is None or worker in waits:
            return inf
        if isinstance(action, Average):
            met = actions[action.partner] == Average(worker)
            return max(now[worker], now[action.partner]) if met else inf
        return now[worker]

    while any(action is not None for action in actions):
        worker = min(range(workers), key=starts)
        action, time = actions[worker], starts(worker)
        if isinstance(action, Ask):
            waits.add(worker)
            for reply in pool.handle(worker, action):
                waits.discard(reply.worker)
                go_on(reply.worker, time, reply.value)
        elif isinstance(action, Average):
            go_on(action.partner, time)
            go_on(worker, time)
        else:
            go_on(worker, time + (paces[worker] if isinstance(action, Compute) else 0.0))
    return max(now)


def next_of(one: Program, answer: int) -> Any:
    try:
        return one.send(answer)
    except StopIteration:
        return None


@pytest.mark.parametrize("slow", range(4))
@pytest.mark.parametrize("interval", [1, 5])
def test_a_slow_worker_holds_up_its_partner_and_not_everybody(slow: int, interval: int) -> None:
    """One of four, three times as slow. All-reduce waits for it in every step: 10 steps of 3."""
    paces = [3.0 if worker == slow else 1.0 for worker in range(4)]
    spans = [makespan("v2", paces, 40, interval, seed) for seed in range(20)]
    assert sum(spans) / len(spans) < 30 / 1.5
    assert min(spans) >= 40 / (3 + 1 / 3)  # all work all the time


def test_two_workers_that_average_always_wait_for_each_other() -> None:
    """There is nobody else to choose: no gain over all-reduce while every batch is averaged."""
    assert makespan("v2", [1.0, 3.0], 40, 1, seed=0) == 60.0
    assert makespan("v2", [1.0, 3.0], 40, 1000, seed=0) == pytest.approx(40 / (1 + 1 / 3), abs=3)
