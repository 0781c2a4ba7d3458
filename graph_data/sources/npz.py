"""Graphs in the project's own npz format: one compressed archive of plain arrays.

    FILE.npz[?features=FILE&target=auto|classes|labels|numbers]    features: instead of x, such as random:32; target: what y is

edge_index                            int [2, E], rows are source and target, as published
edge_weight                           float [E], optional
edge_type                             int [E], optional, from 0 on; num_edge_types, int scalar, where the last do not occur
num_nodes, num_features, num_classes  int scalars
x                                     [N, F]; or as CSR: x_indptr [N + 1], x_indices [nnz], x_data [nnz]
y                                     int [N], -1 = no label; [N, C] of 0 and 1, -1 = unknown (multi-label); or float [N] or [N, C],
                                      NaN = unknown (numbers: num_classes is 1 or C)
train_mask, val_mask, test_mask       bool [N] or [N, S], optional, disjoint; S splits as columns
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.masks import split_of
from graph_data.objects.arrays import num_classes_of
from graph_data.sources.beside import TOLD, features_of, options_of
from graph_data.sources.randomrows import no_features, random_width
from graph_data.targets import labels_as
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.npy import read_archive
from siafu.sparse import Array, Rows, SparseRows


def load(argument: str) -> Graph:
    """The graph in the file that ``argument`` names; its split has no column if the file has no masks.

    Raises: DatasetError if the file is missing, is no such archive, lacks an array, or its masks overlap.
    """
    text, given = options_of(argument, TOLD)
    path = Path(text)
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
    num_vertices = need_scalar("num_nodes")
    features: Rows
    if told := given.get("features", ""):
        features = features_of(told, num_vertices)[:]
    elif "x" in arrays:
        features = arrays["x"]
    elif not any(name.startswith("x_") for name in arrays):
        raise no_features(str(path))
    else:
        width = need_scalar("num_features")
        features = SparseRows(need("x_indptr").astype(np.int64), need("x_indices"), need("x_data"), width)
    if not told and features.shape[1:] != ((width := need_scalar("num_features")),):
        raise DatasetError(f"{path}: feature rows are {list(features.shape[1:])} wide, num_features is {width}")
    target = given.get("target", "auto")
    labels = labels_as(need("y"), target, str(path))
    classes = num_classes_of(labels) if target in ("labels", "numbers") else need_scalar("num_classes")
    return Graph(
        name=path.stem,
        num_vertices=num_vertices,
        src=edges[0],
        dst=edges[1],
        weight=arrays.get("edge_weight"),
        features=features,
        labels=labels,
        num_classes=classes if target != "classes" else max(classes, num_classes_of(labels)),
        split=split_of(arrays, num_vertices, str(path)),
        directed=True,
        numbers_said=target == "numbers",
        random_features=random_width(told) is not None,
        **_types(path, arrays, need_scalar),
    )


def _types(path: Path, arrays: dict[str, Array], need_scalar: Callable[[str], int]) -> dict[str, Any]:
    """The fields of a graph whose edges have types; none if they have not. The graph checks them."""
    if "edge_type" not in arrays:
        return {}
    kind = arrays["edge_type"]
    if "num_edge_types" in arrays:
        return {"edge_type": kind, "num_edge_types": need_scalar("num_edge_types")}
    if kind.dtype.kind not in "iu":
        raise DatasetError(f"{path}: edge_type is {kind.dtype} {list(kind.shape)}, must be integers [E]")
    return {"edge_type": kind, "num_edge_types": int(kind.max(initial=0)) + 1}


def _read(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise DatasetError(f"{path}: not a readable npz archive of plain arrays (no zip file)")
            stream.seek(0)
            return read_archive(stream)
    except FileNotFoundError:
        raise DatasetError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: not a readable npz archive of plain arrays ({error})") from None
