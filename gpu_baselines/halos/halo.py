"""Exchange of halo rows and their gradients between ranks. Most methods differ only here.

``Halo`` is the contract, ``Exact`` the plain implementation: unchanged rows of this epoch, for which every rank waits
(or sums inner edges meanwhile). ``PartGraph`` is a part and its halo as layers see them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.bag import Bag, dropped, features
from gpu_baselines.clock import Clock
from gpu_baselines.graph import AttentionEdges, with_loops
from gpu_baselines.group import Group, on_own_card
from gpu_baselines.halos.codec import Codec, Stream
from gpu_baselines.masks import Masks
from gpu_baselines.part import Part

Pending = Callable[[], Tensor]  # waits for what was started, and gives it


class Halo(Protocol):
    """Rows of one rank's halo. Layers ask in the same order on every rank, forward and backward."""

    def begin(self, epoch: int) -> None:
        """Begins an epoch of training."""

    def forward(self, layer: int, H: Tensor) -> Pending:
        """Sends the rows of H [n, F] that others need, before dropout; returns the rows of our halo [h, F]."""

    def backward(self, layer: int, dHalo: Tensor) -> Pending:
        """Sends the gradients of our halo's rows [h, F] to their owners; returns those that arrived for ours: [n,
        F]."""

    def end(self) -> None:
        """Ends an epoch, after all layers, forward and backward."""

    def state(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint needs beside the weights, to continue with the same bits."""

    def restore(self, state: dict[str, Tensor]) -> None: ...

    def facts(self) -> dict[str, object]:
        """Facts for the result; JSON."""

    def close(self) -> None: ...


class Channel:
    """A thread that carries out exchanges one after the other, in the order of requests.

    After a failure, no waiting exchange is tried: ranks no longer agree on the next one. On a GPU exchanges run on a
    stream of their own, after the work launched before them; a result is there when its future is done.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._begin = on_own_card()
        self._thread = threading.Thread(target=self._work, name="exchange", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, job if self._stream is None else self._aside(job, self._stream)))
        return future

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _aside(self, job: Callable[[], Any], stream: torch.cuda.Stream) -> Callable[[], Any]:
        ready = torch.cuda.current_stream(stream.device).record_event()

        def on_stream() -> Any:
            with torch.cuda.stream(stream):
                stream.wait_event(ready)
                found = job()
            stream.synchronize()
            return found

        return on_stream

    def _work(self) -> None:
        self._begin()
        failed: BaseException | None = None
        while (job := self._jobs.get()) is not None:
            future, call = job
            if failed is None:
                try:
                    future.set_result(call())
                    continue
                except BaseException as error:  # it is raised where the result is wanted
                    failed = error
            future.set_exception(failed)


class Routes:
    """Rows between a part and its neighbours, without any thought of when.

    ``packed`` and ``unpacked`` compute and belong on the main thread; ``carried`` waits for the network, on any.
    """

    def __init__(self, part: Part, group: Group, clock: Clock, codec: Codec | None = None, kind: str = "halo"):
        """``kind``: the name under which the traffic of forward passes is counted."""
        self.part, self.group, self.codec = part, group, codec or Codec()
        self._clock, self._kind = clock, kind

    @property
    def device(self) -> torch.device:
        return self.part.labels.device

    def packed(self, stream: Stream, rows: Tensor) -> Parcels:
        """Packs rows for each rank. forward: of H [n, F], the rows that the rank needs; backward: the gradients of our
        halo [h, F]."""
        part, forward = self.part, stream.way == "forward"
        parts = [rows[index] for index in part.given] if forward else list(rows.split(part.wanted))
        counts = part.wanted if forward else [len(index) for index in part.given]
        with self._clock("quantise"):
            sends = [self.codec.pack(stream, peer, one) for peer, one in enumerate(parts)]
            inboxes = [self.codec.inbox(stream, peer, count, rows) for peer, count in enumerate(counts)]
        return Parcels(stream, sends, inboxes, counts, rows.new_empty(0, rows.shape[1]))

    def carried(self, parcels: Parcels, group: Group | None = None) -> Parcels:
        (group or self.group).exchange(parcels.sends, parcels.inboxes, self._kind_of(parcels))
        return parcels

    def posted(self, parcels: Parcels, group: Group) -> Callable[[], None]:
        """Begins to send; the returned function waits for the network."""
        return group.post(parcels.sends, parcels.inboxes, self._kind_of(parcels))

    def _kind_of(self, parcels: Parcels) -> str:
        return self._kind if parcels.stream.way == "forward" else "gradient"

    def unpacked(self, parcels: Parcels) -> Tensor:
        """Unpacks rows. forward: our halo's [h, F]; backward: gradients of our rows from other ranks' halos, by rank,
        as ``given`` lists them."""
        out = parcels.like.new_empty(sum(parcels.counts), parcels.like.shape[1])
        with self._clock("quantise"):
            for peer, rows in enumerate(out.split(parcels.counts)):
                if len(rows):
                    self.codec.unpack(parcels.stream, peer, parcels.inboxes[peer], rows)
        return out

    def added(self, comes: Tensor) -> Tensor:
        """The returned gradients in the order of our rows, [n, F]. Summed by rank, so that bits do not depend on the
        order of arrival."""
        total = comes.new_zeros(self.part.num_inner, comes.shape[1])
        for index, rows in zip(self.part.given, comes.split([len(index) for index in self.part.given]), strict=True):
            total.index_add_(0, index, rows)
        return total


