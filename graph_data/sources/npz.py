"""Graphs in the project's own npz format: one compressed archive of plain arrays.

    FILE.npz[?features=FILE&target=auto|classes|labels|numbers]   features: not x but, say, random:32; target: what y is

edge_index                            int [2, E], rows are source and target, as published
edge_weight                           float [E], optional
edge_type                             int [E], optional, from 0 on; num_edge_types, int scalar, where the last do not
                                      occur
num_nodes, num_features, num_classes  int scalars, where the arrays do not show them
x                                     [N, F]; or as CSR: x_indptr [N + 1], x_indices [nnz], x_data [nnz]
feature_names                         texts [F], optional
y                                     int [N], -1 = no label; [N, C] of 0 and 1, -1 = unknown (multi-label); or float
                                      [N] or [N, C], NaN = unknown (numbers: num_classes is 1 or C)
train_mask, val_mask, test_mask       bool [N] or [N, S], optional, disjoint; S splits as columns

``graph_data.fields`` and ``graph_data.masks`` list what else these may be called.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graph_data.archives.npzfile import arrays
from graph_data.objects.arrays import from_mapping
from graph_data.sources.beside import TOLD, options_of
from graph_data.sources.columns import path_and_options
from graph_data.sources.sizes import Sizes
from siafu.graph import Graph
from siafu.npy import headers_in


def load(argument: str) -> Graph:
    """The graph in the file that ``argument`` names; its split has no column if the file has no masks.

    Raises: DatasetError if the file is missing, is no such archive, lacks an array, or its masks overlap.
    """
    text, given = options_of(argument, TOLD)
    path = Path(text)
    graph = from_mapping(arrays(path), **given, name=str(path))
    return replace(graph, name=path.stem)


def sizes(argument: str) -> Sizes:
    """Sizes from the headers of the arrays; ``load`` reports an unreadable archive."""
    try:
        with Path(path_and_options(argument)[0]).open("rb") as stream:
            headers = headers_in(stream)
    except (OSError, ValueError):
        return Sizes(0, 0, 0)
    shapes = {name: header.shape for name, header in headers.items()}
    labels, edges = shapes.get("y", ()), shapes.get("edge_index", ())
    features = sum(header.nbytes for name, header in headers.items() if name == "x" or name.startswith("x_"))
    return Sizes(labels[0] if labels else 0, edges[-1] if edges else 0, features, "edge_weight" in shapes)
