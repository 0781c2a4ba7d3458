"""SciPy's sparse adjacency matrices: an entry in row i, column j is an edge from i to j."""

from __future__ import annotations

from typing import Any

from graph_data.objects.arrays import from_arrays
from siafu.errors import DatasetError
from siafu.graph import Graph


def from_scipy(adjacency: Any, features: Any = None, labels: Any = None, **more: Any) -> Graph:
    """The graph of a square sparse matrix or array [N, N].

    Stored values other than 1 are edges' weights; stored zeros count as edges and are refused later, for their weight.
    features, labels and ``more``: as for ``graph_data.objects.arrays.from_arrays``.

    Raises: DatasetError if it is not square.
    """
    name = more.setdefault("name", "adjacency")
    if not hasattr(adjacency, "tocoo"):
        raise DatasetError(f"{name}: {type(adjacency).__qualname__} is no sparse matrix of scipy.sparse")
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        raise DatasetError(f"{name}: the adjacency is {list(adjacency.shape)}, must be [N, N]")
    entries = adjacency.tocoo()
    weight = None if (entries.data == 1).all() else entries.data
    return from_arrays(
        (entries.row, entries.col), features, labels, weight=weight, num_vertices=adjacency.shape[0], **more
    )
