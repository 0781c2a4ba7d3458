"""Makes a graph of plain arrays: the last step of every reader of an object.

Tensors and sparse matrices are taken as they are, by what they can do, so that neither torch nor SciPy is imported
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from graph_data.fields import FLAT, Found, left_out, plain, sorted_out
from graph_data.masks import role_of, split_of
from graph_data.sources.beside import features_of, named_columns
from graph_data.sources.randomrows import no_features, random_width
from graph_data.sources.textfile import MISSING
from graph_data.targets import labels_as, numbered_note, renumbered
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.sparse import Array, Rows, SparseRows


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
    feature_names: Any = None,
    target: str = "auto",
    name: str = "arrays",
) -> Graph:
    """A graph of arrays or tensors: ``edges`` int [2, E], source and target.

    features: [N, F], also a SciPy or torch sparse matrix; "random:F" for F random ones; or the name of a file of them.
    labels: int [N], -1 = unknown; texts [N], None or NaN = unknown, which name classes; int or bool [N, C] of 0 and 1,
    -1 = unknown, for several classes per vertex; or real numbers, NaN = unknown; without: no vertex has one. Floats of
    0 and 1 alone may be any of these: ``target`` says "classes" (of one column, or of one-hot rows), "labels" or
    "numbers". weight: [E] or [E, 1]; edge_type: int [E].
    split: [N] or [N, S] of 0 (nothing), 1 (train), 2 (validation), 3 (test); or ``masks``, by names such as train_mask
    or train_idx (``graph_data.masks.split_of``). num_vertices, num_classes and num_edge_types: where the arrays do not
    show them. directed: False if every edge is listed in both directions. feature_names: a word for each column of
    features; the columns of a DataFrame are their own.

    Raises: DatasetError for what is malformed, for a graph without features, and for floats of 0 and 1 without a
    ``target``; ``prepare`` looks at the values.
    """
    pairs = array(edges, f"{name}: edges")
    if pairs.ndim != 2 or len(pairs) != 2 or pairs.dtype.kind not in "iu":
        raise DatasetError(f"{name}: edges are {pairs.dtype} {list(pairs.shape)}, must be integers [2, E]")
    if features is None:
        raise no_features(name)
    told = features if isinstance(features, str) else ""
    rows = None if told else rows_of(features, name)
    labels, called, notes = words_of(labels, target, name)
    y = None if labels is None else labels_of(labels, target, name)
    n = next((count for count in (num_vertices, _length(rows), _length(y)) if count is not None), None)
    if n is None:
        n = int(pairs.max()) + 1 if pairs.size else 0
    if rows is not None and len(rows) != n:  # before there is anything of that length
        raise DatasetError(f"{name}: {len(rows)} feature rows, must be {n}")
    rows = features_of(told, n)[:] if rows is None else rows
    types, kinds, kind_names = _types_of(edge_type, num_edge_types, name)
    y = np.full(n, -1, np.int64) if y is None else y
    if num_classes is None and not called and y.dtype.kind == "i" and y.ndim == 1 and y.min(initial=0) >= -1:
        y, called = renumbered(y)
        notes += [numbered_note(called, "classes")] if called else []
    names = names_of_features(named_columns(told) if told else feature_names, features, rows, name)
    notes += [numbered_note(kind_names, "types of edges")] if kind_names else []
    if target == "auto" and _are_whole(y):
        notes.append(
            "labels are whole numbers as floats, taken for numbers to be predicted: "
            "target=classes makes classes of them"
        )
    return Graph(
        name=name,
        num_vertices=n,
        src=pairs[0],
        dst=pairs[1],
        weight=None if weight is None else column(weight, "edge weights", name),
        features=rows,
        labels=y,
        num_classes=classes_told(num_classes, y, target),
        split=_split(split, masks or {}, n, name),
        directed=directed,
        ids=ids,
        edge_type=None if kinds == 1 else types,
        num_edge_types=kinds,
        names=names | ({"classes": called} if called else {}) | ({"edge_types": kind_names} if kind_names else {}),
        random_features=random_width(told) is not None,
        numbers_said=target == "numbers",
        notes=tuple(f"{name}: {note}" for note in notes),
    )


def _types_of(edge_type: Any, num_edge_types: int | None, name: str) -> tuple[Array | None, int, tuple[str, ...]]:
    """Types of edges [E] and their number. Without a given number, types are renumbered 0, 1, ...; returns their former
    names too."""
    types = None if edge_type is None else column(edge_type, "edge types", name)
    if types is not None and types.dtype.kind not in "iub":
        raise DatasetError(f"{name}: edge types are {types.dtype}, must be integers from 0 on")
    if num_edge_types is not None and (
        isinstance(num_edge_types, bool) or not isinstance(num_edge_types, (int, np.integer))
    ):
        raise DatasetError(f"{name}: num_edge_types is {num_edge_types!r}, must be an integer")
    called: tuple[str, ...] = ()
    if types is not None and num_edge_types is None and types.min(initial=0) >= 0:
        types, called = renumbered(types.astype(np.int64))
    occurring = 1 if types is None or not len(types) else int(types.max()) + 1
    kinds = num_edge_types or occurring
    if occurring > kinds:
        raise DatasetError(f"{name}: an edge has type {occurring - 1}, num_edge_types is {kinds}")
    return types, kinds, called


def _are_whole(labels: Array) -> bool:
    known = labels[~np.isnan(labels)] if labels.dtype.kind == "f" else labels[:0]
    return bool(known.size) and bool((known == np.floor(known)).all())


def from_mapping(
    arrays: Mapping[Any, Any],
    *,
    weight: str | None = None,
    features: Any = None,
    target: str = "auto",
    name: str = "arrays",
) -> Graph:
    """The graph of a mapping of arrays, called as ``graph_data.fields`` and ``graph_data.masks`` list; only
    ``edge_index`` and features must be there. ``x`` may be "random:F".

    weight: the name of the entry that holds edges' weights, instead of those of the table; "" for none. features:
    instead of x; target: as for ``from_arrays``; where it is "auto", the entry of that name tells. Raises: DatasetError
    for two names of one thing, for what looks like a split, a weight or a label and is not used, or arrays that do not
    fit each other. The graph's note names what else is not used.
    """
    table = FLAT if weight is None else {**FLAT, "edge_weight": (plain(weight),) if weight else ()}
    found = sorted_out(arrays, table, name)
    there = found.values
    if "edge_index" not in there:
        is_scipy = "data" in arrays and "shape" in arrays
        raise DatasetError(
            f"{name}: has no array 'edge_index', only {', '.join(sorted(map(str, arrays))) or 'nothing'}"
            f"{': in Python, siafu.from_scipy takes such a matrix of edges' if is_scipy else ''}"
        )
    said = _target(found)
    target = said if target == "auto" else target
    sizes = {what: _count(found, what, name) for what in ("num_nodes", "num_features", "num_classes", "num_edge_types")}
    given = features
    if given is None:
        given = there.get("x")
        if "x_data" in there:
            if given is not None:
                raise DatasetError(
                    f"{name}: has {found.keys['x']!r} and 'x_data', two names of one thing: keep one of them"
                )
            given = _sparse(there, sizes["num_features"], name)
    edges, notes = _pairs(found, name)
    graph = from_arrays(
        edges,
        given,
        there.get("y"),
        weight=there.get("edge_weight"),
        edge_type=there.get("edge_type"),
        masks=found.splits,
        num_vertices=sizes["num_nodes"],
        num_classes=sizes["num_classes"],
        num_edge_types=sizes["num_edge_types"],
        target=target,
        feature_names=there.get("feature_names") if features is None else None,
        name=name,
    )
    if features is None and sizes["num_features"] not in (None, graph.num_features):
        raise DatasetError(
            f"{name}: feature rows are [{graph.num_features}] wide, num_features is {sizes['num_features']}"
        )
    ids, unused = ids_of(found, graph.num_vertices)
    return replace(
        graph,
        ids=ids,
        notes=(*notes, *graph.notes, *left_out(found.left | unused, graph.num_vertices, name)),
    )


def _target(found: Found) -> str:
    """The kind of labels by the entry ``target``. An array of that name is not ours: it stays unused."""
    said = found.values.pop("target", "auto")
    if not isinstance(said, str) and (array(said).ndim or array(said).dtype.kind != "U"):
        found.left[found.keys["target"]] = said
        return "auto"
    return str(said)


def _count(found: Found, what: str, name: str) -> int | None:
    """A count that an archive tells. Raises: DatasetError unless it is an integer scalar."""
    if what not in found.values:
        return None
    value = array(found.values[what])
    if value.ndim or value.dtype.kind not in "iu":
        raise DatasetError(
            f"{name}: {found.keys[what]} is {value.dtype} {list(value.shape)}, must be an integer scalar"
        )
    return int(value)


def _sparse(there: Mapping[str, Any], width: int | None, name: str) -> SparseRows:
    for key in ("x_indptr", "x_indices"):
        if key not in there:
            raise DatasetError(f"{name}: has x_data without {key!r}: a sparse matrix is x_indptr, x_indices and x_data")
    indptr, indices, data = (array(there[key]) for key in ("x_indptr", "x_indices", "x_data"))
    for key, values in (("x_indptr", indptr), ("x_indices", indices)):
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise DatasetError(f"{name}: {key} is {values.dtype} {list(values.shape)}, must be integers, one axis")
    return SparseRows(indptr.astype(np.int64), indices, data, width or int(indices.max(initial=0)) + 1).in_order()


def _pairs(found: Found, name: str) -> tuple[Array, tuple[str, ...]]:
    """Edges as [2, E]. Lists of edges by another name than edge_index are pairs, [E, 2], and the note says so."""
    key, pairs = found.keys["edge_index"], array(found.values["edge_index"])
    if key == "edge_index" or pairs.ndim != 2 or pairs.shape[1] != 2:
        return pairs, ()
    if len(pairs) == 2:
        raise DatasetError(f"{name}: {key} is [2, 2], which may be rows or columns: call it edge_index, [2, E]")
    return pairs.T, (f"{name}: {key} is taken for pairs of source and target, {list(pairs.shape)}",)


def ids_of(found: Found, num_vertices: int) -> tuple[Array | None, dict[str, Any]]:
    """The source's vertex ids, if they are ascending integers and not 0..N-1; else None, and the unused entry."""
    if "n_id" not in found.values:
        return None, {}
    ids = array(found.values["n_id"])
    if (
        ids.shape != (num_vertices,)
        or ids.dtype.kind not in "iu"
        or not (ids[1:] > ids[:-1]).all()
        or ids[-1:].max(initial=0) >= 2**63
    ):
        return None, {found.keys["n_id"]: ids}
    return (None if ids.size and ids[0] == 0 and ids[-1] == num_vertices - 1 else ids.astype(np.int64)), {}


