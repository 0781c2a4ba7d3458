"""A graph as its source gives it: checked and tidied once, before it is partitioned.

An edge ``src -> dst`` means that ``dst`` gathers from ``src``. After ``tidy`` the data is not checked again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from siafu.errors import DatasetError
from siafu.features import check_norm, checked, normalised, warn_of_steps
from siafu.sparse import Array, Rows

log = logging.getLogger(__name__)

NONE, TRAIN, VAL, TEST = 0, 1, 2, 3  # the role of a vertex in one split

#: Types of edges in link prediction (``graph_data.link_split``): vertices gather along MESSAGE; the others are pairs of
#: vertices to be scored; a negative is no edge of the graph.
MESSAGE, TRAIN_PAIR, TRAIN_NEGATIVE, VAL_PAIR, VAL_NEGATIVE, TEST_PAIR, TEST_NEGATIVE = range(7)
NUM_LINK_TYPES = 7

MAX_EDGE_TYPES = 1 << 16  # uint16 in shards

Target = Literal["classes", "labels", "numbers"]  # one class, any set of classes, real numbers


@dataclass(frozen=True, eq=False)
class Graph:
    """Vertices, edges, features, labels, and the splits of one data set."""

    name: str
    num_vertices: int
    src: Array  # int32 or int64 [E]
    dst: Array  # int32 or int64 [E]
    weight: Array | None  # float32 [E], > 0; None: every edge weighs 1
    features: Rows  # [N, F] of any real dtype
    # int64 [N]; int8 or uint8 [N, C] of 0 and 1 (multi-label), -1 = unknown; float [N] or [N, C], NaN = unknown
    labels: Array
    num_classes: int  # C; 1 if labels are float32 [N]
    split: Array  # uint8 [N, S] of NONE, TRAIN, VAL, TEST; S = 0: none published
    directed: bool  # False: every edge is listed in both directions, with one weight
    # the source's ids of vertices, ascending: int64 [N], graph_data.sources.ids.NamedIds; None: 0..N-1
    ids: Any = None
    edge_type: Array | None = None  # uint16 [E], below num_edge_types; None: all edges are of one type
    num_edge_types: int = 1
    # of "classes", "edge_types" and "features" (columns), if it has words; and those of siafu.shards's names.json
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    numbers_said: bool = False  # the user says that float labels, all 0 and 1, are numbers
    random_features: bool = False  # the source has none, and the user said "random:F"
    # how parts of the source were interpreted, and which were left out: a line each, for the user
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Describes the graph without its arrays: notebooks show it."""
        of = {"classes": "classes", "labels": "classes, several a vertex", "numbers": "numbers"}[self.target]
        held = f"{self.num_vertices:,} vertices, {self.num_edges:,} edges, {self.num_features:,} features"
        return f"Graph({self.name}: {held}, labels: {self.num_classes:,} {of})"

    @property
    def num_edges(self) -> int:
        return len(self.src)

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def target(self) -> Target:
        """The kind of the labels, by their dtype and shape."""
        if self.labels.dtype.kind == "f":
            return "numbers"
        return "labels" if self.labels.ndim == 2 else "classes"

    @property
    def multilabel(self) -> bool:
        return self.target == "labels"

    @property
    def made_features(self) -> str:
        """The features that siafu made: "random:F"; "" if the source has features."""
        return f"random:{self.num_features}" if self.random_features else ""


