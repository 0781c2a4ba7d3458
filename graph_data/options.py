"""The options of a preparation, and the manifest that records them."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.choice import check_order
from graph_data.chosen import aligned
from graph_data.link_split import Shares, hold_out, messages
from graph_data.partitioners import file_digest
from graph_data.splits import by_share, per_class, training_edges
from siafu import __version__
from siafu.errors import ConfigError, DatasetError
from siafu.features import STANDARD, Standard, check_norm, densified, normalised
from siafu.graph import TEST, TRAIN, VAL, Graph, labelled
from siafu.run_files import CONFIG
from siafu.shards import (
    CHOSEN,
    COLUMNS,
    MANIFEST,
    EdgeTypes,
    Manifest,
    OrderScores,
    PartitionEntry,
    SplitSizes,
    read_names,
)
from siafu.sparse import Array, SparseRows

SHARES = (0.6, 0.2)  # of the random split of a graph that has none, where labels are no classes; the rest is test
TASKS = ("node", "link")
LINK_OPTIONS = ("val_edges", "test_edges", "negatives", "eval_negatives")


@dataclass(frozen=True)
class Options:
    """The options of ``graph_data.prepare.prepare`` that change the shards."""

    parts: int = 1
    partitioner: str = "metis"
    order: str = "auto"
    directed: bool = False
    feature_norm: str = "none"
    seed: int = 0
    train_per_class: int = 20
    val_per_class: int = 30
    task: str = "node"  # "link": some edges are held out, to be predicted (graph_data.link_split)
    inductive: int | None = None  # the split whose training vertices are trained on as a graph of their own
    val_edges: float = 0.05
    test_edges: float = 0.1
    negatives: int = 8
    eval_negatives: int = 100
    # a run or prepared graph whose feature columns are taken, by name, and whose means and deviations
    features_as: str = ""

    @classmethod
    def of(cls, given: dict[str, Any]) -> Options:
        """The options among keyword arguments of ``prepare``; the others do not change the shards."""
        return cls(**{field.name: given[field.name] for field in fields(cls) if field.name in given})

    @property
    def shares(self) -> Shares:
        return Shares(self.val_edges, self.test_edges, self.negatives, self.eval_negatives)

    def key(self) -> dict[str, Any]:
        """The values that distinguish these shards from those of other options, without options of a task that is not
        asked for."""
        unsaid = () if self.task == "link" else ("task", *LINK_OPTIONS)
        unsaid = unsaid if self.inductive is not None else (*unsaid, "inductive")
        said = {name: value for name, value in asdict(self).items() if name not in (*unsaid, "features_as")}
        columns = self._given_columns()
        return (
            said
            | ({"standard": self._whose_standard()} if self.feature_norm == "standard" else {})
            | ({"columns": columns} if columns else {})
            | ({"owners": owners} if (owners := file_digest(self.partitioner)) else {})
        )

    def check(self) -> None:
        """Raises: ConfigError for options that are impossible for any graph."""
        if self.task not in TASKS:
            raise ConfigError(f"task {self.task!r} is not one of {', '.join(TASKS)}")
        if self.task == "link":
            self.shares.check()
            if self.directed:
                raise ConfigError("task link predicts undirected edges: it cannot keep directions")
            if self.inductive is not None:
                raise ConfigError("inductive is for task node: task link always trains without the held-out edges")
        if self.train_per_class < 1 or self.val_per_class < 0:
            raise ConfigError(
                f"{self.train_per_class} training and {self.val_per_class} validation vertices per class, "
                "must be >= 1, >= 0"
            )
        check_norm(self.feature_norm)
        if self.features_as:
            self._check_features_as(Path(self.features_as))
        check_order(self.order)

    def _check_features_as(self, run: Path) -> None:
        standardised = (run / STANDARD).is_file()
        if not (standardised or (run / CONFIG).is_file() or (run / MANIFEST).is_file()):
            raise ConfigError(f"features as {run}: neither a run nor a prepared graph")
        if standardised != (self.feature_norm == "standard"):
            theirs = "standard" if standardised else "another"
            raise ConfigError(f"features as {run}: feature norm is {self.feature_norm}, that of {run} is {theirs}")

    def with_split(self, graph: Graph) -> Graph:
        """The graph with a seeded split if it has none."""
        if graph.split.shape[1]:
            return graph
        if graph.target != "classes":
            return replace(graph, split=by_share(graph.num_vertices, *SHARES, self.seed, labelled(graph)))
        split = per_class(graph.labels, self.train_per_class, self.val_per_class, self.seed)
        return replace(graph, split=split)

    def with_columns(self, graph: Graph) -> Graph:
        """The graph with the feature columns of ``features_as`` (``graph_data.chosen``)."""
        return aligned(graph, self.features_as) if self.features_as else graph

    def _given_columns(self) -> tuple[str, ...]:
        """All entries of ``features_as`` about its feature columns; () without names."""
        names = read_names(Path(self.features_as)) if self.features_as else {}
        return (*names.get(COLUMNS, ()), *names.get(CHOSEN, ()))

    def normalised(self, graph: Graph) -> tuple[Graph, Standard | None]:
        """The tidy graph, which has a split, with normalised features, and the means and deviations of ``standard``."""
        features = graph.features
        if self.feature_norm != "standard":
            return replace(graph, features=normalised(features, self.feature_norm, graph.name)), None
        dense = densified(features, graph.name) if isinstance(features, SparseRows) else features
        standard = self.standard(replace(graph, features=dense))
        return replace(graph, features=normalised(dense, "standard", graph.name, standard)), standard

    def standard(self, graph: Graph) -> Standard:
        """Means and deviations to standardise the dense features of a graph with a split. They exclude what inductive
        training must not see.

        Raises: DatasetError if ``features_as`` has other features.
        """
        if (given := self._given_standard()) is not None:
            if len(given.mean) != graph.num_features:
                raise DatasetError(
                    f"{graph.name}: it has {graph.num_features} features, {self.features_as} was standardised with "
                    f"{len(given.mean)}"
                )
            return given
        training = None if self.inductive is None else graph.split[:, self.inductive] == TRAIN
        if training is not None and not training.any():
            raise ConfigError(f"inductive split {self.inductive}: {graph.name} has no training vertex in it")
        return Standard.of(graph.features, training)  # type: ignore[arg-type]

    def _given_standard(self) -> Standard | None:
        """The means and deviations of ``features_as``."""
        return Standard.load(Path(self.features_as)) if self.features_as else None

    def _whose_standard(self) -> str:
        """A key for the means and deviations in use, wherever they come from."""
        if (given := self._given_standard()) is None:
            return "own"
        return hashlib.sha256(given.mean.tobytes() + given.deviation.tobytes()).hexdigest()

    def edge_types(self, graph: Graph) -> EdgeTypes:
        """The meaning of edge types in the shards of a tidy graph."""
        if self.task == "link":
            return "links"
        if self.inductive is not None:
            return "inductive"
        return "none" if graph.edge_type is None else "relations"

    def with_types(self, graph: Graph) -> Graph:
        """The tidy graph, which has a split, with the edges and types that task and ``inductive`` ask for.

        Raises: DatasetError or ConfigError if it does not fit them.
        """
        if self.task == "link":
            return hold_out(graph, self.shares, self.seed)
        if self.inductive is None:
            return graph
        if graph.edge_type is not None:
            raise ConfigError(f"{graph.name}: its edges have {graph.num_edge_types} types, inductive takes one")
        return replace(graph, edge_type=training_edges(graph, self.inductive), num_edge_types=2)

    def topology(self, graph: Graph) -> Graph:
        """The graph that a partitioner or an order sees, without types, from a graph of ``with_types``."""
        if graph.edge_type is None:
            return graph
        return messages(graph) if self.task == "link" else _each_once(graph)

    def manifest(
        self,
        graph: Graph,
        order: str,
        num_edges: int,
        entries: list[PartitionEntry],
        order_scores: OrderScores | None = None,
    ) -> Manifest:
        """The manifest of the tidy ``graph``, whose edges number ``num_edges``; ``order`` is the order that "auto"
        chose."""
        return Manifest(
            siafu=__version__,
            name=graph.name,
            num_vertices=graph.num_vertices,
            num_edges=num_edges,
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            multilabel=graph.multilabel,
            directed=self.directed or self.task == "link",
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
            num_edge_types=graph.num_edge_types,
            edge_types=self.edge_types(graph),
            type_counts=_type_counts(graph),
            inductive_split=-1 if self.inductive is None else self.inductive,
            target=graph.target,
            random_features=graph.random_features,
        )


def _each_once(graph: Graph) -> Graph:
    """The edges without their types, each once."""
    first = np.ones(graph.num_edges, bool)
    first[1:] = (graph.src[1:] != graph.src[:-1]) | (graph.dst[1:] != graph.dst[:-1])
    weight = None if graph.weight is None else graph.weight[first]
    return replace(graph, src=graph.src[first], dst=graph.dst[first], weight=weight, edge_type=None, num_edge_types=1)


def _type_counts(graph: Graph) -> tuple[int, ...]:
    if graph.edge_type is None:
        return ()
    return tuple(np.bincount(graph.edge_type, minlength=graph.num_edge_types).tolist())


def _sizes(split: Array) -> SplitSizes:
    counts = np.bincount(split, minlength=TEST + 1)
    return SplitSizes(train=int(counts[TRAIN]), val=int(counts[VAL]), test=int(counts[TEST]))
