"""DGL's Reddit: NAME_data.npz with feature, label and node_types (1 trains, 2 validates, 3
tests), NAME_graph.npz by SciPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graph_data.archives import npzfile
from graph_data.archives.found import Found, graph_of
from graph_data.archives.sparsematrix import edges, square
from graph_data.fields import WHOLE
from siafu.graph import Graph

NEEDED = ("feature", "label", "node_types")
ENDS = ("_data.npz", "_graph.npz")


def find(file: Path) -> Found | None:
    stem = next((file.name.removesuffix(end) for end in ENDS if file.name.endswith(end)), None)
    if stem is None:
        return None
    data, graph = (file.with_name(stem + end) for end in ENDS)
    if not npzfile.names(data).isdisjoint(WHOLE["edge_index"]):  # a graph of its own
        return None
    if npzfile.names(data).issuperset(NEEDED) or (not data.is_file() and {"shape", "format"} <= npzfile.names(file)):
        return Found(stem, (data, graph), f"{stem}_data.npz")
    return None


def load(found: Found, given: dict[str, str]) -> Graph:
    data, graph = found.files
    arrays = npzfile.arrays(data, NEEDED)
    adjacency = square(npzfile.scipy_matrix(graph))
    kinds = arrays["node_types"]
    if kinds.shape != (adjacency.shape[0],) or not ((kinds >= 0) & (kinds <= 3)).all():
        raise ValueError(f"node_types is {list(kinds.shape)}, must be [{adjacency.shape[0]}] of 0, 1, 2 and 3")
    split = kinds.astype(np.uint8)[:, None]  # TRAIN, VAL and TEST are 1, 2 and 3 too
    _, notes = npzfile.besides(data, (*NEEDED, "node_ids"), len(kinds), found.shown)
    return graph_of(found, given, edges(adjacency), arrays["feature"], arrays["label"], split, notes=notes)
