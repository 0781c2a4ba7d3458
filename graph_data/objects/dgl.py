"""DGL's graphs, both ways, and how siafu names what their vertices and edges carry."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from graph_data.masks import MASKS, masks_of
from graph_data.objects.arrays import array, from_arrays, labels_for_losses
from siafu.errors import ConfigError, DatasetError
from siafu.features import densified
from siafu.graph import Graph
from siafu.sparse import Array, SparseRows

#: Names that DGL's own data sets and examples use; the first that is there counts, and is what we write.
FEATURES, LABELS = ("feat", "features", "x"), ("label", "labels", "y")
WEIGHTS, TYPES = ("weight", "w", "edge_weight"), ("_TYPE", "etype", "rel_type")


def from_dgl(graph: Any, *, features: Any = None, target: str = "auto", name: str = "dgl") -> Graph:
    """The graph of a ``DGLGraph``: feat, label, train_mask, val_mask, test_mask of its nodes (or what FEATURES and LABELS
    list), and weight and _TYPE of its edges (WEIGHTS, TYPES).

    features, target: instead of feat, and what label is, as for ``graph_data.objects.arrays.from_arrays``.
    With one kind of nodes and several of edges, these are the edge types. Raises: DatasetError for several kinds of nodes.
    """
    if len(graph.ntypes) != 1:
        raise DatasetError(
            f"{name}: has nodes of {len(graph.ntypes)} kinds, must have one: dgl.to_homogeneous(graph, ndata=['feat']) makes them "
            "one"
        )
    ends, kinds, carried = [], [], []
    for number, kind in enumerate(graph.canonical_etypes):
        src, dst, ids = (array(values) for values in graph.edges(form="all", order="srcdst", etype=kind))
        pairs = np.empty((2, len(ids)), np.int64)
        pairs[:, ids] = src, dst  # order="eid" would not do for a graph that is kept as CSR
        ends.append(pairs)
        kinds.append(np.full(len(ids), number))
        carried.append({key: array(value) for key, value in graph.edges[kind].data.items()})
    edges = carried[0]
    if len(kinds) > 1:
        edges = {
            key: np.concatenate([of_kind[key] for of_kind in carried]) for key in set.intersection(*map(set, carried))
        }
        edges[TYPES[0]] = np.concatenate(kinds)
    return of_frames(
        np.concatenate(ends, axis=1), graph.num_nodes(), dict(graph.ndata), edges, num_edge_types=len(kinds),
        features=features, target=target, name=name,
    )  # fmt: skip


def of_frames(
    ends: Any,
    num_vertices: int,
    nodes: Mapping[str, Any],
    edges: Mapping[str, Any],
    *,
    num_classes: int | None = None,
    num_edge_types: int = 1,
    features: Any = None,
    target: str = "auto",
    name: str,
) -> Graph:
    """A graph of what DGL keeps: edges [2, E], and what nodes and edges carry, by name."""
    return from_arrays(
        ends,
        _first(nodes, FEATURES) if features is None else features,
        _first(nodes, LABELS),
        weight=_first(edges, WEIGHTS),
        edge_type=_first(edges, TYPES),
        masks={mask: array(nodes[mask]).astype(bool) for mask, _ in MASKS if mask in nodes},  # DistDGL's are bytes
        num_vertices=num_vertices,
        num_classes=num_classes,
        num_edge_types=num_edge_types if num_edge_types > 1 else None,
        target=target,
        name=name,
    )


def _first(frame: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((frame[name] for name in names if name in frame), None)


def to_dgl(graph: Graph) -> Any:
    """A ``DGLGraph`` with the edges as they are listed, and what ``from_dgl`` reads, under its first names.

    Raises: ConfigError where DGL cannot be imported; DatasetError if sparse features would be too large dense.
    """
    try:
        dgl, torch = import_module("dgl"), import_module("torch")
    except Exception as error:  # DGL raises whatever its binaries, torch and configuration disagree about
        raise ConfigError(
            f"to_dgl needs DGL, which cannot be imported ({str(error).partition(chr(10))[0]}): siafu convert --to dgl writes "
            "a file for dgl.load_graphs without it"
        ) from None
    nodes, edges = frames_of(graph)
    src, dst = (torch.from_numpy(ids.astype(np.int64)) for ids in (graph.src, graph.dst))
    made = dgl.graph((src, dst), num_nodes=graph.num_vertices)
    for data, frame in ((made.ndata, nodes), (made.edata, edges)):
        data.update({key: torch.from_numpy(values) for key, values in frame.items()})
    return made


def frames_of(graph: Graph) -> tuple[dict[str, Array], dict[str, Array]]:
    """What nodes and edges carry, by name; in copies, in types that DGL has: float32, int64, bool."""
    features = densified(graph.features, graph.name) if isinstance(graph.features, SparseRows) else graph.features
    labels = labels_for_losses(graph)
    nodes = {FEATURES[0]: features.astype(np.float32), LABELS[0]: labels, **masks_of(graph.split)}
    edges = {}
    if graph.weight is not None:
        edges[WEIGHTS[0]] = graph.weight.astype(np.float32)
    if graph.edge_type is not None:
        edges[TYPES[0]] = graph.edge_type.astype(np.int64)
    return nodes, edges
