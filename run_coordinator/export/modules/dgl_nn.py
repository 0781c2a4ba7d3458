"""Convolutions of DGL, called with rows and a graph, whose edges may have data "weight" and, of relations, "type".

A vertex is put into its own neighbourhood here, and GCNConv's coefficients are computed here. Where DGL normalises
itself (GCN2Conv, APPNP, SGConv) it takes out-degrees too, which are the same where each edge has its reverse.
"""

from __future__ import annotations

from typing import Any

import dgl
import torch
from dgl.nn.pytorch import APPNPConv, GraphConv
from dgl.nn.pytorch import GATConv as Attention
from dgl.nn.pytorch import GCN2Conv as InitialResidual
from dgl.nn.pytorch import GINConv as Isomorphism
from dgl.nn.pytorch import RelGraphConv as Relational
from dgl.nn.pytorch import SAGEConv as Sage
from dgl.nn.pytorch import SGConv as Simple
from torch import Tensor, nn


def looped(graph: Any, x: Tensor) -> tuple[Any, Tensor]:
    """The graph with an edge of each vertex to itself, and the weights of all edges."""
    source, target = graph.edges()
    weight = graph.edata["weight"] if "weight" in graph.edata else torch.ones(len(source))
    found = dgl.add_self_loop(dgl.graph((source, target), num_nodes=graph.num_nodes()))
    return found, torch.cat([weight.to(x.dtype), torch.ones(graph.num_nodes(), dtype=x.dtype)])


def symmetric(graph: Any, x: Tensor) -> tuple[Any, Tensor]:
    """The graph with self-loops, and each edge's entry of D^-1/2 (A + I) D^-1/2; D counts in-edges."""
    found, weight = looped(graph, x)
    source, target = found.edges()
    scale = torch.zeros(graph.num_nodes(), dtype=x.dtype).index_add(0, target, weight).rsqrt()
    return found, scale[source] * weight * scale[target]


class GCNConv(GraphConv):  # type: ignore[misc]
    def __init__(self, fan_in: int, fan_out: int, bias: bool = True):
        super().__init__(fan_in, fan_out, norm="none", bias=bias)

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        found, weight = symmetric(graph, x)
        rows: Tensor = super().forward(found, x, edge_weight=weight)
        return rows


class SAGEConv(Sage):  # type: ignore[misc]
    def __init__(self, fan_in: int, fan_out: int, bias: bool = True):
        super().__init__(fan_in, fan_out, "mean", bias=bias)

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        found: Tensor = super().forward(graph, x)
        return found


class GINConv(Isomorphism):  # type: ignore[misc]
    def __init__(self, nn_: nn.Module, eps: float = 0.0, train_eps: bool = False):
        super().__init__(None, "sum", eps, train_eps)

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        found: Tensor = super().forward(graph, x)
        return found


class GATConv(Attention):  # type: ignore[misc]
    def __init__(
        self,
        fan_in: int,
        width: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        bias: bool = True,
    ):
        super().__init__(fan_in, width, heads, negative_slope=negative_slope, bias=bias)
        self.concat = concat

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        found: Tensor = super().forward(dgl.add_self_loop(graph), x)  # [N, heads, width]
        return found.flatten(1) if self.concat else found.mean(1)


class GCN2Conv(InitialResidual):  # type: ignore[misc]
    def __init__(self, width: int, alpha: float, theta: float, layer: int):
        super().__init__(width, layer, alpha, theta, bias=False)

    def forward(self, x: Tensor, initial: Tensor, graph: Any) -> Tensor:
        found, weight = looped(graph, x)
        rows: Tensor = super().forward(found, x, initial, edge_weight=weight)
        return rows


class APPNP(APPNPConv):  # type: ignore[misc]
    def forward(self, x: Tensor, graph: Any) -> Tensor:
        found, weight = looped(graph, x)
        rows: Tensor = super().forward(found, x, edge_weight=weight)
        return rows


class SGConv(Simple):  # type: ignore[misc]
    def __init__(self, fan_in: int, fan_out: int, hops: int, bias: bool = True):
        super().__init__(fan_in, fan_out, hops, bias=bias)

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        found, weight = looped(graph, x)
        rows: Tensor = super().forward(found, x, edge_weight=weight)
        return rows


class RGCNConv(Relational):  # type: ignore[misc]
    def __init__(self, fan_in: int, fan_out: int, relations: int, num_bases: int | None = None, bias: bool = True):
        super().__init__(fan_in, fan_out, relations, "basis" if num_bases else None, num_bases, bias=bias)
        self.relations = relations

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        kind = graph.edata["type"]
        groups = graph.edges()[1] * self.relations + kind  # in-edges of one relation are averaged
        counts = torch.bincount(groups, minlength=graph.num_nodes() * self.relations).to(x.dtype)
        found: Tensor = super().forward(graph, x, kind, norm=1 / counts[groups][:, None])
        return found
