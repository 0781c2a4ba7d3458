"""The judge of acceptance 3: GCN and GraphSAGE as a PyTorch user would train them, one process, full batch, float32.

Placements of dropout: ``input`` on a layer's input H before aggregation (PyG's examples, Kipf's code), ``gathered`` on
the inputs of the tensor step after aggregation, ``mixed``: gathered in layer 0, input in the others. All else is one: Glorot-uniform
weights, zero biases, Adam with weight decay on every parameter, test score at the epoch with the best validation score.

It reads siafu's prepared shards (one partition), so that graph, features and split are the same, and shares no
arithmetic with siafu. ``bench.acceptance.accuracy`` runs it as a process:

    python -m tests.torch_reference SHARDS --settings '{"model": "gcn", "hidden": 16, ...}' --seeds 0 1 2

and reads one JSON object per seed from its output.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from siafu.metrics import counts, scores
from siafu.shards import Shard, ShardSet
from siafu.sparse import SparseRows

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # mapped files: nobody writes


class Sparse(NamedTuple):
    """A sparse matrix, its transpose, and where the entries of the one are in the other."""

    indptr: torch.Tensor
    column: torch.Tensor
    value: torch.Tensor
    indptr_t: torch.Tensor
    column_t: torch.Tensor
    entry_t: torch.Tensor  # entry k of the transpose is our entry entry_t[k]
    shape: tuple[int, int]

    @classmethod
    def of(cls, indptr: Any, column: Any, value: Any, shape: tuple[int, int]) -> Sparse:
        indptr, column = np.asarray(indptr, np.int64), np.asarray(column, np.int64)
        row = np.repeat(np.arange(shape[0]), np.diff(indptr))
        entry_t = np.argsort(column, kind="stable")
        indptr_t = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=shape[1]))])
        values = torch.from_numpy(np.asarray(value, np.float32))
        arrays = [torch.from_numpy(a) for a in (indptr, column, indptr_t, row[entry_t], entry_t)]
        return cls(arrays[0], arrays[1], values, *arrays[2:], shape)

    def forward(self) -> torch.Tensor:
        return torch.sparse_csr_tensor(self.indptr, self.column, self.value, self.shape)

    def transposed(self) -> torch.Tensor:
        return torch.sparse_csr_tensor(self.indptr_t, self.column_t, self.value[self.entry_t], self.shape[::-1])


class _Product(torch.autograd.Function):
    """``M X`` with a constant sparse M; torch's own backward would sort M again each time."""

    @staticmethod
    def forward(ctx: Any, X: torch.Tensor, matrix: Sparse) -> torch.Tensor:
        ctx.matrix = matrix
        return matrix.forward() @ X

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.matrix.transposed() @ gradient.contiguous(), None


Matrix = torch.Tensor | Sparse


def times(X: Matrix, W: torch.Tensor) -> torch.Tensor:
    return _Product.apply(W, X) if isinstance(X, Sparse) else X @ W  # type: ignore[no-untyped-call,no-any-return]


def drop(X: Matrix, p: float, training: bool) -> Matrix:
    if isinstance(X, Sparse):
        return X._replace(value=functional.dropout(X.value, p, training))
    return functional.dropout(X, p, training)


class Data(NamedTuple):
    A: Sparse  # the model's aggregation, [N, N]
    X: Matrix  # [N, F]
    AX: Matrix  # A X
    labels: np.ndarray[Any, Any]
    split: np.ndarray[Any, Any]


def load(shard: Shard, model: str, split: int) -> Data:
    n = len(shard.vertices)
    assert not len(shard.ghosts_in), "shards of one partition are needed"
    indptr, column = np.asarray(shard.in_edges.indptr), np.asarray(shard.in_edges.indices, np.int64)
    row = np.repeat(np.arange(n), np.diff(indptr))
    weight = np.ones(len(column)) if shard.in_edges.weight is None else np.asarray(shard.in_edges.weight, np.float64)
    degree = np.bincount(row, weight, n)  # [N]
    if model == "gcn":
        row, column = np.append(row, np.arange(n)), np.append(column, np.arange(n))
        weight = np.append(weight, np.ones(n)) / np.sqrt((degree + 1)[row] * (degree + 1)[column])
    else:
        weight = weight / degree[row]
    matrix = torch.sparse_coo_tensor(np.stack([row, column]), weight.astype(np.float32), (n, n)).to_sparse_csr()
    A = Sparse.of(matrix.crow_indices(), matrix.col_indices(), matrix.values(), (n, n))
    labels, kinds = np.asarray(shard.labels), np.asarray(shard.split[:, split])
    features = shard.features
    if not isinstance(features, SparseRows):
        dense = torch.from_numpy(np.asarray(features, np.float32))
        return Data(A, dense, A.forward() @ dense, labels, kinds)
    X = Sparse.of(features.indptr, features.indices, features.data, features.shape)
    product = A.forward() @ X.forward()
    AX = Sparse.of(product.crow_indices(), product.col_indices(), product.values(), features.shape)
    return Data(A, X, AX, labels, kinds)