def classes_told(told: int | None, labels: Array, target: str) -> int:
    """The number of classes: the source's, unless labels show it. For several classes or numbers that the user asked
    for, the number of columns."""
    if told is None or target in ("labels", "numbers"):
        return num_classes_of(labels)
    return max(told, num_classes_of(labels)) if target == "classes" else told


def names_of_features(told: Any, features: Any, rows: Rows, name: str) -> dict[str, tuple[str, ...]]:
    """``Graph.names`` of the features' columns: as given, else a DataFrame's; empty if they are numbers, or two are
    equal."""
    words = told if told is not None else getattr(features, "columns", None)
    if words is None:
        return {}
    words = list(words) if told is None else array(told).tolist()
    if isinstance(words, list):
        words = [word.decode("utf-8", "replace") if isinstance(word, bytes) else word for word in words]
    if told is not None and (not isinstance(words, list) or len(words) != rows.shape[1]):
        raise DatasetError(
            f"{name}: feature_names are {list(np.shape(words))}, must be [{rows.shape[1]}], as features are"
        )
    real = all(isinstance(word, str) and not word.isdigit() for word in words) and len(set(words)) == len(words)
    return {"features": tuple(words)} if words and real else {}


def array(value: Any, what: str = "an array") -> Array:
    """The numpy array of an array, a tensor (of any device), or a list; ``what`` begins a message.

    Raises: DatasetError for masked values, rows of several lengths, and tensors without values of their own.
    """
    if not hasattr(value, "detach"):
        if np.ma.is_masked(value):
            raise DatasetError(f"{what}: masked values would count as known: fill them in, such as values.filled(-1)")
        try:
            return np.asarray(value)
        except ValueError as error:
            raise DatasetError(f"{what}: no array can be made of it ({str(error)[:120]})") from None
    try:
        tensor = value.detach().cpu()
        if str(tensor.dtype).startswith(("torch.bfloat16", "torch.float8")):  # which numpy does not know
            tensor = tensor.float()
        found: Array = tensor.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:  # quantised, nested, or on the device "meta"
        raise DatasetError(
            f"{what}: a tensor of {value.dtype} on {value.device} that numpy cannot hold ({str(error)[:120]}): "
            "make a dense one of numbers"
        ) from None
    return found


