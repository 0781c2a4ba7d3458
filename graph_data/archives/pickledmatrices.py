"""Archives with pickled SciPy matrices (GraphGallery's): adj_matrix, node_attr and node_label, no split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_data.archives import npzfile, plainpickle
from graph_data.archives.found import Found, graph_of
from graph_data.archives.sparsematrix import edges, features, square
from siafu.graph import Graph

NEEDED = ("adj_matrix", "node_attr", "node_label")


def find(file: Path) -> Found | None:
    if file.suffix != ".npz" or not npzfile.names(file).issuperset(NEEDED):
        return None
    return Found(file.stem, (file,), file.name)


def load(found: Found, given: dict[str, str]) -> Graph:
    adjacency, attributes, labels = (_part(found.files[0], name) for name in NEEDED)
    if isinstance(adjacency, np.ndarray) or not isinstance(labels, np.ndarray):
        raise ValueError("adj_matrix is no sparse matrix, or node_label is one")
    split, notes = npzfile.besides(found.files[0], NEEDED, len(labels), found.shown)
    return graph_of(found, given, edges(square(adjacency)), features(attributes), labels, split, notes=notes)


def _part(file: Path, name: str) -> Any:
    held = npzfile.pickled(file, name)
    if isinstance(held, np.ndarray) and not held.dtype.hasobject:
        return held
    where = f"{file}: {name}"
    return plainpickle.array(held, where) if plainpickle.is_array(held) else plainpickle.matrix(held, where)
