"""GNNPipe beside the oracle (one chunk), and beside its own equations written down densely (several): float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gpu_baselines import collapse
from gpu_baselines.group import Group
from gpu_baselines.halos.joined import joined, owners
from gpu_baselines.methods.gnnpipe import GNNPipe
from gpu_baselines.run import Run
from siafu import ops
from siafu.baseline import BaselineConfig
from siafu.errors import ConfigError
from siafu.graph import TRAIN, Graph, tidy
from siafu.metrics import METRICS
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import Array
from tests import reference
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.test_exactness import MODELS
from tests.gpu_baselines.training import LR, WEIGHT_DECAY, config_of, differs_by, oracle, prepared, train
from tests.toy_graphs import random_graph, with_sparse_features

GRAPH = random_graph(1)
EPOCHS = 4
#: What the dense equations below know.
PLAIN: dict[str, dict[str, Any]] = {
    "gcn": {"model__name": "gcn", "model__hidden": "6", "model__layers": 4},
    "sage": {"model__name": "sage", "model__hidden": "6,5,4", "model__layers": 4},
    "gat": {"model__name": "gat", "model__hidden": "6", "model__heads": 2, "model__layers": 4},
    "gcnii": {"model__name": "gcnii", "model__hidden": "5", "model__layers": 4},
}


# --- one chunk: nothing is stale --------------------------------------------------------------------------------------


CASES = [(name, stages) for name in PLAIN for stages in (1, 2, 3, 4)] + [(name, 3) for name in MODELS.keys() - PLAIN]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of shards, which tests share."""
    return tmp_path_factory.mktemp("shards")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "stages"), sorted(CASES))
