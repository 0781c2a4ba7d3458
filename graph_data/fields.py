"""The names that packages and data sets give to the arrays of a graph: one table, which every reader of arrays uses.

Rules:

1. A name matches in any case, and with "-" for "_". None counts as absent.
2. Two names of one thing are refused, unless both hold the same values. Only ``edge_attr`` yields: it is left out if
   there is another weight.
3. Unused entries are refused if they look like a split, a weight or a label; a note names all others.

The names of splits are in ``graph_data.masks``: there are too many to list.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graph_data.masks import role_of
from siafu.errors import DatasetError
from siafu.sparse import Array

#: What an array is -> what it is called by us (first), PyG, DGL, OGB, GraphStorm and the
#: archives of published data sets
VERTICES = {
    "x": (
        "x",
        "feat",
        "feats",
        "feature",
        "features",
        "node_feat",
        "node_feats",
        "node_feature",
        "node_features",
        "attr",
        "node_attr",
        "node_attrs",
    ),
    "y": ("y", "label", "labels", "node_label", "node_labels"),
    "n_id": ("n_id", "node_id", "node_ids", "orig_id", "_id"),
}
EDGES = {
    "edge_weight": ("edge_weight", "edge_weights", "weight", "weights", "w", "edge_attr"),
    "edge_type": ("edge_type", "edge_types", "etype", "etypes", "_type", "rel_type", "relation", "relations", "rel"),
}
OF_EDGE = {**EDGES, "edge_type": (*EDGES["edge_type"], "type")}  # where edges have attributes of their own
WHOLE = {
    "edge_index": ("edge_index", "edges", "edge_list"),
    "num_nodes": ("num_nodes", "num_vertices", "n_nodes"),
    "num_features": ("num_features", "num_node_features", "n_features"),
    "num_classes": ("num_classes", "n_classes"),
    "num_edge_types": ("num_edge_types", "num_relations", "num_rels"),
    "x_indptr": ("x_indptr",),
    "x_indices": ("x_indices",),
    "x_data": ("x_data",),
    "feature_names": ("feature_names", "feat_names", "attr_names"),
    "target": ("target",),
}
FLAT = WHOLE | VERTICES | EDGES

YIELDS = "edge_attr"
SPLIT = re.compile(r"mask|split|fold|train|valid|(^|_)(idx|val|dev|test|roles?|set|subset|partitions?)(_|$)")
WEIGHT = re.compile(r"weight|^(ew|edge_w|edge_weights?_.*)$")
LABEL = re.compile(r"label|^y_|_y$|^gt$|ground_?truth|(^|_)(target|targets|class|classes)(_|$)")
#: Used by nobody here, and no loss: words for classes and vertices, and WikiCS' masks for early stopping,
#: which has validation vertices too
HARMLESS = re.compile(r"stopping_masks?|idx_to_.*|.*(names?|texts?)")
MOST = 8  # names in one note


@dataclass(frozen=True)
class Found:
    """The arrays of one mapping, by their meaning."""

    keys: dict[str, str]  # meaning -> its name in the mapping
    values: dict[str, Any]  # meaning -> its value
    splits: dict[str, Any] = field(default_factory=dict)  # masks and lists of vertices, by their names there
    left: dict[Any, Any] = field(default_factory=dict)  # neither


def plain(name: object) -> str:
    """A name in the table's spelling."""
    return name.lower().replace("-", "_").replace(" ", "_") if isinstance(name, str) else ""


def sorted_out(there: Mapping[Any, Any], table: Mapping[str, tuple[str, ...]], where: str) -> Found:
    """Sorts a mapping's entries by their meaning. Raises: DatasetError for two names of one thing that hold different
    values (rule 2)."""
    there = {key: value for key, value in there.items() if value is not None}
    called: dict[str, list[Any]] = {}
    for key in there:
        called.setdefault(plain(key), []).append(key)
    found = Found({}, {})
    taken: set[Any] = set()
    for what, names in table.items():
        keys = [key for name in names for key in called.get(name, ())]
        if len(keys) > 1 and plain(keys[-1]) == YIELDS:
            keys.pop()
        for key in keys[1:]:
            if not _same(there[keys[0]], there[key]):
                raise DatasetError(
                    f"{where}: has {keys[0]!r} and {key!r}, two names of one thing, and they differ: keep one of them"
                )
        if keys:
            found.keys[what], found.values[what] = keys[0], there[keys[0]]
            taken.update(keys)
    for key, value in there.items():
        if key in taken:
            continue
        parts = _parts(key, value)
        if parts:
            found.splits.update(parts)
        else:
            found.left[key] = value
    return found


