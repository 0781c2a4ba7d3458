"""The decisions of GossipGCN's work pool: who gets which batch, and who averages with whom. Messages in, answers out;
no thread, no clock.

The thesis (GossipGCN, 2021) has workers share variables under locks, in Algorithm 5 (v1: half of the workers
choose, the other half are chosen) and Algorithm 6 (v2: all do both). Here one owner has the variables, and a
worker's critical section is a message to it. A section is a generator: it yields the name of every lock that it
needs, and goes on once it has it; comments give the algorithm's lines. What a worker does between its messages
is a generator too (``programs``).

1. Every batch is taken once.
2. available_workers is locked before gossip_partner (v1: before a passive worker's p_x),
   never after: nobody waits in a circle.
3. v2: while nobody holds the locks, a worker is available if and only if it has no partner.
4. A worker with a partner meets it before it asks for anything but a batch. A leaving worker meets the one that has
   chosen it, with its last gradient, and is not chosen any more.
5. A worker that chose waits only for the chosen one, which waits for nobody before they have met: so all of them end.

tests/gpu_baselines/test_gossip_schedules.py runs workers over it in thousands of orders, lock by lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

NONE = -1  # no batch left; no partner
AVAILABLE, PARTNER = "available_workers", "gossip_partner"

Section = Generator[str, None, int]  # yields locks that it needs, returns the answer


class Ask(IntEnum):
    """A worker's questions. The answer is a number, or NONE if no answer is stated."""

    TAKE = 0  # -> a batch, or NONE: the pool is empty
    PAIR = 1  # -> whom to average with, or NONE
    FREE = 2  # has averaged
    LEAVE = 3  # nothing is left to do -> whom to average with for the last time, or NONE
    LEFT = 4  # v2: has averaged for the last time
    END = 5  # says no more


@dataclass(frozen=True)
class Compute:
    """A step: compute the gradient of a batch."""

    batch: int


@dataclass(frozen=True)
class Average:
    """A step: both gradients become their mean. Waits until the partner does the same."""

    partner: int


@dataclass(frozen=True)
class Update:
    """A step: update the local weights with the gradient."""


Action = Ask | Compute | Average | Update
Program = Generator[Action, int, None]  # asks are sent their answer, everything else anything


class Reply(NamedTuple):
    worker: int
    value: int


class Pool:
    """The state machine that both versions share. Only ``handle`` changes the state."""

    def __init__(self, num_workers: int, batches: Sequence[int], choose: Callable[[int], int]):
        """``choose(n)`` draws one of 0 .. n - 1."""
        # State. left: batches that nobody has taken; available: who can be chosen, partner: by whom each was chosen, or
        # whom it chose; holder: lock -> who has it; _open, _wants: sections on their way, the locks that they wait for.
        self.left = deque(batches)
        self.available: list[int] = []
        self.partner = [NONE] * num_workers
        self.holder: dict[str, int] = {}
        self._open: dict[int, Section] = {}
        self._wants: dict[int, str] = {}
        self._choose = choose

    def handle(self, worker: int, ask: Ask) -> list[Reply]:
        """Takes in a message; returns all answers that it makes possible, to any worker, first come, first served."""
        self.ask(worker, ask)
        replies = []
        while ready := self.ready():
            value = self.advance(ready[0])
            if value is not None:
                replies.append(Reply(ready[0], value))
        return replies

    def ask(self, worker: int, ask: Ask) -> None:
        """Opens a section."""
        assert worker not in self._open, f"worker {worker} asks again before it has an answer"
        self._open[worker] = self._section(worker, ask)

    def ready(self) -> list[int]:
        """Workers whose sections can continue, the earliest first."""
        return [worker for worker in self._open if self._wants.get(worker) not in self.holder]

    def advance(self, worker: int) -> int | None:
        """Runs a section to its next lock, or to its end: the answer."""
        if worker in self._wants:
            self.holder[self._wants.pop(worker)] = worker
        try:
            self._wants[worker] = next(self._open[worker])
        except StopIteration as end:
            del self._open[worker]
            answer: int = end.value
            return answer
        return None

    def _section(self, me: int, ask: Ask) -> Section:
        raise NotImplementedError

    def _take(self) -> Section:
        return self.left.popleft() if self.left else NONE
        yield  # a section without locks: the queue has its own

    def _end(self, me: int) -> Section:
        assert me not in self.holder.values(), f"worker {me} ends with a lock"
        return NONE
        yield

    def _unlock(self, me: int, *locks: str) -> None:
        for lock in locks:
            holder = self.holder.pop(lock)
            assert holder == me, lock

    def _chosen(self) -> int:
        return self.available.pop(self._choose(len(self.available)))


