"""Inspects a graph before training: its sizes and parts, and what is odd about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from graph_data.estimate import Estimate, estimate_of
from graph_data.inspection.columns import Features, features_of
from graph_data.inspection.labels import Labels, labels_of
from graph_data.inspection.structure import TOP_SHARE, Degrees, Structure, degrees_of, pairs_of, structure_of
from graph_data.inspection.twins import Twins, twins_of
from graph_data.memory import available, show_bytes
from graph_data.options import Options
from graph_data.sources.names import resolve
from siafu.errors import ConfigError
from siafu.features import checked
from siafu.graph import Graph, check

FEW_PARTS = 0.9  # of the vertices, in the largest component
HUBS = 0.3  # of the edges' ends, at TOP_SHARE of the vertices
APART = 0.2  # adjusted homophily below which neighbours tell little
UNEVEN = 20.0  # times as many vertices in the largest class as in the smallest
SCALES = 100.0  # between deviations of columns
COPIED = 0.01  # of the test vertices


@dataclass(frozen=True)
class Report:
    """Everything that ``siafu prepare --inspect`` shows."""

    name: str
    structure: Structure
    degrees: Degrees
    labels: Labels
    features: Features
    twins: Twins
    preparation: Estimate | None  # in one part, with the other options at their defaults
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what of the source was taken for what, and what was left out

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def inspect_source(source: str, *, directed: bool = False, memory: str | int | None = None) -> Report:
    """Loads and describes the source. Raises: DatasetError if it is malformed; ConfigError if it does not fit in
    memory."""
    found = resolve(source)
    guess = estimate_of(found, Options(directed=directed), memory, stream=False)
    limit = guess.budget.limit if memory is not None else guess.budget.taken + available()
    if guess.memory_in_memory > limit:
        raise ConfigError(
            f"{source}: --inspect holds the graph in memory, about {show_bytes(guess.memory_in_memory)}, "
            f"the limit is {show_bytes(limit)}"
        )
    return inspect(found.load(), guess)


def inspect(graph: Graph, preparation: Estimate | None = None) -> Report:
    """Describes a graph. Raises: DatasetError if it is malformed."""
    check(graph)
    features = checked(graph.features, graph.num_vertices, graph.name)
    pairs = pairs_of(graph)
    parts = (
        structure_of(graph, pairs),
        degrees_of(pairs),
        labels_of(graph, pairs),
        features_of(features, graph.made_features),
        twins_of(graph, pairs),
    )
    return Report(graph.name, *parts, preparation=preparation, warnings=tuple(_warnings(*parts)), notes=graph.notes)


# --- what is odd ------------------------------------------------------------------------------------------------------


def _warnings(structure: Structure, degrees: Degrees, labels: Labels, features: Features, twins: Twins) -> list[str]:
    """One line for each warning: the problem, and what to do about it."""
    return [
        *_of_edges(structure, degrees),
        *_of_labels(structure, labels),
        *_of_splits(labels),
        *_of_twins(structure, labels, twins),
        *_of_features(structure, features, twins),
    ]


def _of_edges(s: Structure, degrees: Degrees) -> list[str]:
    found = []
    if s.isolated:
        found.append(
            f"{s.isolated:,} of {s.vertices:,} vertices have no neighbour: only their features predict their labels"
        )
    if s.self_loops:
        found.append(f"{s.self_loops:,} self-loops are dropped: a model adds its own")
    if s.repeated_edges:
        summed = "their weights are summed" if s.weighted else "to count them, give their number as a weight"
        found.append(f"{s.repeated_edges:,} of {s.listed_edges:,} edges repeat an earlier one and are merged: {summed}")
    if 0 < s.reciprocity < 1:
        found.append(f"{s.reciprocity:.0%} of the edges run both ways: all will, unless --directed keeps directions")
    if s.largest_component < FEW_PARTS * s.vertices:
        found.append(
            f"{s.components:,} components, the largest with {s.largest_component / s.vertices:.0%} of the vertices: "
            "no messages pass between components"
        )
    if degrees.top_share > HUBS:
        found.append(
            f"{TOP_SHARE:.0%} of the vertices have {degrees.top_share:.0%} of the edges' ends: with several --parts, "
            "compare partitioners by cut edges"
        )
    return found


def _of_labels(s: Structure, labels: Labels) -> list[str]:
    found = []
    if not labels.labelled:
        but = " but --task link" if s.edge_types == 1 else ""  # which predicts edges of one type
        return [f"no vertex has a label: there is nothing to train on{but}"]
    if labels.labelled < s.vertices and labels.target != "labels":
        found.append(f"{s.vertices - labels.labelled:,} of {s.vertices:,} vertices have no label: they are in no split")
    if len(labels.counts) < labels.classes and labels.target != "numbers":
        found.append(f"{labels.classes - len(labels.counts)} of {labels.classes} classes have no vertex")
    adjusted = labels.homophily.adjusted
    if labels.target == "classes" and adjusted is not None and adjusted < APART:
        found.append(
            f"neighbours seldom share a class (adjusted homophily {adjusted:.2f}): --model sage has separate weights "
            "for a vertex and its neighbours; compare with a model without edges"
        )
    if labels.target == "classes" and len(labels.counts) > 1:
        most, least = labels.counts[0], labels.counts[-1]
        if most.vertices > UNEVEN * least.vertices:
            found.append(
                f"class {most.name} has {most.vertices:,} vertices, class {least.name} has {least.vertices:,}: "
                "accuracy hardly depends on small classes; see siafu evaluate"
            )
    return found


def _of_splits(labels: Labels) -> list[str]:
    if not labels.labelled:
        return []
    if not labels.splits:
        return [
            (
                "no split: preparing draws one; --set data.train_per_class=N and data.val_per_class=N of siafu train "
                "set its size if labels are classes"
            )
        ]
    found = []
    for number, split in enumerate(labels.splits[:1]):
        for role in ("train", "val", "test"):
            if not getattr(split, role):
                what = {
                    "train": "nothing to train on",
                    "val": "no epoch can be chosen as the best: set --epochs",
                    "test": "the model gets no test score",
                }[role]
                found.append(f"split {number} has no {role} vertex: {what}")
        if split.classes_without_train and split.train:
            found.append(
                f"{split.classes_without_train} of {len(labels.counts)} classes have no training "
                f"vertex in split {number}"
            )
    return found


def _of_twins(s: Structure, labels: Labels, twins: Twins) -> list[str]:
    if not labels.splits or not labels.splits[0].test:
        return []
    found, tested = [], labels.splits[0].test
    for copies, what in (
        (twins.neighbours, "label and targets of edges"),
        (twins.features, "features"),
    ):
        leaked = copies.in_train[0]
        if leaked > COPIED * tested:
            found.append(
                f"{copies.vertices:,} of {s.vertices:,} vertices have the same {what} as another vertex; "
                f"{leaked:,} of {tested:,} test vertices duplicate a training vertex: test scores may be too high"
            )
    return found


def _of_features(s: Structure, features: Features, twins: Twins) -> list[str]:
    found = []
    if features.kind.startswith("random:"):
        found.append(f"features are {features.kind}, the source has none: only edges carry information")
    if twins.zero_features:
        found.append(
            f"{twins.zero_features:,} of {s.vertices:,} vertices have only zeros as features: "
            "only their neighbours predict their labels"
        )
    if features.constant_columns:
        found.append(
            f"{features.constant_columns:,} of {features.columns:,} feature columns are constant: "
            "they carry no information"
        )
    if features.kind in ("binary", "counts") and features.columns > 1:
        found.append(f"features are {features.kind}, not normalised: try --feature-norm row")
    elif features.kind == "real" and features.largest_deviation > SCALES * features.smallest_deviation > 0:
        found.append(
            f"feature columns have standard deviations from {features.smallest_deviation:.2g} to "
            f"{features.largest_deviation:.2g}: "
            "try --feature-norm standard"
        )
    return found