class Net(torch.nn.Module):
    def __init__(self, model: str, widths: list[int], p: float, placement: str):
        super().__init__()
        self.p, self.placement, self.model = p, placement, model
        pairs = list(pairwise(widths))
        terms = 1 if model == "gcn" else 2
        self.weights = torch.nn.ParameterList(torch.empty(pair) for pair in pairs for _ in range(terms))
        self.biases = torch.nn.ParameterList(torch.zeros(pair[1]) for pair in pairs)
        for W in self.weights:
            torch.nn.init.xavier_uniform_(W)

    def forward(self, data: Data) -> torch.Tensor:
        H: Matrix = data.X
        for layer, bias in enumerate(self.biases):
            P = self._layer(layer, H, data) + bias
            H = P.relu() if layer < len(self.biases) - 1 else P
        return P

    def _layer(self, layer: int, H: Matrix, data: Data) -> torch.Tensor:
        """GCN: A H W. GraphSAGE: H W_self + A H W_neighbour."""
        if self.placement == "input" or (self.placement == "mixed" and layer > 0):
            H = drop(H, self.p, self.training)
            if self.model == "gcn":
                return times(data.A, times(H, self.weights[layer]))
            return times(H, self.weights[2 * layer]) + times(data.A, times(H, self.weights[2 * layer + 1]))
        Z = drop(data.AX if layer == 0 else times(data.A, H), self.p, self.training)
        if self.model == "gcn":
            return times(Z, self.weights[layer])
        return times(drop(H, self.p, self.training), self.weights[2 * layer]) + times(Z, self.weights[2 * layer + 1])


def train(data: Data, settings: dict[str, Any], seed: int, num_classes: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    multilabel = data.labels.ndim == 2
    widths = [data.X.shape[1], *[settings["hidden"]] * (settings["layers"] - 1), num_classes]
    net = Net(settings["model"], widths, settings["dropout"], settings["placement"])
    optimiser = torch.optim.Adam(net.parameters(), settings["lr"], weight_decay=settings["weight_decay"])
    chosen = torch.from_numpy(np.flatnonzero(data.split == 1))
    wanted = torch.from_numpy(data.labels)[chosen]
    best: dict[str, Any] = {"val": -1.0}
    started = time.perf_counter()
    for epoch in range(settings["epochs"]):
        net.train()
        optimiser.zero_grad()
        logits = net(data)[chosen]
        if multilabel:
            loss = functional.binary_cross_entropy_with_logits(logits, wanted.float())
        else:
            loss = functional.cross_entropy(logits, wanted)
        loss.backward()
        optimiser.step()
        if (epoch + 1) % settings["eval_every"] == 0 or epoch + 1 == settings["epochs"]:
            net.eval()
            with torch.no_grad():
                tally = counts(net(data).numpy(), data.labels, data.split)
            score = scores(tally, multilabel=multilabel)
            if score["val"]["acc"] > best["val"]:
                best = {"val": score["val"]["acc"], "test": score["test"]["acc"], "best_epoch": epoch + 1}
    seconds = time.perf_counter() - started
    return {**best, "seed": seed, "final_test": score["test"]["acc"], "loss": float(loss.detach()), "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards")
    parser.add_argument("--settings", type=json.loads, required=True, metavar="JSON")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    shards = ShardSet.open(args.shards)
    data = load(shards.partition(0), args.settings["model"], args.settings["split"])
    for seed in args.seeds:
        print(json.dumps(train(data, args.settings, seed, shards.manifest.num_classes)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
