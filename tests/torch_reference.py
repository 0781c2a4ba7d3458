"""The judge of accuracy: models as a PyTorch user would train them, one process, full batch, float32.

Placements of dropout: ``input`` on a layer's input H before aggregation (PyG's examples, Kipf's code), ``gathered`` on
the inputs of the tensor step after aggregation, ``mixed``: gathered in layer 0, input in the others (GCN and GraphSAGE;
the others have dropout where their authors have it). GAT and R-GCN are PyTorch Geometric's own layers. All else is one:
Glorot-uniform weights, zero biases, Adam with weight decay (of some parameters another, ``weight_decay_rest``), test
score at the epoch that ``train.stop_on`` calls the best.

It reads siafu's prepared shards (one partition), so that graph, features and split are the same, and shares no
arithmetic with siafu. ``benchmarks.acceptance.accuracy`` runs it as a process:

    python -m tests.torch_reference SHARDS --settings '{"model": "gcn", "hidden": 16, ...}' --seeds 0 1 2

and reads one JSON object per seed from its output.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional
from torch_geometric.nn import GATConv, RGCNConv

from siafu.metrics import counts, scores
from siafu.shards import Shard, ShardSet
from siafu.sparse import SparseRows
from siafu.stopping import Stopping

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
    edges: torch.Tensor  # [2, E], sources first, without self-loops: GAT's and R-GCN's
    types: torch.Tensor | None = None  # [E], the relation of each edge
    num_types: int = 1


def load(shard: Shard, model: str, split: int, num_types: int) -> Data:
    n = len(shard.vertices)
    assert not len(shard.ghosts_in), "shards of one partition are needed"
    indptr, column = np.asarray(shard.in_edges.indptr), np.asarray(shard.in_edges.indices, np.int64)
    row = np.repeat(np.arange(n), np.diff(indptr))
    weight = np.ones(len(column)) if shard.in_edges.weight is None else np.asarray(shard.in_edges.weight, np.float64)
    degree = np.bincount(row, weight, n)  # [N]
    edges = torch.from_numpy(np.stack([column, row]))
    types = None if shard.in_edges.type is None else torch.from_numpy(np.asarray(shard.in_edges.type, np.int64))
    if model in ("gcn", "gcnii", "appnp"):
        row, column = np.append(row, np.arange(n)), np.append(column, np.arange(n))
        weight = np.append(weight, np.ones(n)) / np.sqrt((degree + 1)[row] * (degree + 1)[column])
    elif model == "sage":
        weight = weight / degree[row]
    matrix = torch.sparse_coo_tensor(np.stack([row, column]), weight.astype(np.float32), (n, n)).to_sparse_csr()
    A = Sparse.of(matrix.crow_indices(), matrix.col_indices(), matrix.values(), (n, n))
    labels, kinds = np.asarray(shard.labels), np.asarray(shard.split[:, split])
    features = shard.features
    if not isinstance(features, SparseRows):
        dense = torch.from_numpy(np.asarray(features, np.float32))
        return Data(A, dense, A.forward() @ dense, labels, kinds, edges, types, num_types)
    X = Sparse.of(features.indptr, features.indices, features.data, features.shape)
    product = A.forward() @ X.forward()
    AX = Sparse.of(product.crow_indices(), product.col_indices(), product.values(), features.shape)
    return Data(A, X, AX, labels, kinds, edges, types, num_types)


class Dense(torch.nn.Module):
    """X W + b."""

    def __init__(self, fan_in: int, fan_out: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(fan_in, fan_out)))
        self.bias = torch.nn.Parameter(torch.zeros(fan_out))

    def forward(self, X: Matrix) -> torch.Tensor:
        return times(X, self.weight) + self.bias


class Net(torch.nn.Module):
    """A model; ``rest``: its parameters that ``weight_decay_rest`` is for."""

    def __init__(self, settings: dict[str, Any], widths: list[int], num_types: int):
        super().__init__()
        self.settings, self.p, self.num_types = settings, settings["dropout"], num_types

    @property
    def rest(self) -> list[torch.nn.Parameter]:
        return []

    def drop(self, X: Matrix) -> Matrix:
        return drop(X, self.p, self.training)


class Convolution(Net):
    """GCN and GraphSAGE."""

    def __init__(self, settings: dict[str, Any], widths: list[int], num_types: int):
        super().__init__(settings, widths, num_types)
        self.placement, self.model = settings["placement"], settings["model"]
        model = self.model
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


class GIN(Net):
    def __init__(self, settings: dict[str, Any], widths: list[int], num_types: int):
        super().__init__(settings, widths, num_types)
        pairs = list(pairwise(widths))
        self.first = torch.nn.ModuleList(Dense(*pair) for pair in pairs)
        self.second = torch.nn.ModuleList(Dense(width, width) for _, width in pairs)
        norm = torch.nn.LayerNorm if settings["norm"] == "layer" else torch.nn.Identity
        self.norms = torch.nn.ModuleList(norm(width) for _, width in pairs)

    def forward(self, data: Data) -> torch.Tensor:
        H: Matrix = data.X
        for layer, (first, norm, second) in enumerate(zip(self.first, self.norms, self.second, strict=True)):
            H = self.drop(H)
            T = times(H, first.weight)  # the sum over neighbours comes after: it is linear
            P = second(norm(times(data.A, T) + (1 + self.settings["eps"]) * T + first.bias).relu())
            H = P.relu() if layer < len(self.first) - 1 else P
        return P


class GCNII(Net):
    def __init__(self, settings: dict[str, Any], widths: list[int], num_types: int):
        super().__init__(settings, widths, num_types)
        hidden = widths[1]
        self.enter, self.leave = Dense(widths[0], hidden), Dense(hidden, widths[-1])
        square = (torch.nn.init.xavier_uniform_(torch.empty(hidden, hidden)) for _ in range(settings["layers"]))
        self.weights = torch.nn.ParameterList(square)

    @property
    def rest(self) -> list[torch.nn.Parameter]:
        return [*self.enter.parameters(), *self.leave.parameters()]

    def forward(self, data: Data) -> torch.Tensor:
        alpha = self.settings["alpha"]
        first = H = self.enter(self.drop(data.X)).relu()
        for layer, W in enumerate(self.weights, 1):
            beta = math.log(self.settings["theta"] / layer + 1)
            S = (1 - alpha) * times(data.A, self.drop(H)) + alpha * first  # type: ignore[arg-type]
            H = ((1 - beta) * S + beta * (S @ W)).relu()
        return self.leave(self.drop(H))  # type: ignore[no-any-return]


class APPNP(Net):
    def __init__(self, settings: dict[str, Any], widths: list[int], num_types: int):
        super().__init__(settings, widths, num_types)
        self.layers = torch.nn.ModuleList(Dense(*pair) for pair in pairwise(widths))

    @property
    def rest(self) -> list[torch.nn.Parameter]:
        return [parameter for layer in self.layers[1:] for parameter in layer.parameters()]

    def forward(self, data: Data) -> torch.Tensor:
        H: Matrix = data.X
        for layer in self.layers[:-1]:
            H = layer(self.drop(H)).relu()
        first = Z = self.layers[-1](self.drop(H))
        for _ in range(self.settings["hops"]):
            Z = (1 - self.settings["alpha"]) * times(data.A, Z) + self.settings["alpha"] * first
        return Z  # type: ignore[no-any-return]


class GAT(Net):
    """PyTorch Geometric's layers, as its example has them."""

    def __init__(self, settings: dict[str, Any], widths: list[int], num_types: int):
        super().__init__(settings, widths, num_types)
        heads = [settings["heads"]] * (len(widths) - 2) + [settings["out_heads"]]
        shared = {"dropout": settings["attn_dropout"], "negative_slope": settings["slope"]}
        self.dense: torch.Tensor | None = None  # the features, once for all epochs
        self.layers = torch.nn.ModuleList(
            GATConv(fan_in, fan_out if last else fan_out // count, count, concat=not last, **shared)
            for (fan_in, fan_out), count, last in zip(
                pairwise(widths), heads, [False] * (len(heads) - 1) + [True], strict=True
            )
        )

    def forward(self, data: Data) -> torch.Tensor:
        if self.dense is None:
            self.dense = data.X.forward().to_dense() if isinstance(data.X, Sparse) else data.X
        H = self.dense
        for layer in self.layers[:-1]:
            H = functional.elu(layer(functional.dropout(H, self.p, self.training), data.edges))
        return self.layers[-1](functional.dropout(H, self.p, self.training), data.edges)  # type: ignore[no-any-return]


class RGCN(Net):
    """PyTorch Geometric's layers, as its example has them."""

    def __init__(self, settings: dict[str, Any], widths: list[int], num_types: int):
        super().__init__(settings, widths, num_types)
        bases = settings["bases"] or None
        self.layers = torch.nn.ModuleList(RGCNConv(*pair, num_types, num_bases=bases) for pair in pairwise(widths))

    def forward(self, data: Data) -> torch.Tensor:
        assert isinstance(data.X, torch.Tensor)
        H = data.X
        for layer in self.layers[:-1]:
            H = layer(self.drop(H), data.edges, data.types).relu()
        return self.layers[-1](self.drop(H), data.edges, data.types)  # type: ignore[no-any-return]


NETS = {"gcn": Convolution, "sage": Convolution, "gin": GIN, "gcnii": GCNII, "appnp": APPNP, "gat": GAT, "rgcn": RGCN}


def train(data: Data, settings: dict[str, Any], seed: int, num_classes: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    multilabel = data.labels.ndim == 2
    widths = [data.X.shape[1], *[settings["hidden"]] * (settings["layers"] - 1), num_classes]
    net = NETS[settings["model"]](settings, widths, data.num_types)
    rest, decay = {id(parameter) for parameter in net.rest}, settings["weight_decay"]
    groups = [
        {"params": [W for W in net.parameters() if id(W) not in rest], "weight_decay": decay},
        {"params": net.rest, "weight_decay": settings.get("weight_decay_rest", decay)},
    ]
    optimiser = torch.optim.Adam(groups, settings["lr"])
    chosen = torch.from_numpy(np.flatnonzero(data.split == 1))
    wanted = torch.from_numpy(data.labels)[chosen]
    stopping, patience = Stopping(settings.get("stop_on", "score")), settings.get("patience", 0)
    best: dict[str, Any] = {}
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
            if stopping.judge(score["val"]["acc"], score["val"]["loss"]):
                best = {"val": score["val"]["acc"], "test": score["test"]["acc"], "best_epoch": epoch + 1}
            if patience and stopping.waited >= patience:
                break
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
    manifest = shards.manifest
    data = load(shards.partition(0), args.settings["model"], args.settings["split"], manifest.num_edge_types)
    for seed in args.seeds:
        print(json.dumps(train(data, args.settings, seed, manifest.num_classes)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
