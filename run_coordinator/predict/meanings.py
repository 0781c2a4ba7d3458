"""Matches a graph's classes and relations with those of a run, by their names and not by their numbers.

Classes and relations without names are matched by number, so graphs without names need nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graph_data.renumbered import Numbers
from siafu.errors import ConfigError, listed
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import Array

Names = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Meanings:
    """Names of all classes and relations that a run's model distinguishes, in the order of its numbers."""

    run_dir: Path
    classes: tuple[str, ...]
    relations: tuple[str, ...]

    @classmethod
    def of(cls, run_dir: Path, spec: ModelSpec, names: Names) -> Meanings:
        """``names``: "classes" and "edge_types" of the graph that the run was trained on, where it has any."""
        classes = _called(names.get("classes", ()), spec.num_classes)
        return cls(run_dir, classes, _called(names.get("edge_types", ()), spec.num_edge_types))

    def of_classes(self, shards: ShardSet, source: str) -> Numbers | None:
        """New numbers for a graph's classes; None: they stay. Raises: ConfigError for a judged class that the run does
        not have."""
        theirs = _called(shards.names().get("classes", ()), shards.manifest.num_classes)
        if theirs == self.classes[: len(theirs)]:
            return None
        judged = _judged(shards)
        found = self._numbers(theirs, self.classes, judged, f"{source}: class", "es")
        stay = (found.place == np.arange(len(theirs))).all()
        return None if stay else found

    def of_relations(self, shards: ShardSet, source: str) -> Numbers | None:
        """New numbers for a graph's edge types, as ``of_classes``; the graph gets all types of the run."""
        manifest, named = shards.manifest, shards.names().get("edge_types", ())
        if manifest.edge_types != "relations" and (len(named) != 1 or len(self.relations) == 1):
            if len(self.relations) > 1:
                raise ConfigError(
                    f"{source}: its edges have no types, the model tells {listed(self.relations)} apart "
                    "(--type COLUMN of edge lists)"
                )
            return None
        theirs = _called(named, manifest.num_edge_types)
        if theirs == self.relations:
            return None
        occurs = np.array(manifest.type_counts or (manifest.num_edges,)) > 0  # of one relation nothing is counted
        return self._numbers(theirs, self.relations, occurs, f"{source}: edge type", "s")

    def _numbers(self, theirs: Sequence[str], ours: Sequence[str], occurs: Array, what: str, plural: str) -> Numbers:
        """Maps their numbers to ours. Raises: ConfigError for a name that occurs (bool [k]) and is not among ours."""
        number = {name: i for i, name in enumerate(ours)}
        place = np.array([number.get(name, -1) for name in theirs], np.int64)
        if unknown := [theirs[i] for i in np.flatnonzero(occurs & (place < 0)).tolist()]:
            are = f"{plural} {listed(unknown)} are" if len(unknown) > 1 else f" {listed(unknown)} is"
            raise ConfigError(f"{what}{are} unknown to {self.run_dir}, which has {listed(ours)}")
        return Numbers(place, len(ours))


def _called(names: Sequence[str], count: int) -> tuple[str, ...]:
    return (*names, *map(str, range(len(names), count)))


def _judged(shards: ShardSet) -> Array:
    """Whether each class is the label of a vertex in some split, bool [C]: no other labels are used."""
    found = np.zeros(shards.manifest.num_classes, bool)
    for p in range(shards.manifest.num_partitions):
        shard = shards.partition(p)
        labels = np.asarray(shard.labels)[np.asarray(shard.split).any(axis=1)]
        found[labels[labels >= 0]] = True
    return found
