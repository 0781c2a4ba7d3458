"""Dorylus' files, as ``graph_data.sources.bsnap`` reads them, and beside them what they cannot hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graph_data.sinks import Written
from graph_data.sinks.npz import names_note
from graph_data.sources.bsnap import FEATURES, GRAPH, HEADER, ID_BYTES, LABELS, SIDE_FILES
from siafu.errors import DatasetError
from siafu.features import blocks
from siafu.graph import Graph
from siafu.sparse import Array, Rows, SparseRows

MAX_VERTICES = 2**32
EDGE_ROWS = 1 << 22  # edges that are written together
PARTS = "graph.bsnap.parts"


def save(graph: Graph, folder: Path) -> Written:
    """Writes FOLDER/graph.bsnap, features.bsnap and labels.bsnap; without self-loops, as Dorylus adds its own."""
    if graph.num_vertices > MAX_VERTICES:
        raise DatasetError(f"{graph.name}: {graph.num_vertices} vertices, bsnap's limit is {MAX_VERTICES}")
    kept = graph.src != graph.dst
    loops = graph.num_edges - int(kept.sum())
    _edges(folder / GRAPH, graph.num_vertices, graph.src[kept], graph.dst[kept])
    _features(folder / FEATURES, graph.features)
    notes = [f"{loops} self-loops are left out: Dorylus adds its own"] if loops else []
    if graph.target == "classes":
        notes += _labels(folder, graph.labels, graph.num_classes)
    else:
        np.save(folder / SIDE_FILES["labels"], graph.labels)
        notes.append(f"{LABELS} holds one class per vertex, so these labels are in {SIDE_FILES['labels']} alone")
    for what, values in (("weight", graph.weight), ("type", graph.edge_type)):
        if values is not None:
            np.save(folder / SIDE_FILES[what], values[kept])
            notes.append(f"Dorylus knows no edge {what}s: they are in {SIDE_FILES[what]}")
    if graph.edge_type is not None:
        np.save(folder / SIDE_FILES["types"], np.array([graph.num_edge_types]))
    if graph.split.shape[1]:
        np.save(folder / SIDE_FILES["split"], graph.split)
        notes.append(f"Dorylus splits by position: the split is in {SIDE_FILES['split']}")
    return Written(f"bsnap:{folder}", (*notes, *names_note(graph)))


def save_parts(owner: Array, folder: Path) -> Path:
    """Writes FOLDER/parts_P/graph.bsnap.parts: the partition of every vertex, a line each."""
    path = folder / f"parts_{int(owner.max()) + 1}" / PARTS
    path.parent.mkdir()
    path.write_bytes("\n".join(map(str, owner.tolist())).encode() + b"\n")
    return path


def _edges(path: Path, num_vertices: int, src: Array, dst: Array) -> None:
    with path.open("wb") as file:
        file.write(np.array((ID_BYTES, num_vertices, len(src)), HEADER).tobytes())
        for start in range(0, len(src), EDGE_ROWS):
            rows = slice(start, start + EDGE_ROWS)
            np.stack([src[rows], dst[rows]], axis=1).astype("<u4").tofile(file)


def _features(path: Path, features: Rows) -> None:
    """Writes features. Sparse rows are made dense one block at a time."""
    with path.open("wb") as file:
        np.array([features.shape[1]], "<u4").tofile(file)
        for _, block in blocks(features):  # type: ignore[arg-type]
            (block.dense() if isinstance(block, SparseRows) else block).astype("<f4").tofile(file)


def _labels(folder: Path, labels: Array, num_classes: int) -> list[str]:
    unknown = int((labels < 0).sum())
    with (folder / LABELS).open("wb") as file:
        np.array([num_classes], "<u4").tofile(file)
        np.maximum(labels, 0).astype("<u4").tofile(file)
    if not unknown:
        return []
    np.save(folder / SIDE_FILES["labels"], labels)
    return [f"{unknown} vertices without a label have 0 in {LABELS}: {SIDE_FILES['labels']} has them all"]
