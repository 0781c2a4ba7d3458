"""Which pairs AE is sent: both ends agree, a share of the pool is drawn, and rows are those of the other end."""

from __future__ import annotations

import numpy as np
import pytest

from graph_data.cut import shards_of
from graph_data.link_split import Shares, hold_out
from graph_server.buffers import PublishedSlot
from graph_server.operators import Setting, build
from graph_server.operators.pairs import Pairs
from siafu import models
from siafu.config import Config
from siafu.graph import TEST_NEGATIVE, TEST_PAIR, TRAIN_NEGATIVE, TRAIN_PAIR, VAL_NEGATIVE, VAL_PAIR, Graph, tidy
from siafu.models import ModelSpec
from siafu.models.link_prediction import TRUE
from siafu.shards import Shard
from siafu.sparse import EdgeRows
from siafu.tasks import Kind, Lane
from tests.graph_server.shards import base_vertices
from tests.toy_graphs import random_graph

NEGATIVES, WIDTH = 4, 3


@pytest.fixture(scope="module")
def graph() -> Graph:
    plain = tidy(random_graph(5, 120, num_edges=700, directed=False, weighted=False))
    return hold_out(plain, Shares(val=0.1, test=0.1, negatives=NEGATIVES, eval_negatives=6), seed=0)


def shards(graph: Graph, parts: int) -> list[Shard]:
    order = np.random.default_rng(3).permutation(graph.num_vertices)
    return list(shards_of(graph, np.array_split(order, parts), "links"))


def sent(shard: Shard, lane: Lane, epoch: int) -> tuple[Pairs, dict[str, EdgeRows]]:
    """Edge rows of a whole partition, whose published rows are the vertices' numbers."""
    spec = ModelSpec("gcn", 7, WIDTH, 1, target="links", negatives=NEGATIVES, dtype="float64")
    model = models.build(spec)
    operator = build("pairs", Setting(Config().replace({"model.dtype": "float64"}), model, shard, lane, threads=1))
    assert isinstance(operator, Pairs)
    publish, score = (
        next(s for s in model.program(lane).steps if s.operator == "pairs" and s.kind is kind)
        for kind in (Kind.SC, Kind.AE)
    )
    ids = base_vertices(shard, backward=False)
    slot = PublishedSlot(operator.store(publish, len(ids)), {0: slice(0, len(ids))})
    slot.write(0, epoch, np.repeat(ids[:, None], WIDTH, axis=1).astype(float))
    return operator, operator.edge_rows(score, slot, 0, len(shard.vertices), epoch, {})  # type: ignore[return-value]


def pairs_of(graph: Graph, parts: int, epoch: int) -> list[tuple[int, int, int]]:
    """(u, v, whether an edge) of every server's training pairs u -> v."""
    found = []
    for shard in shards(graph, parts):
        _, rows = sent(shard, Lane.TRAIN, epoch)
        v = np.repeat(shard.vertices, np.diff(rows["EH2"].indptr))
        np.testing.assert_array_equal(rows[TRUE].indptr, rows["EH2"].indptr)
        found += zip(rows["EH2"].each()[:, 0].astype(int), v, rows[TRUE].values[:, 0], strict=True)
    return sorted((int(u), int(v), int(true)) for u, v, true in found)


def of_type(graph: Graph, kind: int) -> set[tuple[int, int]]:
    mine = graph.edge_type == kind
    return set(zip(graph.src[mine].tolist(), graph.dst[mine].tolist(), strict=True))


def test_all_training_edges_and_a_share_of_the_pool_are_sent(graph: Graph):
    edges, pool = of_type(graph, TRAIN_PAIR), of_type(graph, TRAIN_NEGATIVE)
    drawn = []
    for epoch in range(6):
        found = pairs_of(graph, 1, epoch)
        assert {(u, v) for u, v, true in found if true} == edges
        false = {(u, v) for u, v, true in found if not true}
        assert false <= pool
        drawn.append(false)
    assert np.mean([len(false) for false in drawn]) == pytest.approx(len(edges), rel=0.05)
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("parts", [1, 3])
def test_both_ends_of_a_pair_agree_whoever_owns_them(graph: Graph, parts: int):
    found = pairs_of(graph, parts, 2)
    assert found == sorted((v, u, true) for u, v, true in found)
    assert found == pairs_of(graph, 1, 2)


def test_evaluation_is_sent_what_is_held_out(graph: Graph):
    shard, *_ = shards(graph, 1)
    operator, rows = sent(shard, Lane.EVAL, 0)
    kinds = operator.types(0, len(shard.vertices))
    v = np.repeat(shard.vertices, np.diff(rows["EH2"].indptr))
    u = rows["EH2"].each()[:, 0].astype(int)
    for kind in (VAL_PAIR, VAL_NEGATIVE, TEST_PAIR, TEST_NEGATIVE):
        mine = kinds.values[:, 0] == kind
        assert set(zip(u[mine].tolist(), v[mine].tolist(), strict=True)) == of_type(graph, kind)
    assert len(kinds.values) == len(u)


@pytest.mark.parametrize("lane", Lane)
def test_a_row_is_sent_once_however_many_pairs_it_is_in(graph: Graph, lane: Lane):
    shard, *_ = shards(graph, 2)
    rows = sent(shard, lane, 1)[1]["EH2"]
    assert rows.index is not None
    assert len(rows.values) == len(np.unique(rows.values[:, 0])) < rows.num_edges
