"""Graphs in the project's own npz format: one compressed archive of plain arrays.

edge_index                            int [2, E], rows are source and target, as published
edge_weight                           float [E], optional
num_nodes, num_features, num_classes  int scalars
x                                     [N, F]; or as CSR: x_indptr [N + 1], x_indices [nnz], x_data [nnz]
y                                     int [N], -1 = no label; or [N, C] of 0 and 1 (multi-label)
train_mask, val_mask, test_mask       bool [N] or [N, S], optional, disjoint; S splits as columns
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL, Graph
from siafu.sparse import Array, Rows, SparseRows

MASKS = (("train_mask", TRAIN), ("val_mask", VAL), ("test_mask", TEST))


def load(argument: str) -> Graph:
    """The graph in the file ``argument``; its split has no column if the file has no masks.

    Raises: DatasetError if the file is missing, is no such archive, lacks an array, or its masks overlap.
    """
    path = Path(argument)
    arrays = _read(path)

    def need(name: str) -> Array:
        if name not in arrays:
            raise DatasetError(f"{path}: has no array {name!r}, only {', '.join(sorted(arrays))}")
        return arrays[name]

    def need_scalar(name: str) -> int:
        value = need(name)
        if value.ndim or value.dtype.kind not in "iu":
            raise DatasetError(f"{path}: {name} is {value.dtype} {list(value.shape)}, must be an integer scalar")
        return int(value)

    edges = need("edge_index")
    if edges.ndim != 2 or len(edges) != 2:
        raise DatasetError(f"{path}: edge_index is {list(edges.shape)}, must be [2, E]")
    width = need_scalar("num_features")
    features: Rows
    if "x" in arrays:
        features = arrays["x"]
    else:
        features = SparseRows(need("x_indptr").astype(np.int64), need("x_indices"), need("x_data"), width)
    if features.shape[1:] != (width,):
        raise DatasetError(f"{path}: feature rows are {list(features.shape[1:])} wide, num_features is {width}")
    num_vertices = need_scalar("num_nodes")
    return Graph(
        name=path.stem,
        num_vertices=num_vertices,
        src=edges[0],
        dst=edges[1],
        weight=arrays.get("edge_weight"),
        features=features,
        labels=need("y"),
        num_classes=need_scalar("num_classes"),
        split=_split(path, arrays, num_vertices),
        directed=True,
    )


def _read(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise DatasetError(f"{path}: not a readable npz archive of plain arrays (no zip file)")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as archive:
                return dict(archive)
    except FileNotFoundError:
        raise DatasetError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(f"{path}: not a readable npz archive of plain arrays ({error})") from None


def _split(path: Path, arrays: dict[str, Array], num_vertices: int) -> Array:
    """The masks as one uint8 [N, S]; S = 0 if there is none."""
    masks = {name: arrays[name].reshape(len(arrays[name]), -1) for name, _ in MASKS if name in arrays}
    if not masks:
        return np.zeros((num_vertices, 0), np.uint8)
    split = np.zeros((num_vertices, next(iter(masks.values())).shape[1]), np.uint8)  # [N, S]
    for name, role in MASKS:
        if name not in masks:
            continue
        mask = masks[name]
        if mask.shape != split.shape or mask.dtype != bool:
            raise DatasetError(f"{path}: {name} is {mask.dtype} {list(mask.shape)}, must be bool {list(split.shape)}")
        twice = mask & (split != 0)
        if twice.any():
            v, s = np.argwhere(twice)[0]
            raise DatasetError(
                f"{path}: vertex {v} is in {MASKS[split[v, s] - 1][0]} and {name} of split {s}, must be in one"
            )
        split[mask] = role
    return split
