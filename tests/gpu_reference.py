"""One card measured, by what torch and PyG make of it: epochs of plain nets, and
kernels beside the card's copy bandwidth.

``benchmarks.acceptance.baselines.gpu`` runs it as a process, and reads one JSON object from its output:

    python -m tests.gpu_reference epoch SHARDS --library torch|pyg --model gcn|sage|gat --hidden 128 --layers 3 --epochs
    10 python -m tests.gpu_reference kernels SHARDS --width 128

It reads siafu's prepared shards (one partition), so that the graph is the same. ``--device cpu`` tries it out.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gpu_baselines.adjacency import Adjacency
from gpu_baselines.halos.quantise import Layout
from gpu_baselines.kernels import packing
from siafu.graph import TRAIN
from siafu.shards import Shard, ShardSet
from siafu.sparse import SparseRows

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")

COPY_BYTES, REPEATS, IN_A_ROW = 1 << 30, 20, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("epoch", "kernels"))
    parser.add_argument("shards")
    parser.add_argument("--library", default="torch", choices=("torch", "pyg"))
    parser.add_argument("--model", default="sage", choices=("gcn", "sage", "gat"))
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    device, shard = torch.device(args.device), ShardSet.open(args.shards).partition(0)
    print(json.dumps(epochs(args, device, shard) if args.what == "epoch" else kernels(args, device, shard)))


def timed(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Seconds of one call, the median; what is left on the card by the call before is waited for."""
    seconds = []
    for _ in range(repeats + 2):
        _wait(device)
        begin = time.perf_counter()
        work()
        _wait(device)
        seconds.append(time.perf_counter() - begin)
    return median(seconds[2:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --- epochs -----------------------------------------------------------------------------------------------------------


def epochs(args: argparse.Namespace, device: torch.device, shard: Shard) -> dict[str, Any]:
    """Median seconds of forward, backward and Adam's step of the whole graph, and the most memory taken."""
    X = shard.features
    x = torch.from_numpy(np.array(X.dense() if isinstance(X, SparseRows) else X, np.float32)).to(device)
    labels = torch.from_numpy(np.array(shard.labels)).to(device)
    rows = torch.from_numpy(np.flatnonzero(np.asarray(shard.split)[:, 0] == TRAIN)).to(device)
    classes = labels.shape[1] if labels.ndim > 1 else int(labels.max()) + 1
    widths = [x.shape[1], *[args.hidden] * (args.layers - 1), classes]
    net = (_pyg if args.library == "pyg" else _plain)(args, device, shard, widths).to(device)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)

    def epoch() -> None:
        optimiser.zero_grad()
        found = net(x)[rows]
        loss = (
            functional.binary_cross_entropy_with_logits(found, labels[rows].float())
            if labels.ndim > 1
            else functional.cross_entropy(found, labels[rows])
        )
        loss.backward()
        optimiser.step()

    seconds = timed(epoch, device, args.epochs)
    most = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {"epoch_s": seconds, "memory_bytes": most, "torch": torch.__version__}


class _Layers(torch.nn.Module):
    def __init__(self, convs: list[torch.nn.Module], graph: Any):
        super().__init__()
        self.convs, self.graph = torch.nn.ModuleList(convs), graph

    def forward(self, x: Tensor) -> Tensor:
        for number, conv in enumerate(self.convs):
            x = conv(functional.dropout(x, 0.5, self.training), self.graph)
            x = x if number == len(self.convs) - 1 else x.relu()
        return x


class _Convolution(torch.nn.Module):
    """X W_self + A X W, as torch's sparse product has it; GCN's A has the vertex itself in it, and no W_self."""

    def __init__(self, fan_in: int, fan_out: int, own: bool):
        super().__init__()
        self.neighbours = torch.nn.Linear(fan_in, fan_out)
        self.own = torch.nn.Linear(fan_in, fan_out, bias=False) if own else None

    def forward(self, x: Tensor, A: Tensor) -> Tensor:
        found: Tensor = self.neighbours(torch.sparse.mm(A, x))
        return found if self.own is None else found + self.own(x)


def _plain(args: argparse.Namespace, device: torch.device, shard: Shard, widths: list[int]) -> torch.nn.Module:
    if args.model == "gat":
        raise SystemExit("torch alone has no attention over edges: --library pyg")
    source, target = _edges(shard)
    n = len(shard.vertices)
    if args.model == "gcn":
        source, target = (torch.cat([end, torch.arange(n)]) for end in (source, target))
    degree = torch.bincount(target, minlength=n).clamp(min=1).float()
    value = (degree[source] * degree[target]).rsqrt() if args.model == "gcn" else 1 / degree[target]
    A = torch.sparse_coo_tensor(torch.stack([target, source]), value, (n, n)).coalesce().to_sparse_csr().to(device)
    return _Layers([_Convolution(i, o, args.model == "sage") for i, o in pairwise(widths)], A)


def _pyg(args: argparse.Namespace, device: torch.device, shard: Shard, widths: list[int]) -> torch.nn.Module:
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv  # not where only torch is measured

    edge_index = torch.stack(_edges(shard)).to(device)
    if args.model == "gat":
        last = len(widths) - 2
        convs: list[Any] = [
            GATConv(i, o if k == last else o // args.heads, 1 if k == last else args.heads)
            for k, (i, o) in enumerate(pairwise(widths))
        ]
    else:
        convs = [(GCNConv if args.model == "gcn" else SAGEConv)(i, o) for i, o in pairwise(widths)]
    return _Layers(convs, edge_index)


def _edges(shard: Shard) -> tuple[Tensor, Tensor]:
    """Sources and targets, int64 [E]."""
    indptr = np.asarray(shard.in_edges.indptr)
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return torch.from_numpy(np.asarray(shard.in_edges.indices, np.int64)), torch.from_numpy(target)


# --- kernels ----------------------------------------------------------------------------------------------------------


def kernels(args: argparse.Namespace, device: torch.device, shard: Shard) -> dict[str, Any]:
    """Bytes per second: of a copy on the card, of our sum over edges and of the quantiser, each with the bytes that it
    cannot do without. Sums read a row per edge: from memory at the worst, though many come from the cache (above 1)."""
    size = COPY_BYTES if device.type == "cuda" else COPY_BYTES // 64
    source = torch.ones(size // 4, device=device)
    to = torch.empty_like(source)
    copy = 2 * size / timed(lambda: to.copy_(source), device, REPEATS)
    found: dict[str, Any] = {"copy": copy, "device": _name(device)}
    n, F, E = len(shard.vertices), args.width, len(shard.in_edges.indices)
    X = torch.rand(n, F, device=device)
    A = Adjacency(shard.in_edges, n, None, None)
    once, every = 4 * (n * F * 2 + E) + 8 * E, 4 * (n * F + E * F + E) + 8 * E
    seconds = timed(lambda: A(X), device, REPEATS)
    found["spmm"] = {"seconds": seconds, "share_once": once / seconds / copy, "share_per_edge": every / seconds / copy}
    rows = torch.rand(size // 4 // F // 2, F, device=device)
    for bits in (2, 4, 8):
        found |= _quantiser(rows, bits, copy)
    return found


def _quantiser(rows: Tensor, bits: int, copy: float) -> dict[str, Any]:
    """Of rows into a message and back: what is read and written once. Calls in a row, as in training, where nobody
    waits for one before the next."""
    pack = packing(Layout(np.full(len(rows), bits, np.uint8)), rows.device, 1)
    message, out = pack.pack(rows, 1), torch.empty_like(rows)
    nbytes = rows.numel() * 4 + message.numel()

    def several(work: Callable[[], Any]) -> float:
        return timed(lambda: [work() for _ in range(IN_A_ROW)], rows.device, REPEATS) / IN_A_ROW

    there, back = several(lambda: pack.pack(rows, 1)), several(lambda: pack.unpack(message, out))
    return {
        f"{name} {bits}": {"seconds": seconds, "share": nbytes / seconds / copy}
        for name, seconds in (("quantise", there), ("dequantise", back))
    }


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


if __name__ == "__main__":
    main()