def test_one_chunk_is_what_one_machine_computes(name: str, stages: int, folder: Path) -> None:
    settings = {**MODELS[name], "model__layers": 4, "model__hidden": "6,6,3" if name == "gcn, narrow" else "6"}
    config = config_of("gnnpipe", stages, baseline__chunks=1, model__dropout=0.5, **settings)
    shards, graph = prepared(GRAPH, folder, config.partitions), tidy(GRAPH, directed=True)
    trained, wanted = train(config, shards, EPOCHS), oracle(config, shards, graph, EPOCHS)
    assert differs_by(trained.losses, wanted.losses) < 1e-9
    for weight, W in wanted.weights.items():
        assert np.allclose(trained.weights[weight], W, rtol=0, atol=1e-9), weight
    metric = METRICS["classes"]
    whole = metric.scores(metric.tally(wanted.logits, graph.labels, graph.split[:, 0]))
    for split, scores in metric.scores(metric.merge(trained.scores)).items():
        assert whole[split] == pytest.approx(scores, abs=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(("stages", "groups", "sparse"), [(1, 3, True), (2, 2, False)])
def test_one_chunk_shared_by_several_ranks_is_what_one_machine_computes(
    stages: int, groups: int, name: str, sparse: bool, folder: Path
) -> None:
    graph = replace(with_sparse_features(GRAPH), name="sparse") if sparse else GRAPH
    settings = {"baseline__groups": groups, "baseline__chunks": 1, "train__clip_norm": 0.05}
    config = config_of("gnnpipe", stages * groups, model__dropout=0.4, **settings, **PLAIN[name])
    shards = prepared(graph, folder, config.partitions)
    spec = ModelSpec.of(config, shards.manifest)
    wanted = reference.train(
        tidy(graph, directed=True), spec, epochs=EPOCHS, lr=LR, weight_decay=WEIGHT_DECAY, clip_norm=0.05
    )
    assert differs_by(train(config, shards, EPOCHS).losses, wanted.losses) < 1e-9


@pytest.mark.parametrize("graph", [random_graph(2, directed=False, weighted=False), random_graph(3, multilabel=True)])
def test_any_graph(graph: Graph, folder: Path) -> None:
    config = config_of("gnnpipe", 2, baseline__chunks=1, **PLAIN["sage"])
    shards = prepared(graph, folder, 1)
    wanted = oracle(config, shards, tidy(graph, directed=graph.directed), EPOCHS)
    assert differs_by(train(config, shards, EPOCHS).losses, wanted.losses) < 1e-9


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_inductive_training_is_vanillas(model: str, folder: Path) -> None:
    """Trained among training vertices, evaluated along all edges."""
    found = []
    for method, parts in (("gnnpipe", 1), ("vanilla", 2)):
        chunks = {"baseline__chunks": 1} if method == "gnnpipe" else {}
        config = config_of(method, 2, **chunks, **PLAIN[model])
        shards = prepared(replace(GRAPH, name="inductive"), folder, parts, inductive=0)
        found.append(train(config, shards, EPOCHS))
    metric = METRICS["classes"]
    pipeline, vanilla = (metric.scores(metric.merge(one.scores)) for one in found)
    assert differs_by(found[0].losses, found[1].losses) < 1e-12
    for split, scores in vanilla.items():
        assert pipeline[split] == pytest.approx(scores, abs=1e-9)


def test_more_chunks_than_some_have_vertices_and_edges_for(folder: Path) -> None:
    graph = replace(random_graph(4, num_vertices=9, num_edges=5), name="tiny")
    config = config_of("gnnpipe", 4, baseline__groups=2, baseline__chunks=4, **PLAIN["gcn"])
    losses = train(config, prepared(graph, folder, config.partitions), EPOCHS).losses
    assert losses[-1] < losses[0]


def test_more_stages_than_layers_are_refused(folder: Path) -> None:
    config = config_of("gnnpipe", 3, baseline__chunks=1, model__layers=2)
    with pytest.raises(ConfigError, match=r"3 stages, gcn has 2 layers"):
        train(config, prepared(GRAPH, folder, 1), 1)


# --- several chunks: the equations, densely ---------------------------------------------------------------------------

SHAPES = [(name, 2, groups, True) for name in PLAIN for groups in (1, 2)]
SHAPES += [("gcnii", 4, 1, False), ("gcn", 1, 1, False), ("gat", 1, 2, False)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "stages", "groups", "unbiased"), SHAPES)
def test_stale_rows_and_left_out_gradients_are_as_the_equations_say(
    name: str, stages: int, groups: int, unbiased: bool, folder: Path
) -> None:
    config = config_of(
        "gnnpipe",
        stages * groups,
        baseline__groups=groups,
        baseline__chunks=5,
        baseline__freeze=2,
        baseline__unbiased=unbiased,
        model__dropout=0.5,
        **PLAIN[name],
    )
    shards = prepared(GRAPH, folder, config.partitions)
    spec = ModelSpec.of(config, shards.manifest)
    dense = Dense(tidy(GRAPH, directed=True), spec, owners(shards) % 5, freeze=2, between=2.0 if unbiased else 1.0)
    trained = train(config, shards, EPOCHS)
    assert differs_by(trained.losses, dense.train(EPOCHS)) < 1e-9
    for weight, W in dense.W.items():
        assert np.allclose(trained.weights[weight], W.detach(), rtol=0, atol=1e-9), weight


