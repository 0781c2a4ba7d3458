"""Renumbers a prepared graph's classes and relations as another graph numbers them.

A model knows classes and relations by number, and in a new graph the same word may have another number. Only the files
with such numbers are written again: the others are links to the existing ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from graph_data.writer import write_array, write_manifest
from siafu.fingerprint import fingerprint
from siafu.shards import Edges, Shard, ShardSet, folder_of
from siafu.sparse import Array


@dataclass(frozen=True, eq=False)
class Numbers:
    """New numbers for classes or relations."""

    place: Array  # int64 [k]: the number in the other graph of each of ours; -1: it has none
    count: int  # how many the other graph has

    def of(self, numbers: Array) -> Array:
        """The new number of each number; -1 stays -1."""
        found: Array = np.append(self.place, -1)[numbers]
        return found

    @property
    def ascends(self) -> bool:
        return bool((np.diff(self.place[self.place >= 0]) > 0).all())


def renumbered(shards: ShardSet, folder: Path, classes: Numbers | None, relations: Numbers | None) -> ShardSet:
    """Writes the renumbered graph to ``folder``, which needs ``shards`` to stay where they are. None: no change. Every
    edge's type must have a new number."""
    manifest, entries = shards.manifest, []
    for p, entry in enumerate(manifest.partitions):
        made, into = (shards.path / folder_of(p)).resolve(), folder / folder_of(p)
        into.mkdir(parents=True)
        arrays = _changed(shards.partition(p), classes, relations)
        files = {f"{name}.npy": write_array(into / f"{name}.npy", array) for name, array in arrays.items()}
        for name in entry.files.keys() - files.keys():
            (into / name).symlink_to(made / name)
        entries.append(replace(entry, files={**entry.files, **files}))
    manifest = replace(manifest, partitions=tuple(entries), files={})
    if classes is not None:
        manifest = replace(manifest, num_classes=classes.count)
    if relations is not None:
        counts = np.zeros(relations.count, np.int64)
        occurs = relations.place >= 0
        counts[relations.place[occurs]] = np.asarray(manifest.type_counts or (manifest.num_edges,))[occurs]
        manifest = replace(
            manifest, edge_types="relations", num_edge_types=relations.count, type_counts=tuple(counts.tolist())
        )
    manifest = replace(manifest, fingerprint=fingerprint(ShardSet(folder, manifest)))
    write_manifest(folder, manifest)
    return ShardSet(folder, manifest)


def _changed(shard: Shard, classes: Numbers | None, relations: Numbers | None) -> dict[str, Array]:
    """The arrays that change, by the names of their files."""
    arrays: dict[str, Array] = {}
    if classes is not None:
        arrays["labels"] = classes.of(shard.labels)
    if relations is not None:
        arrays |= _edges("in", shard.in_edges, relations)
        arrays |= {} if shard.undirected else _edges("out", shard.out_edges, relations)
    return arrays


def _edges(side: str, edges: Edges, relations: Numbers) -> dict[str, Array]:
    """Types of edges, and weights in the order of types: types ascend among equal columns of a row."""
    types = np.zeros(len(edges.indices), np.int64) if edges.type is None else edges.type
    kind = relations.of(types).astype(np.uint16)  # [m]
    if relations.ascends:
        return {f"{side}_type": kind}
    row = np.repeat(np.arange(len(edges.indptr) - 1), np.diff(edges.indptr))
    order = np.lexsort((kind, edges.indices, row))
    weight = {} if edges.weight is None else {f"{side}_weight": edges.weight[order]}
    return {f"{side}_type": kind[order], **weight}
