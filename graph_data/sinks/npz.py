"""The project's own format, as ``graph_data.sources.npz`` reads it: it holds everything of a graph."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from graph_data.masks import masks_of
from graph_data.sinks import Written
from siafu.graph import Graph, id_dtype
from siafu.shards import CHOSEN, TABLE_COLUMNS
from siafu.sparse import Array, SparseRows


def save(graph: Graph, folder: Path) -> Written:
    """Writes FOLDER/NAME.npz."""
    path = folder / f"{graph.name}.npz"
    dtype = id_dtype(graph.num_vertices)
    arrays: dict[str, Array | np.int64] = {
        "edge_index": np.stack([graph.src, graph.dst]).astype(dtype, copy=False),
        "num_nodes": np.int64(graph.num_vertices),
        "num_features": np.int64(graph.num_features),
        "num_classes": np.int64(graph.num_classes),
        "y": graph.labels,
        **masks_of(graph.split),
    }
    if graph.weight is not None:
        arrays["edge_weight"] = graph.weight
    if graph.edge_type is not None:
        arrays["edge_type"] = graph.edge_type
        arrays["num_edge_types"] = np.int64(graph.num_edge_types)
    features = graph.features
    if isinstance(features, SparseRows):
        arrays |= {"x_indptr": features.indptr, "x_indices": features.indices, "x_data": features.data}
    else:
        arrays["x"] = features
    if words := graph.names.get("features"):
        arrays["feature_names"] = np.array(words)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return Written(str(path), notes=names_note(graph, kept=("features",)))


def names_note(graph: Graph, kept: Collection[str] = ()) -> tuple[str, ...]:
    """Notes the ids and names that siafu keeps and this format does not. kept: names that it does keep."""
    ids = () if graph.ids is None else ("the ids of its source are not in it: vertices are numbered 0..N-1",)
    lost = [what.replace("_", " ") for what in graph.names if what not in (*kept, CHOSEN, *TABLE_COLUMNS)]
    names = (f"the names of its {' and '.join(lost)} are not in it: they are numbered",) if lost else ()
    return (*ids, *names)
