"""Graphs out of plain arrays: what every reader of an object ends in.

Tensors and sparse matrices are taken as they are, by what they can do, so that neither torch nor SciPy is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graph_data.masks import MASKS, split_of
from graph_data.sources.beside import features_of
from graph_data.sources.randomrows import no_features, random_width
from graph_data.targets import labels_as
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.sparse import Array, Rows, SparseRows

KEYS = (
    "edge_index", "edge_weight", "edge_type", "num_nodes", "num_features", "num_classes", "num_edge_types", "x", "x_indptr",
    "x_indices", "x_data", "y", "target", *(mask for mask, _ in MASKS),
)  # fmt: skip


def from_arrays(
    edges: Any,
    features: Any = None,
    labels: Any = None,
    *,
    weight: Any = None,
    edge_type: Any = None,
    split: Any = None,
    masks: Mapping[str, Any] | None = None,
    num_vertices: int | None = None,
    num_classes: int | None = None,
    num_edge_types: int | None = None,
    directed: bool = True,
    ids: Array | None = None,
    target: str = "auto",
    name: str = "arrays",
) -> Graph:
    """A graph of arrays or tensors: ``edges`` int [2, E], source and target.

    features: [N, F], also a SciPy or torch sparse matrix; "random:F" for F random ones; or the name of a file of them. labels: int
    [N], -1 = unknown; int or bool [N, C] of 0 and 1, -1 = unknown, for several classes per vertex; or real numbers, NaN = unknown;
    without: no vertex has one. Floats of 0 and 1 alone may be any of these: ``target`` says "classes" (of one column, or of
    one-hot rows), "labels" or "numbers". weight: [E] or [E, 1]; edge_type: int [E]. split: [N] or [N, S] of 0 (nothing), 1 (train), 2
    (validation), 3 (test); or ``masks``, bool [N] or [N, S], called train_mask, val_mask and test_mask. num_vertices, num_classes
    and num_edge_types: where the arrays do not show them. directed: False if every edge is listed in both directions.

    Raises: DatasetError for what is malformed, for a graph without features, and for floats of 0 and 1 without a ``target``;
    ``prepare`` looks at the values.
    """
    pairs = array(edges)
    if pairs.ndim != 2 or len(pairs) != 2 or pairs.dtype.kind not in "iu":
        raise DatasetError(f"{name}: edges are {pairs.dtype} {list(pairs.shape)}, must be integers [2, E]")
    if features is None:
        raise no_features(name)
    told = features if isinstance(features, str) else ""
    rows = None if told else rows_of(features, name)
    y = None if labels is None else labels_of(labels, target, name)
    n = next((count for count in (num_vertices, _length(rows), _length(y)) if count is not None), None)
    if n is None:
        n = int(pairs.max()) + 1 if pairs.size else 0
    rows = features_of(told, n)[:] if rows is None else rows
    types = None if edge_type is None else column(edge_type, "edge types", name)
    if types is not None and types.dtype.kind not in "iub":
        raise DatasetError(f"{name}: edge types are {types.dtype}, must be integers from 0 on")
    if y is not None and y.dtype.kind not in "iufb":
        raise DatasetError(f"{name}: labels are {y.dtype}, must be numbers: classes from 0 on, -1 for unknown")
    if num_edge_types is not None and (
        isinstance(num_edge_types, bool) or not isinstance(num_edge_types, (int, np.integer))
    ):
        raise DatasetError(f"{name}: num_edge_types is {num_edge_types!r}, must be an integer")
    occurring = 1 if types is None or not len(types) else int(types.max()) + 1
    kinds = num_edge_types or occurring
    if occurring > kinds:
        raise DatasetError(f"{name}: an edge has type {occurring - 1}, num_edge_types is {kinds}")
    y = np.full(n, -1, np.int64) if y is None else y
    return Graph(
        name=name,
        num_vertices=n,
        src=pairs[0],
        dst=pairs[1],
        weight=None if weight is None else column(weight, "edge weights", name),
        features=rows,
        labels=y,
        num_classes=num_classes or num_classes_of(y),
        split=_split(split, masks or {}, n, name),
        directed=directed,
        ids=ids,
        edge_type=None if kinds == 1 else types,
        num_edge_types=kinds,
        random_features=random_width(told) is not None,
        numbers_said=target == "numbers",
    )


def from_mapping(arrays: Mapping[str, Any], *, name: str = "arrays") -> Graph:
    """The graph of a mapping with the keys of an npz file (KEYS); only ``edge_index`` and features must be there. ``x`` may be
    "random:F"; ``target`` is as for ``from_arrays``.

    Raises: DatasetError for an unknown key, or arrays that do not fit each other.
    """
    for key in arrays:
        if key not in KEYS:
            raise DatasetError(f"{name}: has no use for {key!r}, only for {', '.join(KEYS)}")
    if "edge_index" not in arrays:
        raise DatasetError(f"{name}: has no array 'edge_index', only {', '.join(map(str, arrays)) or 'nothing'}")

    def number(key: str) -> int | None:
        return int(arrays[key]) if key in arrays else None

    features: Any = arrays.get("x")
    if features is None and "x_data" in arrays:
        for key in ("x_indptr", "x_indices"):
            if key not in arrays:
                raise DatasetError(
                    f"{name}: has x_data without {key!r}: a sparse matrix is x_indptr, x_indices and x_data"
                )
        indptr, indices, data = (array(arrays[key]) for key in ("x_indptr", "x_indices", "x_data"))
        width = number("num_features") or (int(indices.max()) + 1 if len(indices) else 1)
        features = SparseRows(indptr.astype(np.int64), indices, data, width)
    return from_arrays(
        arrays["edge_index"], features, arrays.get("y"), weight=arrays.get("edge_weight"),
        edge_type=arrays.get("edge_type"), masks={key: arrays[key] for key, _ in MASKS if key in arrays},
        num_vertices=number("num_nodes"), num_classes=number("num_classes"), num_edge_types=number("num_edge_types"),
        target=arrays.get("target", "auto"), name=name,
    )  # fmt: skip


def array(value: Any) -> Array:
    """A numpy array of what is one, a tensor (of any device), or a list."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":  # which numpy does not know
        tensor = tensor.float()
    found: Array = tensor.numpy()
    return found


