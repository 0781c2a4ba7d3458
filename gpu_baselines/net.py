"""Models as torch modules, over any ``Graph``: GCN, GraphSAGE, GAT and GCNII with
siafu's names, first weights and masks.

A net is a list of layers, so that a pipeline can give each stage some of them; ``layer(graph, H)`` is one. Rows go
between ranks before dropout, and every copy is dropped alike. In float64, without lateness and quantising, a net has
the losses of ``siafu train --mode pipe`` to rounding: its formulas are those of ``siafu.models``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_baselines.graph import Graph
from siafu.errors import ConfigError
from siafu.models import ModelSpec
from siafu.models import build as build_model
from siafu.table import loaded

#: Model -> its layers here.
LAYERS = {
    "gcn": "gpu_baselines.layers.convolution:layers",
    "sage": "gpu_baselines.layers.convolution:layers",
    "gcnii": "gpu_baselines.layers.gcnii:layers",
    "gat": "gpu_baselines.layers.gat:layers",
}
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "tanh": torch.tanh,
    "elu": functional.elu,
}

#: Sums over all vertices of all ranks, differentiable: what SyncBN asks for. None: layers normalise as siafu's do.
Summed = Callable[[Tensor], Tensor]


class Layer(nn.Module):
    """One step of a net. ``state`` passes values between layers besides H, such as GCNII's first representation."""

    def __init__(self, number: int, parameters: Mapping[str, Tensor]):
        """parameters: all of the net's; the layer's own have names that begin with its number."""
        super().__init__()
        self.number = number
        mine = {name.partition(".")[2]: W for name, W in parameters.items() if int(name.partition(".")[0]) == number}
        self.weights = nn.ParameterDict({name: nn.Parameter(W) for name, W in mine.items()})

    def forward(self, graph: Graph, H: Any, state: dict[str, Tensor]) -> Tensor:
        raise NotImplementedError


class Net(nn.Module):
    """All layers, or those of one stage."""

    def __init__(self, spec: ModelSpec, layers: list[Layer]):
        super().__init__()
        self.spec = spec
        self.layers = nn.ModuleList(layers)

    def forward(self, graph: Graph, X: Any) -> Tensor:
        """Logits [n, C] of the graph's own vertices; X their features: a tensor [n, F] or a Bag."""
        H, state = X, dict[str, Tensor]()
        for layer in self.layers:
            H = layer(graph, H, state)
        return H

    def weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """Weights by siafu's names, on the host; with the statistics of SyncBN, if layers have them."""
        return {name: W.detach().cpu().numpy().copy() for name, W in [*self.named(), *self._statistics()]}

    def named(self) -> list[tuple[str, nn.Parameter]]:
        """Parameters by siafu's names, in one order on every rank."""
        layers: list[Any] = list(self.layers)
        return sorted((f"{layer.number}.{name}", W) for layer in layers for name, W in layer.weights.items())

    def load(self, weights: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, W in [*self.named(), *self._statistics()]:
                W.copy_(torch.from_numpy(np.asarray(weights[name])))

    def _statistics(self) -> list[tuple[str, Tensor]]:
        """Values that layers keep and no gradient changes."""
        layers: list[Any] = list(self.layers)
        return [(f"{layer.number}.{name}", value) for layer in layers for name, value in layer.named_buffers()]


def build(
    spec: ModelSpec,
    device: torch.device,
    *,
    batch_norm: BatchNorm | None = None,
    num_linear: int = 0,
    weights: Mapping[str, Any] | None = None,
) -> Net:
    """The net with siafu's first weights, or those given. ``batch_norm``: of hidden layers. ``num_linear``: number of
    last layers without neighbours, PipeGCN's ``n_linear``.

    Raises: ConfigError for a model without layers here, or for options that its layers lack.
    """
    if spec.name not in LAYERS:
        raise ConfigError(f"model.name = {spec.name}: baselines have {', '.join(LAYERS)}")
    if spec.jump != "none":
        raise ConfigError(f"model.jump = {spec.jump}: baselines have none")
    first = dict(build_model(spec).init() if weights is None else weights)
    if batch_norm is not None:
        if spec.norm != "none" or spec.name not in ("gcn", "sage"):
            raise ConfigError("baseline.norm = batch: is for gcn and sage without model.norm")
        for layer, width in enumerate(spec.widths):
            first.setdefault(f"{layer}.gain", np.ones(width, spec.dtype))
            first.setdefault(f"{layer}.shift", np.zeros(width, spec.dtype))
    if num_linear:
        _make_linear(spec, first, num_linear)
    parameters = {name: torch.from_numpy(np.array(W)).to(device) for name, W in first.items()}
    layers: list[Layer] = loaded(LAYERS[spec.name])(spec, parameters, batch_norm)
    return Net(spec, layers)


def _make_linear(spec: ModelSpec, weights: dict[str, Any], count: int) -> None:
    """The last ``count`` layers have one matrix, "linear", in place of those of summed rows and of a vertex's own."""
    if spec.name not in ("gcn", "sage"):
        raise ConfigError("baseline.num_linear: is for gcn and sage")
    if count >= spec.num_layers:
        raise ConfigError(f"baseline.num_linear = {count}: must be < {spec.num_layers}, the number of layers")
    for layer in range(spec.num_layers - count, spec.num_layers):
        weights.pop(f"{layer}.neighbour", None)
        weights[f"{layer}.linear"] = weights.pop(f"{layer}.self" if spec.name == "sage" else f"{layer}.weight")


class BatchNorm:
    """Ioffe & Szegedy 2015 over the vertices of all ranks ("SyncBN").

    Training uses the epoch's mean and variance of the whole graph, evaluation a running average of both, as in
    PipeGCN's code (module/sync_bn.py) and torch's BatchNorm: ``MOMENTUM`` of the new and the rest of the old, from 0
    and 1.

    ``num_vertices`` vertices of all ranks count; of this rank, its ``rows``, None for all. Inductive training must not
    learn from other vertices.
    """

    MOMENTUM = 0.1

    def __init__(self, summed: Summed, num_vertices: int, rows: Tensor | None = None, eps: float = 1e-5):
        self._summed, self._count, self._rows, self._eps = summed, num_vertices, rows, eps

    def __call__(self, P: Tensor, gain: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Normalises in an epoch of training. Updates the running ``mean`` and ``variance`` [F] in place."""
        now = self._mean(P)
        centred = P - now
        spread = self._mean(centred**2)
        mean.lerp_(now.detach(), self.MOMENTUM)
        variance.lerp_(spread.detach(), self.MOMENTUM)
        return centred * torch.rsqrt(spread + self._eps) * gain + shift

    def evaluated(self, P: Tensor, gain: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return (P - mean) * torch.rsqrt(variance + self._eps) * gain + shift

    def _mean(self, X: Tensor) -> Tensor:
        """The mean over the counted vertices of all ranks, [F]."""
        counted = X if self._rows is None else X[self._rows]
        return self._summed(counted.sum(0)) / self._count