def column(value: Any, what: str, name: str) -> Array:
    """One value per edge, [E], from [E] or [E, 1]. Raises: DatasetError for more columns."""
    values = array(value, f"{name}: {what}")
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
    if layout in ("torch.sparse_coo", "torch.sparse_csr") and features.sparse_dim() + 2 * features.dense_dim() != 2:
        raise DatasetError(
            f"{name}: features are {layout} {list(features.shape)} with dense axes, must be [N, F] without"
        )
    if layout == "torch.sparse_csr":
        indptr, indices = array(features.crow_indices()), array(features.col_indices())
        found = SparseRows(
            indptr.astype(np.int64), indices.astype(np.int32), array(features.values()), features.shape[1]
        )
        return found.in_order()
    if layout == "torch.sparse_coo":
        entries = features.coalesce()  # sorted by row and column
        row, indices = array(entries.indices())
        starts = np.searchsorted(row, np.arange(features.shape[0] + 1))
        return SparseRows(starts.astype(np.int64), indices.astype(np.int32), array(entries.values()), features.shape[1])
    _check_order(features, f"{name}: features")
    rows = array(features, f"{name}: features")
    if rows.ndim not in (1, 2):
        raise DatasetError(f"{name}: features have {rows.ndim} axes, must be 2, [N, F]")
    return rows[:, None] if rows.ndim == 1 else rows


