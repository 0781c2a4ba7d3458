"""The ranks of a run. Every byte between them passes here: it is counted, and slowed if a slow network is emulated.

``Group`` is what methods see; ``TorchGroup`` is torch.distributed (NCCL or Gloo), and tests have one whose ranks are
threads. All calls are collective unless they name a peer: every rank makes them in the same order.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from gpu_baselines.network_links import Link
from siafu.errors import PeerLost

#: For how long ranks wait for each other while they are set up, which may take one of them minutes more than another:
#: reading, sorting edges, compiling, CUDA's own start. As long as torch's own groups over NCCL wait.
SETUP_S = 600.0


def on_own_card() -> Callable[[], None]:
    """A function that a thread started by the caller runs first: CUDA's current device belongs to a thread, and every
    new thread begins with that of rank 0."""
    if not torch.cuda.is_initialized():
        return lambda: None
    return partial(torch.cuda.set_device, torch.cuda.current_device())


class Traffic:
    """Bytes that this rank has sent, by kind and peer; several threads may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes: dict[tuple[str, int], int] = defaultdict(int)

    def add(self, kind: str, peer: int, nbytes: int) -> None:
        with self._lock:
            self._bytes[kind, peer] += nbytes

    def by_kind(self) -> dict[str, int]:
        with self._lock:
            found: dict[str, int] = defaultdict(int)
            for (kind, _), nbytes in self._bytes.items():
                found[kind] += nbytes
            return dict(found)

    def by_link(self, size: int) -> dict[str, list[int]]:
        """Bytes of each kind, by receiving rank."""
        with self._lock:
            found: dict[str, list[int]] = {}
            for (kind, peer), nbytes in self._bytes.items():
                found.setdefault(kind, [0] * size)[peer] = nbytes
            return found


class Group(Protocol):
    rank: int
    size: int
    traffic: Traffic

    def exchange(self, sends: Sequence[Tensor], recvs: Sequence[Tensor], kind: str = "halo") -> None:
        """All-to-all in a ring: in round r each rank sends ``sends[rank + r]`` and fills ``recvs[rank - r]``. Tensors
        are contiguous, with the same shape and dtype on both sides. Empty tensors do not travel, and a rank's own are
        ignored."""

    def post(self, sends: Sequence[Tensor], recvs: Sequence[Tensor], kind: str = "halo") -> Callable[[], None]:
        """Begins the same exchange, without waiting. The returned functions wait, on any thread; call them in the order
        of posting. Exchanges posted later travel at the same time. Leave the tensors alone until then. Messages on
        their way have no tag, so another exchange over the same group could take their place: use a twin."""

    def send(self, tensor: Tensor, peer: int, kind: str) -> None:
        """Sends a tensor; returns when the tensor may be changed."""

    def receive(self, tensor: Tensor, peer: int) -> None: ...

    def all_reduce(self, tensor: Tensor, kind: str = "reduce") -> None:
        """The sum over all ranks, in place, with equal bits on all."""

    def broadcast(self, tensor: Tensor, root: int, kind: str) -> None: ...

    def share(self, value: Any) -> list[Any]:
        """Every rank's value, by rank; values are JSON. For set-up and control: its bytes are not counted."""

    def barrier(self) -> None: ...

    def settled(self) -> None:
        """Ends set-up and the first, slower epoch. From here on, in this group and those made from it, a rank that
        others wait for longer than ``baseline.timeout_s`` is lost."""

    def twin(self, *, host: bool = False) -> Group:
        """A group of the same ranks over its own connections, for another thread. It shares traffic and link.

        host: goes through the CPU's memory whatever the transport, so that waiting threads do not make a GPU's stream
        wait.
        """

    def subgroup(self, ranks: Sequence[int]) -> Group:
        """A group of these ranks alone, which include this one, renumbered from 0 in that order. It shares traffic (by
        the ranks of the whole) and link. Collective among them."""


