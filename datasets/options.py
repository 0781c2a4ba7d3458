"""How a graph is prepared, and the manifest that says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import version

import numpy as np

from datasets.choice import check_order
from datasets.splits import by_share, per_class
from siafu.errors import ConfigError
from siafu.features import check_norm
from siafu.graph import TEST, TRAIN, VAL, Graph
from siafu.shards import Manifest, OrderScores, PartitionEntry, SplitSizes
from siafu.sparse import Array, SparseRows

MULTILABEL_SHARES = (0.6, 0.2)  # of the random split of a multi-label graph that has none; the rest is test


@dataclass(frozen=True)
class Options:
    """The options of ``datasets.prepare.prepare`` that change the shards."""

    parts: int
    partitioner: str
    order: str
    directed: bool
    feature_norm: str
    seed: int
    train_per_class: int
    val_per_class: int

    def check(self) -> None:
        """Raises: ConfigError for what cannot be, whatever the graph."""
        if self.train_per_class < 1 or self.val_per_class < 0:
            raise ConfigError(
                f"{self.train_per_class} training and {self.val_per_class} validation vertices per class, "
                "must be >= 1, >= 0"
            )
        check_norm(self.feature_norm)
        check_order(self.order)

    def with_split(self, graph: Graph) -> Graph:
        """The graph with a seeded split if it has none."""
        if graph.split.shape[1]:
            return graph
        if graph.multilabel:
            return replace(graph, split=by_share(graph.num_vertices, *MULTILABEL_SHARES, self.seed))
        split = per_class(graph.labels, self.train_per_class, self.val_per_class, self.seed)
        return replace(graph, split=split)

    def manifest(
        self,
        graph: Graph,
        order: str,
        num_edges: int,
        entries: list[PartitionEntry],
        order_scores: OrderScores | None = None,
    ) -> Manifest:
        """Of the tidy ``graph``, whose edges are counted by ``num_edges``; ``order`` is what "auto" or "best" stood for."""
        return Manifest(
            siafu=version("siafu"),
            name=graph.name,
            num_vertices=graph.num_vertices,
            num_edges=num_edges,
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            multilabel=graph.multilabel,
            directed=self.directed,
            weighted=graph.weight is not None,
            sparse_features=isinstance(graph.features, SparseRows),
            feature_norm=self.feature_norm,
            partitioner=self.partitioner,
            order=order,
            seed=self.seed,
            num_partitions=self.parts,
            splits=tuple(_sizes(column) for column in graph.split.T),
            cut_edges=sum(entry.cut_edges for entry in entries),
            partitions=tuple(entries),
            order_scores=order_scores or {},
        )


def _sizes(split: Array) -> SplitSizes:
    counts = np.bincount(split, minlength=TEST + 1)
    return SplitSizes(train=int(counts[TRAIN]), val=int(counts[VAL]), test=int(counts[TEST]))
