"""NetworkX graphs, with what their nodes and edges carry as attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from graph_data.fields import OF_EDGE, VERTICES, left_out, plain
from graph_data.masks import role_of
from graph_data.objects.dgl import of_frames
from graph_data.sources.arrow import arrow
from graph_data.sources.ids import NamedIds
from graph_data.sources.randomrows import random_width
from siafu.errors import ConfigError, DatasetError, listed
from siafu.graph import Graph
from siafu.sparse import Array


def from_networkx(
    graph: Any, *, features: Any = None, labels: Any = None, name: str = "networkx", **more: Any
) -> Graph:
    """The graph of a ``Graph``, ``DiGraph``, ``MultiGraph`` or ``MultiDiGraph``; an undirected edge becomes two.

    Vertices are the nodes in ascending order if they are integers, else in the order of ``graph.nodes``. The shards
    keep integers and texts as ids; a note says that other nodes are not kept. Nodes may carry x, y, train_mask,
    val_mask and test_mask; edges weight and type, an integer; or other names of these (``graph_data.fields``). What
    some have, all must have, but for y: -1, or NaN beside real numbers, or nothing. features, labels and ``more``:
    instead of attributes, as for ``graph_data.objects.arrays.from_arrays``; a row for each vertex.

    Raises: DatasetError naming the first node or edge without what others have; and for rows beside a graph whose
    integer nodes are not in ascending order: a loop over its nodes would have made them in another one.
    """
    listed_nodes = list(graph.nodes)
    whole = all(isinstance(node, int | np.integer) for node in listed_nodes)
    nodes = sorted(listed_nodes) if whole else listed_nodes
    rows = {"features": features, "labels": labels, **{key: more.get(key) for key in ("split", "masks")}}
    given = [key for key, value in rows.items() if value is not None and not _is_random(value)]
    if nodes != listed_nodes and given:
        raise DatasetError(
            f"{name}: nodes are not in ascending order ({listed_nodes[0]}, ...), vertices are, so rows of {given[0]} "
            "could be in either: set them as attributes of the nodes (networkx.set_node_attributes)"
        )
    number = {node: v for v, node in enumerate(nodes)}
    pairs = list(graph.edges(data=True))
    ends = np.array([(number[u], number[v]) for u, v, _ in pairs], np.int64).reshape(-1, 2).T  # [2, E]
    edges = _frame([data for _, _, data in pairs], OF_EDGE, pairs, name, "edge")
    if not graph.is_directed():
        turned = ends[0] != ends[1]  # a self-loop stands once
        ends = np.concatenate([ends, ends[::-1, turned]], axis=1)
        edges = {
            key: np.concatenate([values, values[turned]]) if isinstance(values, np.ndarray) else values
            for key, values in edges.items()
        }
    ids, said = (np.array(nodes, np.int64), ()) if whole else _named(nodes, name)
    made = of_frames(
        ends,
        len(nodes),
        _frame([graph.nodes[node] for node in nodes], VERTICES, nodes, name, "node"),
        edges,
        features=features,
        labels=labels,
        directed=bool(graph.is_directed()),
        ids=None if whole and nodes == list(range(len(nodes))) else ids,
        name=name,
        **more,
    )
    notes = left_out({key: value for key, value in graph.graph.items() if np.ndim(value)}, len(nodes), f"{name}.graph")
    keys = {key for *_, key in graph.edges(keys=True)} if graph.is_multigraph() else set()
    if not all(isinstance(key, int) for key in keys):
        notes += (
            (
                f"{name}: left out: keys of edges ({listed(sorted(map(str, keys)))}): an attribute "
                "type would tell them apart"
            ),
        )
    return replace(made, notes=made.notes + said + notes)


def _named(nodes: list[Any], name: str) -> tuple[NamedIds | None, tuple[str, ...]]:
    """Nodes as ids if all are texts, in their order; else a note that they are not kept."""
    numbered = "vertex v is list(graph.nodes)[v], the nodes themselves are not kept"
    if not all(isinstance(node, str) for node in nodes):
        return None, (f"{name}: nodes are neither all integers nor all texts: {numbered}",)
    try:
        found = NamedIds(arrow().array(nodes, arrow().large_string()))
        alike = "{}: nodes {!a} and {!a} differ only in what is not seen, and are two vertices"
        return found, tuple(alike.format(name, *pair) for pair in [found.alike()] if pair)
    except ConfigError as error:  # a graph of NetworkX needs no pyarrow
        return None, (f"{name}: {numbered} ({error})",)
    except UnicodeEncodeError:  # of half a character
        return None, (f"{name}: a node is no valid text: {numbered}",)


def _frame(
    carried: list[dict[Any, Any]], table: Mapping[str, tuple[str, ...]], owners: list[Any], name: str, what: str
) -> dict[Any, Any]:
    """Attributes of nodes or edges, by name: known ones as arrays, others as lists of values."""
    frame: dict[Any, Any] = {}
    for key in dict.fromkeys(key for data in carried for key in data):
        if plain(key) in table.get("y", ()):
            frame[key] = _labels(carried, key)
        elif any(plain(key) in names for names in table.values()) or role_of(plain(key)):
            frame[key] = _values(carried, key, owners, name, what)
        else:
            values = [data.get(key) for data in carried]
            truths = what == "node" and all(isinstance(value, bool | np.bool_) for value in values)
            frame[key] = np.array(values, bool) if truths else values
    return frame


def _values(carried: list[dict[Any, Any]], key: Any, owners: list[Any], name: str, what: str) -> Array:
    """The values of an attribute that all nodes or edges must have."""
    for data, owner in zip(carried, owners, strict=True):
        if key not in data:
            raise DatasetError(f"{name}: {what} {_shown(owner)} has no {key!r}, which others have")
    try:
        return np.array([data[key] for data in carried])
    except ValueError:
        raise DatasetError(f"{name}: {key!r} of {what}s differ in length") from None


def _labels(carried: list[dict[Any, Any]], key: Any) -> Array:
    given = [data.get(key) for data in carried]
    known = np.array([value for value in given if value is not None])
    if known.dtype.kind in "UO":
        return np.array(given, object)
    missing = np.nan if known.dtype.kind == "f" else -1
    return np.array([np.full(known.shape[1:], missing) if value is None else value for value in given])


def _is_random(features: Any) -> bool:
    return isinstance(features, str) and random_width(features) is not None


def _shown(owner: Any) -> str:
    return f"{owner[0]!r} - {owner[1]!r}" if isinstance(owner, tuple) and len(owner) == 3 else repr(owner)