class TorchGroup:
    """A group over torch.distributed, whose default group must exist. Raises PeerLost if a rank does not answer in
    time."""

    def __init__(
        self,
        *,
        timeout_s: float,
        link: Link,
        traffic: Traffic | None = None,
        of: Any = None,
        members: Sequence[int] = (),
    ):
        """members: these ranks' numbers in the default group; (): all."""
        self._members = list(members) or list(range(dist.get_world_size()))
        self.rank, self.size = self._members.index(dist.get_rank()), len(self._members)
        self.traffic = traffic or Traffic()
        self._timeout_s, self._link, self._of = timeout_s, link, of
        self._patience_s = max(SETUP_S, timeout_s)
        self._made: list[TorchGroup] = []
        self._device = torch.device("cuda" if dist.get_backend(of) == "nccl" else "cpu")
        self._aside: torch.cuda.Stream | None = None  # made when used
        begin = on_own_card()
        # start when used
        self._leaving, self._landing = (ThreadPoolExecutor(1, name, begin) for name in ("leaving", "landing"))

    def exchange(self, sends: Sequence[Tensor], recvs: Sequence[Tensor], kind: str = "halo") -> None:
        self._count_all(sends, kind)
        self._in_turns(sends, recvs)

    def _in_turns(self, sends: Sequence[Tensor], recvs: Sequence[Tensor]) -> None:
        for turn in range(1, self.size):
            to, source = (self.rank + turn) % self.size, (self.rank - turn) % self.size
            wanted, operations = recvs[source], []
            if sends[to].numel():
                operations.append(dist.P2POp(dist.isend, self._out(sends[to]), self._members[to], self._of))
            inbox = self._inbox(wanted)
            if wanted.numel():
                operations.append(dist.P2POp(dist.irecv, inbox, self._members[source], self._of))
            with self._named(f"{self._members[to]} or {self._members[source]}"):
                for work in dist.batch_isend_irecv(operations) if operations else ():
                    self._wait(work)
            if inbox is not wanted:
                wanted.copy_(inbox)

    def post(self, sends: Sequence[Tensor], recvs: Sequence[Tensor], kind: str = "halo") -> Callable[[], None]:
        self._count_all(sends, kind)  # counted here: the wait may be in another epoch
        if self._device.type == "cuda":  # a stream waits for all that NCCL does on it: whoever waits begins
            return lambda: self._in_turns(sends, recvs)
        others = [(self.rank + turn) % self.size for turn in range(1, self.size)]
        going = [self._posted(sends[to], to) for to in others if sends[to].numel()]
        wanted = {source: recvs[source] for source in reversed(others) if recvs[source].numel()}
        inboxes = {source: self._inbox(tensor) for source, tensor in wanted.items()}
        with self._named("of the others"):
            coming: dict[int, Any] = {
                source: dist.irecv(inbox, self._members[source], self._of) for source, inbox in inboxes.items()
            }

        def wait() -> None:
            for source, work in coming.items():
                with self._named(str(self._members[source])):
                    self._wait(work)
                if inboxes[source] is not wanted[source]:
                    wanted[source].copy_(inboxes[source])
            with self._named("of the others"):
                for landed in going:
                    self._wait(landed())

        return wait

    def _wait(self, work: Any) -> None:
        """Waits for an operation. Over Gloo with our own timeout: that of its connections never changes. NCCL would
        block the host then."""
        if self._device.type == "cuda":
            work.wait()
        else:
            work.wait(timedelta(seconds=self._patience_s))

    def _posted(self, tensor: Tensor, peer: int) -> Callable[[], Any]:
        """Sends without waiting, at the time when an emulated link delivers the tensor. Returns a function that gives
        the transport's own handle."""
        nbytes = tensor.numel() * tensor.element_size()
        brought = self._bringing(tensor.contiguous())

        def land(at: float) -> Any:
            self._link.until(at)
            return dist.isend(brought(), self._members[peer], self._of)

        if not self._link.slows and tensor.device.type == self._device.type:
            work = land(0.0)
            return lambda: work
        # Two threads: while one message is on its way, the next one leaves.
        left = self._leaving.submit(lambda: self._landing.submit(land, self._link.leave(nbytes)))
        return lambda: left.result().result()

    def _bringing(self, tensor: Tensor) -> Callable[[], Tensor]:
        """A function that returns the tensor where the transport can reach it. From a GPU it copies over a stream of
        its own, so that computation there does not wait."""
        if tensor.device.type == self._device.type:
            return lambda: tensor
        if self._aside is None:
            self._aside = torch.cuda.Stream(tensor.device)
        stream, ready = self._aside, torch.cuda.current_stream(tensor.device).record_event()

        def bring() -> Tensor:
            # On its card: in a thread of ours, memory would be pinned for the first one, which then holds a context.
            with torch.cuda.stream(stream):
                here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                stream.wait_event(ready)
                here.copy_(tensor, non_blocking=True)
            stream.synchronize()
            return here

        return bring

    def send(self, tensor: Tensor, peer: int, kind: str) -> None:
        self._count(tensor, peer, kind)
        with self._named(str(self._members[peer])):
            self._wait(dist.isend(self._out(tensor), self._members[peer], self._of))

    def receive(self, tensor: Tensor, peer: int) -> None:
        inbox = self._inbox(tensor)
        with self._named(str(self._members[peer])):
            self._wait(dist.irecv(inbox, self._members[peer], self._of))
        if inbox is not tensor:
            tensor.copy_(inbox)

    def all_reduce(self, tensor: Tensor, kind: str = "reduce") -> None:
        if self.size == 1:
            return
        # As a ring does it: every rank sends (and gets) its share of the vector 2 (N - 1) times.
        nbytes = 2 * (self.size - 1) * tensor.numel() * tensor.element_size() // self.size
        self.traffic.add(kind, self._members[(self.rank + 1) % self.size], nbytes)
        self._link.pass_through(nbytes)
        with self._named("of the others"), self._moved(tensor) as here:
            dist.all_reduce(here, group=self._of)

    def broadcast(self, tensor: Tensor, root: int, kind: str) -> None:
        if self.size == 1:
            return
        nbytes = tensor.numel() * tensor.element_size()
        if self.rank == root:
            for peer in range(self.size):
                if peer != root:
                    self.traffic.add(kind, self._members[peer], nbytes)
            self._link.pass_through(nbytes)  # a tree or a chain: the root's link carries it about once
        # The root's own is only read: autograd may need it as it was.
        with self._named(str(self._members[root])), self._moved(tensor, back=self.rank != root) as here:
            dist.broadcast(here, self._members[root], group=self._of)

    def share(self, value: Any) -> list[Any]:
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(self._device)
        sizes = [torch.zeros(1, dtype=torch.int64, device=self._device) for _ in range(self.size)]
        with self._named("of the others"):
            dist.all_gather(sizes, torch.tensor([text.numel()], device=self._device), group=self._of)
            longest = max(int(size) for size in sizes)
            padded = torch.zeros(longest, dtype=torch.uint8, device=self._device)
            padded[: text.numel()] = text
            found = [torch.empty_like(padded) for _ in range(self.size)]
            dist.all_gather(found, padded, group=self._of)
        return [
            json.loads(bytes(one[: int(size)].cpu().numpy()).decode()) for one, size in zip(found, sizes, strict=True)
        ]

    def barrier(self) -> None:
        self.share(None)

    def settled(self) -> None:
        self._patience_s = self._timeout_s
        # torch has no public call for it, and a new group would have to connect its ranks again.
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=self._timeout_s), self._of)
        for made in self._made:
            made.settled()

    def twin(self, *, host: bool = False) -> Group:
        return self._new(self._members, "gloo" if host else "")

    def subgroup(self, ranks: Sequence[int]) -> Group:
        return self._new([self._members[rank] for rank in ranks])

    def _new(self, members: list[int], backend: str = "") -> Group:
        with self._named("of the others"):
            of = dist.new_group(
                members,
                backend=backend or dist.get_backend(),
                timeout=timedelta(seconds=self._patience_s),
                use_local_synchronization=True,
            )
        made = TorchGroup(timeout_s=self._timeout_s, link=self._link, traffic=self.traffic, of=of, members=members)
        self._made.append(made)
        return made

    def _count(self, tensor: Tensor, peer: int, kind: str) -> None:
        self.traffic.add(kind, self._members[peer], tensor.numel() * tensor.element_size())

    def _count_all(self, sends: Sequence[Tensor], kind: str) -> None:
        for peer, tensor in enumerate(sends):
            if peer != self.rank and tensor.numel():
                self._count(tensor, peer, kind)

    def _out(self, tensor: Tensor) -> Tensor:
        """The tensor to send, after the delay of the emulated link."""
        self._link.pass_through(tensor.numel() * tensor.element_size())
        return tensor.contiguous().to(self._device)

    def _inbox(self, tensor: Tensor) -> Tensor:
        same = tensor.device.type == self._device.type and tensor.is_contiguous()
        return tensor if same else torch.empty_like(tensor, device=self._device, memory_format=torch.contiguous_format)

    @contextmanager
    def _moved(self, tensor: Tensor, *, back: bool = True) -> Any:
        """Yields the tensor where the transport can reach it (Gloo: in the CPU's memory), and copies it back."""
        here = self._inbox(tensor)
        if here is not tensor:
            here.copy_(tensor)
        yield here
        if back and here is not tensor:
            tensor.copy_(here)

    @contextmanager
    def _named(self, whom: str) -> Any:
        try:
            yield
        except (RuntimeError, ValueError) as error:  # torch's own errors of connections are RuntimeErrors
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise PeerLost(f"rank {self._members[self.rank]}: rank {whom} is lost: {first[:300]}") from error
