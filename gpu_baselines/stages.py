"""A rank's place in a pipeline of layers, and its links to the stages before and after."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

import torch
from torch import Tensor

from gpu_baselines.group import Group
from gpu_baselines.halos.halo import Channel
from gpu_baselines.run import Run
from gpu_baselines.schedule import Way, split
from siafu.errors import ConfigError


class Place:
    """A rank's place. Stage s = rank // groups: a stage's ranks are adjacent, so that a machine's ranks share a
    stage."""

    def __init__(self, run: Run):
        """Collective. Raises: ConfigError for more stages than layers."""
        rank, self.groups, spec = run.group.rank, run.baseline.groups, run.spec
        self.num_stages = run.group.size // self.groups
        self.stage, self.member = divmod(rank, self.groups)
        self.first, self.last = self.stage == 0, self.stage == self.num_stages - 1
        self.before, self.after = rank - self.groups, rank + self.groups  # of the same share of the chunks
        if spec.num_layers < self.num_stages:
            raise ConfigError(
                f"baseline.ranks = {run.group.size}: {self.num_stages} stages, {spec.name} has "
                f"{spec.num_layers} layers to share out"
            )
        deep = spec.name == "gcnii"  # has a dense layer at either end
        self.layers = split(spec.num_layers + 2 * deep, self.num_stages, int(deep))
        self.copies = 1 + deep  # tensors of a chunk between stages: GCNII's first representation goes along
        widths = [spec.widths[0 if deep else layers.stop - 1] for layers in self.layers[:-1]]
        self.width_in = 0 if self.first else widths[self.stage - 1]
        self.width_out = 0 if self.last else widths[self.stage]
        self.group = run.group.subgroup(range(self.stage * self.groups, (self.stage + 1) * self.groups))


class Links:
    """The links to the stages before and after, with a thread each, so that rows travel while others are computed.

    On a link an epoch's rows come first, chunk after chunk, then their gradients in reverse: both ends
    have the same order, and wait for nothing else. Links take turns with two sets of connections: a
    rank's two threads never share one.
    """

    def __init__(self, run: Run, place: Place):
        """Collective."""
        self._run, self._place = run, place
        twins = [run.group.twin(), run.group.twin()] if place.num_stages > 1 else []
        self._ends: dict[str, tuple[Group, int, Channel]] = {}
        if not place.first:
            self._ends["before"] = twins[(place.stage - 1) % 2], place.before, Channel(run.device)
        if not place.last:
            self._ends["after"] = twins[place.stage % 2], place.after, Channel(run.device)
        self._coming: deque[Future[list[Tensor]]] = deque()
        self._going: list[Future[None]] = []

    def send(self, way: Way, tensors: Sequence[Tensor]) -> None:
        """Sends to the stage after, or, for backward, before. Returns at once; tensors must not be changed before
        ``settle``."""
        group, peer, channel = self._ends["after" if way == "forward" else "before"]
        self._going.append(
            channel.submit(partial(_send, group, peer, way, [tensor for tensor in tensors if len(tensor)]))
        )

    def expect(self, way: Way, counts: Sequence[int]) -> None:
        """Expects chunks of ``counts`` rows, one after the other. Before, all that this rank sends in that direction
        must have been given to ``send``."""
        group, peer, channel = self._ends["before" if way == "forward" else "after"]
        width = self._place.width_in if way == "forward" else self._place.width_out
        for count in counts:
            tensors = empty(self._run, self._place.copies, count, width)  # here, on the stream that will use them
            self._coming.append(channel.submit(partial(_receive, group, peer, tensors)))

    def receive(self) -> list[Tensor]:
        """The next expected chunk: [n, F] each."""
        with self._run.clock("communicate"):
            return self._coming.popleft().result()

    def settle(self) -> None:
        """Waits until all is sent."""
        with self._run.clock("communicate"):
            for sent in self._going:
                sent.result()
        self._going.clear()

    def close(self) -> None:
        for _, _, channel in self._ends.values():
            channel.close()


def empty(run: Run, copies: int, count: int, width: int) -> list[Tensor]:
    return [torch.empty(count, width, dtype=run.dtype, device=run.device) for _ in range(copies)]


def _send(group: Group, peer: int, kind: str, tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        group.send(tensor, peer, kind)


def _receive(group: Group, peer: int, tensors: list[Tensor]) -> list[Tensor]:
    for tensor in tensors:
        if len(tensor):
            group.receive(tensor, peer)
    return tensors