def tidy(graph: Graph, directed: bool = False, feature_norm: str = "none") -> Graph:
    """Returns the graph to train on: checked, edges merged and sorted by (dst, src), features normalised.

    Self-loops are dropped (a model adds its own). Parallel edges become one; their weights are summed. Unless
    ``directed``, every edge also runs backwards; where a source lists both directions with different weights, both get
    the larger one (so an edge listed twice, once per direction, keeps its weight). Edges of different types are
    different edges; one that is made to run backwards keeps its type. Edges are sorted by type where ends are equal.

    ``row`` divides each feature row by its L1 norm, ``standard`` makes each column's mean 0 and deviation 1 over *all*
    vertices: in the transductive setting every vertex's features are input, and splits share one matrix. (Inductive
    training takes the training vertices alone: ``graph_data.options``.) Rows of zeros and constant columns become
    zeros. Vertices without a label leave every split; of several labels or numbers per vertex, none may be missing.

    Raises: DatasetError if the graph is malformed; ConfigError for an unknown ``feature_norm``.
    """
    check_norm(feature_norm)
    check(graph)
    features = checked(graph.features, graph.num_vertices, graph.name)
    warn_of_steps(graph.features, lambda column: f"{graph.name}: feature {column}")
    src, dst, weight, edge_type = _tidy_edges(graph, directed)
    return replace(
        graph,
        src=src,
        dst=dst,
        weight=weight,
        edge_type=edge_type,
        features=normalised(features, feature_norm, graph.name),
        labels=kept_labels(graph),
        split=labelled_split(graph),
        directed=directed,
    )


def kept_labels(graph: Graph) -> Array:
    """Returns the labels in the dtype of shards. Several labels per vertex are int8 if some are unknown (-1), so that a
    split can leave those out."""
    if graph.target == "labels":
        unknown = graph.labels.dtype.kind == "i" and (graph.labels < 0).any()
        return graph.labels.astype(np.int8 if unknown else np.uint8, copy=False)
    if graph.target == "numbers":
        return kept_numbers(graph.labels, graph.name)
    return graph.labels.astype(np.int64, copy=False)


def kept_numbers(labels: Array, name: str, columns: Sequence[str] = ()) -> Array:
    """Returns labels [N] or [N, C] that are numbers as float32. Warns if rounding loses their differences."""
    warn_of_steps(
        labels.reshape(len(labels), -1), lambda i: f"{name}: label {columns[i]!r}" if columns else f"{name}: label {i}"
    )
    with np.errstate(over="ignore"):  # the check of the graph refuses infinite values
        return labels.astype(np.float32, copy=False)


def stored_labels(labels: Array) -> Array:
    """Returns rows of ``kept_labels`` as shards store them: an unknown one of several labels is 255. Its vertex is in
    no split."""
    return labels.view(np.uint8) if labels.dtype == np.int8 else labels


# --- checks -----------------------------------------------------------------------------------------------------------


def check_edges(graph: Graph) -> None:
    """Raises: DatasetError if edges, their types or weights are malformed."""
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
    _check_edge_types(graph)
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


def _check_edge_types(graph: Graph) -> None:
    kind, n, count = graph.edge_type, graph.num_vertices, graph.num_edge_types
    if not 1 <= count <= MAX_EDGE_TYPES:
        raise DatasetError(f"{graph.name}: {count} edge types, must be in 1..{MAX_EDGE_TYPES}")
    if kind is None:
        if count > 1:
            raise DatasetError(f"{graph.name}: {count} edge types, but no edge has a type")
        return
    _check_length(graph, "edge types", kind, graph.num_edges)
    if kind.ndim != 1 or kind.dtype.kind not in "iu":
        raise DatasetError(f"{graph.name}: edge types are {kind.dtype} {list(kind.shape)}, must be integers [E]")
    if len(kind) and (kind.min() < 0 or kind.max() >= count):
        edge = int(np.argmax((kind < 0) | (kind >= count)))
        raise DatasetError(f"{graph.name}: edge {edge} has type {kind[edge]}, must be in 0..{count - 1}")
    if n * n * count >= 2**63:
        raise DatasetError(f"{graph.name}: {n} vertices and {count} edge types: N * N * types must be < 2^63")


def check(graph: Graph) -> None:
    """Raises: DatasetError if edges, labels or splits are malformed. The features are not looked at."""
    check_edges(graph)
    check_vertices(graph)


def check_vertices(graph: Graph) -> None:
    """Raises: DatasetError if labels or splits are malformed. The edges are not looked at."""
    _check_labels(graph)
    _check_split(graph)


