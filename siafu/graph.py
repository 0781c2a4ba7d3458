"""A graph as its source gives it, checked and tidied once, before anything is cut into partitions.

An edge ``src -> dst`` means that ``dst`` gathers from ``src``. Nothing behind ``tidy`` checks the data again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np

from siafu.errors import DatasetError
from siafu.features import check_norm, checked, normalised
from siafu.sparse import Array, Rows

log = logging.getLogger(__name__)

NONE, TRAIN, VAL, TEST = 0, 1, 2, 3  # what a vertex is for, in one split


@dataclass(frozen=True, eq=False)
class Graph:
    """Vertices, edges, features, labels, and the splits of one data set."""

    name: str
    num_vertices: int
    src: Array  # int32 or int64 [E]
    dst: Array  # int32 or int64 [E]
    weight: Array | None  # float32 [E], > 0; None: every edge weighs 1
    features: Rows  # [N, F] of any real dtype
    labels: Array  # int64 [N], -1 = unknown; or uint8 [N, C] of 0 and 1 (multi-label)
    num_classes: int
    split: Array  # uint8 [N, S] of NONE, TRAIN, VAL, TEST; S = 0: none published
    directed: bool  # False: every edge is listed in both directions, with one weight
    ids: Array | None = None  # int64 [N], ascending: what the source calls the vertices; None: 0..N-1

    @property
    def num_edges(self) -> int:
        return len(self.src)

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def multilabel(self) -> bool:
        return self.labels.ndim == 2


def tidy(graph: Graph, directed: bool = False, feature_norm: str = "none") -> Graph:
    """The graph that is trained on: checked, edges merged and sorted by (dst, src), features normalised.

    Self-loops are dropped (a model adds its own). Parallel edges become one; their weights are summed. Unless
    ``directed``, every edge also runs backwards; where a source lists both directions with different weights, both get
    the larger one (so an edge listed twice, once per direction, keeps its weight).

    ``row`` divides each feature row by its L1 norm, ``standard`` makes each column's mean 0 and deviation 1 over *all*
    vertices (in the transductive setting every vertex's features are input; splits then share one matrix). Rows of
    zeros and constant columns become zeros. Vertices without a label leave every split.

    Raises: DatasetError if the graph is malformed; ConfigError for an unknown ``feature_norm``.
    """
    check_norm(feature_norm)
    _check_edges(graph)
    check_vertices(graph)
    features = checked(graph.features, graph.num_vertices, graph.name)
    src, dst, weight = _tidy_edges(graph, directed)
    return replace(
        graph,
        src=src,
        dst=dst,
        weight=weight,
        features=normalised(features, feature_norm, graph.name),
        labels=graph.labels.astype(np.uint8 if graph.multilabel else np.int64, copy=False),
        split=labelled_split(graph),
        directed=directed,
    )


# --- checks -----------------------------------------------------------------------------------------------------------


def _check_edges(graph: Graph) -> None:
    n = graph.num_vertices
    if n < 1:
        raise DatasetError(f"{graph.name}: {n} vertices, must be >= 1")
    for end, ids in (("source", graph.src), ("target", graph.dst)):
        _check_length(graph, f"edge {end}s", ids, graph.num_edges)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise DatasetError(f"{graph.name}: edge {end}s are {ids.dtype} {list(ids.shape)}, must be integers [E]")
        if len(ids) and (ids.min() < 0 or ids.max() >= n):
            edge = int(np.argmax((ids < 0) | (ids >= n)))
            raise DatasetError(f"{graph.name}: edge {edge} has {end} vertex {ids[edge]}, must be in 0..{n - 1}")
    if graph.weight is None:
        return
    _check_length(graph, "edge weights", graph.weight, graph.num_edges)
    if graph.weight.dtype.kind not in "fiu":
        raise DatasetError(f"{graph.name}: edge weights are {graph.weight.dtype}, must be real numbers")
    with np.errstate(over="ignore", under="ignore"):
        weight = graph.weight.astype(np.float32, copy=False)  # as it is kept: 1e-50 is 0
    good = np.isfinite(weight) & (weight > 0)
    if not good.all():
        edge = int(np.argmin(good))
        raise DatasetError(f"{graph.name}: edge {edge} has weight {graph.weight[edge]}, must be finite and > 0")


def check_vertices(graph: Graph) -> None:
    """Raises: DatasetError if labels or splits are malformed. The edges are not looked at."""
    _check_labels(graph)
    _check_split(graph)


def _check_labels(graph: Graph) -> None:
    labels, classes = graph.labels, graph.num_classes
    _check_length(graph, "labels", labels, graph.num_vertices)
    if classes < 1:
        raise DatasetError(f"{graph.name}: {classes} classes, must be >= 1")
    if labels.dtype.kind not in "iub" or labels.ndim not in (1, 2):
        raise DatasetError(
            f"{graph.name}: labels are {labels.dtype} {list(labels.shape)}, must be integers [N] or [N, C]"
        )
    if not graph.multilabel:
        bad = (labels < -1) | (labels >= classes)
        if bad.any():
            v = int(np.argmax(bad))
            raise DatasetError(f"{graph.name}: vertex {v} has label {labels[v]}, must be in -1..{classes - 1}")
        return
    if labels.shape[1] != classes:
        raise DatasetError(f"{graph.name}: {labels.shape[1]} label columns, must be {classes}, the number of classes")
    wrong = (labels != 0) & (labels != 1)
    if wrong.any():
        v, column = np.argwhere(wrong)[0]
        raise DatasetError(f"{graph.name}: vertex {v} has {labels[v, column]} in label column {column}, must be 0 or 1")


def _check_split(graph: Graph) -> None:
    _check_length(graph, "split rows", graph.split, graph.num_vertices)
    if graph.split.ndim != 2 or graph.split.dtype != np.uint8:
        raise DatasetError(
            f"{graph.name}: split is {graph.split.dtype} {list(graph.split.shape)}, must be uint8 [N, S]"
        )
    if graph.split.size and graph.split.max() > TEST:
        v, s = np.argwhere(graph.split > TEST)[0]
        raise DatasetError(f"{graph.name}: vertex {v} has role {graph.split[v, s]} in split {s}, must be in 0..{TEST}")


def _check_length(graph: Graph, what: str, array: Array, length: int) -> None:
    if len(array) != length:
        raise DatasetError(f"{graph.name}: {len(array)} {what}, must be {length}")


# --- edges ------------------------------------------------------------------------------------------------------------


def id_dtype(num_vertices: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if num_vertices < 2**31 else np.int64


def pack(row: Array, column: Array, n: int) -> Array:
    """One int64 key ``row * n + column`` per edge: keys sort as (row, column) pairs do."""
    keys = row.astype(np.int64)
    keys *= n
    keys += column
    return keys


def unpack(keys: Array, n: int) -> tuple[Array, Array]:
    """The (row, column) of each key, without a temporary copy in int64."""
    row, column = np.empty(len(keys), id_dtype(n)), np.empty(len(keys), id_dtype(n))
    np.floor_divide(keys, n, out=row, casting="unsafe")
    np.remainder(keys, n, out=column, casting="unsafe")
    return row, column


def row_starts(row: Array, n: int) -> Array:
    """CSR ``indptr``, int64 [n + 1], of edges sorted by row."""
    return np.searchsorted(row, np.arange(n + 1, dtype=row.dtype)).astype(np.int64)


def _merged(keys: Array, weight: Array | None, combine: np.ufunc) -> tuple[Array, Array | None]:
    """Keys sorted, each once; the weights (float64) of equal keys are combined in the order in which they came."""
    if weight is None:
        keys.sort()
        return keys[_first_of_run(keys)], None
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = _first_of_run(keys)
    return keys[first], combine.reduceat(weight[order], np.flatnonzero(first), dtype=np.float64)


def _first_of_run(keys: Array) -> Array:
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def _tidy_edges(graph: Graph, directed: bool) -> tuple[Array, Array, Array | None]:
    n, src, dst, weight = graph.num_vertices, graph.src, graph.dst, graph.weight
    loops = src == dst
    if loops.any():
        src, dst, weight = src[~loops], dst[~loops], None if weight is None else weight[~loops]
    if directed or weight is not None:
        keys, weight = _merged(pack(dst, src, n), weight, np.add)
        dst, src = unpack(keys, n)
    if not directed:  # each pair once, then its mirror image
        keys, weight = _merged(pack(np.maximum(src, dst), np.minimum(src, dst), n), weight, np.maximum)
        high, low = unpack(keys, n)
        keys = np.concatenate([pack(high, low, n), pack(low, high, n)])
        del high, low
        keys, weight = _merged(keys, None if weight is None else np.tile(weight, 2), np.maximum)
        dst, src = unpack(keys, n)
    return src, dst, None if weight is None else weight.astype(np.float32)


# --- splits -----------------------------------------------------------------------------------------------------------


def labelled_split(graph: Graph) -> Array:
    """The split without the vertices that have no label, uint8 [N, S]."""
    if graph.multilabel:
        return graph.split
    unlabelled = graph.labels < 0
    dropped = int((unlabelled & (graph.split != NONE).any(axis=1)).sum())
    if not dropped:
        return graph.split
    log.warning("%s: %d vertices without a label were in a split and are left out of it", graph.name, dropped)
    return np.where(unlabelled[:, None], np.uint8(NONE), graph.split)
