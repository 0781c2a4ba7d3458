"""Attention on graph servers: how records lie and travel, one layer against arrays with a
row per edge, in both placements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_server.buffers import PublishedSlot
from graph_server.operators import Setting, build
from graph_server.operators.attention import RecordStore
from siafu import models, ops
from siafu.config import Config
from siafu.kernels import Records, to_bfloat16
from siafu.models import ModelSpec
from siafu.shards import Shard
from siafu.sparse import Array, EdgeRows
from siafu.tasks import Kind, Lane, Program, Step
from tests.graph_server.shards import base_vertices, cut
from tests.toy_graphs import random_graph

HEADS, WIDTH, EPOCH = 3, 4, 5
GRAPHS = {
    "directed, weighted": {},
    "undirected": {"directed": False, "weighted": False},
    "without edges": {"num_edges": 0},
}


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("place", [slice(2, 5), np.array([6, 0, 3])], ids=["slice", "rows"])
@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("num_scores", [1, 3])
def test_what_a_peer_pastes_it_reads_as_the_owner_does(num_scores, beside, place, dtype):
    ours, theirs = (store(dtype, num_scores, beside=own) for own in (beside, not beside))
    rows = np.random.default_rng(1).normal(size=(3, (WIDTH + num_scores) * HEADS)).astype(ours.records.real)
    ours.write(place, *apart(rows))
    cut = ours.cut(place)
    assert (cut.shape[1], cut.dtype) == ours.travelling
    theirs.paste(place, cut)
    np.testing.assert_array_equal(theirs.read(place), ours.read(place))
    np.testing.assert_array_equal(theirs.records.scores[place], ours.records.scores[place])
    others = np.setdiff1d(np.arange(7), np.arange(7)[place])
    assert not theirs.read(others).any()


@pytest.mark.parametrize("num_scores", [1, 3])
def test_rows_of_16_bits_keep_scores_of_32(num_scores):
    records = store("bfloat16", num_scores)
    rows = np.random.default_rng(2).normal(size=(7, (WIDTH + num_scores) * HEADS)).astype(np.float32)
    records.write(slice(None), *apart(rows))
    read = records.read(slice(None))
    columns = WIDTH * HEADS
    np.testing.assert_array_equal(to_bfloat16(read[:, :columns]), to_bfloat16(rows[:, :columns]))
    np.testing.assert_array_equal(read[:, columns:], rows[:, columns:])
    assert records.travelling == (columns + 2 * num_scores * HEADS, ops.BFLOAT16)


def apart(rows: Array) -> list[Array]:
    """Rows, and each of their scores, of rows that have them side by side."""
    return np.split(rows, range(WIDTH * HEADS, rows.shape[1], HEADS), axis=1)


def store(dtype: Any, num_scores: int, *, beside: bool = True) -> RecordStore:
    return RecordStore(Records(7, HEADS, WIDTH, num_scores=num_scores, dtype=dtype, beside=beside))


# --- one layer --------------------------------------------------------------------------------------------------------


def spec_of(**options: Any) -> ModelSpec:
    fixed = {"widths": (HEADS * WIDTH,), "heads": HEADS, "attn_dropout": 0.4, "dtype": "float64", "slope": 0.3}
    return ModelSpec("gat", 7, 4, 9, **{**fixed, **options})


class Layer:
    """Layer 0 on one of several servers: rows of all vertices are random, and every server publishes its own."""

    def __init__(self, shard: Shard, spec: ModelSpec, *, lane: Lane = Lane.TRAIN):
        self.shard, self.spec = shard, spec
        model = models.build(spec)
        self.program: Program = model.program(lane)
        config = Config().replace({"model.dtype": spec.dtype})
        self.operator = build("attention", Setting(config, model, shard, lane, 1))
        self.model, self.lane = model, lane
        self.n = len(shard.vertices)
        rng = np.random.default_rng(4)
        shape = shard.num_vertices, HEADS
        self.T, self.dZ = (rng.normal(size=(shard.num_vertices, HEADS * WIDTH)) for _ in range(2))
        self.s, self.t, self.log_total, self.delta = (rng.normal(size=shape) for _ in range(4))

    def slot(self, step: Step, *arrays: Array) -> PublishedSlot:
        """Published by everybody: inner vertices' rows and ghosts'."""
        base = base_vertices(self.shard, backward=step.backward)
        slot = PublishedSlot(self.operator.store(step, len(base)), {0: slice(0, len(base))})
        slot.write(0, EPOCH, *(array[base] for array in arrays))
        return slot

    def steps(self, *kinds: Kind) -> list[Step]:
        return [step for step in self.program.steps if step.kind in kinds and step.layer == 0]

    def own(self, array: Array) -> Array:
        return array[self.shard.vertices]

    def forward(self) -> dict[str, Array]:
        """Everything that GA, and AE before it, write."""
        (scatter,) = self.steps(Kind.SC)
        slot = self.slot(scatter, self.T, self.s)
        rows: dict[str, Any] = {"t0": self.own(self.t)}
        return self._walk(self.steps(Kind.AE, Kind.GA), slot, rows)

    def backward(self, alpha_of: tuple[Array, Array]) -> dict[str, Array]:
        """dT and ds, with t and log_total as they are given."""
        (scatter,) = self.steps(Kind.SC_B)
        t, log_total = alpha_of
        slot = self.slot(scatter, self.dZ, t, log_total, self.delta)
        rows: dict[str, Any] = {"T0": self.own(self.T), "s0": self.own(self.s)}
        return self._walk(self.steps(Kind.AE_B, Kind.GA_B), slot, rows)

    def _walk(self, steps: list[Step], slot: PublishedSlot, rows: dict[str, Any]) -> dict[str, Any]:
        for step in steps:
            if step.kind in (Kind.AE, Kind.AE_B):
                sent = {name: rows[name] for name in step.reads}
                sent |= self.operator.edge_rows(step, slot, 0, self.n, EPOCH, rows)
                assert not any(value.shape[1] == HEADS * WIDTH for value in sent.values())  # rows never leave
                rows |= self.model.run(step, sent, {}, epoch=EPOCH, lane=self.lane).rows
            else:
                rows |= self.operator.gather(step, slot, 0, self.n, EPOCH, rows)
        return rows


def edge_list(shards: list[Shard]) -> tuple[Array, Array, Array]:
    """Source, target and weight of every edge of the graph, and of one from each vertex to itself."""
    found = [(np.arange(shards[0].num_vertices),) * 2 + (np.ones(shards[0].num_vertices),)]
    for shard in shards:
        base, edges = base_vertices(shard, backward=False), shard.in_edges
        weight = np.ones(len(edges.indices)) if edges.weight is None else edges.weight.astype(np.float64)
        found.append((base[edges.indices], np.repeat(shard.vertices, np.diff(edges.indptr)), weight))
    src, dst, weight = (np.concatenate(column) for column in zip(*found, strict=True))
    return src, dst, weight


class Expected:
    """All vertices at once, with arrays of edges."""

    def __init__(self, shards: list[Shard], layer: Layer, *, drops: bool = True):
        self.layer, spec, (self.src, self.dst, weight) = layer, layer.spec, edge_list(shards)
        score = layer.t[self.dst] + layer.s[self.src]  # [E, K]
        self.slope = np.where(score < 0, spec.slope, 1.0)
        powers = weight[:, None] * np.exp(score * self.slope)
        total = self.sum_at(self.dst, powers)
        self.alpha, self.log_total = powers / total[self.dst], np.log(total)
        key = ops.edge_key(spec.seed, EPOCH, 0)
        self.mask = np.ones_like(powers)
        if drops:
            self.mask = ops.edge_dropout(self.src, self.dst, HEADS, spec.attn_dropout, key, np.float64)

    def sum_at(self, vertices: Array, values: Array) -> Array:
        out = np.zeros((self.layer.shard.num_vertices, *values.shape[1:]))
        np.add.at(out, vertices, values)
        return out

    def of(self, rows: Array) -> Array:
        return rows.reshape(len(rows), HEADS, WIDTH)

    def Z(self) -> Array:
        return self.sum_at(self.dst, (self.mask * self.alpha)[:, :, None] * self.of(self.layer.T)[self.src])

    def dT(self) -> Array:
        return self.sum_at(self.src, (self.mask * self.alpha)[:, :, None] * self.of(self.layer.dZ)[self.dst])

    def ds(self) -> Array:
        dot = (self.of(self.layer.T)[self.src] * self.of(self.layer.dZ)[self.dst]).sum(2)
        return self.sum_at(self.src, self.alpha * self.slope * (self.mask * dot - self.layer.delta[self.dst]))


@pytest.mark.parametrize("apply_edge", ["server", "lambda"])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_each_server_gathers_its_rows_of_the_whole(name, parts, apply_edge):
    shards = cut(random_graph(6, **GRAPHS[name]), parts)
    for shard in shards:
        layer = Layer(shard, spec_of(apply_edge=apply_edge))
        expected, made = Expected(shards, layer), layer.forward()
        close(made["Z0"], layer.own(expected.Z()).reshape(layer.n, -1))
        close(made["log_total0"], layer.own(expected.log_total))
        if apply_edge == "lambda":
            assert isinstance(made["Ea0"], EdgeRows)
            assert len(made["Ea0"].values) == len(shard.in_edges.indices) + layer.n


@pytest.mark.parametrize("apply_edge", ["server", "lambda"])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_each_server_pulls_back_the_gradients_of_its_rows(name, parts, apply_edge):
    shards = cut(random_graph(6, **GRAPHS[name]), parts)
    for shard in shards:
        layer = Layer(shard, spec_of(apply_edge=apply_edge))
        expected = Expected(shards, layer)
        made = layer.backward((layer.t, expected.log_total))
        close(made["dT0"], layer.own(expected.dT()).reshape(layer.n, -1))
        close(made["ds0"], layer.own(expected.ds()))


@pytest.mark.parametrize("apply_edge", ["server", "lambda"])
def test_evaluation_drops_no_coefficient_and_leaves_nothing_for_backward(apply_edge):
    shards = cut(random_graph(6), 2)
    layer = Layer(shards[1], spec_of(apply_edge=apply_edge), lane=Lane.EVAL)
    made = layer.forward()
    close(made["Z0"], layer.own(Expected(shards, layer, drops=False).Z()).reshape(layer.n, -1))
    assert not {"leaned0", "leaned_total0"} & made.keys()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-6)])
def test_both_placements_give_the_same_numbers(dtype, tolerance):
    shards = cut(random_graph(7, 60, num_edges=300), 2)
    here, there = (Layer(shards[0], spec_of(apply_edge=placement, dtype=dtype)) for placement in ("server", "lambda"))
    for layer in (here, there):
        for name in ("T", "dZ", "s", "t", "log_total", "delta"):
            setattr(layer, name, getattr(layer, name).astype(dtype))
    one, other = here.forward(), there.forward()
    for name in ("Z0", "leaned0", "log_total0", "leaned_total0"):
        np.testing.assert_allclose(other[name], one[name], rtol=tolerance, atol=tolerance, err_msg=name)
    everywhere = (here.t, np.full_like(here.t, 2.5))
    one, other = here.backward(everywhere), there.backward(everywhere)
    for name in ("dT0", "ds0"):
        scale = np.abs(one[name]).max()
        np.testing.assert_allclose(other[name], one[name], rtol=0, atol=4 * tolerance * scale, err_msg=name)


def close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
