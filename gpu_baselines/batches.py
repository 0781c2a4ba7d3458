"""Which subgraphs make a batch: Cluster-GCN's stochastic multiple partitions (Chiang et al., KDD 2019, §3.2). Pure.

1. A batch has up to ``per_batch`` subgraphs, drawn anew in every epoch. Each subgraph is in one batch of an epoch, and
   the sizes of batches differ by one at most. Draws depend on the seed and the epoch, not on the number of ranks.
2. With one subgraph per batch, batches are the same in every epoch and keep their order, as in the GossipGCN thesis.
3. A batch without a training vertex is left out.
4. METIS puts vertices of one class together: a batch of one subgraph sees few classes, and training may collapse.
   ``mixture`` measures this as Cluster-GCN's figure 2 does, by the entropy of a batch's labels.
5. If a batch keeps few of its vertices' edges ("embedding utilization", section 3.1), sums in training differ from
   those of the whole graph, which evaluation uses. ``kept`` is the expected share.
6. By default a batch has the fewest subgraphs with a mixture of ``MIXED`` and ``KEPT`` of the edges; below these, a
   warning is given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from siafu.sparse import Array

#: docs/measured/batches.md has the accuracies that this was chosen by.
MIXED, KEPT = 0.8, 0.5
DRAWS = 10  # epochs whose batches ``mixture`` looks at
BINS = 10  # of labels that are numbers: the groups between their quantiles stand for classes
_DRAW = 1  # sets these draws apart from others of the same seed and epoch


@dataclass(frozen=True, eq=False)
class Batches:
    """The batches of every epoch, equal on all ranks."""

    per_batch: int
    mixture: float  # of the labels of such batches
    kept: float  # of their edges
    trains: Array  # bool [n], whether a subgraph has a training vertex
    seed: int

    def __call__(self, epoch: int) -> list[Array]:
        """The batches of an epoch in the order of computation: each int64 [q], its subgraphs' numbers, ascending."""
        found = drawn(len(self.trains), self.per_batch, self.seed, epoch)
        return [subgraphs for subgraphs in found if self.trains[subgraphs].any()]

    @property
    def fixed(self) -> bool:
        """Whether all epochs have the same batches."""
        return self.per_batch in (1, len(self.trains))


def drawn(num_subgraphs: int, per_batch: int, seed: int, epoch: int) -> list[Array]:
    """All subgraphs, drawn into batches of up to ``per_batch``."""
    order = np.arange(num_subgraphs)
    if per_batch > 1:
        order = np.random.default_rng([seed, epoch, _DRAW]).permutation(num_subgraphs)
    return [np.sort(part) for part in np.array_split(order, -(-num_subgraphs // per_batch))]


def counted(labels: list[Array], num_classes: int, target: str) -> Array:
    """Occurrences of each class among the labels of each subgraph, int64 [n, C]; in sets of labels, each label counts.

    labels: of the training vertices of each subgraph, int64 [k], 0 and 1 [k, C], or numbers [k] or [k, C].
    """
    if target == "labels":
        return np.stack([(part > 0).sum(0) for part in labels]).astype(np.int64)
    if target == "numbers":
        labels, num_classes = _binned([part.reshape(len(part), -1)[:, 0] for part in labels]), BINS
    return np.stack([np.bincount(part, minlength=num_classes) for part in labels]).astype(np.int64)


def _binned(values: list[Array]) -> list[Array]:
    edges = np.quantile(np.concatenate(values), np.arange(1, BINS) / BINS)
    return [np.searchsorted(edges, part, side="right") for part in values]


def mixture(counts: Array, per_batch: int) -> float:
    """The mean entropy of the labels of a batch, as a share of that of all training labels: 1 for a batch like the
    whole graph, 0 for one with a single class. Also 1 if the graph has only one class."""
    whole = float(_entropy(counts.sum(0)[None])[0])
    if not whole:
        return 1.0
    batches = [
        counts[subgraphs].sum(0) for draw in range(DRAWS) for subgraphs in drawn(len(counts), per_batch, 0, draw)
    ]
    trained = np.array([batch for batch in batches if batch.any()])
    return float(_entropy(trained).mean()) / whole


def kept(inside: float, num_subgraphs: int, per_batch: int) -> float:
    """The expected share of edges into a batch that begin in the batch. inside: share of all edges that lie inside a
    subgraph."""
    others = (per_batch - 1) / max(1, num_subgraphs - 1)
    return inside + (1 - inside) * others


def enough(counts: Array, inside: float, most: int) -> int:
    """The fewest subgraphs per batch with a mixture of at least ``MIXED`` and at least ``KEPT`` of the edges, up to
    ``most``."""
    count = len(counts)
    sizes = dict.fromkeys(-(-count // batches) for batches in range(count, 0, -1))
    keeping = (size for size in sizes if size >= most or kept(inside, count, size) >= KEPT)
    return next((size for size in keeping if size >= most or mixture(counts, size) >= MIXED), most)


def _entropy(counts: Array) -> Array:
    """Entropy of counts [b, C], in nats: float64 [b]."""
    shares = counts / counts.sum(1, keepdims=True)
    return -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(1)
