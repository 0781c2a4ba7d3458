"""Reads splits of other formats: boolean masks, or lists of the vertices in each part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL
from siafu.sparse import Array

MASKS = (("train_mask", TRAIN), ("val_mask", VAL), ("test_mask", TEST))

#: What the parts of a split are called: Planetoid and PyG say val, OGB and DGL valid, others validation or dev
PARTS = {
    **dict.fromkeys(("train", "training", "trn", "tr"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "vali", "va", "dev"), VAL),
    **dict.fromkeys(("test", "testing", "tst", "te"), TEST),
}
MASK = {"mask", "masks"}
#: Words beside a part's name: train_idx, idx_train, train_nid, train_node_ids, split_idx.train
BESIDE = MASK | {
    "split",
    "splits",
    "idx",
    "idxs",
    "index",
    "indices",
    "indexes",
    "ind",
    "inds",
    "id",
    "ids",
    "nid",
    "nids",
    "node",
    "nodes",
    "vertex",
    "vertices",
    "list",
    "lst",
    "role",
    "roles",
    "set",
    "sets",
}


def role_of(name: str) -> int | None:
    """TRAIN, VAL or TEST if a name means a mask or vertex list of one part; else None."""
    words = _words(name)
    parts = [word for word in words if word in PARTS]
    return PARTS[parts[0]] if len(parts) == 1 and all(word in PARTS or word in BESIDE for word in words) else None


def _words(name: str) -> list[str]:
    return re.split(r"[-_. ]", name.lower())


def split_of(parts: Mapping[str, Any], num_vertices: int, where: str) -> Array:
    """Combines the entries that name parts (``role_of``) into one uint8 [N, S]; S = 0 without any.

    A mask is bool, or integers of 0 and 1, and [N], [N, S] or [S, N]; a list of vertices is int [k]; a list of either
    is one for each split. Raises: DatasetError, beginning with ``where``, for any other; for two parts that share a
    vertex; and for two entries of one part that differ.
    """
    masks = {
        name: _mask(value, num_vertices, f"{where}: {name}", name) for name, value in parts.items() if role_of(name)
    }
    if not masks:
        return np.zeros((num_vertices, 0), np.uint8)
    most = max(mask.shape[1] for mask in masks.values())
    split = np.zeros((num_vertices, most), np.uint8)  # [N, S]
    named: dict[int, str] = {}
    for name, mask in masks.items():
        if mask.shape[1] == 1:  # one mask for all splits, as WikiCS has it for testing
            mask = np.repeat(mask, most, axis=1)
        if mask.shape != split.shape:
            raise DatasetError(f"{where}: {name} is bool {list(mask.shape)}, must be bool {list(split.shape)}")
        role = role_of(name) or 0
        if role in named:
            if not np.array_equal(mask, split == role):
                raise DatasetError(
                    f"{where}: has {named[role]!r} and {name!r}, two names of one thing, and they "
                    "differ: keep one of them"
                )
            continue
        twice = mask & (split != 0)
        if twice.any():
            v, s = np.argwhere(twice)[0]
            raise DatasetError(
                f"{where}: vertex {v} is in {named[split[v, s]]} and {name} of split {s}, must be in one"
            )
        split[mask] = role
        named[role] = name
    return split


def _mask(value: Any, n: int, what: str, name: str) -> Array:
    """One entry as bool [N, S]."""
    if isinstance(value, list | tuple) and value and np.ndim(value[0]):
        columns = [_mask(np.asarray(part), n, what, name) for part in value]
        if any(column.shape[1] != 1 for column in columns):
            raise DatasetError(
                f"{what} is a list of matrices, must be a list of one mask or list of vertices per split"
            )
        return np.concatenate(columns, axis=1)
    values = np.asarray(value)
    flags = values.dtype == bool or bool(MASK & set(_words(name)))
    if not flags:
        return _of_vertices(values, n, what)
    found = values[:, None] if values.ndim == 1 else values
    if found.ndim == 2 and len(found) == found.shape[1] == n > 1:
        raise DatasetError(
            f"{what} is {list(found.shape)}, as many splits as vertices, so its axes could be either: leave out a split"
        )
    if found.ndim == 2 and len(found) != n and found.shape[1] == n:  # [S, N], as the heterophilous graphs have it
        found = found.T
    must = [n, found.shape[1] if found.ndim == 2 else 1]
    if found.ndim != 2 or len(found) != n:  # before there is anything of that length
        raise DatasetError(f"{what} is {found.dtype} {list(found.shape)}, must be bool {must}")
    if found.dtype.kind not in "biu":
        raise DatasetError(f"{what} is {found.dtype} {list(found.shape)}, must be bool {must}")
    if found.dtype != bool and found.size and not 0 <= found.min() <= found.max() <= 1:
        raise DatasetError(f"{what} is {found.dtype} of {found.min()} to {found.max()}, must be bool, or 0 and 1")
    return found.astype(bool, copy=False)


def _of_vertices(chosen: Array, n: int, what: str) -> Array:
    """A list of vertices as bool [N, 1]."""
    if chosen.ndim == 2 and chosen.shape[1] == 1:
        chosen = chosen[:, 0]
    empty = chosen.size == 0  # an empty list is one of floats
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and not empty):
        raise DatasetError(f"{what} is {chosen.dtype} {list(chosen.shape)}, must be integers [k]: vertices")
    if len(chosen) == n > 2 and 0 <= chosen.min() <= chosen.max() <= 1:
        raise DatasetError(
            f"{what} is 0 or 1 for each of {n} vertices: call it a mask, such as train_mask, if it is one"
        )
    outside = (chosen < 0) | (chosen >= n)
    if outside.any():
        raise DatasetError(f"{what} has vertex {chosen[outside][0]}, must be in 0..{n - 1}")
    mask = np.zeros((n, 1), bool)
    mask[chosen.astype(np.int64), 0] = True
    return mask


def masks_of(split: Array) -> dict[str, Array]:
    """The three masks of a split, bool [N], or [N, S] if there are several; none if S = 0."""
    if not split.shape[1]:
        return {}
    columns = split[:, 0] if split.shape[1] == 1 else split
    return {name: columns == role for name, role in MASKS}
