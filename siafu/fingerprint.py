"""The fingerprint of training data: one number each for edges, features, labels and splits of the whole graph.

A run that resumes, predicts or starts from saved weights compares it, and reports which of the four differ. It depends
neither on the partitions, nor on the order of vertices in them, nor on how features are stored: each number is the sum,
modulo 2^64, of a hash of every record, and a record names its vertices by their global ids.

    edges     (source, target, weight, type) of every in-edge; the type is left out where splits imply it ("inductive")
    features  (vertex, column, value as float32) of every value that is not 0, after feature_norm
    labels    (vertex, column, value); every NaN is one value
    splits    (vertex, column, value)

It finds accidents, not forgeries: the manifest's sha256 digests find those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from siafu import run_files
from siafu.errors import ConfigError
from siafu.ops import mixed
from siafu.shards import Edges, ShardSet
from siafu.sparse import Array, SparseRows

Fingerprint = Mapping[str, str]  # "edges", "features", "labels", "splits" -> 16 hex digits

#: Steps of a lattice of records whose points lie far apart modulo 2^64, as in ``siafu.ops`` for edges and heads.
STEPS = tuple(
    np.uint64(step) for step in (0xD1B54A32D192ED03, 0xABC98388FB8FAC03, 0x8CB92BA72F3D8DD7, 0x9E3779B97F4A7C15)
)
#: Records hashed together: their 64-bit numbers stay in a core's cache.
BLOCK = 1 << 15


def fingerprint(shards: ShardSet) -> dict[str, str]:
    """Returns the fingerprint of a prepared graph that this process has written. Reads all of its partitions once, a
    block at a time."""
    sums = dict.fromkeys(("edges", "features", "labels", "splits"), 0)
    typed = shards.manifest.edge_types in ("relations", "links")
    for p in range(shards.manifest.num_partitions):
        shard = shards.unverified(p)
        vertices = np.asarray(shard.vertices)
        sums["edges"] += _edges(shard.in_edges, vertices, np.concatenate([vertices, shard.ghosts_in]), typed)
        if isinstance(shard.features, SparseRows):
            sums["features"] += _sparse(shard.features, vertices)
        else:
            sums["features"] += _rows(shard.features, vertices, zeros=False)
        sums["labels"] += _rows(shard.labels, vertices)
        sums["splits"] += _rows(shard.split, vertices)
    return {name: f"{number % 2**64:016x}" for name, number in sums.items()}


def of_run(run_dir: Path) -> Fingerprint:
    """Returns the fingerprint of the data that a run was trained on, from its manifest.json. Raises: ConfigError if it
    has none."""
    try:
        return {str(name): str(number) for name, number in run_files.manifest(run_dir)["data"].items()}
    except (ConfigError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{run_dir / run_files.MANIFEST}: does not say which data the run was trained on: no run of this siafu"
        ) from None


def differences(ours: Fingerprint, theirs: Fingerprint) -> str:
    """Returns the names of the parts in which two graphs differ: "labels and splits"; "" if none does. Compares only
    parts that both fingerprints have."""
    names = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def _edges(edges: Edges, vertices: Array, columns: Array, typed: bool) -> int:
    """Returns the number of the edges. ``columns``: the global ids of local columns, int64 [n + g]."""
    total, indptr = 0, np.asarray(edges.indptr)
    for start, stop in _blocks(len(edges.indices)):
        first, last = (int(np.searchsorted(indptr, edge, side="right")) - 1 for edge in (start, stop - 1))
        sizes = np.diff(np.clip(indptr[first : last + 2], start, stop))
        targets = np.repeat(vertices[first : last + 1], sizes)
        words: Any = np.uint64(np.float32(1).view(np.uint32))
        if edges.weight is not None:
            words = edges.weight[start:stop].view(np.uint32).astype(np.uint64)
        if typed and edges.type is not None:
            words = words + (edges.type[start:stop].astype(np.uint64) << np.uint64(32))
        total += _sum(columns[edges.indices[start:stop]], targets, words)
    return total


def _rows(rows: Array, vertices: Array, *, zeros: bool = True) -> int:
    """Returns the number of a matrix ``[n, F]``, or a column ``[n]``. ``zeros``: whether zeros count."""
    table = rows if rows.ndim == 2 else rows[:, None]
    width = table.shape[1]
    columns, total = np.arange(width), 0
    for start, stop in _blocks(len(table), max(1, BLOCK // max(1, width))):
        block = table[start:stop]
        where = np.broadcast_to(vertices[start:stop, None], block.shape)
        if zeros:
            total += _sum(where, columns, _words(block))
        else:
            row, column = np.nonzero(block)
            total += _sum(vertices[start:stop][row], column, _words(block[row, column].astype(np.float32)))
    return total


def _sparse(rows: SparseRows, vertices: Array) -> int:
    total, indptr = 0, np.asarray(rows.indptr)
    for start, stop in _blocks(len(rows), max(1, BLOCK * len(rows) // max(1, len(rows.data)))):
        entries = slice(int(indptr[start]), int(indptr[stop]))
        values = rows.data[entries].astype(np.float32)
        where = np.repeat(vertices[start:stop], np.diff(indptr[start : stop + 1]))
        kept = values != 0
        total += _sum(where[kept], rows.indices[entries][kept], _words(values[kept]))
    return total


def _words(values: Array) -> Array:
    """Returns the bits of every value as uint64; every NaN has the same bits."""
    if values.dtype == np.float32:
        return np.where(np.isnan(values), np.float32(np.nan), values).view(np.uint32).astype(np.uint64)
    return values.astype(np.int64).view(np.uint64)


def _sum(first: Array, second: Array, words: Any) -> int:
    """Returns the sum of the records' hashes, modulo 2^64."""
    with np.errstate(over="ignore"):
        places = first.astype(np.uint64) * STEPS[0] + second.astype(np.uint64) * STEPS[1] + words * STEPS[2] + STEPS[3]
        return int(mixed(places).sum(dtype=np.uint64))


def _blocks(count: int, size: int = BLOCK) -> Iterator[tuple[int, int]]:
    return ((start, min(count, start + size)) for start in range(0, count, size))