class Parcels(NamedTuple):
    """One exchange: the message to each rank, and the buffer for the message from it."""

    stream: Stream
    sends: list[Tensor]
    inboxes: list[Tensor]
    counts: list[int]  # rows that come from each rank
    like: Tensor  # [0, F], of the dtype of rows, which themselves must not be kept for as long as a message travels


class Exact:
    """Vanilla: rows of this epoch, for which every rank waits; with ``overlap`` they travel while inner edges are
    summed."""

    def __init__(self, routes: Routes, clock: Clock, *, overlap: bool):
        self._routes, self._clock = routes, clock
        self._channel = Channel(routes.device) if overlap and routes.group.size > 1 else None
        self._group = routes.group.twin() if self._channel else routes.group

    def begin(self, epoch: int) -> None:
        self._routes.codec.begin(epoch)

    def forward(self, layer: int, H: Tensor) -> Pending:
        wait = self._started(self._routes.packed(Stream("forward", layer), H.detach()))
        return lambda: self._routes.unpacked(wait())

    def backward(self, layer: int, dHalo: Tensor) -> Pending:
        wait = self._started(self._routes.packed(Stream("backward", layer), dHalo))
        return lambda: self._routes.added(self._routes.unpacked(wait()))

    def end(self) -> None:
        self._routes.codec.end()

    def state(self) -> dict[str, Tensor]:
        return self._routes.codec.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        self._routes.codec.restore(state)

    def facts(self) -> dict[str, object]:
        return self._routes.codec.facts()

    def close(self) -> None:
        if self._channel:
            self._channel.close()

    def _started(self, parcels: Parcels) -> Callable[[], Parcels]:
        if self._channel is None:
            with self._clock("communicate"):
                self._routes.carried(parcels)
            return lambda: parcels
        future = self._channel.submit(lambda: self._routes.carried(parcels, self._group))

        def wait() -> Parcels:
            with self._clock("communicate"):
                return future.result()

        return wait


@dataclass
class Known:
    """Constants of a part, made on first use."""

    features: Any
    summed: Any = None  # A X
    fetched: Tensor | None = None  # the halo's features
    edges: AttentionEdges | None = None


class PartGraph:
    """A part and its halo, as layers see them (``gpu_baselines.graph.Graph``)."""

    def __init__(
        self,
        part: Part,
        halo: Halo,
        group: Group,
        masks: Masks,
        *,
        training: bool,
        preaggregate: bool = True,
        beside: PartGraph | None = None,
    ):
        """``beside``: another graph, perhaps of the same part, with which to share constants."""
        self.part, self.halo, self.num_inner = part, halo, part.num_inner
        self.training, self.epoch = training, 0
        self._masks, self._preaggregate, self._group = masks, preaggregate, group
        if beside is not None and beside.part is part and beside._preaggregate == preaggregate:
            self._known: Known = beside._known
        else:
            # What is fetched in every epoch is counted, coded and late as other rows are: those are no bags.
            self._known = Known(features(part.features, masks.device, masks.dtype, sparse=preaggregate))

    @property
    def features(self) -> Any:
        return self._known.features

    def drop(self, X: Any, key: int | None) -> Any:
        return dropped(X, self._masks, self.part.vertices, epoch=self.epoch, key=key) if self.training else X

    def gather(self, layer: int, H: Any, key: int | None = None) -> Any:
        if H is self.features:
            return self._of_features(H)
        rows = self._mask(self.part.vertices, H.shape[1], key), self._mask(self.part.halo, H.shape[1], key)
        return _Gather.apply(H, self, layer, rows)

    def rows(self, layer: int, H: Any, key: int | None = None) -> Tensor:
        if H is self.features:
            H = H.dense() if isinstance(H, Bag) else H
            if self._known.fetched is None or not self._preaggregate:
                self._known.fetched = self._halo_of_features().forward(layer, H)()
            own, there = self.drop(H, key), self._mask(self.part.halo, H.shape[1], key)
            return torch.cat([own, self._known.fetched if there is None else self._known.fetched * there])
        masks = self._mask(self.part.vertices, H.shape[1], key), self._mask(self.part.halo, H.shape[1], key)
        return _Extend.apply(H, self, layer, masks)

    @property
    def edges(self) -> AttentionEdges:
        if self._known.edges is None:
            self._known.edges = attention_edges(self.part, self._masks.device, self._masks.dtype)
        return self._known.edges

    def _of_features(self, X: Any) -> Any:
        known = self._known
        if known.summed is None or not self._preaggregate:
            if isinstance(X, Bag):
                known.summed = X.summed(self.part, self._group)
            else:
                known.summed = _gathered(self, self._halo_of_features(), 0, X, (None, None))
        return known.summed

    def _halo_of_features(self) -> Halo:
        """The halo of constant features. They are fetched once and used in every epoch, so they are neither late nor
        quantised, whatever other rows are."""
        if not self._preaggregate:
            return self.halo
        return Exact(Routes(self.part, self._group, Clock(), kind="setup"), Clock(), overlap=False)

    def _mask(self, vertices: Any, width: int, key: int | None) -> Tensor | None:
        if key is None or not self.training:
            return None
        return self._masks(vertices, width, epoch=self.epoch, key=key)