def column(value: Any, what: str, name: str) -> Array:
    """One value per edge, [E], of [E] or [E, 1]. Raises: DatasetError for more of them."""
    values = array(value)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DatasetError(f"{name}: {what} are {list(values.shape)}, must be [E]: one value per edge")
    return values


def rows_of(features: Any, name: str) -> Rows:
    """Feature rows, [N, F]; sparse ones stay sparse. A vector is one feature."""
    if isinstance(features, SparseRows):
        return features
    if hasattr(features, "tocsr"):  # SciPy's
        matrix = features.tocsr(copy=True)
        matrix.sum_duplicates()
        return SparseRows(
            matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, int(matrix.shape[1])
        )
    layout = str(getattr(features, "layout", "torch.strided"))
    if layout == "torch.sparse_csr":
        indptr, indices = array(features.crow_indices()), array(features.col_indices())
        return SparseRows(
            indptr.astype(np.int64), indices.astype(np.int32), array(features.values()), features.shape[1]
        )
    if layout == "torch.sparse_coo":
        entries = features.coalesce()  # sorted by row and column
        row, indices = array(entries.indices())
        starts = np.searchsorted(row, np.arange(features.shape[0] + 1))
        return SparseRows(starts.astype(np.int64), indices.astype(np.int32), array(entries.values()), features.shape[1])
    rows = array(features)
    if rows.ndim not in (1, 2):
        raise DatasetError(f"{name}: features have {rows.ndim} axes, must be 2, [N, F]")
    return rows[:, None] if rows.ndim == 1 else rows


def labels_of(labels: Any, target: str = "auto", name: str = "arrays") -> Array:
    """Labels in the form of ``Graph.labels``, which are what ``target`` says. Matrices of integers that are 0 and 1 are several
    classes per vertex. Raises: DatasetError for floats of 0 and 1 if it says "auto": other packages keep one-hot classes, several
    classes and numbers alike in them."""
    y = array(labels)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2 and y.dtype.kind in "iub" and target == "auto" and np.isin(y, (-1, 0, 1)).all() and (y != -1).any():
        target = "labels"
    y = labels_as(y, target, name)
    if y.dtype.kind == "f":
        return y.astype(np.float32, copy=False)
    return y.astype(np.int64) if y.ndim == 1 and y.dtype.kind in "bu" else y


def labels_for_losses(graph: Graph) -> Array:
    """A copy of the labels in the types that torch's losses take: int64 for classes; else float32, NaN where unknown."""
    if graph.target == "classes":
        return graph.labels.astype(np.int64)
    labels = graph.labels.astype(np.float32)
    if graph.target == "labels":
        labels[labels < 0] = np.nan
    return labels


def num_classes_of(labels: Array) -> int:
    """C of labels that show it: of a matrix its columns; of numbers 1; else one more than the largest class."""
    if labels.ndim == 2:
        return int(labels.shape[1])
    if labels.dtype.kind == "f" or not len(labels):
        return 1
    return max(1, int(labels.max()) + 1)


def _split(split: Any, masks: Mapping[str, Any], num_vertices: int, name: str) -> Array:
    if split is None:
        return split_of({key: array(mask) for key, mask in masks.items()}, num_vertices, name)
    roles = array(split)
    roles = roles[:, None] if roles.ndim == 1 else roles
    if roles.dtype.kind not in "iu" or (roles.size and (roles.min() < 0 or roles.max() > 3)):
        raise DatasetError(f"{name}: split is {roles.dtype}, must be integers of 0 to 3")
    return roles.astype(np.uint8)


def _length(rows: Rows | None) -> int | None:
    return None if rows is None else len(rows)
