"""The archives of gnn-benchmark (Shchur et al., 2018): CSR in adj_*, attributes in attr_*
or a dense attr_matrix, no split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graph_data.archives import npzfile
from graph_data.archives.found import Found, graph_of
from graph_data.archives.sparsematrix import csr, edges, sparse_rows, square
from graph_data.objects.arrays import num_classes_of
from siafu.graph import Graph
from siafu.sparse import Array, Rows

PARTS = ("data", "indices", "indptr", "shape")
ADJACENCY = tuple(f"adj_{part}" for part in PARTS)
ATTRIBUTES = tuple(f"attr_{part}" for part in PARTS)
PLAIN = (*ADJACENCY, *ATTRIBUTES, "attr_matrix", "labels")  # and class_names, which are pickled in some files


def find(file: Path) -> Found | None:
    if file.suffix != ".npz" or not npzfile.names(file).issuperset((*ADJACENCY, "labels")):
        return None
    return Found(file.stem, (file,), file.name)


def load(found: Found, given: dict[str, str]) -> Graph:
    file = found.files[0]
    arrays = npzfile.arrays(file, PLAIN)
    adjacency = square(csr("csr", {part: arrays[f"adj_{part}"] for part in PARTS}))
    labels = arrays["labels"]
    classes = _class_names(file, num_classes_of(labels))
    split, notes = npzfile.besides(file, (*PLAIN, "class_names"), len(labels), found.shown)
    return graph_of(found, given, edges(adjacency), _attributes(arrays), labels, split, classes, notes)


def _attributes(arrays: dict[str, Array]) -> Rows:
    if "attr_matrix" in arrays:
        return arrays["attr_matrix"]
    if not all(name in arrays for name in ATTRIBUTES):
        raise ValueError("it has no attributes (attr_matrix, or attr_data, attr_indices, attr_indptr and attr_shape)")
    return sparse_rows(csr("csr", {part: arrays[f"attr_{part}"] for part in PARTS}))


def _class_names(file: Path, least: int) -> tuple[str, ...]:
    """The archive's class names if there is a different one for each class, else ()."""
    if "class_names" not in npzfile.names(file):
        return ()
    held = npzfile.pickled(file, "class_names")
    words = tuple(map(str, held)) if isinstance(held, np.ndarray) and held.ndim == 1 else ()
    return words if len(words) >= least and len(set(words)) == len(words) else ()