class Dense:
    """The same epochs on one machine, on dense matrices, autograd through all chunks; the history is a constant."""

    def __init__(self, graph: Graph, spec: ModelSpec, chunk_of: Array, *, freeze: int, between: float):
        self.spec, self.chunk_of, self.freeze, self.between = spec, chunk_of, freeze, between
        self.A = torch.from_numpy(reference.propagation(graph, "mean" if spec.name == "sage" else "gcn").toarray())
        edges = np.eye(graph.num_vertices)
        edges[graph.dst, graph.src] = graph.weight
        self.edges = torch.from_numpy(edges)  # [N, N], target by source, of attention
        self.X = torch.from_numpy(reference.features(graph))
        self.labels = torch.from_numpy(np.asarray(graph.labels))
        self.trained = torch.from_numpy(graph.split[:, 0] == TRAIN)
        self.W = {name: torch.from_numpy(W).requires_grad_() for name, W in reference.first_weights(spec).items()}
        self.num_layers = spec.num_layers + 2 * (spec.name == "gcnii")

    def train(self, epochs: int) -> list[float]:
        optimiser = torch.optim.Adam(self.W.values(), lr=LR, weight_decay=WEIGHT_DECAY)
        everybody = torch.zeros(len(self.X), dtype=torch.int64)
        with torch.no_grad():
            history = self.forward(None, everybody, [0], [])[1]  # of epoch 0
        losses, chunk_of = [], torch.from_numpy(self.chunk_of.astype(np.int64))
        for epoch in range(epochs):
            order = np.random.default_rng([self.spec.seed, epoch]).permutation(1 + self.chunk_of.max()).tolist()
            logits, inputs = self.forward(epoch, chunk_of, order, history)
            found = torch.nn.functional.cross_entropy(logits[self.trained], self.labels[self.trained])
            optimiser.zero_grad()
            torch.autograd.backward(found)
            optimiser.step()
            losses.append(found.item())
            if (epoch + 1) % self.freeze == 0:
                history = [H.detach() for H in inputs]
        return losses

    def forward(
        self, epoch: int | None, chunk_of: Tensor, order: Sequence[int], history: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits [N, C], and every layer's inputs [N, F]."""
        n = len(self.X)
        fresh: list[Tensor] = [torch.zeros(n, 0, dtype=torch.float64)] * (self.num_layers + 1)
        done = torch.zeros(n, dtype=torch.bool)
        for number in order:
            rows = torch.nonzero(chunk_of == number)[:, 0]
            state: dict[str, Tensor] = {}
            H = self.X[rows]
            for layer in range(self.num_layers):
                if fresh[layer].shape[1] != H.shape[1]:
                    fresh[layer] = torch.zeros(n, H.shape[1], dtype=torch.float64)
                crossing = self.between * fresh[layer] - (self.between - 1) * fresh[layer].detach()
                sources = torch.where(done[:, None], crossing, history[layer] if history else fresh[layer])
                fresh[layer] = fresh[layer].index_copy(0, rows, H)
                H = self.layer(layer, epoch, rows, self.X if layer == 0 else sources.index_copy(0, rows, H), H, state)
            if fresh[-1].shape[1] != H.shape[1]:
                fresh[-1] = torch.zeros(n, H.shape[1], dtype=torch.float64)
            fresh[-1] = fresh[-1].index_copy(0, rows, H)
            done = done.index_fill(0, rows, True)
        return fresh[-1], fresh[:-1]

    def layer(
        self, layer: int, epoch: int | None, rows: Tensor, S: Tensor, H: Tensor, state: dict[str, Tensor]
    ) -> Tensor:
        """S [N, F]: every vertex's inputs as the chunk ``rows`` sees them. H: its own."""

        def drop(X: Tensor, key: int) -> Tensor:
            return X * self.mask(X.shape[1], epoch, key)

        def own(X: Tensor, key: int) -> Tensor:
            return X * self.mask(X.shape[1], epoch, key)[rows]

        W, last = (
            {name.partition(".")[2]: V for name, V in self.W.items() if name.startswith(f"{layer}.")},
            self.num_layers - 1,
        )
        if self.spec.name == "gat":
            return self.attention(rows, drop(S, layer), W, last=layer == last)
        if self.spec.name == "gcnii":
            if layer in (0, last):
                P = own(H, layer) @ W["weight"] + W["bias"]
                state.setdefault("R", torch.relu(P))
                return P if layer else torch.relu(P)
            beta, alpha = np.log(self.spec.theta / layer + 1), self.spec.alpha
            Z = (1 - alpha) * self.A[rows] @ drop(S, layer) + alpha * state["R"]
            return torch.relu((1 - beta) * Z + beta * Z @ W["weight"])
        sage = self.spec.name == "sage"
        Z = own(self.A[rows] @ S, int(sage)) if layer == 0 else self.A[rows] @ drop(S, 1 + layer)
        P = Z @ W["neighbour" if sage else "weight"] + W["bias"]
        if sage:
            P = P + own(H, 0 if layer == 0 else 1 + layer) @ W["self"]
        return P if layer == last else torch.relu(P)

    def attention(self, rows: Tensor, X: Tensor, W: dict[str, Tensor], *, last: bool) -> Tensor:
        heads = self.spec.out_heads if last else self.spec.heads
        T = (X @ W["weight"]).view(len(X), heads, -1)  # [N, K, D]
        s, t = (torch.einsum("nkd,kd->nk", T, W[name].view(heads, -1)) for name in ("source", "target"))
        score = torch.nn.functional.leaky_relu(t[rows][:, None] + s[None], self.spec.slope)  # [n, N, K]
        weight = torch.exp(score) * self.edges[rows][:, :, None]
        P = torch.einsum("nmk,mkd->nkd", weight / weight.sum(1, keepdim=True), T)
        P = (P.mean(1) if last else P.flatten(1)) + W["bias"]
        return P if last else torch.relu(P)

    def mask(self, width: int, epoch: int | None, key: int) -> Tensor:
        n, p = len(self.X), self.spec.dropout
        if epoch is None:
            return torch.ones(n, width, dtype=torch.float64)
        keep = ops.dropout_mask(
            np.zeros((n, width), np.float32), p, seed=self.spec.seed, epoch=epoch, layer=key, vertices=np.arange(n)
        )
        assert keep is not None
        return torch.from_numpy(keep).double() * ops.dropout_threshold(p)[1]


@pytest.mark.parametrize(("depth", "exact"), [(2, True), (3, False)])
def test_twice_the_crossing_gradients_are_exact_on_average_for_one_gather(
    depth: int, exact: bool, folder: Path
) -> None:
    """Over all orders of three chunks, with a history of this very epoch: rule 3 of ``gpu_baselines.chunks``."""
    config = config_of("gnnpipe", 1, baseline__chunks=3, **{**PLAIN["gcn"], "model__layers": depth})
    shards = prepared(GRAPH, folder, 3)
    chunk_of = owners(shards)
    dense = Dense(tidy(GRAPH, directed=True), ModelSpec.of(config, shards.manifest), chunk_of, freeze=1, between=2.0)
    one, three = torch.zeros(len(chunk_of), dtype=torch.int64), torch.from_numpy(chunk_of.astype(np.int64))
    with torch.no_grad():
        history = dense.forward(None, one, [0], [])[1]

    def gradient(chunks: Tensor, order: Sequence[int]) -> Tensor:
        logits, _ = dense.forward(None, chunks, order, history)
        loss = torch.nn.functional.cross_entropy(logits[dense.trained], dense.labels[dense.trained])
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(dense.W.values()))])

    mean = torch.stack([gradient(three, order) for order in permutations(range(3))]).mean(0)
    assert bool((mean - gradient(one, [0])).abs().max() < 1e-12) == exact


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "stages", "copies"), [("gcn", 3, 1), ("sage", 2, 1), ("gat", 4, 1), ("gcnii", 4, 2)])
@pytest.mark.parametrize("chunks", [1, 5])
def test_stages_send_every_vertex_once_each_way(name: str, stages: int, copies: int, chunks: int, folder: Path) -> None:
    """(M - 1) N H values per direction, as the paper counts them; twice as many where GCNII's first rows go along."""
    config = config_of("gnnpipe", stages, baseline__chunks=chunks, **{**PLAIN[name], "model__hidden": "6"})
    sent = train(config, prepared(GRAPH, folder, chunks), EPOCHS).bytes
    wanted = EPOCHS * copies * (stages - 1) * GRAPH.num_vertices * 6 * 8
    assert (sent["forward"], sent["backward"]) == (wanted, wanted)
    assert "halo" not in sent