class AllChoose(Pool):
    """Algorithm 6."""

    def __init__(self, num_workers: int, batches: Sequence[int], choose: Callable[[int], int]):
        super().__init__(num_workers, batches, choose)
        self.available = list(range(num_workers))  # line 5

    def _section(self, me: int, ask: Ask) -> Section:
        sections = {
            Ask.PAIR: self._pair,
            Ask.FREE: self._free,
            Ask.LEAVE: self._leave,
            Ask.LEFT: self._left,
            Ask.END: self._end,
        }
        return self._take() if ask is Ask.TAKE else sections[ask](me)

    def _pair(self, me: int) -> Section:
        yield AVAILABLE  # 17
        yield PARTNER  # 18
        if self.partner[me] == NONE:  # 19, 20
            self.available.remove(me)  # 21
            if self.available:  # 22
                other = self._chosen()  # 23, 24
                self.partner[me], self.partner[other] = other, me  # 25, 26
            else:
                self.available.append(me)  # 28
        self._unlock(me, AVAILABLE, PARTNER)  # 31, 32
        return self.partner[me]  # 30

    def _free(self, me: int) -> Section:
        yield AVAILABLE  # 36
        yield PARTNER  # 37
        self.partner[me] = NONE  # 38
        self.available.append(me)  # 39
        self._unlock(me, AVAILABLE, PARTNER)  # 40, 41
        return NONE

    def _leave(self, me: int) -> Section:
        yield AVAILABLE  # 45
        yield PARTNER  # 46
        if me in self.available:  # 47
            self.available.remove(me)  # 48
            self._unlock(me, AVAILABLE, PARTNER)  # 53, 54
            return NONE
        return self.partner[me]  # 50; the locks stay until LEFT

    def _left(self, me: int) -> Section:
        self.partner[me] = NONE  # 52
        self._unlock(me, AVAILABLE, PARTNER)  # 53, 54
        return NONE
        yield


class HalfChoose(Pool):
    """Algorithm 5. Workers 0 .. p/2 - 1 are passive. ``partner`` holds p_0, p_1, ... of the passive workers."""

    def __init__(self, num_workers: int, batches: Sequence[int], choose: Callable[[int], int]):
        super().__init__(num_workers, batches, choose)
        self.num_passive = num_workers // 2
        self.available = list(range(self.num_passive))  # 5

    def _section(self, me: int, ask: Ask) -> Section:
        if ask is Ask.TAKE:
            return self._take()
        if ask is Ask.PAIR:
            return self._asked(me) if me < self.num_passive else self._pair(me)
        return {Ask.FREE: self._free, Ask.LEAVE: self._leave, Ask.END: self._end}[ask](me)

    def _pair(self, me: int) -> Section:
        """The section in which an active worker chooses a partner."""
        yield AVAILABLE  # 20
        other = NONE
        if self.available:  # 21
            other = self._chosen()  # 22, 24
            yield f"p_{other}"  # the algorithm says nothing of it where p_x is written, but has it where it is read
            self.partner[other] = me  # 23
            self._unlock(me, f"p_{other}")
        self._unlock(me, AVAILABLE)  # 25
        return other

    def _asked(self, me: int) -> Section:
        """The section in which a passive worker asks who has chosen it."""
        yield f"p_{me}"  # 37
        other, self.partner[me] = self.partner[me], NONE  # 38, 39
        self._unlock(me, f"p_{me}")  # 39
        return other

    def _free(self, me: int) -> Section:
        yield AVAILABLE  # 42
        self.available.append(me)  # 43
        self._unlock(me, AVAILABLE)  # 44
        return NONE

    def _leave(self, me: int) -> Section:
        yield AVAILABLE  # 47
        if me in self.available:
            self.available.remove(me)  # 48
        self._unlock(me, AVAILABLE)  # 49
        return (yield from self._asked(me))  # 50-52


Version = Literal["v1", "v2"]
POOLS: dict[str, type[Pool]] = {"v1": HalfChoose, "v2": AllChoose}


def program(version: Version, worker: int, num_workers: int, interval: int, count: int) -> Program:
    """The steps of a worker in one pool. ``count``: batches that it has computed in earlier pools."""
    if version == "v2":
        return _all_choose(interval, count)
    return _passive() if worker < num_workers // 2 else _active(interval, count)


def _all_choose(interval: int, count: int) -> Program:
    """Algorithm 6, lines 11-54."""
    while (batch := (yield Ask.TAKE)) != NONE:
        count += 1
        yield Compute(batch)
        if count % interval == 0 and (partner := (yield Ask.PAIR)) != NONE:
            yield Average(partner)
            yield Ask.FREE
        yield Update()
    if (partner := (yield Ask.LEAVE)) != NONE:
        yield Average(partner)
        yield Ask.LEFT
    yield Ask.END


def _active(interval: int, count: int) -> Program:
    """Algorithm 5, lines 12-29."""
    while (batch := (yield Ask.TAKE)) != NONE:
        count += 1
        yield Compute(batch)
        if count % interval == 0 and (partner := (yield Ask.PAIR)) != NONE:
            yield Average(partner)
        yield Update()
    yield Ask.END


def _passive() -> Program:
    """Algorithm 5, lines 32-54: after every batch, asks whether another worker has chosen it."""
    while (batch := (yield Ask.TAKE)) != NONE:
        yield Compute(batch)
        if (partner := (yield Ask.PAIR)) != NONE:
            yield Average(partner)
            yield Ask.FREE
        yield Update()
    if (partner := (yield Ask.LEAVE)) != NONE:
        yield Average(partner)
    yield Ask.END