def _gathered(
    graph: PartGraph, halo: Halo, layer: int, H: Tensor, masks: tuple[Tensor | None, Tensor | None]
) -> Tensor:
    """The sum over inner edges while halo rows travel, then over the other edges."""
    part, (mine, theirs) = graph.part, masks
    pending = halo.forward(layer, H)
    X = H if mine is None else H * mine
    Z = part.inner(X)
    if part.own_scale is not None:
        Z += X * part.own_scale[:, None]
    rows = pending()
    return part.outer.add_to(Z, rows if theirs is None else rows * theirs)


class _Gather(torch.autograd.Function):
    """Z = A_inner drop(H) + A_outer drop(halo); backward, the halo's gradients travel
    while the inner ones are summed."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, graph: PartGraph, layer: int, masks: tuple[Any, Any]) -> Tensor:
        ctx.graph, ctx.layer, ctx.masks = graph, layer, masks
        return _gathered(graph, graph.halo, layer, H.detach(), masks)

    @staticmethod
    def backward(ctx: Any, dZ: Tensor) -> tuple[Tensor, None, None, None]:
        graph, (mine, theirs), part = ctx.graph, ctx.masks, ctx.graph.part
        dZ = dZ.contiguous()
        dHalo = part.outer.transposed(dZ)
        pending = graph.halo.backward(ctx.layer, dHalo if theirs is None else dHalo * theirs)
        dX = part.inner.transposed(dZ)
        if part.own_scale is not None:
            dX += dZ * part.own_scale[:, None]
        return (dX if mine is None else dX * mine) + pending(), None, None, None


class _Extend(torch.autograd.Function):
    """[drop(H); drop(halo)]."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, graph: PartGraph, layer: int, masks: tuple[Any, Any]) -> Tensor:
        ctx.graph, ctx.layer, ctx.masks = graph, layer, masks
        mine, theirs = masks
        rows = graph.halo.forward(layer, H.detach())()
        return torch.cat([H if mine is None else H * mine, rows if theirs is None else rows * theirs])

    @staticmethod
    def backward(ctx: Any, dRows: Tensor) -> tuple[Tensor, None, None, None]:
        graph, (mine, theirs) = ctx.graph, ctx.masks
        dX, dHalo = dRows[: graph.num_inner], dRows[graph.num_inner :].contiguous()
        pending = graph.halo.backward(ctx.layer, dHalo if theirs is None else dHalo * theirs)
        return (dX if mine is None else dX * mine) + pending(), None, None, None


def attention_edges(part: Part, device: torch.device, dtype: torch.dtype) -> AttentionEdges:
    """Edges of inner vertices by target: in-edges from inner and halo vertices, and an edge from each vertex to
    itself."""
    n = part.num_inner
    source, target, weight = with_loops(n, ((part.inner.edges, 0), (part.outer.edges, n)))
    everybody = np.concatenate([part.vertices, part.halo])
    return AttentionEdges(
        torch.from_numpy(source).to(device),
        torch.from_numpy(target).to(device),
        None if part.inner.edges.weight is None else torch.from_numpy(weight).to(device, dtype),
        (everybody[source], everybody[target]),
        n,
        len(everybody),
    )
