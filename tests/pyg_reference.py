"""The judge of link prediction and of R-GCN: PyTorch Geometric's own layers as its
examples train them, full batch, float32.

It reads siafu's prepared shards (one partition), so that graph, features, split and held-out pairs are the same, and
shares no arithmetic with siafu but that of the scores. False training edges are those of ``negative_sampling``, anew in
every epoch, as many as there are training edges. ``benchmarks.acceptance.edges`` runs it as a process:

    python -m tests.pyg_reference SHARDS --settings '{"task": "link", "hidden": 128, ...}' --seeds 0 1 2

and reads one JSON object per seed from its output.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch_geometric.nn import GCNConv, RGCNConv
from torch_geometric.utils import negative_sampling

from siafu import views
from siafu.graph import MESSAGE, TEST_NEGATIVE, TEST_PAIR, TRAIN_PAIR, VAL_NEGATIVE, VAL_PAIR
from siafu.metrics import METRICS
from siafu.shards import Edges, Shard, ShardSet
from siafu.sparse import EdgeRows, SparseRows

warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # mapped files: nobody writes

HELD_OUT = (VAL_PAIR, VAL_NEGATIVE, TEST_PAIR, TEST_NEGATIVE)
Scores = dict[str, dict[str, float]]


def edge_index(edges: Edges) -> torch.Tensor:
    """[2, E], sources first."""
    indptr = np.asarray(edges.indptr)
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return torch.from_numpy(np.stack([np.asarray(edges.indices, np.int64), target]))


def features(shard: Shard) -> torch.Tensor:
    X = shard.features
    return torch.from_numpy(np.asarray(X.dense() if isinstance(X, SparseRows) else X, np.float32))


class Two(torch.nn.Module):
    """conv, relu, dropout, conv."""

    def __init__(self, first: torch.nn.Module, second: torch.nn.Module, dropout: float):
        super().__init__()
        self.first, self.second, self.dropout = first, second, dropout

    def forward(self, x: torch.Tensor, *edges: torch.Tensor) -> torch.Tensor:
        x = functional.dropout(x, self.dropout, self.training)
        h = functional.dropout(self.first(x, *edges).relu(), self.dropout, self.training)
        out: torch.Tensor = self.second(h, *edges)
        return out


def links(shard: Shard, settings: dict[str, Any]) -> tuple[Two, Callable[[Two], torch.Tensor], Callable[[Two], Scores]]:
    """The net, its loss in an epoch, and its scores: PyG's examples/link_pred.py."""
    x, n = features(shard), len(shard.vertices)
    messages, training = (edge_index(views.of_types(shard.in_edges, [kind])) for kind in (MESSAGE, TRAIN_PAIR))
    once = training[:, training[0] < training[1]]
    held = views.of_types(shard.in_edges, HELD_OUT)
    pairs, metric = edge_index(held), METRICS["links"]
    assert held.type is not None
    kinds = EdgeRows(held.indptr, held.type.astype(np.uint8)[:, None])
    net = Two(
        GCNConv(x.shape[1], settings["hidden"]), GCNConv(settings["hidden"], settings["outputs"]), settings["dropout"]
    )

    def loss(net: Two) -> torch.Tensor:
        h = net(x, messages)
        false = negative_sampling(messages, n, once.shape[1])
        both = torch.cat([once, false], dim=1)
        true = torch.cat([torch.ones(once.shape[1]), torch.zeros(false.shape[1])])
        return functional.binary_cross_entropy_with_logits((h[both[0]] * h[both[1]]).sum(1), true)

    def scores(net: Two) -> Scores:
        h = net(x, messages)
        s = torch.cat([(h[u] * h[v]).sum(1) for u, v in zip(*(side.split(1 << 17) for side in pairs), strict=True)])
        rows = EdgeRows(held.indptr, s.numpy()[:, None])
        return metric.scores(metric.tally(rows, kinds, np.zeros(n, np.uint8)))

    return net, loss, scores


def relations(
    shard: Shard, settings: dict[str, Any]
) -> tuple[Two, Callable[[Two], torch.Tensor], Callable[[Two], Scores]]:
    """The same of PyG's RGCNConv."""
    x, edges = features(shard), edge_index(shard.in_edges)
    kind = torch.from_numpy(np.asarray(shard.in_edges.type, np.int64))
    labels, split, metric = np.asarray(shard.labels), np.asarray(shard.split[:, 0]), METRICS["classes"]
    chosen = torch.from_numpy(np.flatnonzero(split == 1))
    wanted = torch.from_numpy(labels)[chosen]
    many, width, bases = int(kind.max()) + 1, settings["hidden"], settings["bases"] or None
    first, second = RGCNConv(x.shape[1], width, many, bases), RGCNConv(width, int(labels.max()) + 1, many, bases)
    net = Two(first, second, settings["dropout"])

    def loss(net: Two) -> torch.Tensor:
        return functional.cross_entropy(net(x, edges, kind)[chosen], wanted)

    def scores(net: Two) -> Scores:
        return metric.scores(metric.tally(net(x, edges, kind).numpy(), labels, split))

    return net, loss, scores


def train(shard: Shard, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    net, loss, scores = {"link": links, "node": relations}[settings["task"]](shard, settings)
    optimiser = torch.optim.Adam(net.parameters(), settings["lr"], weight_decay=settings["weight_decay"])
    best: Scores = {}
    started = time.perf_counter()
    for epoch in range(settings["epochs"]):
        net.train()
        optimiser.zero_grad()
        loss(net).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if (epoch + 1) % settings["eval_every"] == 0 or epoch + 1 == settings["epochs"]:
            net.eval()
            with torch.no_grad():
                last = scores(net)
            best = last if not best or last["val"]["acc"] > best["val"]["acc"] else best
    return {"seed": seed, "best": best["test"], "last": last["test"], "seconds": time.perf_counter() - started}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards")
    parser.add_argument("--settings", type=json.loads, required=True, metavar="JSON")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    shard = ShardSet.open(args.shards).partition(0)
    for seed in args.seeds:
        print(json.dumps(train(shard, args.settings, seed)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
