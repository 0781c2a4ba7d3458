"""Graphs of DGL, read and written, and siafu's names for what their vertices and edges carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from graph_data.fields import OF_EDGE, VERTICES, left_out, plain, sorted_out
from graph_data.masks import masks_of
from graph_data.objects.arrays import array, from_arrays, ids_of, labels_for_losses
from siafu.errors import ConfigError, DatasetError
from siafu.features import densified
from siafu.graph import Graph
from siafu.sparse import Array, SparseRows

FEATURES, LABELS, WEIGHT, TYPE = "feat", "label", "weight", "_TYPE"  # what DGL's own data sets say, and we write


def from_dgl(graph: Any, *, features: Any = None, target: str = "auto", name: str = "dgl") -> Graph:
    """The graph of a ``DGLGraph``: feat, label, train_mask, val_mask, test_mask of its nodes, and weight and _TYPE of
    its edges; or other names of these (``graph_data.fields``).

    features, target: instead of feat, and what label is, as for ``graph_data.objects.arrays.from_arrays``. With one
    kind of nodes and several of edges, these are the edge types. Raises: DatasetError for several kinds of nodes.
    """
    if len(graph.ntypes) != 1:
        raise DatasetError(
            f"{name}: has nodes of {len(graph.ntypes)} kinds, must have one: dgl.to_homogeneous(graph, "
            "ndata=['feat']) makes them one"
        )
    ends, kinds, carried = [], [], []
    for number, kind in enumerate(graph.canonical_etypes):
        src, dst, ids = (array(values) for values in graph.edges(form="all", order="srcdst", etype=kind))
        pairs = np.empty((2, len(ids)), np.int64)
        pairs[:, ids] = src, dst  # order="eid" would not do for a graph that is kept as CSR
        ends.append(pairs)
        kinds.append(np.full(len(ids), number))
        carried.append({key: array(value) for key, value in graph.edges[kind].data.items()})
    edges, partly = joined(carried)
    if len(kinds) > 1:
        edges = {
            TYPE: np.concatenate(kinds),
            **{key: value for key, value in edges.items() if plain(key) != plain(TYPE)},
        }
    return of_frames(
        np.concatenate(ends, axis=1),
        graph.num_nodes(),
        dict(graph.ndata),
        edges,
        num_edge_types=len(kinds),
        partly=partly,
        features=features,
        target=target,
        name=name,
    )


def joined(frames: Sequence[Mapping[str, Array]]) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Data of vertices or edges of all kinds, one kind after the other, and the names that only some kinds have."""
    if len(frames) == 1:
        return dict(frames[0]), ()
    every = set.intersection(*map(set, frames))
    carried = {key: np.concatenate([frame[key] for frame in frames]) for key in frames[0] if key in every}
    return carried, tuple(sorted(set.union(*map(set, frames)) - every))


def of_frames(
    ends: Any,
    num_vertices: int,
    nodes: Mapping[Any, Any],
    edges: Mapping[Any, Any],
    *,
    num_classes: int | None = None,
    num_edge_types: int = 1,
    partly: Sequence[str] = (),
    features: Any = None,
    labels: Any = None,
    name: str,
    **more: Any,
) -> Graph:
    """A graph of edges [2, E], and what nodes and edges carry, by name. partly: what only some kinds of them carry.

    features, labels: instead of what nodes carry; they and ``more`` are as for
    ``graph_data.objects.arrays.from_arrays``. Raises: DatasetError as ``graph_data.objects.arrays.from_mapping`` does.
    """
    of_node, of_edge = sorted_out(nodes, VERTICES, name), sorted_out(edges, OF_EDGE, f"{name}: edges")
    graph = from_arrays(
        ends,
        of_node.values.get("x") if features is None else features,
        of_node.values.get("y") if labels is None else labels,
        weight=of_edge.values.get("edge_weight"),
        edge_type=of_edge.values.get("edge_type"),
        masks=of_node.splits,
        num_vertices=num_vertices,
        num_classes=num_classes,
        num_edge_types=num_edge_types if num_edge_types > 1 else None,
        name=name,
        **more,
    )
    ids, unused = ids_of(of_node, num_vertices)
    if ids is not None and graph.ids is not None:
        unused = {of_node.keys["n_id"]: ids}
    notes = graph.notes + left_out(of_node.left | unused, num_vertices, name, partly)
    notes += left_out(of_edge.left | of_edge.splits, -1, f"{name}: edges")
    return replace(graph, ids=ids if graph.ids is None else graph.ids, notes=notes)


def to_dgl(graph: Graph) -> Any:
    """A ``DGLGraph`` with the edges as they are listed, and what ``from_dgl`` reads, under those names.

    Raises: ConfigError where DGL cannot be imported; DatasetError if sparse features would be too large dense.
    """
    try:
        dgl, torch = import_module("dgl"), import_module("torch")
    except Exception as error:  # DGL raises whatever its binaries, torch and configuration disagree about
        raise ConfigError(
            f"to_dgl needs DGL, which cannot be imported ({str(error).partition(chr(10))[0]}): siafu convert --to dgl "
            "writes a file for dgl.load_graphs without it"
        ) from None
    nodes, edges = frames_of(graph)
    src, dst = (torch.from_numpy(ids.astype(np.int64)) for ids in (graph.src, graph.dst))
    made = dgl.graph((src, dst), num_nodes=graph.num_vertices)
    for data, frame in ((made.ndata, nodes), (made.edata, edges)):
        data.update({key: torch.from_numpy(values) for key, values in frame.items()})
    return made


def frames_of(graph: Graph) -> tuple[dict[str, Array], dict[str, Array]]:
    """Node data and edge data by name. Copies, in types that DGL has: float32, int64, bool."""
    features = densified(graph.features, graph.name) if isinstance(graph.features, SparseRows) else graph.features
    labels = labels_for_losses(graph)
    nodes = {FEATURES: features.astype(np.float32), LABELS: labels, **masks_of(graph.split)}
    edges = {}
    if graph.weight is not None:
        edges[WEIGHT] = graph.weight.astype(np.float32)
    if graph.edge_type is not None:
        edges[TYPE] = graph.edge_type.astype(np.int64)
    return nodes, edges