def _check_order(rows: Any, what: str) -> None:
    """Raises: DatasetError for a shuffled table or column of pandas: its index says which row belongs to which vertex,
    and the rows are in another order."""
    if not hasattr(rows, "iloc"):
        return
    index = np.asarray(rows.index)
    if index.dtype.kind in "iu" and (index[1:] < index[:-1]).any() and (np.sort(index) == np.arange(len(index))).all():
        raise DatasetError(
            f"{what}: their index is 0 to {len(index) - 1} in another order: sort_index() makes row v that of vertex "
            "v, reset_index(drop=True) takes the rows as they stand"
        )


def words_of(labels: Any, target: str, name: str) -> tuple[Any, tuple[str, ...], list[str]]:
    """Text labels [N] as classes int64 [N] in ascending order of the texts, with the texts, and a note on texts that
    mean unknown. Unknown: None, NaN, and ``MISSING``. Blanks around texts are ignored, as in tables. Other labels
    stay."""
    if labels is None or hasattr(labels, "detach") or target not in ("auto", "classes"):
        return labels, (), []
    _check_order(labels, f"{name}: labels")
    y = array(labels, f"{name}: labels")
    texts = [isinstance(value, str) for value in y] if y.dtype.kind in "UTO" and y.ndim == 1 else []
    others = (value for value, is_text in zip(y, texts, strict=False) if not is_text)
    if not any(texts) or not all(_is_nothing(value) for value in others):
        return labels, (), []
    y = np.array([value.strip() if is_text else "" for value, is_text in zip(y, texts, strict=True)])
    known = ~np.isin(y, MISSING)
    names, numbers = np.unique(y[known], return_inverse=True)
    classes = np.full(len(y), -1, np.int64)
    classes[known] = numbers
    without = sorted(set(y[np.array(texts, bool) & ~known].tolist()))
    notes = [f"no label where the text is {', '.join(map(repr, without))}"] if without else []
    return classes, tuple(names.tolist()), notes


def _is_nothing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or str(value) == "<NA>"


def labels_of(labels: Any, target: str = "auto", name: str = "arrays") -> Array:
    """Labels in the form of ``Graph.labels``, which are what ``target`` says. Matrices of integers that are 0 and 1 are
    several classes per vertex. Raises: DatasetError for floats of 0 and 1 if it says "auto": other packages keep
    one-hot classes, several classes and numbers alike in them."""
    _check_order(labels, f"{name}: labels")
    y = array(labels, f"{name}: labels")
    if y.dtype.kind not in "iufb":
        raise DatasetError(f"{name}: labels are {y.dtype}, must be numbers: classes from 0 on, -1 for unknown")
    if y.ndim not in (1, 2):
        raise DatasetError(f"{name}: labels are {y.dtype} {list(y.shape)}, must be [N] or [N, C]")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    several = y.ndim == 2 and y.size and y.dtype.kind in "iub" and target == "auto"
    if several and y.min() >= -1 and y.max() in (0, 1):
        return y.astype(np.int8 if y.min() < 0 else np.uint8, copy=False)
    if y.dtype.kind == "u" and y.max(initial=0) >= 2**63:
        raise DatasetError(f"{name}: a label is {y.max()}, must be below 2**63, and -1 where it is unknown")
    y = labels_as(y, target, name)
    return y.astype(np.int64) if y.ndim == 1 and y.dtype.kind in "bu" else y


def labels_for_losses(graph: Graph) -> Array:
    """A copy of the labels in the types that torch's losses take: int64 for classes;
    else float32, NaN where unknown."""
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


def _parts(value: Any) -> Any:
    """The arrays of a mask or vertex list; a list of arrays for several splits."""
    several = isinstance(value, list | tuple) and value and np.ndim(value[0])
    return [array(part) for part in value] if several else array(value)


def _split(split: Any, masks: Mapping[str, Any], num_vertices: int, name: str) -> Array:
    if split is None:
        for key in masks:
            if not role_of(key):
                raise DatasetError(f"{name}: {key!r} is no name of a mask: call it train_mask, val_mask or test_mask")
        return split_of({key: _parts(value) for key, value in masks.items()}, num_vertices, name)
    roles = array(split)
    roles = roles[:, None] if roles.ndim == 1 else roles
    if roles.dtype.kind not in "iu" or (roles.size and (roles.min() < 0 or roles.max() > 3)):
        raise DatasetError(f"{name}: split is {roles.dtype}, must be integers of 0 to 3")
    return roles.astype(np.uint8)


def _length(rows: Rows | None) -> int | None:
    return None if rows is None else len(rows)
