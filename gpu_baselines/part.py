"""One rank's part of the graph: its vertices and edges, and the owners of its halo rows.

The halo of a part is what siafu's shards call ghosts: the remote vertices that its vertices have an edge from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.adjacency import Adjacency, Outer, columns
from gpu_baselines.group import Group
from gpu_baselines.run import Run
from siafu import models
from siafu.graph import TRAIN
from siafu.ops import real
from siafu.shards import Edges, EdgeTypes, Shard
from siafu.sparse import Array, Rows, SparseRows
from siafu.tasks import Lane
from siafu.views import view


@dataclass(frozen=True, eq=False)
class Part:
    """n inner vertices and h halo vertices. Tensors are on the rank's device."""

    vertices: Array  # int64 [n], global ids, on the host: masks of dropout are made from them
    halo: Array  # int64 [h], global ids, by owner
    inner: Adjacency  # [n, n]
    outer: Outer  # [n, h]
    own_scale: Tensor | None  # [n], of a vertex's own row in its sum (gcn); None: it is not in it
    features: Rows  # [n, F], on the host, as in the shard
    labels: Tensor  # int64 [n], or [n, C] of numbers
    split: Array  # uint8 [n], of siafu.graph
    num_train: int  # training vertices of the whole graph
    wanted: list[int]  # halo rows that come from each rank, in the order of ``halo``
    given: list[Tensor]  # int64, inner rows that each rank wants, in the order in which it wants them

    @property
    def num_inner(self) -> int:
        return len(self.vertices)

    @property
    def num_halo(self) -> int:
        return len(self.halo)

    @property
    def train(self) -> Tensor:
        """Numbers of the inner rows that train, int64."""
        return torch.from_numpy(np.flatnonzero(self.split == TRAIN)).to(self.labels.device)


def load(run: Run, shard: Shard, lane: Lane, group: Group, edge_types: EdgeTypes) -> Part:
    """The part with which a rank of ``group`` trains (or evaluates: ``lane``). Collective."""
    shard = seen(shard, edge_types, lane)
    part = alone(run, shard)
    wanted = np.bincount(np.asarray(shard.ghosts_in_owner), minlength=group.size).tolist()
    return replace(part, wanted=wanted, given=_given(part.vertices, part.halo, wanted, group, run.device))


def seen(shard: Shard, edge_types: EdgeTypes, lane: Lane) -> Shard:
    """``siafu.views.view``, without ghosts that none of its edges uses: so their rows are never sent."""
    found = view(shard, edge_types, lane)
    if found is shard:
        return shard
    n = len(found.vertices)
    into, place = _mentioned(found.in_edges, n, len(found.ghosts_in))
    out, place_out = _mentioned(found.out_edges, n, len(found.ghosts_out))
    edges = replace(found.in_edges, indices=place[found.in_edges.indices])
    return replace(
        found,
        in_edges=edges,
        out_edges=edges if found.undirected else replace(found.out_edges, indices=place_out[found.out_edges.indices]),
        ghosts_in=np.asarray(found.ghosts_in)[into],
        ghosts_in_owner=np.asarray(found.ghosts_in_owner)[into],
        ghosts_out=np.asarray(found.ghosts_out)[out],
        ghosts_out_owner=np.asarray(found.ghosts_out_owner)[out],
        degree_ghosts_in=np.asarray(found.degree_ghosts_in)[into],
        degree_ghosts_out=np.asarray(found.degree_ghosts_out)[out],
        train_degree=None,
        train_degree_ghosts_in=None,
        train_degree_ghosts_out=None,
    )


def _mentioned(edges: Edges, n: int, ghosts: int) -> tuple[Array, Array]:
    """Whether edges use each ghost, bool [g]; and each column's new number without the unused ones, int32 [n + g]."""
    there = np.zeros(n + ghosts, bool)
    there[:n], there[np.asarray(edges.indices)] = True, True
    return there[n:], (np.cumsum(there) - 1).astype(np.int32)


def alone(run: Run, shard: Shard) -> Part:
    """The part of a shard without any exchange: ``wanted`` and ``given`` are empty."""
    n, halo, edges = len(shard.vertices), np.asarray(shard.ghosts_in), shard.in_edges
    end, degree = n + len(halo), np.concatenate([shard.degree, shard.degree_ghosts_in])
    scales = Scales.of(models.build(run.spec).aggregate, degree, n, run.device, run.dtype)
    inner, outer = columns(edges, 0, n), columns(edges, n, end)
    return Part(
        vertices=np.asarray(shard.vertices),
        halo=halo,
        inner=Adjacency(inner, n, scales.target, scales.source_of(0, n), run.threads),
        outer=Outer(outer, len(halo), scales.target, scales.source_of(n, end), run.threads),
        own_scale=scales.own,
        features=shard.features,
        labels=torch.from_numpy(np.array(shard.labels)).to(run.device),
        split=np.asarray(shard.split)[:, run.config.data.split],
        num_train=run.spec.num_train,
        wanted=[],
        given=[],
    )


@dataclass(frozen=True)
class Scales:
    """Factors of a_vu = target_v w_uv source_u, as in ``graph_server.aggregate``."""

    target: Tensor  # [n]
    source: Tensor | None  # [n + h]
    own: Tensor | None  # [n]

    @classmethod
    def of(
        cls,
        aggregation: str,
        degree: Array,
        n: int,
        device: torch.device,
        dtype: torch.dtype,
        stands_for: Array | float = 1.0,
    ) -> Scales:
        """Factors of a part. degree: float64 [n + h], weighted in-degrees in the whole graph. aggregation: "gcn" or
        "mean". stands_for: [n], how many of a target's edges each drawn edge stands for."""

        def made(values: Array) -> Tensor:
            return torch.from_numpy(values).to(device, dtype)

        if aggregation == "gcn":
            root = 1 / np.sqrt(degree + 1)
            return cls(made(root[:n] * stands_for), made(root), made(root[:n] ** 2))
        assert aggregation == "mean", aggregation
        return cls(made(stands_for / np.where(degree[:n] > 0, degree[:n], np.inf)), None, None)

    def source_of(self, start: int, stop: int) -> Tensor | None:
        return None if self.source is None else self.source[start:stop]


def _given(vertices: Array, halo: Array, wanted: list[int], group: Group, device: torch.device) -> list[Tensor]:
    """Rows of ours that each rank needs: every rank tells the owners of its halo which rows it needs."""
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(group.size)]
    group.exchange([torch.tensor([count]) for count in wanted], sizes, "setup")
    ids = torch.from_numpy(np.array(halo)).split(wanted)
    asked = [torch.zeros(0 if p == group.rank else int(size), dtype=torch.int64) for p, size in enumerate(sizes)]
    group.exchange(list(ids), asked, "setup")
    order = np.argsort(vertices, kind="stable")
    return [torch.from_numpy(order[np.searchsorted(vertices, one.numpy(), sorter=order)]).to(device) for one in asked]


def dense(rows: Rows, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Features as a tensor [n, F]; bags of words with their zeros."""
    host: Any = rows.dense() if isinstance(rows, SparseRows) else np.asarray(rows)
    return torch.from_numpy(np.array(real(host, np.dtype(str(dtype).removeprefix("torch."))))).to(device)