def _check_labels(graph: Graph) -> None:
    labels, classes = graph.labels, graph.num_classes
    _check_length(graph, "labels", labels, graph.num_vertices)
    if classes < 1:
        raise DatasetError(f"{graph.name}: {classes} classes, must be >= 1")
    if labels.dtype.kind not in "iubf" or labels.ndim not in (1, 2):
        raise DatasetError(
            f"{graph.name}: labels are {labels.dtype} {list(labels.shape)}, must be integers or numbers, [N] or [N, C]"
        )
    if graph.target == "numbers":
        _check_numbers(graph)
        return
    if graph.target == "classes":
        bad = (labels < -1) | (labels >= classes)
        if bad.any():
            v = int(np.argmax(bad))
            raise DatasetError(f"{graph.name}: vertex {v} has label {labels[v]}, must be in -1..{classes - 1}")
        return
    if labels.shape[1] != classes:
        raise DatasetError(f"{graph.name}: {labels.shape[1]} label columns, must be {classes}, the number of classes")
    wrong = (labels != 0) & (labels != 1) & (labels != -1)
    if wrong.any():
        v, column = np.argwhere(wrong)[0]
        raise DatasetError(
            f"{graph.name}: vertex {v} has {labels[v, column]} in label column {column}, must be 0 or 1, -1 = unknown"
        )


def _check_numbers(graph: Graph) -> None:
    labels, columns = graph.labels, 1 if graph.labels.ndim == 1 else graph.labels.shape[1]
    if columns != graph.num_classes:
        raise DatasetError(
            f"{graph.name}: labels are {labels.dtype} {list(labels.shape)}, {columns} number(s) per vertex, but there "
            f"are {graph.num_classes} classes: make both the same, or classes integers"
        )
    if not graph.numbers_said:
        check_told(graph.labels, graph.name)
    with np.errstate(over="ignore"):
        infinite = np.isinf(labels.astype(np.float32, copy=False))
    if infinite.any():
        v = int(np.argwhere(infinite)[0][0])
        raise DatasetError(
            f"{graph.name}: vertex {v} has label {labels[infinite][0]}, must be a finite float32, "
            "or NaN where it is unknown"
        )


def zero_and_one(labels: Array) -> bool:
    """Whether labels are floats that are all 0, 1 or NaN, but not all NaN. They may be numbers, several classes per
    vertex, or one-hot classes."""
    if labels.dtype.kind != "f":
        return False
    unknown = np.isnan(labels)
    return bool(((labels == 0) | (labels == 1) | unknown).all()) and not unknown.all()


def check_told(labels: Array, name: str) -> None:
    """Raises: DatasetError if the user must say the kind of these labels: ``zero_and_one``."""
    if zero_and_one(labels):
        raise DatasetError(
            f"{name}: y is all 0 and 1, in {labels.dtype} {list(labels.shape)}: are these classes? Say target=classes "
            "(one-hot rows, or one column), target=labels (any number of classes per vertex) or target=numbers "
            "(regression): siafu prepare --target classes, SOURCE?target=classes, in Python target='classes'"
        )


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
    """Returns an int64 key ``row * n + column`` per edge: keys sort as (row, column) pairs do."""
    keys = row.astype(np.int64)
    keys *= n
    np.add(keys, column, out=keys, casting="unsafe")  # uint64 and int64 would meet as floats
    return keys


def unpack(keys: Array, n: int) -> tuple[Array, Array]:
    """Returns the (row, column) of each key, without a temporary copy in int64."""
    row, column = np.empty(len(keys), id_dtype(n)), np.empty(len(keys), id_dtype(n))
    np.floor_divide(keys, n, out=row, casting="unsafe")
    np.remainder(keys, n, out=column, casting="unsafe")
    return row, column


def pack_typed(row: Array, column: Array, kind: Array | None, n: int, num_types: int) -> Array:
    """Returns keys like ``pack``; if there are types, keys sort as (row, column, type) do."""
    keys = pack(row, column, n)
    if kind is not None:
        keys *= num_types
        keys += kind
    return keys


def unpack_typed(keys: Array, n: int, num_types: int) -> tuple[Array, Array, Array | None]:
    """Returns the (row, column, type) of each key; None for types if there is only one."""
    if num_types == 1:
        return *unpack(keys, n), None
    pairs, kind = np.divmod(keys, num_types)
    return *unpack(pairs, n), kind.astype(np.uint16)


