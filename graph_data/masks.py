"""Splits as most other formats have them: three boolean masks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL
from siafu.sparse import Array

MASKS = (("train_mask", TRAIN), ("val_mask", VAL), ("test_mask", TEST))


def split_of(masks: Mapping[str, Array], num_vertices: int, where: str) -> Array:
    """The masks as one uint8 [N, S]; S = 0 if there is none. Each is bool [N] or [N, S].

    Raises: DatasetError, beginning with ``where``, if one is neither, or two of them share a vertex.
    """
    found = {name: masks[name] for name, _ in MASKS if name in masks}
    found = {name: mask[:, None] if mask.ndim == 1 else mask for name, mask in found.items()}
    for name, mask in found.items():
        if mask.ndim != 2 or len(mask) != num_vertices:  # before there is anything of that length
            must = [num_vertices, mask.shape[1] if mask.ndim == 2 else 1]
            raise DatasetError(f"{where}: {name} is {mask.dtype} {list(mask.shape)}, must be bool {must}")
    if not found:
        return np.zeros((num_vertices, 0), np.uint8)
    most = max(mask.shape[1] for mask in found.values())
    # One mask for all splits, as WikiCS has it for testing.
    found = {name: np.repeat(mask, most, axis=1) if mask.shape[1] == 1 else mask for name, mask in found.items()}
    split = np.zeros((num_vertices, most), np.uint8)  # [N, S]
    for name, role in MASKS:
        if name not in found:
            continue
        mask = found[name]
        if mask.shape != split.shape or mask.dtype != bool:
            raise DatasetError(f"{where}: {name} is {mask.dtype} {list(mask.shape)}, must be bool {list(split.shape)}")
        twice = mask & (split != 0)
        if twice.any():
            v, s = np.argwhere(twice)[0]
            raise DatasetError(
                f"{where}: vertex {v} is in {MASKS[split[v, s] - 1][0]} and {name} of split {s}, must be in one"
            )
        split[mask] = role
    return split


def masks_of(split: Array) -> dict[str, Array]:
    """The three masks of a split, bool [N], or [N, S] if there are several; none if S = 0."""
    if not split.shape[1]:
        return {}
    columns = split[:, 0] if split.shape[1] == 1 else split
    return {name: columns == role for name, role in MASKS}
