"""The oracle for link prediction: full batch, in float64 numpy on the tape, with an array that has a row per pair.

    loss = Σ over the pairs of an epoch, each once, of log(1 + exp(∓ s_uv)) / (2 · training edges)
    s_uv = <H_u, H_v>,  or  relu((H_u ⊙ H_v) W + b) w + c

H is what the encoder's own oracle gives along the message edges. With siafu it shares the first weights, the
dropout masks and which false pairs an epoch draws. tests/siafu/models/test_link_prediction.py holds it to
finite differences and torch's autograd.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graph_data.link_split import messages
from siafu import ops
from siafu.graph import TEST_NEGATIVE, TEST_PAIR, TRAIN_NEGATIVE, TRAIN_PAIR, VAL_NEGATIVE, VAL_PAIR, Graph
from siafu.models import ModelSpec
from siafu.sparse import Array
from tests import reference, reference_rgcn, tape
from tests.tape import Node

ENCODERS = {**reference.MODELS, "rgcn": reference_rgcn.logits}


def drawn_pairs(graph: Graph, spec: ModelSpec, number: int, epoch: int) -> tuple[Array, Array, Array]:
    """u < v of every training pair of an epoch, and whether it is an edge. ``number``: of the step that scores."""
    assert graph.edge_type is not None
    once = graph.src < graph.dst
    kept = graph.edge_type == TRAIN_NEGATIVE
    share = 1 - 1 / spec.negatives
    kept &= ops.edge_dropout(graph.src, graph.dst, 1, share, ops.edge_key(spec.seed, epoch, number))[:, 0] > 0
    chosen = once & (kept | (graph.edge_type == TRAIN_PAIR))
    return graph.src[chosen], graph.dst[chosen], (graph.edge_type[chosen] == TRAIN_PAIR).astype(float)


def rows(X: Node, index: Array) -> Node:
    def pull(d: Array) -> Array:
        out = np.zeros_like(X.value)
        np.add.at(out, index, d)
        return out

    return Node(X.value[index], (X, pull))


def product(X: Node, Y: Node) -> Node:
    return Node(X.value * Y.value, (X, lambda d: d * Y.value), (Y, lambda d: d * X.value))


def embeddings(graph: Graph, spec: ModelSpec, W: reference.Leaves, epoch: int | None) -> Node:
    return ENCODERS[spec.name](messages(graph), replace(spec, target="classes"), W, epoch)


def scored(H: Node, u: Array, v: Array, W: reference.Leaves, number: int) -> Node:
    """Scores [m, 1]."""
    X = product(rows(H, u), rows(H, v))
    if f"{number}.decoder" not in W:
        return X @ Node(np.ones((X.value.shape[1], 1)))
    U = tape.activated(W.dense(X, number, "decoder", "decoder_bias"), "relu")
    return W.dense(U, number, "decoder_second", "decoder_second_bias")


def loss_and_gradients(
    graph: Graph, spec: ModelSpec, weights: dict[str, Array], number: int, *, epoch: int
) -> tuple[float, dict[str, Array]]:
    W = reference.Leaves(weights)
    u, v, true = drawn_pairs(graph, spec, number, epoch)
    s = scored(embeddings(graph, spec, W, epoch), u, v, W, number)
    x, y = s.value[:, 0], true
    loss = -(y * reference.log_sigmoid(x) + (1 - y) * reference.log_sigmoid(-x)).sum() / (2 * spec.num_train)
    d = (np.exp(reference.log_sigmoid(x)) - y) / (2 * spec.num_train)
    return float(loss), tape.gradients(s, d[:, None], W)


def train(
    graph: Graph, spec: ModelSpec, number: int, *, epochs: int, lr: float, weight_decay: float
) -> reference.Trained:
    """Full-batch Adam; its logits are the embeddings under the final weights."""
    weights, step, losses = reference.first_weights(spec), reference.Adam().step, []
    for epoch in range(epochs):
        loss, gradients = loss_and_gradients(graph, spec, weights, number, epoch=epoch)
        losses.append(loss)
        for name, W in weights.items():
            weights[name] = step(name, W, gradients[name] + weight_decay * W, lr)
    return reference.Trained(losses, weights, embeddings(graph, spec, reference.Leaves(weights), None).value)


def scores(graph: Graph, spec: ModelSpec, weights: dict[str, Array], number: int) -> dict[str, dict[str, float]]:
    """MRR, AUC and hits@10 of both roles, pair by pair as their definitions read."""
    assert graph.edge_type is not None
    W = reference.Leaves(weights)
    s = scored(embeddings(graph, spec, W, None), graph.src, graph.dst, W, number).value[:, 0]
    found = {}
    for role, positive, negative in (("val", VAL_PAIR, VAL_NEGATIVE), ("test", TEST_PAIR, TEST_NEGATIVE)):
        true, false = (np.flatnonzero(graph.edge_type == kind) for kind in (positive, negative))
        ranks = []
        for edge in true:
            against = s[false[graph.dst[false] == graph.dst[edge]]]
            ranks.append(1 + (against > s[edge]).sum() + (against == s[edge]).sum() / 2)
        higher = (s[true][:, None] > s[false]) + (s[true][:, None] == s[false]) / 2
        found[role] = {
            "mrr": float(np.mean(1 / np.array(ranks))),
            "auc": float(higher.mean()),
            "hits@10": float(np.mean(np.array(ranks) <= 10)),
        }
    return found
