"""Ranks of a baseline as threads of this process: what tests of exactness run, without sockets and start-up times."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from gpu_baselines.group import Group, Traffic

T = TypeVar("T")
WAIT_S = 60.0


class Room:
    """What the ranks of one run share: a mailbox for each (channel, from, to)."""

    def __init__(self, size: int):
        self.size = size
        self._lock = threading.Lock()
        self._boxes: dict[tuple[str, int, int], queue.SimpleQueue[Any]] = {}
        self.broken = threading.Event()

    def box(self, channel: str, source: int, to: int) -> queue.SimpleQueue[Any]:
        with self._lock:
            return self._boxes.setdefault((channel, source, to), queue.SimpleQueue())

    def get(self, channel: str, source: int, to: int) -> Any:
        box = self.box(channel, source, to)
        for _ in range(int(WAIT_S / 0.05)):
            try:
                return box.get(timeout=0.05)
            except queue.Empty:
                if self.broken.is_set():
                    raise RuntimeError("another rank has failed") from None
        raise TimeoutError(f"rank {to}: nothing from rank {source} on {channel}")


class ThreadGroup:
    """``gpu_baselines.group.Group``, whose ranks are threads."""

    def __init__(
        self, room: Room, rank: int, channel: str = "main", traffic: Traffic | None = None, members: Sequence[int] = ()
    ):
        """members: the ranks of the room that these are; (): all. ``rank`` counts among them."""
        self._members = list(members) or list(range(room.size))
        self.rank, self.size = rank, len(self._members)
        self.traffic = traffic or Traffic()
        self._room, self._channel, self._made = room, channel, 0

    def exchange(self, sends: Sequence[Tensor], recvs: Sequence[Tensor], kind: str = "halo") -> None:
        for turn in range(1, self.size):
            to, source = (self.rank + turn) % self.size, (self.rank - turn) % self.size
            if sends[to].numel():
                self.send(sends[to], to, kind)
            if recvs[source].numel():
                self.receive(recvs[source], source)

    def post(self, sends: Sequence[Tensor], recvs: Sequence[Tensor], kind: str = "halo") -> Callable[[], None]:
        others = [peer for peer in range(self.size) if peer != self.rank]
        for to in others:
            if sends[to].numel():
                self.send(sends[to], to, kind)

        def wait() -> None:
            for source in others:
                if recvs[source].numel():
                    self.receive(recvs[source], source)

        return wait

    def send(self, tensor: Tensor, peer: int, kind: str) -> None:
        self.traffic.add(kind, self._members[peer], tensor.numel() * tensor.element_size())
        self._box(self._channel, peer).put(tensor.detach().clone())

    def receive(self, tensor: Tensor, peer: int) -> None:
        came = self._get(self._channel, peer)
        assert (came.shape, came.dtype) == (tensor.shape, tensor.dtype), (
            came.shape,
            tensor.shape,
            came.dtype,
            tensor.dtype,
        )
        tensor.copy_(came)

    def all_reduce(self, tensor: Tensor, kind: str = "reduce") -> None:
        nbytes = 2 * (self.size - 1) * tensor.numel() * tensor.element_size() // self.size
        self.traffic.add(kind, self._members[(self.rank + 1) % self.size], nbytes)
        tensor.copy_(torch.stack(self._all(tensor.detach().clone())).sum(0))

    def broadcast(self, tensor: Tensor, root: int, kind: str) -> None:
        if self.rank == root:
            for peer in range(self.size):
                if peer != root:
                    self.send(tensor, peer, kind)
        else:
            self.receive(tensor, root)

    def share(self, value: Any) -> list[Any]:
        return [json.loads(text) for text in self._all(json.dumps(value))]

    def barrier(self) -> None:
        self._all(None)

    def settled(self) -> None:
        pass

    def twin(self, *, host: bool = False) -> Group:
        return self.subgroup(range(self.size))

    def subgroup(self, ranks: Sequence[int]) -> Group:
        members = [self._members[rank] for rank in ranks]
        self._made += 1  # every rank makes its groups in the same order
        place = list(ranks).index(self.rank)
        return ThreadGroup(self._room, place, f"{self._channel}.{self._made}", self.traffic, members)

    def _all(self, value: Any) -> list[Any]:
        for peer in range(self.size):
            self._box(f"{self._channel}/all", peer).put(value)
        return [self._get(f"{self._channel}/all", peer) for peer in range(self.size)]

    def _box(self, channel: str, peer: int) -> queue.SimpleQueue[Any]:
        return self._room.box(channel, self._members[self.rank], self._members[peer])

    def _get(self, channel: str, peer: int) -> Any:
        return self._room.get(channel, self._members[peer], self._members[self.rank])


class Device:
    """A device as the host sees it: what is launched returns at once, and is done later, in order."""

    def __init__(self, takes_s: float):
        self._takes_s = takes_s
        self._launched: list[Callable[[], None]] = []

    def launch(self, work: Callable[[], None]) -> None:
        self._launched.append(work)

    def synchronise(self) -> None:
        """What was launched is done, in ``takes_s`` seconds each."""
        launched, self._launched = self._launched, []
        for work in launched:
            time.sleep(self._takes_s)
            work()


class LateGroup:
    """A ``Group`` of such a device, as NCCL's is: exchanges are launched. Whatever else is asked for waits for them, as
    do exchanges of ``at_once``: what reads their rows is in the device's order on a GPU, and here it is the host."""

    def __init__(self, group: Group, device: Device, at_once: str = ""):
        """at_once: a kind of traffic."""
        self._group, self._device, self._at_once = group, device, at_once
        self.rank, self.size, self.traffic = group.rank, group.size, group.traffic

    def exchange(self, sends: Sequence[Tensor], recvs: Sequence[Tensor], kind: str = "halo") -> None:
        self._device.launch(lambda: self._group.exchange(sends, recvs, kind))
        if kind == self._at_once:
            self._device.synchronise()

    def __getattr__(self, name: str) -> Any:
        self._device.synchronise()
        return getattr(self._group, name)


def on_ranks(size: int, work: Callable[[Group], T]) -> list[T]:
    """What ``work`` gives on each rank. The first failure is raised here."""
    room = Room(size)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            results[rank] = work(ThreadGroup(room, rank))
        except BaseException as error:
            if not room.broken.is_set():
                errors.append(error)
            room.broken.set()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
