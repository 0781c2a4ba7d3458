"""NetworkX graphs, with what their nodes and edges carry as attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_data.masks import MASKS
from graph_data.objects.arrays import from_arrays
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.sparse import Array

FEATURES, LABELS = ("x", "feat", "features"), ("y", "label")  # attributes of nodes, the first that is there


def from_networkx(
    graph: Any, *, features: Any = None, labels: Any = None, name: str = "networkx", **more: Any
) -> Graph:
    """The graph of a ``Graph``, ``DiGraph``, ``MultiGraph`` or ``MultiDiGraph``; an undirected edge becomes two.

    Vertices are the nodes in ascending order if they are integers (and the shards keep the integers), else in the order of
    ``graph.nodes``. Nodes may carry x, y, train_mask, val_mask and test_mask; edges weight and type, an integer. What some
    have, all must have, but for y: -1, or NaN beside real numbers, where it is missing. features, labels and ``more``: instead
    of attributes, as for ``graph_data.objects.arrays.from_arrays``.

    Raises: DatasetError naming the first node or edge without what others have.
    """
    nodes = list(graph.nodes)
    whole = all(isinstance(node, int | np.integer) for node in nodes)
    nodes = sorted(nodes) if whole else nodes
    number = {node: v for v, node in enumerate(nodes)}
    listed = list(graph.edges(data=True))
    ends = np.array([(number[u], number[v]) for u, v, _ in listed], np.int64).reshape(-1, 2).T  # [2, E]
    edge_data = [data for _, _, data in listed]
    weight, kind = (_values(edge_data, (key,), listed, name, "edge") for key in ("weight", "type"))
    if not graph.is_directed():
        turned = ends[0] != ends[1]  # a self-loop stands once
        ends = np.concatenate([ends, ends[::-1, turned]], axis=1)
        weight, kind = (
            None if values is None else np.concatenate([values, values[turned]]) for values in (weight, kind)
        )
    node_data = [graph.nodes[node] for node in nodes]
    return from_arrays(
        ends,
        _values(node_data, FEATURES, nodes, name, "node") if features is None else features,
        _labels(node_data) if labels is None else labels,
        weight=weight,
        edge_type=kind,
        masks={
            key: found for key, _ in MASKS if (found := _values(node_data, (key,), nodes, name, "node")) is not None
        },
        num_vertices=len(nodes),
        directed=bool(graph.is_directed()),
        ids=np.array(nodes, np.int64) if whole and nodes != list(range(len(nodes))) else None,
        name=name,
        **more,
    )


def _values(
    carried: list[dict[Any, Any]], keys: tuple[str, ...], owners: list[Any], name: str, what: str
) -> Array | None:
    """The attribute of all of them; None if none has it."""
    key = next((key for key in keys if any(key in data for data in carried)), None)
    if key is None:
        return None
    for data, owner in zip(carried, owners, strict=True):
        if key not in data:
            raise DatasetError(f"{name}: {what} {_shown(owner)} has no {key!r}, which others have")
    try:
        return np.array([data[key] for data in carried])
    except ValueError:
        raise DatasetError(f"{name}: {key!r} of {what}s differ in length") from None


def _labels(carried: list[dict[Any, Any]]) -> Array | None:
    key = next((key for key in LABELS if any(key in data for data in carried)), None)
    if key is None:
        return None
    given = [data.get(key) for data in carried]
    known = np.array([value for value in given if value is not None])
    missing = np.nan if known.dtype.kind == "f" else -1
    return np.array([np.full(known.shape[1:], missing) if value is None else value for value in given])


def _shown(owner: Any) -> str:
    return f"{owner[0]!r} - {owner[1]!r}" if isinstance(owner, tuple) and len(owner) == 3 else repr(owner)
