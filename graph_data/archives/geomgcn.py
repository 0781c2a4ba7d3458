"""Geom-GCN's two files (Pei et al., ICLR 2020): out1_graph_edges.txt and
out1_node_feature_label.txt, a title line in each.

A line of nodes is the number, the features with commas between them, and the class; columns are parted by
tabs. ``film``'s features are the places of ones. Splits that are published beside them
(NAME_split_0.6_0.2_I.npz) become the columns of the split.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from graph_data.archives import npzfile
from graph_data.archives.found import Found, check_each, check_within, graph_of, integers
from siafu.errors import DatasetError, listed
from siafu.graph import Graph
from siafu.sparse import Array, Rows, SparseRows

NODES, EDGES = "out1_node_feature_label.txt", "out1_graph_edges.txt"
WIDEST = 1 << 24  # of features that are places: a place is not as many bytes as it asks for


def find(file: Path) -> Found | None:
    if file.name not in (NODES, EDGES):
        return None
    name = file.resolve().parent.name
    splits = [
        one for place in (".", "splits") for one in sorted((file.parent / place).glob("*_split_*.npz"), key=_in_order)
    ]
    # Where splits of several graphs lie together, those of this one.
    named = [one for one in splits if one.name.lower().startswith(f"{name.lower()}_split_")]
    return Found(name, (file.with_name(NODES), file.with_name(EDGES), *(named or splits)), NODES)


def _in_order(file: Path) -> list[tuple[int, str]]:
    return [(int(part or 0), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", file.name)]


def load(found: Found, given: dict[str, str]) -> Graph:
    nodes, edges, *splits = found.files
    rows = _table(nodes, 3)
    numbers = integers((row[0] for row in rows), nodes)
    num_vertices = len(rows)
    check_each(numbers, num_vertices, nodes)
    order = np.argsort(numbers)
    labels = integers((row[2] for row in rows), nodes)[order]
    pairs = integers((end for row in _table(edges, 2) for end in row), edges).reshape(-1, 2)
    check_within(pairs.ravel(), num_vertices, str(edges))
    features = _features([rows[at][1] for at in order], nodes)
    return graph_of(found, given, (pairs[:, 0], pairs[:, 1], None), features, labels, _split(splits, num_vertices))


def _table(file: Path, width: int) -> list[list[str]]:
    """The columns of each line below the title."""
    try:
        lines = file.read_text("utf-8").splitlines()[1:]
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: not readable ({error})") from None
    rows = [line.split("\t") for line in lines if line.strip()]
    wrong = next((row for row in rows if len(row) != width), None)
    if wrong is not None:
        raise DatasetError(f"{file}: row {rows.index(wrong) + 1}: {len(wrong)} columns parted by tabs, must be {width}")
    return rows


def _features(texts: list[str], file: Path) -> Rows:
    """The rows: of numbers; if rows have different lengths, they list the columns of ones."""
    try:
        with np.errstate(over="ignore"):  # what is infinite then is refused by the check of the graph
            rows = [np.array(text.split(","), np.float32) for text in texts]
    except ValueError:
        raise DatasetError(f"{file}: a feature that is no number") from None
    widths = np.array([len(row) for row in rows])
    if len(set(widths.tolist())) <= 1:
        return np.stack(rows) if rows else np.zeros((0, 0), np.float32)
    rows = [np.unique(row) for row in rows]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    places: Array = np.concatenate(rows)
    if (places < 0).any() or (places >= WIDEST).any() or (places != np.floor(places)).any():
        raise DatasetError(f"{file}: rows of {widths.min()} to {widths.max()} features that are no places of ones")
    width = int(places.max()) + 1
    return SparseRows(indptr.astype(np.int64), places.astype(np.int32), np.ones(len(places), np.float32), width)


def _split(files: list[Path], num_vertices: int) -> Array:
    """Raises: DatasetError for the splits of two graphs, or a file without one."""
    graphs = sorted({file.name.partition("_split_")[0] for file in files})
    if len(graphs) > 1:
        raise DatasetError(f"{files[0].parent}: holds splits of {listed(graphs)}: leave those of this graph")
    columns = []
    for file in files:
        split, _ = npzfile.besides(file, (), num_vertices, str(file))
        if not split.shape[1]:
            raise DatasetError(f"{file}: has no train_mask, val_mask and test_mask")
        columns.append(split)
    return np.concatenate(columns, axis=1) if columns else np.zeros((num_vertices, 0), np.uint8)
