"""Late halos: PipeGCN (Wan et al., ICLR 2022). Rows travel while an epoch is computed, and are used in a later one.

In epoch t a layer works with the rows that were sent in epoch t - d; what is sent in t travels on a thread of its own:

    forward    Z_t  = A_inner drop_t(H_t) + A_outer drop_t(halo_{t-d})
    backward   dH_t = mask_t ⊙ A_innerᵀ dZ_t + G_{t-d},     G_t: Σ over others' halos of mask_t ⊙ A_outerᵀ dZ_t

The paper has d = 1 and leaves d > 1 to others (its appendix C). In the first d epochs there is nothing yet: zeros, as
in the paper, or with ``correct`` today's rows, for which everybody waits. Rows travel before dropout and get the mask
of the epoch that uses them; so does the gradient that leaves there, and the owner adds it as it comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from torch import Tensor

from gpu_baselines.clock import Clock
from gpu_baselines.halos.codec import Stream
from gpu_baselines.halos.halo import Channel, Parcels, Pending, Routes
from gpu_baselines.halos.smoothing import Smoothing
from siafu.errors import DatasetError


class Message(NamedTuple):
    stream: Stream
    epoch: int  # in which it was sent


class Late:
    """Rows of ``depth`` epochs ago (a ``Halo``). The rows used never depend on arrival times, so runs have equal bits.

    Main thread: all state. The channel's thread sees parcels alone, and counts its time in
    ``_carried_s``, up to ``_carried_until``.
    """

    def __init__(
        self,
        routes: Routes,
        clock: Clock,
        smoothing: Smoothing,
        *,
        depth: int,
        correct: bool = False,
        overlap: bool = True,
    ):
        """overlap: False: each exchange is waited for at once; rows are as late, but no time is hidden."""
        assert depth >= 1, depth
        self.routes, self.depth = routes, depth
        self._clock, self._smoothing, self._correct = clock, smoothing, correct
        self._channel = Channel(routes.device) if overlap and routes.group.size > 1 else None
        self._group = routes.group.twin() if self._channel else routes.group
        self._epoch = 0
        self._sent: dict[Message, Future[Parcels] | Tensor] = {}  # on the way, or the rows that came
        self._carried_s, self._carried_until, self._epochs = 0.0, 0.0, 0

    def begin(self, epoch: int) -> None:
        if self.routes.codec.changes(epoch):
            self.settle()
        self.routes.codec.begin(epoch)
        self._epoch = epoch
        self._sent = {sent: rows for sent, rows in self._sent.items() if sent.epoch >= epoch - self.depth}

    def forward(self, layer: int, H: Tensor) -> Pending:
        stream = Stream("forward", layer)
        self._send(stream, H.detach())
        return lambda: self._used(stream, self.routes.part.num_halo, H)

    def backward(self, layer: int, dHalo: Tensor) -> Pending:
        stream, given = Stream("backward", layer), sum(map(len, self.routes.part.given))
        self._send(stream, dHalo)
        return lambda: self.routes.added(self._used(stream, given, dHalo))

    def end(self) -> None:
        self.routes.codec.end()
        self._epochs += 1

    def settle(self) -> None:
        """Waits for the messages on their way, and unpacks them."""
        for message in self._sent:
            self._arrived(message)

    def state(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint, including the rows on their way, for which it waits."""
        self.settle()
        rows = {f"late.{stream.name}.{epoch}": self._arrived(Message(stream, epoch)) for stream, epoch in self._sent}
        return {**rows, **self._smoothing.state(), **self.routes.codec.state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        for name, rows in state.items():
            if name.startswith("late."):
                stream, _, epoch = name.removeprefix("late.").rpartition(".")
                self._sent[Message(Stream.named(stream), int(epoch))] = rows.to(self.routes.device)
        self._smoothing.restore(state, self.routes.device)
        self.routes.codec.restore(state)

    def facts(self) -> dict[str, object]:
        """Facts for the result. exchange_seconds_per_epoch: time of rank 0's exchanges, waited for or not."""
        return {"exchange_seconds_per_epoch": self._carried_s / max(1, self._epochs), **self.routes.codec.facts()}

    def close(self) -> None:
        if self._channel:
            self._channel.close()

    def _send(self, stream: Stream, rows: Tensor) -> None:
        parcels, message = self.routes.packed(stream, rows), Message(stream, self._epoch)
        if self._channel:
            arrive, begin = self.routes.posted(parcels, self._group), time.perf_counter()
            self._sent[message] = self._channel.submit(lambda: self._carried(parcels, arrive, begin))
            return
        with self._clock("communicate"):
            future: Future[Parcels] = Future()
            future.set_result(self._carried(parcels, lambda: self.routes.carried(parcels), time.perf_counter()))
        self._sent[message] = future

    def _carried(self, parcels: Parcels, arrive: Callable[[], object], begin: float) -> Parcels:
        """Counts the time in which any message is on its way, without counting overlaps twice."""
        arrive()
        self._clock.synchronise()  # of the stream that this thread is on
        now = time.perf_counter()
        self._carried_s += now - max(begin, self._carried_until)
        self._carried_until = now
        return parcels._replace(sends=[])

    def _used(self, stream: Stream, count: int, like: Tensor) -> Tensor:
        """The rows [count, F] that this epoch uses."""
        message = Message(stream, self._epoch - self.depth)
        if message.epoch < 0:
            if not self._correct:
                return like.new_zeros(count, like.shape[1])
            return self._arrived(Message(stream, self._epoch))
        rows = self._arrived(message)
        del self._sent[message]  # nobody asks for it again
        return self._smoothing(stream, rows)

    def _arrived(self, message: Message) -> Tensor:
        if message not in self._sent:
            raise DatasetError(
                f"no halo rows of epoch {message.epoch} for epoch {self._epoch}: the checkpoint is "
                "of another baseline.depth"
            )
        found = self._sent[message]
        if isinstance(found, Tensor):
            return found
        with self._clock("communicate"):
            parcels = found.result()
        rows = self._sent[message] = self.routes.unpacked(parcels)
        return rows
