"""A graph as its source gives it, checked and tidied once, before anything is cut into partitions.

An edge ``src -> dst`` means that ``dst`` gathers from ``src``. Nothing behind ``tidy`` checks the data again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from siafu.errors import ConfigError, DatasetError
from siafu.sparse import Array, Rows, SparseRows

log = logging.getLogger(__name__)

NONE, TRAIN, VAL, TEST = 0, 1, 2, 3  # what a vertex is for, in one split

FEATURE_NORMS = ("none", "row", "standard")
KEPT_DTYPES = (np.dtype(np.uint8), np.dtype(np.float16), np.dtype(np.float32))  # every other one becomes float32
DENSE_LIMIT_BYTES = 4 << 30  # standardised features have no zeros left: the most that we make of sparse ones
BLOCK_VALUES = 1 << 24  # values that a pass over the features looks at together


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
    if feature_norm not in FEATURE_NORMS:
        raise ConfigError(f"feature norm {feature_norm!r} is not one of {', '.join(FEATURE_NORMS)}")
    _check_edges(graph)
    _check_labels(graph)
    _check_split(graph)
    features = _checked_features(graph)
    src, dst, weight = _tidy_edges(graph, directed)
    return replace(
        graph,
        src=src,
        dst=dst,
        weight=weight,
        features=_normalised(features, feature_norm, graph.name),
        labels=graph.labels.astype(np.uint8 if graph.multilabel else np.int64, copy=False),
        split=_labelled_split(graph),
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


def _checked_features(graph: Graph) -> Rows:
    """The features in a dtype that a shard may hold, every value finite."""
    features, name = graph.features, graph.name
    if len(features) != graph.num_vertices:
        raise DatasetError(f"{name}: {len(features)} feature rows, must be {graph.num_vertices}")
    if features.dtype.kind not in "fiub":
        raise DatasetError(f"{name}: features are {features.dtype}, must be real numbers")
    if isinstance(features, SparseRows):
        _check_structure(name, features)
    elif features.ndim != 2:
        raise DatasetError(f"{name}: features have {features.ndim} axes, must be 2, [N, F]")
    if features.dtype.kind == "b":
        features = features.astype(np.uint8)
    elif features.dtype not in KEPT_DTYPES:
        with np.errstate(over="ignore"):  # what does not fit becomes inf and is named below
            features = features.astype(np.float32)
    if isinstance(features, SparseRows):
        bad = np.flatnonzero(~np.isfinite(features.data))
        if len(bad):
            v = int(np.searchsorted(features.indptr, bad[0], side="right")) - 1
            raise DatasetError(_not_finite(name, v, int(features.indices[bad[0]]), features.data[bad[0]]))
        return features
    for start, block in _blocks(features):
        finite = np.isfinite(block)
        if not finite.all():
            v, column = np.argwhere(~finite)[0]
            raise DatasetError(_not_finite(name, start + int(v), int(column), block[v, column]))
    return features


def _not_finite(name: str, vertex: int, column: int, value: float) -> str:
    return f"{name}: feature {column} of vertex {vertex} is {value}, must be finite"


def _check_structure(name: str, rows: SparseRows) -> None:
    entries = len(rows.indices)
    if (
        rows.indptr[0] != 0
        or rows.indptr[-1] != entries
        or (np.diff(rows.indptr) < 0).any()
        or len(rows.data) != entries
    ):
        raise DatasetError(f"{name}: sparse feature rows do not add up to their {entries} column indices")
    if entries and (rows.indices.min() < 0 or rows.indices.max() >= rows.width):
        entry = int(np.argmax((rows.indices < 0) | (rows.indices >= rows.width)))
        v = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
        raise DatasetError(
            f"{name}: vertex {v} has feature column {rows.indices[entry]}, must be in 0..{rows.width - 1}"
        )
    rises = np.diff(rows.indices) > 0
    starts = rows.indptr[1:-1]
    rises[starts[(starts > 0) & (starts < entries)] - 1] = True  # from one row to the next the column may fall
    if not rises.all():
        v = int(np.searchsorted(rows.indptr, int(np.argmin(rises)) + 1, side="right")) - 1
        raise DatasetError(f"{name}: feature columns of vertex {v} are not sorted, or one is there twice")


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


# --- features and splits ----------------------------------------------------------------------------------------------


def _blocks(features: Array) -> Iterator[tuple[int, Array]]:
    """Pieces of the matrix, each with its first row, small enough to make temporary copies of."""
    rows = max(1, BLOCK_VALUES // max(1, features.shape[1]))
    for start in range(0, len(features), rows):
        yield start, features[start : start + rows]


def _normalised(features: Rows, norm: str, name: str) -> Rows:
    if norm == "none":
        return features
    if norm == "row":
        return _sparse_rows_normalised(features) if isinstance(features, SparseRows) else _rows_normalised(features)
    if isinstance(features, SparseRows):
        nbytes = 4 * features.shape[0] * features.shape[1]
        if nbytes > DENSE_LIMIT_BYTES:
            raise DatasetError(
                f"{name}: standardised features are dense and take {nbytes} bytes, the limit is {DENSE_LIMIT_BYTES}"
            )
        features = features.dense()
    return _standardised(features)


def _rows_normalised(features: Array) -> Array:
    out = np.empty(features.shape, np.float32)  # [N, F]
    for start, block in _blocks(features):
        total = np.abs(block.astype(np.float32)).sum(axis=1, dtype=np.float64)  # [rows]
        out[start : start + len(block)] = block / np.where(total > 0, total, 1)[:, None]
    return out


def _sparse_rows_normalised(features: SparseRows) -> SparseRows:
    row = features.row_of_entry()  # [nnz]
    total = np.bincount(row, np.abs(features.data.astype(np.float64)), minlength=len(features))  # [N]
    data = features.data / np.where(total > 0, total, 1)[row]
    return replace(features, data=data.astype(np.float32))


def _standardised(features: Array) -> Array:
    mean = features.mean(axis=0, dtype=np.float64)  # [F]
    square = np.zeros(features.shape[1])  # [F]
    for _, block in _blocks(features):
        square += ((block - mean) ** 2).sum(axis=0)
    deviation = np.sqrt(square / len(features))
    deviation[deviation < 1e-12 * np.maximum(1, np.abs(mean))] = np.inf  # constant: rounding is not a signal
    out = np.empty(features.shape, np.float32)  # [N, F]
    for start, block in _blocks(features):
        out[start : start + len(block)] = (block - mean) / deviation
    return out


def _labelled_split(graph: Graph) -> Array:
    if graph.multilabel:
        return graph.split
    unlabelled = graph.labels < 0
    dropped = int((unlabelled & (graph.split != NONE).any(axis=1)).sum())
    if not dropped:
        return graph.split
    log.warning("%s: %d vertices without a label were in a split and are left out of it", graph.name, dropped)
    return np.where(unlabelled[:, None], np.uint8(NONE), graph.split)
