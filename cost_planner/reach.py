"""Predicts from counts what a training epoch reaches: ghosts whose rows travel, and vertices that stages compute
(docs/adr/0038, 0039); and what an evaluation reads (0040). Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from siafu import views
from siafu.graph import MESSAGE, TEST_NEGATIVE, TRAIN_NEGATIVE, VAL_NEGATIVE
from siafu.shards import Manifest
from siafu.tasks import Lane, Program, Step
from siafu.views import PAIRS, TRAINING

FALSE = (TRAIN_NEGATIVE, VAL_NEGATIVE, TEST_NEGATIVE)  # pairs that are no edges


@dataclass(frozen=True)
class Crossing:
    """Edges of a vertex into one of the other partitions."""

    edges: float  # on average, also of vertices that have none there
    ghosts: float  # share of the vertices that have one: they are its ghosts

    @classmethod
    def of(cls, manifest: Manifest) -> Crossing:
        pairs = max(1, manifest.num_vertices * (manifest.num_partitions - 1))  # of a vertex, and another partition
        ghosts = sum(entry.ghosts_in for entry in manifest.partitions)
        return cls(sum(entry.cut_edges for entry in manifest.partitions) / pairs, ghosts / pairs)

    def leads(self, share: float) -> float:
        """Share of the ghosts with at least one edge in a random share of all edges.

        Assumed: numbers of edges have a negative binomial distribution, the one with this mean and as many zeros.
        """
        if share >= 1 or not self.edges:
            return min(1.0, share)
        if self._spread == math.inf:
            return math.expm1(-share * self.edges) / math.expm1(-self.edges)
        none, some = (-self._spread * math.log1p(s * self.edges / self._spread) for s in (1.0, share))
        return math.expm1(some) / math.expm1(none)

    @cached_property
    def _spread(self) -> float:
        """The distribution's second parameter; infinite if even Poisson's would have more zeros."""
        wanted = -math.log(max(1e-300, 1 - self.ghosts))
        if wanted >= self.edges:
            return math.inf
        low, high = -700.0, 700.0  # logarithms
        for _ in range(100):
            middle = (low + high) / 2
            less = math.exp(middle) * math.log1p(self.edges / math.exp(middle)) < wanted
            low, high = (middle, high) if less else (low, middle)
        return math.exp(low)


@dataclass(frozen=True)
class Links:
    """Shares of each edge type if edges are predicted (``views.of_types``), in the order of ``siafu.graph``."""

    edges: tuple[float, ...]  # of all edges
    crossing: tuple[float, ...]  # of those between partitions

    @classmethod
    def of(cls, manifest: Manifest) -> Links | None:
        """The shares of a manifest. Assumed: ends of false pairs lie anywhere; the same share of every other type
        crosses."""
        if manifest.edge_types != "links":
            return None
        numbers, anywhere = manifest.type_counts, 1 - 1 / manifest.num_partitions
        false = sum(numbers[kind] for kind in FALSE)
        true = sum(numbers) - false
        crosses = max(0.0, manifest.cut_edges - false * anywhere) / max(1, true)  # of the others, the share that does
        crossing = [number * (anywhere if kind in FALSE else crosses) for kind, number in enumerate(numbers)]
        every, cut = max(1, manifest.num_edges), max(1.0, sum(crossing))
        return cls(tuple(number / every for number in numbers), tuple(number / cut for number in crossing))

    def share_of_ghosts(self, step: Step, lane: Lane, crossing: Crossing) -> float:
        """Share of a Scatter's ghosts that the lane's pairs read, or that it gathers.

        MEASURED: GCN 2 x 64, METIS, times the real bytes: cora in 2 and 4 parts 1.07 and 1.06, amazon_computers in 2
        1.22.
        """
        kinds = PAIRS[lane] if step.operator == "pairs" else (MESSAGE,)
        return crossing.leads(sum(self.crossing[kind] for kind in kinds))


def share_that_counts(manifest: Manifest, split: int, lane: Lane) -> float:
    """Share of the vertices whose outputs the lane needs: training vertices, or in evaluation the judged ones."""
    sizes = manifest.splits[split]
    number = sizes.train if lane is Lane.TRAIN else sizes.train + sizes.val + sizes.test
    return number / max(1, manifest.num_vertices)


def share_among_training(manifest: Manifest) -> float | None:
    """Share of the edges between training vertices: inductive training gathers along them alone. None: training is not
    inductive."""
    if manifest.edge_types != "inductive":
        return None
    return manifest.type_counts[TRAINING] / max(1, manifest.num_edges)


def share_of_ghosts(step: Step, train: float, crossing: Crossing) -> float:
    """Share of a Scatter's ghosts whose rows travel (ADR 0038), if they are gathered along all edges. train: share of
    vertices that count.

    MEASURED (``benchmarks.acceptance.ghosts``): METIS, eleven graphs with their public splits: 1.07 times the real
    share (median); ten graphs 0.43 to 1.96 times, nell 4.1 to 5.5 times.
    """
    if not step.of_loss:
        return 1.0
    return train if step.backward else crossing.leads(train)


def share_of_ghosts_among(train: float, among: float, crossing: Crossing) -> float:
    """Share of a Scatter's ghosts whose rows travel in inductive training, which gathers only along edges between
    training vertices: ghosts that train and have such an edge. among: share of such edges.

    MEASURED: METIS, 2 and 4 parts, 8% to 66% train: 1.00 to 1.15 times the real bytes. Where 20 vertices of each class
    train, in nine cuts of three graphs at most 11 ghosts are read, and up to 28 more are predicted.
    """
    return train * crossing.leads(min(1.0, among / train)) if train else 0.0


def share_that_feeds(train: float, degree: float) -> float:
    """Share of the vertices whose rows the loss's gather reads (ADR 0039): training vertices, and those with an edge
    into one. degree: edges from a vertex, on average.

    MEASURED (``benchmarks.acceptance.ghosts``): eleven graphs with their public splits 0.90 to 1.31 times the real
    share, nell 3.4 times.
    """
    return train + (1 - train) * _leads(train, degree)


def share_held(program: Program, counted: float, degree: float, *, among: bool) -> float:
    """Share of a partition's rows that a lane holds (ADR 0043). counted: share of vertices that count; among: whether
    the lane sees only the edges between these. Never 0: a run needs a training vertex."""
    if among:
        return views.share_of_loss(counted)
    return views.share_that_feeds(share_that_feeds(counted, degree)) if program.of_loss else 1.0


def _leads(train: float, edges: float) -> float:
    """The probability that at least one edge of a vertex leads to a training vertex. Assumed: the number of its edges,
    at least one, is geometric with mean ``edges``; training vertices lie anywhere."""
    return train / (train + (1 - train) / max(1.0, edges)) if train else 0.0