def _parts(key: Any, value: Any) -> dict[str, Any]:
    """The masks and lists of vertices that an entry holds, by name; empty if it holds none.

    ``split_idx`` may be {"train": vertices, ...}, or a list of these, one for each split.
    """
    if role_of(plain(key)):
        return {key: value}
    splits = value if isinstance(value, list | tuple) else [value]
    if not plain(key) or not splits or not all(isinstance(split, Mapping) and split for split in splits):
        return {}
    names = list(splits[0])
    if any(split.keys() != splits[0].keys() for split in splits) or not all(
        role_of(plain(f"{key}.{name}")) for name in names
    ):
        return {}
    if isinstance(value, Mapping):
        return {f"{key}.{name}": value[name] for name in names}
    return {f"{key}.{name}": [split[name] for split in splits] for name in names}


def left_out(left: Mapping[Any, Any], num_vertices: int, where: str, partly: Collection[str] = ()) -> tuple[str, ...]:
    """The note on unused entries; none if all are used. partly: entries that only some kinds of vertices or edges have.

    Raises: DatasetError for what looks like a split, a weight or a label (rule 3).
    """
    for key, value in left.items():
        kind, instead = _looks_like(plain(key), value, num_vertices)
        if kind:
            raise DatasetError(
                f"{where}: has no use for {key!r}, which looks like {kind}: call it {instead}, or leave it out"
            )
    for name in partly:
        kind, _ = _looks_like(plain(name), [name], num_vertices)
        if kind or any(plain(name) in names for names in (VERTICES | OF_EDGE).values()):
            raise DatasetError(
                f"{where}: only some kinds of vertices or edges have {name!r}: give it to all, or to none"
            )
    names = [str(key) for key in (*left, *partly)]
    if not names:
        return ()
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return (f"{where}: left out: {', '.join(names[:MOST])}{more}",)


def _looks_like(name: str, value: Any, num_vertices: int) -> tuple[str, str]:
    """The likely meaning of an unused entry, and the name to give it; "" if the entry is harmless."""
    nested = isinstance(value, Mapping | Sequence) and not isinstance(value, str | bytes)
    shape = tuple(getattr(value, "shape", (len(value),) if nested else ()))
    if not shape or name == YIELDS or HARMLESS.fullmatch(name):
        return "", ""
    parts = [value[key] for key in value if role_of(plain(key))] if isinstance(value, Mapping) else []
    if SPLIT.search(name) or any(np.ndim(part) for part in parts):
        return "a split", "train_mask, val_mask or test_mask (bool [N]), or train_idx, val_idx or test_idx (vertices)"
    if WEIGHT.search(name):
        return "a weight", "edge_weight (of edges, [E])"
    if LABEL.search(name):
        return "labels", "y ([N])"
    if getattr(getattr(value, "dtype", None), "kind", "") == "U" and shape[0] == num_vertices and _are_parts(value):
        return "a split", "train_mask, val_mask and test_mask (bool [N])"
    if str(getattr(value, "dtype", "")).endswith("bool") and shape[0] == num_vertices:
        return "a mask", "train_mask, val_mask or test_mask"
    return "", ""


def _are_parts(words: Array) -> bool:
    """Whether all are parts of a split, one of them for training."""
    found = {str(word).lower() for word in np.unique(words)}
    return any(role_of(word) for word in found) and all(role_of(word) or word in ("none", "") for word in found)


def _same(one: Any, other: Any) -> bool:
    """Whether two entries hold the same values, but for the axis of a single column."""
    if one is other:
        return True
    if any(hasattr(value, "tocsr") or "sparse" in str(getattr(value, "layout", "")) for value in (one, other)):
        return False
    left, right = (_flat(value) for value in (one, other))
    return np.array_equal(left, right, equal_nan=left.dtype.kind == right.dtype.kind == "f")


def _flat(value: Any) -> Array:
    values = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
