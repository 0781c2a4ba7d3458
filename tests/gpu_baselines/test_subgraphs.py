"""Partitions by themselves and put together again, against the graph that they were cut from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_baselines.group import Group
from gpu_baselines.masks import Masks
from gpu_baselines.run import Run
from gpu_baselines.subgraphs import Subgraphs, merged_part
from siafu.graph import Graph, tidy
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import SparseRows
from siafu.tasks import Lane
from tests import reference
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.training import config_of, prepared
from tests.toy_graphs import random_graph, with_sparse_features

CPU, FLOAT = torch.device("cpu"), torch.float64
GRAPHS = {
    "directed, weighted": random_graph(1),
    "undirected": random_graph(2, directed=False, weighted=False),
    "bags of words": with_sparse_features(random_graph(3)),
}
PARTS = 5
BATCHES = [[0], [4], [1, 3], [0, 2, 3], [0, 1, 2, 3, 4]]


def induced(graph: Graph, vertices: Any) -> Graph:
    """The graph of these vertices alone, in their order."""
    place = np.full(graph.num_vertices, -1)
    place[vertices] = np.arange(len(vertices))
    inside = (place[graph.src] >= 0) & (place[graph.dst] >= 0)
    features: Any = graph.features.dense() if isinstance(graph.features, SparseRows) else graph.features
    return Graph(
        name=f"{graph.name}-inside",
        num_vertices=len(vertices),
        src=place[graph.src[inside]],
        dst=place[graph.dst[inside]],
        weight=None if graph.weight is None else graph.weight[inside],
        features=features[vertices],
        labels=graph.labels[vertices],
        num_classes=graph.num_classes,
        split=graph.split[vertices],
        directed=graph.directed,
    )


MODELS = {"gcn": "gcn", "mean": "sage"}  # by their aggregation


def run_of(shards: ShardSet, aggregation: str, group: Group) -> Run:
    config = config_of("cluster", 1, baseline__subgraphs=PARTS, model__name=MODELS[aggregation])
    return Run(config, shards, group, ModelSpec.of(config, shards.manifest), CPU)


@pytest.mark.parametrize("aggregation", ["gcn", "mean"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_batch_has_its_own_edges_and_degrees(graph: Graph, aggregation: str, tmp_path: Path) -> None:
    shards, whole = prepared(graph, tmp_path, PARTS), tidy(graph, directed=graph.directed)

    def check(group: Group) -> int:
        edges = 0
        subgraphs = Subgraphs(run_of(shards, aggregation, group), Masks(0.0, 0, CPU, FLOAT))
        for numbers in BATCHES:
            one = subgraphs.batch(np.array(numbers))
            inside = induced(whole, one.part.vertices)
            A = reference.propagation(inside, aggregation).toarray()
            H = torch.from_numpy(np.random.default_rng(0).normal(size=(one.num_inner, 3))).requires_grad_()
            D = torch.from_numpy(np.random.default_rng(1).normal(size=(one.num_inner, 3)))
            Z = one.gather(1, H)
            Z.backward(D)
            assert H.grad is not None
            assert np.allclose(Z.detach().numpy(), A @ H.detach().numpy(), rtol=0, atol=1e-12)
            assert np.allclose(H.grad.numpy(), A.T @ D.numpy(), rtol=0, atol=1e-12)
            first = one.gather(0, one.features)
            first = first if isinstance(first, torch.Tensor) else first.dense()
            assert group.traffic.by_kind() == {}
            assert np.allclose(first.numpy(), A @ reference.features(inside), rtol=0, atol=1e-12)
            assert np.array_equal(one.part.labels.numpy(), whole.labels[one.part.vertices])
            assert np.array_equal(one.part.split, whole.split[one.part.vertices, 0])
            assert one.gather(0, one.features) is one.gather(0, one.features)  # made once
            edges += len(inside.src)
        return edges

    assert on_ranks(1, check)[0] > 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("aggregation", ["gcn", "mean"])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_merged_partitions_are_the_graph(graph: Graph, ranks: int, aggregation: str, tmp_path: Path) -> None:
    """Rows of A, as one matrix over global ids."""
    shards, whole = prepared(graph, tmp_path, PARTS), tidy(graph, directed=graph.directed)
    A = reference.propagation(whole, aggregation).toarray()

    def check(group: Group) -> int:
        part = merged_part(run_of(shards, aggregation, group))
        found = np.zeros((part.num_inner, whole.num_vertices))
        found[:, part.vertices] = part.inner(torch.eye(part.num_inner, dtype=FLOAT)).numpy()
        found[:, part.halo] = part.outer(torch.eye(part.num_halo, dtype=FLOAT)).numpy()
        if part.own_scale is not None:
            found[np.arange(part.num_inner), part.vertices] += part.own_scale.numpy()
        assert np.allclose(found, A[part.vertices], rtol=0, atol=1e-12)
        rows: Any = part.features.dense() if isinstance(part.features, SparseRows) else part.features
        assert np.array_equal(rows, reference.features(whole)[part.vertices].astype(np.float32))
        assert np.array_equal(part.labels.numpy(), whole.labels[part.vertices])
        assert [len(index) for index in part.given] == [row[group.rank] for row in group.share(part.wanted)]
        if group.size == 1:
            assert part.num_halo == 0
        for row in range(part.num_inner):
            edges = part.inner.edges
            columns = edges.indices[edges.indptr[row] : edges.indptr[row + 1]]
            assert (np.diff(columns) > 0).all()
        return part.num_inner

    assert sum(on_ranks(ranks, check)) == whole.num_vertices


def test_merged_partitions_keep_the_edges_among_training_vertices_apart(tmp_path: Path) -> None:
    graph = random_graph(5, weighted=False)
    shards, whole = prepared(graph, tmp_path, PARTS, inductive=0), tidy(graph, directed=True)
    trained = whole.split[:, 0] == 1
    inside = trained[whole.src] & trained[whole.dst]

    def check(group: Group) -> int:
        part = merged_part(run_of(shards, "mean", group), Lane.TRAIN)
        found = np.zeros((whole.num_vertices, whole.num_vertices))
        found[np.ix_(part.vertices, part.vertices)] = part.inner(torch.eye(part.num_inner, dtype=FLOAT)).numpy()
        wanted = np.zeros_like(found)
        wanted[whole.dst[inside], whole.src[inside]] = 1
        wanted /= np.maximum(wanted.sum(1, keepdims=True), 1)
        assert np.allclose(found, wanted, rtol=0, atol=1e-12)
        return int(found.sum())

    assert on_ranks(1, check)[0] > 0