def row_starts(row: Array, n: int) -> Array:
    """Returns the CSR ``indptr``, int64 [n + 1], of edges sorted by row."""
    return np.searchsorted(row, np.arange(n + 1, dtype=row.dtype)).astype(np.int64)


def merged(keys: Array, weight: Array | None, combine: np.ufunc) -> tuple[Array, Array | None]:
    """Returns the keys sorted, each once. Weights (float64) of equal keys are combined in their original order."""
    if weight is None:
        return each_once(keys), None
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = _first_of_run(keys)
    return keys[first], combine.reduceat(weight[order], np.flatnonzero(first), dtype=np.float64)


def each_once(keys: Array) -> Array:
    """Returns the keys sorted, each once; sorts them in place. ``np.unique`` would hash them first, which is slower."""
    keys.sort()
    return keys[_first_of_run(keys)]


def _first_of_run(keys: Array) -> Array:
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def _tidy_edges(graph: Graph, directed: bool) -> tuple[Array, Array, Array | None, Array | None]:
    """Returns sources, targets, weights and types of the tidied edges. Warns of typed edges that are listed in one
    direction only and get a mirror image."""
    n, types = graph.num_vertices, graph.num_edge_types
    src, dst, weight, kind = graph.src, graph.dst, graph.weight, graph.edge_type if types > 1 else None
    apart = src != dst
    if not apart.all():
        src, dst = src[apart], dst[apart]
        weight, kind = (None if array is None else array[apart] for array in (weight, kind))
    if directed or weight is not None or kind is not None:
        keys, weight = merged(pack_typed(dst, src, kind, n, types), weight, np.add)
        dst, src, kind = unpack_typed(keys, n, types)
    listed = len(src)
    if not directed:  # each pair once, then its mirror image
        keys = pack_typed(np.maximum(src, dst), np.minimum(src, dst), kind, n, types)
        keys, weight = merged(keys, weight, np.maximum)
        high, low, kind = unpack_typed(keys, n, types)
        keys = np.concatenate([pack_typed(high, low, kind, n, types), pack_typed(low, high, kind, n, types)])
        del high, low
        keys, weight = merged(keys, None if weight is None else np.tile(weight, 2), np.maximum)
        dst, src, kind = unpack_typed(keys, n, types)
    if kind is not None and len(src) > listed:
        log.warning(
            "%s: %d edges of %d types are listed one way alone, and will run backwards with the same type; if they "
            "have inverses of other types, or are to have none, keep directions: --directed, directed=True",
            graph.name,
            len(src) - listed,
            types,
        )
    return src, dst, None if weight is None else as_kept(weight, src, dst), kind


def as_kept(weight: Array, src: Array, dst: Array) -> Array:
    """Returns weights of merged edges as float32. Raises: DatasetError for parallel edges whose sum is too large."""
    with np.errstate(over="ignore"):
        kept = weight.astype(np.float32)
    good = np.isfinite(kept)
    if not good.all():
        e = int(np.argmin(good))
        raise DatasetError(
            f"parallel edges {src[e]} -> {dst[e]} weigh {weight[e]:.3g} together, must be at most "
            f"{np.finfo(np.float32).max:.3g}: divide all edge weights by the same number"
        )
    return kept


# --- splits -----------------------------------------------------------------------------------------------------------


def labelled_split(graph: Graph) -> Array:
    """Returns the split without the vertices that have no label, uint8 [N, S]."""
    unlabelled = ~labelled(graph)
    dropped = int((unlabelled & (graph.split != NONE).any(axis=1)).sum())
    if not dropped:
        return graph.split
    log.warning("%s: %d vertices without a label were in a split and are left out of it", graph.name, dropped)
    return np.where(unlabelled[:, None], np.uint8(NONE), graph.split)


def labelled(graph: Graph) -> Array:
    """Returns bool [N]: whether the vertex has its label; of several labels or numbers, all of them."""
    columns = graph.labels.reshape(graph.num_vertices, -1)
    if columns.dtype.kind in "ub":
        return np.ones(graph.num_vertices, bool)
    known = np.isfinite(columns) if graph.target == "numbers" else columns >= 0
    return np.asarray(known.all(axis=1))
