"""PipeGCN's equations on one machine, as a textbook would write them: dense matrices,
all parts in one process, no message.

What is late is a leaf whose gradient is kept; a gradient that comes late enters as the linear term <H, G> of the loss,
whose derivative by H is G. Averages are closed sums over all that came, not recursions. With the implementation it
shares the first weights, the dropout masks and Adam: those of ``tests.reference``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from siafu import ops
from siafu.graph import TRAIN, Graph
from siafu.models import ModelSpec
from siafu.sparse import Array
from tests import reference


class Lateness(NamedTuple):
    depth: int
    smooth: str = "none"
    gamma: float = 0.95
    correct: bool = False


def losses(
    graph: Graph, part: Array, spec: ModelSpec, late: Lateness, *, epochs: int, lr: float, weight_decay: float
) -> list[float]:
    """Of each epoch, before its step. part: the part of each vertex [N]."""
    weights, adam, machine = reference.first_weights(spec), reference.Adam(), Machine(graph, part, spec, late)
    found = []
    for _ in range(epochs):
        leaves = {name: torch.tensor(W, requires_grad=True) for name, W in weights.items()}
        found.append(machine.epoch(leaves))
        for name, W in leaves.items():
            gradient = np.zeros(W.shape) if W.grad is None else W.grad.numpy()
            weights[name] = adam.step(name, weights[name], gradient + weight_decay * weights[name], lr)
    return found


class Machine:
    def __init__(self, graph: Graph, part: Array, spec: ModelSpec, late: Lateness):
        A = torch.from_numpy(reference.propagation(graph, reference.AGGREGATE.get(spec.name, "gcn")).toarray())
        remote = torch.from_numpy(part[:, None] != part[None, :])
        self.inner, self.outer = A.where(~remote, 0.0), A.where(remote, 0.0)  # [N, N]
        self.graph, self.spec, self.late = graph, spec, late
        self.rows: dict[int, list[Tensor]] = {}  # by layer and epoch: H [N, F] before dropout
        self.gradients: dict[int, list[Tensor]] = {}  # dL/d(rows of halos), summed over halos
        self.now = 0

    def epoch(self, W: dict[str, Tensor]) -> float:
        leaves: dict[int, Tensor] = {}
        surrogate: list[Tensor] = []
        exact_start = self.late.correct and self.now < self.late.depth

        def gather(layer: int, H: Tensor, key: int) -> Tensor:
            self.rows.setdefault(layer, []).append(H.detach().clone())
            leaf = leaves[layer] = self._used("F", self.rows[layer], H).requires_grad_()
            if exact_start:
                leaf = H  # its gradient of today comes with it
            elif layer in self.gradients:
                surrogate.append((H * self._used("G", self.gradients[layer], H)).sum())
            return self.inner @ self.dropped(H, key) + self.outer @ self.dropped(leaf, key)

        logits = FORWARD[self.spec.name](self, W, gather)
        train = np.flatnonzero(self.graph.split[:, 0] == TRAIN)
        loss = functional.cross_entropy(logits[train], torch.from_numpy(self.graph.labels[train]))
        if exact_start:
            # What will be used later are gradients by halos alone: the same loss once more, with leaves.
            self._record(W, leaves)
        torch.stack([loss, *surrogate]).sum().backward()
        for layer, leaf in leaves.items():
            if not exact_start:
                assert leaf.grad is not None
                self.gradients.setdefault(layer, []).append(leaf.grad)
        self.now += 1
        return float(loss.detach())

    def _record(self, W: dict[str, Tensor], leaves: dict[int, Tensor]) -> None:
        halos: dict[int, Tensor] = {}

        def gather(layer: int, H: Tensor, key: int) -> Tensor:
            halos[layer] = torch.zeros_like(H, requires_grad=True)  # a change of the halo's rows
            return self.inner @ self.dropped(H, key) + self.outer @ self.dropped(H + halos[layer], key)

        logits = FORWARD[self.spec.name](self, W, gather)
        train = np.flatnonzero(self.graph.split[:, 0] == TRAIN)
        loss = functional.cross_entropy(logits[train], torch.from_numpy(self.graph.labels[train]))
        for layer, gradient in zip(halos, torch.autograd.grad(loss, list(halos.values())), strict=True):
            self.gradients.setdefault(layer, []).append(gradient)

    def _used(self, which: str, history: list[Tensor], like: Tensor) -> Tensor:
        """Of what was sent, up to epoch now - d."""
        late = self.late
        came = history[: max(0, self.now - late.depth + 1)]
        if not came:
            return torch.zeros_like(like)
        if which not in late.smooth:
            return came[-1].clone()
        weights = [(1 - late.gamma) * late.gamma**age for age in range(len(came))][::-1]
        total = torch.stack([w * one for w, one in zip(weights, came, strict=True)]).sum(0)
        return total / sum(weights) if late.correct else total

    def dropped(self, H: Tensor, key: int) -> Tensor:
        if not self.spec.dropout:
            return H
        like, ids = np.zeros(H.shape), np.arange(len(H))
        mask = ops.dropout_mask(like, self.spec.dropout, seed=self.spec.seed, epoch=self.now, layer=key, vertices=ids)
        assert mask is not None
        return H * torch.from_numpy(mask) / (1 - round(self.spec.dropout * 65536) / 65536)


Gather = Callable[[int, Tensor, int], Tensor]


def _convolution(machine: Machine, W: dict[str, Tensor], gather: Gather) -> Tensor:
    """GCN and GraphSAGE. The features' sum is constant: never late, and dropped after it was made."""
    sage = machine.spec.name == "sage"
    H = torch.from_numpy(reference.features(machine.graph))
    for layer in range(machine.spec.num_layers):
        if layer:
            Z, X = gather(layer, H, 1 + layer), machine.dropped(H, 1 + layer)
        else:
            Z, X = machine.dropped((machine.inner + machine.outer) @ H, int(sage)), machine.dropped(H, 0)
        P = Z @ W[f"{layer}.neighbour"] + X @ W[f"{layer}.self"] if sage else Z @ W[f"{layer}.weight"]
        P = P + W[f"{layer}.bias"]
        H = functional.relu(P)
    return P


def _gcnii(machine: Machine, W: dict[str, Tensor], gather: Gather) -> Tensor:
    """Here layer 0 sums what was learnt, and it is late like all others."""
    spec, count = machine.spec, machine.spec.num_layers
    R = H = functional.relu(
        machine.dropped(torch.from_numpy(reference.features(machine.graph)), 0) @ W["0.weight"] + W["0.bias"]
    )
    for number in range(1, count + 1):
        beta = float(np.log(spec.theta / number + 1))
        S = (1 - spec.alpha) * gather(number - 1, H, number) + spec.alpha * R
        H = functional.relu((1 - beta) * S + beta * S @ W[f"{number}.weight"])
    return machine.dropped(H, count + 1) @ W[f"{count + 1}.weight"] + W[f"{count + 1}.bias"]


FORWARD: dict[str, Callable[[Machine, dict[str, Tensor], Gather], Tensor]] = {
    "gcn": _convolution,
    "sage": _convolution,
    "gcnii": _gcnii,
}
