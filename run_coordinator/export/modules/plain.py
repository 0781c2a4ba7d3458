"""Convolutions in plain torch. They are called as PyTorch Geometric's, and their weights have the same names.

x [N, F]; edge_index int64 [2, E]: row 0 sources, row 1 targets; edge_weight [E] or None: all 1. Edges are expected
without loops of a vertex to itself: convolutions that need those add them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def spread(x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
    """Each vertex's sum of weight * x[source] over its in-edges."""
    source, target = edge_index[0], edge_index[1]
    if torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export():  # ONNX has no sparse matrices
        places = target[:, None].expand(-1, x.shape[1])
        return torch.zeros_like(x).scatter_add(0, places, weight[:, None] * x[source])
    shape = (x.shape[0], x.shape[0])
    return torch.sparse_coo_tensor(torch.stack([target, source]), weight, shape, check_invariants=False) @ x


def ones(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    """The weights of the edges."""
    return torch.ones_like(edge_index[0], dtype=x.dtype) if edge_weight is None else edge_weight.to(x.dtype)


def into(x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
    """The sum of the weights of each vertex's in-edges, [N]."""
    return torch.zeros_like(x[:, 0]).scatter_add(0, edge_index[1], weight)


def symmetric(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 x, D of A + I."""
    weight = ones(x, edge_index, edge_weight)
    scale = (into(x, edge_index, weight) + 1).rsqrt()  # [N]
    return spread(x * scale[:, None], edge_index, weight) * scale[:, None] + x * (scale * scale)[:, None]


class GCNConv(nn.Module):
    def __init__(self, fan_in: int, fan_out: int, bias: bool = True):
        super().__init__()
        self.lin = nn.Linear(fan_in, fan_out, bias=False)
        self.bias = nn.Parameter(torch.zeros(fan_out)) if bias else None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = symmetric(self.lin(x), edge_index, edge_weight)
        return x if self.bias is None else x + self.bias


class SAGEConv(nn.Module):
    def __init__(self, fan_in: int, fan_out: int, bias: bool = True):
        super().__init__()
        self.lin_l, self.lin_r = nn.Linear(fan_in, fan_out, bias), nn.Linear(fan_in, fan_out, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = ones(x, edge_index, edge_weight)
        total = into(x, edge_index, weight)  # 0 where nothing is summed
        mean = spread(x, edge_index, weight) / torch.where(total > 0, total, 1)[:, None]
        found: Tensor = self.lin_l(mean) + self.lin_r(x)
        return found


class GINConv(nn.Module):
    def __init__(self, nn_: nn.Module, eps: float = 0.0, train_eps: bool = False):
        super().__init__()
        self.nn, self.eps = nn_, nn.Parameter(torch.full((1,), eps), requires_grad=train_eps)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        found: Tensor = self.nn(spread(x, edge_index, ones(x, edge_index, edge_weight)) + (1 + self.eps) * x)
        return found


class GATConv(nn.Module):
    def __init__(
        self,
        fan_in: int,
        width: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        bias: bool = True,
    ):
        super().__init__()
        self.heads, self.width, self.concat, self.slope = heads, width, concat, negative_slope
        self.lin = nn.Linear(fan_in, heads * width, bias=False)
        self.att_src, self.att_dst = (nn.Parameter(torch.empty(1, heads, width)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(heads * width if concat else width)) if bias else None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        rows = self.lin(x).view(-1, self.heads, self.width)  # [N, K, D]
        s, t = (rows * self.att_src).sum(-1), (rows * self.att_dst).sum(-1)  # [N, K]
        source, target = edge_index[0], edge_index[1]
        own = nn.functional.leaky_relu(s + t, self.slope)  # [N, K]: of the vertex and itself
        e = nn.functional.leaky_relu(s[source] + t[target], self.slope)  # [E, K]
        places = target[:, None].expand(-1, self.heads)
        top = own.scatter_reduce(0, places, e, "amax")
        alpha = (e - top[target]).exp() * ones(x, edge_index, edge_weight)[:, None]
        own = (own - top).exp()
        total = own.scatter_add(0, places, alpha)
        found = torch.stack(
            [  # by head, so that no row per edge is made
                (spread(rows[:, k], edge_index, alpha[:, k]) + own[:, k, None] * rows[:, k]) / total[:, k, None]
                for k in range(self.heads)
            ],
            1,
        )
        found = found.flatten(1) if self.concat else found.mean(1)
        return found if self.bias is None else found + self.bias


class GCN2Conv(nn.Module):
    def __init__(self, width: int, alpha: float, theta: float, layer: int):
        super().__init__()
        self.alpha, self.beta = alpha, float(torch.tensor(theta / layer + 1, dtype=torch.float64).log())
        self.weight1 = nn.Parameter(torch.empty(width, width))

    def forward(self, x: Tensor, initial: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = (1 - self.alpha) * symmetric(x, edge_index, edge_weight) + self.alpha * initial
        return (1 - self.beta) * x + self.beta * (x @ self.weight1)


class APPNP(nn.Module):
    def __init__(self, hops: int, alpha: float):
        super().__init__()
        self.hops, self.alpha = hops, alpha

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        initial = x
        for _ in range(self.hops):
            x = (1 - self.alpha) * symmetric(x, edge_index, edge_weight) + self.alpha * initial
        return x


class SGConv(nn.Module):
    def __init__(self, fan_in: int, fan_out: int, hops: int, bias: bool = True):
        super().__init__()
        self.hops, self.lin = hops, nn.Linear(fan_in, fan_out, bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = nn.functional.linear(x, self.lin.weight)  # first: fewer columns are spread
        for _ in range(self.hops):
            x = symmetric(x, edge_index, edge_weight)
        return x if self.lin.bias is None else x + self.lin.bias


class RGCNConv(nn.Module):
    def __init__(self, fan_in: int, fan_out: int, relations: int, num_bases: int | None = None, bias: bool = True):
        super().__init__()
        self.relations = relations
        self.weight = nn.Parameter(torch.empty(num_bases or relations, fan_in, fan_out))
        self.comp = nn.Parameter(torch.empty(relations, num_bases)) if num_bases else None
        self.root = nn.Parameter(torch.empty(fan_in, fan_out))
        self.bias = nn.Parameter(torch.zeros(fan_out)) if bias else None

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        given = ones(x, edge_index, edge_weight)
        weights = self.weight if self.comp is None else torch.einsum("rb,bio->rio", self.comp, self.weight)
        found = x @ self.root
        for relation in range(self.relations):
            weight = given * (edge_type == relation)
            total = into(x, edge_index, weight)
            found = found + spread(
                x @ weights[relation], edge_index, weight / torch.where(total > 0, total, 1)[edge_index[1]]
            )
        return found if self.bias is None else found + self.bias
