"""The oracle for R-GCN: full batch, in float64 numpy on the tape, a matrix [N, N] for each relation.

    P = H W_0 + Σ_r A_r H W_r + b,    A_r: w_uv / (sum of v's weights of relation r),    W_r = Σ_b a_rb V_b with bases

With siafu it shares the first weights and the dropout masks. ``tests.reference`` trains with it;
tests/siafu/models/test_rgcn.py holds it to torch's autograd.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from siafu.graph import TRAIN, Graph
from siafu.models import ModelSpec
from siafu.sparse import Array
from tests import reference, tape
from tests.tape import Node


def matrices(graph: Graph) -> list[Any]:
    """A_r [N, N] of every relation."""
    n = graph.num_vertices
    kind = np.zeros(graph.num_edges, int) if graph.edge_type is None else graph.edge_type
    weight = np.ones(graph.num_edges) if graph.weight is None else graph.weight.astype(np.float64)
    found = []
    for relation in range(graph.num_edge_types):
        mine = kind == relation
        src, dst, w = graph.src[mine], graph.dst[mine], weight[mine]
        found.append(scipy.sparse.csr_array((w / np.bincount(dst, w, n)[dst], (dst, src)), shape=(n, n)))
    return found


def slices(W: Node) -> list[Node]:
    """A stack of matrices as one node each."""

    def pull(i: int) -> tape.Pull:
        def alone(d: Array) -> Array:
            whole = np.zeros_like(W.value)
            whole[i] = d
            return whole

        return alone

    return [Node(W.value[i], (W, pull(i))) for i in range(len(W.value))]


def mixed(a: Node, V: Node) -> Node:
    """W_r = Σ_b a_rb V_b, stacked."""
    W = np.einsum("rb,bij->rij", a.value, V.value)
    return Node(
        W, (a, lambda d: np.einsum("rij,bij->rb", d, V.value)), (V, lambda d: np.einsum("rb,rij->bij", a.value, d))
    )


def logits(graph: Graph, spec: ModelSpec, W: reference.Leaves, epoch: int | None) -> Node:
    H = reference.dropped(Node(reference.features(graph)), spec, epoch, 0)
    for layer in range(spec.num_layers):
        stack = mixed(W[f"{layer}.mix"], W[f"{layer}.weight"]) if spec.bases else W[f"{layer}.weight"]
        P = H @ W[f"{layer}.own"]
        for A, W_r in zip(matrices(graph), slices(stack), strict=True):
            P = P + tape.through(A, H @ W_r)
        P = W.biased(P, layer)
        if layer == spec.num_layers - 1:
            return P
        H = reference.dropped(tape.activated(W.normalised(P, layer), spec.activation), spec, epoch, 1 + layer)
    raise AssertionError("a model has at least one layer")


def forward(graph: Graph, spec: ModelSpec, weights: dict[str, Array], epoch: int | None) -> tuple[Array, None]:
    """Logits [N, C]. ``epoch``: whose dropout masks; None: no dropout."""
    return logits(graph, spec, reference.Leaves(weights), epoch).value, None


def loss_and_gradients(
    graph: Graph, spec: ModelSpec, weights: dict[str, Array], *, epoch: int, split: int = 0
) -> tuple[float, dict[str, Array]]:
    """The mean loss over the training vertices and its gradient by parameter."""
    leaves = reference.Leaves(weights)
    end = logits(graph, spec, leaves, epoch)
    loss, d = reference.loss_and_gradient(graph, spec, end.value, np.flatnonzero(graph.split[:, split] == TRAIN))
    return loss, tape.gradients(end, d, leaves)
