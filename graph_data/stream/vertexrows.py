"""Features, labels and splits of every partition, out of matrices that may be larger than memory."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from graph_data.cut import rows_at
from graph_data.writer import BlockFile, write_array
from siafu.features import (
    KEPT_DTYPES,
    Extent,
    Standard,
    blocks,
    check_shape,
    checked,
    checked_block,
    densified,
    kept_dtype,
    normalised,
    scale_of,
)
from siafu.graph import Graph, check_vertices, kept_labels, labelled_split, stored_labels
from siafu.shards import FileEntry, folder_of
from siafu.sparse import Array, SparseRows


def check_features(graph: Graph) -> None:
    """Reads all features. Raises: DatasetError if they are malformed or not finite."""
    if isinstance(graph.features, SparseRows):
        checked(graph.features, graph.num_vertices, graph.name)
        return
    check_shape(graph.features, graph.num_vertices, graph.name)
    extent = Extent(graph.num_features) if graph.features.dtype not in KEPT_DTYPES else None
    for start, block in blocks(graph.features):
        checked_block(block, start, graph.name)
        if extent is not None:
            extent.see(block)
    if extent is not None:
        extent.warn(lambda column: f"{graph.name}: feature {column}")


def tidy_vertices(graph: Graph, feature_norm: str) -> Graph:
    """Does what ``siafu.graph.tidy`` does to labels, splits and sparse features; dense features are normalised when
    written."""
    check_vertices(graph)
    features = graph.features
    if isinstance(features, SparseRows):
        features = features.astype(kept_dtype(features.dtype))
        sparse = feature_norm != "standard"
        features = normalised(features, feature_norm, graph.name) if sparse else densified(features, graph.name)
    return replace(
        graph,
        features=features,
        labels=kept_labels(graph),
        split=labelled_split(graph),
    )


def write_vertex_rows(
    folder: Path, graph: Graph, owner: Array, parts: int, norm: str, standard: Standard | None = None
) -> list[dict[str, FileEntry]]:
    """Writes each partition's vertex data, in ascending order, below ``folder``; reads features once."""
    found: list[dict[str, FileEntry]] = []
    for p in range(parts):
        vertices, into = np.flatnonzero(owner == p), folder / folder_of(p)
        into.mkdir(parents=True, exist_ok=True)
        labels = stored_labels(graph.labels[vertices])
        arrays = {"vertices": vertices, "labels": labels, "split": graph.split[vertices]}
        if isinstance(graph.features, SparseRows):
            rows = rows_at(graph.features, vertices)
            assert isinstance(rows, SparseRows)
            arrays |= {"features_indptr": rows.indptr, "features_indices": rows.indices, "features_data": rows.data}
        found.append({f"{name}.npy": write_array(into / f"{name}.npy", array) for name, array in arrays.items()})
    if not isinstance(graph.features, SparseRows):
        for p, entry in enumerate(_dense(folder, graph, owner, parts, norm, standard)):
            found[p]["features.npy"] = entry
    return found


def _dense(
    folder: Path, graph: Graph, owner: Array, parts: int, norm: str, standard: Standard | None
) -> list[FileEntry]:
    width = graph.num_features
    dtype = kept_dtype(graph.features.dtype) if norm == "none" else np.dtype(np.float32)
    shapes = [(int(count), width) for count in np.bincount(owner, minlength=parts)]
    with ExitStack() as stack:
        files = [
            stack.enter_context(BlockFile(folder / folder_of(p) / "features.npy", shape, dtype))
            for p, shape in enumerate(shapes)
        ]
        scale = scale_of(graph.features, norm, standard)  # type: ignore[arg-type]
        for start, block in blocks(graph.features):  # type: ignore[arg-type]
            rows = scale(block.astype(kept_dtype(block.dtype), copy=False))
            whose = owner[start : start + len(block)]
            for p, file in enumerate(files):
                file.append(rows if parts == 1 else rows[whose == p])
    return [file.entry() for file in files]
