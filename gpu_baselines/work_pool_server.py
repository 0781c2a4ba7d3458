"""Access to the work pool: rank 0 holds it, the other ranks ask over the network.

One thread of rank 0 owns the pool's state; one more for each other rank takes its questions off the network and brings
the answers back. They live for one epoch. Questions and answers are one int64 each, and are counted as "pool".
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import torch

from gpu_baselines.group import Group
from gpu_baselines.work_pool import Ask, Pool
from siafu.errors import PeerLost

Door = Callable[[Ask], int]  # asks the pool, waits for its answer


@contextmanager
def door(group: Group, made: Callable[[], Pool], timeout_s: float) -> Iterator[Door]:
    """A pool for one epoch, which ends once every worker has sent ``Ask.END``. ``group``: a twin for the pool alone,
    through the CPU's memory; ``made`` is called on rank 0. Raises: PeerLost if an answer or a question does not arrive
    in time."""
    if group.rank:
        yield lambda ask: _asked(group, ask)
        return
    server = PoolServer(made(), group, timeout_s)
    yield lambda ask: server.ask(0, ask)
    server.join()  # not after a failure: a thread's peer may be gone


def _asked(group: Group, ask: Ask) -> int:
    answer = torch.zeros(1, dtype=torch.int64)
    group.send(torch.tensor([ask]), 0, "pool")
    group.receive(answer, 0)
    return int(answer)


class PoolServer:
    def __init__(self, pool: Pool, group: Group, timeout_s: float):
        self._pool, self._group, self._timeout_s = pool, group, timeout_s
        self._inbox: queue.SimpleQueue[tuple[int, Ask, Future[int]] | Exception | None] = queue.SimpleQueue()
        self._owner = threading.Thread(target=self._own, name="pool", daemon=True)
        self._relays = [
            threading.Thread(target=self._relay, args=(peer,), name=f"pool of rank {peer}", daemon=True)
            for peer in range(1, group.size)
        ]
        for thread in (self._owner, *self._relays):
            thread.start()

    def ask(self, worker: int, ask: Ask) -> int:
        future: Future[int] = Future()
        self._inbox.put((worker, ask, future))
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            raise PeerLost(f"rank {worker}: the pool has not answered within {self._timeout_s:g} s") from None

    def join(self) -> None:
        """Waits until all workers have sent END."""
        for relay in self._relays:
            relay.join()
        self._inbox.put(None)
        self._owner.join()

    def _own(self) -> None:
        waiting: dict[int, Future[int]] = {}
        failed: Exception | None = None
        while (message := self._inbox.get()) is not None:
            if isinstance(message, Exception):
                failed = failed or message
            else:
                worker, ask, future = message
                waiting[worker] = future
                if failed is None:
                    try:
                        for reply in self._pool.handle(worker, ask):
                            waiting.pop(reply.worker).set_result(reply.value)
                    except Exception as error:  # raised where somebody waits for the answer
                        failed = error
            if failed is not None:
                for future in waiting.values():
                    future.set_exception(failed)
                waiting.clear()

    def _relay(self, peer: int) -> None:
        message, ask = torch.zeros(1, dtype=torch.int64), Ask.TAKE
        try:
            while ask is not Ask.END:
                self._group.receive(message, peer)
                ask = Ask(int(message))
                self._group.send(torch.tensor([self.ask(peer, ask)]), peer, "pool")
        except Exception as error:  # rank 0's worker learns of it with its next question
            self._inbox.put(error)