def test_ranks_of_a_stage_send_each_row_once_to_whoever_wants_it(folder: Path) -> None:
    config = config_of("gnnpipe", 4, baseline__groups=2, baseline__chunks=3, **{**PLAIN["gcn"], "model__hidden": "6"})
    shards = prepared(GRAPH, folder, 6)
    member = owners(shards) // 3
    graph = tidy(GRAPH, directed=True)
    crossing = member[graph.src] != member[graph.dst]
    wanted = len({(int(u), int(member[v])) for u, v in zip(graph.src[crossing], graph.dst[crossing], strict=True)})
    sent = train(config, shards, EPOCHS).bytes
    layers = 3  # the features' sums are constant
    assert (sent["halo"], sent["gradient"]) == (EPOCHS * layers * wanted * 6 * 8,) * 2
    assert sent["forward"] == EPOCHS * GRAPH.num_vertices * 6 * 8


# --- going on ---------------------------------------------------------------------------------------------------------


def made(config: BaselineConfig, shards: ShardSet, group: Group) -> GNNPipe:
    torch.set_num_threads(1)
    return GNNPipe(Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu")))


@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_that_was_stopped_goes_on_with_the_same_bits(stop: int, folder: Path) -> None:
    config = config_of("gnnpipe", 2, baseline__chunks=4, baseline__freeze=3, model__dropout=0.5, **PLAIN["gcnii"])
    shards = prepared(GRAPH, folder, 4)

    def work(group: Group) -> tuple[list[float], list[float], bool]:
        whole, first, second = (made(config, shards, group) for _ in range(3))
        losses = [whole.epoch(epoch) for epoch in range(6)]
        for epoch in range(stop):
            first.epoch(epoch)
        state = first.state()
        second.net.load(first.net.weights())
        second.restore(state)
        rest = [second.epoch(epoch) for epoch in range(stop, 6)]
        for method in (whole, second):
            method.state()  # gathers the net
        mine, others = whole.net.weights(), second.net.weights()
        for method in (whole, first, second):
            method.close()
        return losses[stop:], rest, all(np.array_equal(W, others[name]) for name, W in mine.items())

    for losses, rest, equal in on_ranks(2, work):
        assert rest == losses
        assert equal


def test_a_loss_that_is_no_number_is_recovered_from_step_by_step(folder: Path) -> None:
    """A history that is no number any more, three times: each recovery is milder, and remakes it."""
    config = config_of("gnnpipe", 2, baseline__chunks=4, baseline__freeze=3, baseline__recover=True, **PLAIN["gcnii"])
    shards = prepared(GRAPH, folder, 4)

    def work(group: Group) -> tuple[list[float], dict[str, object]]:
        method, losses = made(config, shards, group), []
        for epoch in range(8):
            if epoch in (2, 4, 6):
                for rows in method._memory.history.values():
                    rows.fill_(torch.nan)
            losses.append(method.epoch(epoch))
        found = losses, method.facts()
        method.close()
        return found

    (losses, facts), _ = on_ranks(2, work)
    assert np.isfinite(losses).all()
    # It went back to the first weights: its best window has not ended, and a history of them makes no stale row.
    told = [{key: one[key] for key in ("epoch", "freeze", "chunks")} for one in facts["recoveries"]]  # type: ignore[attr-defined]
    assert told == [
        {"epoch": 2, "freeze": 1, "chunks": 4},
        {"epoch": 4, "freeze": 1, "chunks": 2},
        {"epoch": 6, "freeze": 1, "chunks": 1},
    ]
    assert facts["recoveries"][0]["why"] == "the loss is nan"  # type: ignore[index]
    assert losses[2] == pytest.approx(losses[0], abs=1e-12)


def test_what_it_goes_back_to_is_not_trained_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimisers step in place: moments that were put back must not be those that are kept."""
    monkeypatch.setattr(collapse, "WINDOW", 2)
    config = config_of("gnnpipe", 1, baseline__chunks=4, baseline__freeze=3, baseline__recover=True, **PLAIN["gcnii"])

    def work(group: Group) -> tuple[int, list[bool]]:
        method = made(config, prepared(GRAPH, folder, 4), group)
        for epoch in range(5):
            method.epoch(epoch)
        method._memory.history[1].fill_(torch.nan)
        kept = {name: tensor.clone() for name, tensor in method._good.items()}
        method.epoch(5)
        moments = sum(name.endswith("/exp_avg") for name in kept)
        return moments, [torch.equal(tensor, kept[name]) for name, tensor in method._good.items()]

    moments, equal = on_ranks(1, work)[0]
    assert moments
    assert all(equal)


def test_a_window_after_a_recovery_begins_with_what_was_put_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collapsed window's own beginning became the good weights, if the window after it was the best so far."""
    monkeypatch.setattr(collapse, "WINDOW", 2)
    config = config_of("gnnpipe", 1, baseline__chunks=4, baseline__freeze=3, baseline__recover=True, **PLAIN["gcnii"])

    def work(group: Group) -> tuple[bool, bool, int]:
        method = made(config, prepared(GRAPH, folder, 4), group)
        for epoch in range(4):
            method.epoch(epoch)
        method._watch.best = np.inf  # the window after the recovery will be the best
        good = {name: tensor.clone() for name, tensor in method._good.items()}
        first = all(torch.equal(tensor, good[name]) for name, tensor in method._begun.items())
        for epoch in range(4, 7):
            if epoch in (4, 6):
                method._memory.history[1].fill_(torch.nan)
            method.epoch(epoch)
        return (
            first,
            all(torch.equal(tensor, good[name]) for name, tensor in method._good.items()),
            method._setting.chunks,
        )

    was_equal, is_good, chunks = on_ranks(1, work)[0]
    assert not was_equal  # else this test shows nothing
    assert is_good
    assert chunks == 2  # both collapses were recovered from


def test_as_published_a_collapse_is_left_alone(folder: Path) -> None:
    """``recover`` is ours: nobody gets it without asking."""
    config = config_of("gnnpipe", 1, baseline__chunks=4, **PLAIN["gcn"])

    def work(group: Group) -> list[float]:
        method = made(config, prepared(GRAPH, folder, 4), group)
        method.epoch(0)
        method._memory.history[1].fill_(torch.nan)
        return [method.epoch(1)]

    assert np.isnan(on_ranks(1, work)[0]).all()


# --- partitions together ----------------------------------------------------------------------------------------------


def test_partitions_joined_are_the_graph_they_were_cut_from(folder: Path) -> None:
    shards = prepared(GRAPH, folder, 5)
    whole = joined([shards.partition(p) for p in range(5)], np.arange(5))
    assert len(whole.ghosts_in) == 0
    graph = tidy(GRAPH, directed=True)
    rows = np.repeat(whole.vertices, np.diff(whole.in_edges.indptr))
    found = sorted(zip(rows, whole.vertices[whole.in_edges.indices], strict=True))
    assert found == sorted(zip(graph.dst, graph.src, strict=True))
    assert np.array_equal(np.asarray(whole.features), np.asarray(graph.features)[whole.vertices])


def test_some_partitions_joined_have_the_others_vertices_as_ghosts_by_owner(folder: Path) -> None:
    shards = prepared(GRAPH, folder, 5)
    owner = owners(shards)
    some = joined([shards.partition(p) for p in (1, 3)], np.arange(5))
    graph = tidy(GRAPH, directed=True)
    mine = np.isin(owner, (1, 3))
    ghosts = {int(u) for u, v in zip(graph.src, graph.dst, strict=True) if mine[v] and not mine[u]}
    assert sorted(some.ghosts_in) == sorted(ghosts)
    assert list(zip(some.ghosts_in_owner, some.ghosts_in, strict=True)) == sorted((owner[u], u) for u in ghosts)
    degree = np.bincount(graph.dst, graph.weight, graph.num_vertices)
    assert np.allclose(some.degree_ghosts_in, degree[some.ghosts_in])
