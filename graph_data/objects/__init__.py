"""Graphs in memory, as other packages' objects: which module reads which class.

No package is imported to recognise an object: a caller with an object of a package has imported it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.table import loaded

#: First part of the module of an object's class -> the function that makes a Graph of it
OBJECTS = {
    "torch_geometric": "graph_data.objects.pyg:from_pyg",
    "dgl": "graph_data.objects.dgl:from_dgl",
    "networkx": "graph_data.objects.networkx:from_networkx",
    "scipy": "graph_data.objects.scipy:from_scipy",
    "numpy": "graph_data.objects.arrays:from_arrays",
}

#: First part of the module of a table's class: no graph, but one can be made of two of them
TABLES = {"pandas", "polars", "pyarrow", "modin", "cudf", "duckdb", "narwhals"}


def graph_of(thing: Any) -> Graph:
    """The graph in an object: a ``Graph``, PyG's ``Data`` or ``HeteroData``, a ``DGLGraph``, a NetworkX
    graph, a SciPy sparse adjacency, a numpy array of edges [2, E], or a mapping of the arrays that an npz
    file has (``graph_data.sources.npz``).

    Raises: DatasetError for anything else, and for an object that is no graph that can be trained on.
    """
    if isinstance(thing, Graph):
        return thing
    if isinstance(thing, Mapping):
        return _read("graph_data.objects.arrays:from_mapping", thing)
    packages = [base.__module__.partition(".")[0] for base in type(thing).__mro__]  # a user's own subclass: of its base
    if (package := next((package for package in packages if package in OBJECTS), None)) is not None:
        return _read(OBJECTS[package], thing)
    what = f"{type(thing).__module__}.{type(thing).__qualname__}"
    if TABLES & {*packages}:
        raise DatasetError(f"{what} is a table, no graph: siafu.from_pandas(edges, vertices) makes one of two tables")
    raise DatasetError(
        f"{what} is no graph: must be a source's name, a siafu.Graph, a "
        f"mapping of arrays, or an object of {', '.join(OBJECTS)}"
    )


def _read(name: str, thing: Any) -> Graph:
    graph: Graph = loaded(name)(thing)
    return graph
