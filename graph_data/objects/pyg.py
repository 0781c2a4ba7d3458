"""Graphs of PyG, read and written."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from graph_data.fields import EDGES, FLAT, VERTICES, left_out, plain, sorted_out
from graph_data.masks import masks_of, role_of
from graph_data.objects.arrays import from_mapping, labels_for_losses
from siafu import extras
from siafu.errors import ConfigError, DatasetError
from siafu.features import densified
from siafu.graph import Graph
from siafu.sparse import SparseRows


def from_pyg(
    data: Any, *, weight: str | None = None, features: Any = None, target: str = "auto", name: str = "pyg"
) -> Graph:
    """The graph of a ``Data``: x, edge_index, y, train_mask, val_mask, test_mask, edge_type, and edge_weight, or else
    edge_attr if that is one value per edge; or other names of these (``graph_data.fields``).

    ``weight``: the attribute that holds edges' weights; "" for none. features: instead of x, such as "random:32".
    target: what y is, both as for ``graph_data.objects.arrays.from_arrays``. A ``HeteroData`` becomes one graph by its
    own ``to_homogeneous``, its kinds of edges edge types.

    Raises: DatasetError for what is no such graph.
    """
    if any(base.__name__ == "Dataset" for base in type(data).__mro__):
        raise DatasetError(f"{type(data).__name__} is a data set: pass the graph in it, dataset[0]")
    if not hasattr(data, "to_dict"):
        raise DatasetError(f"{name}: {type(data).__qualname__} is no Data or HeteroData of torch_geometric")
    partly: set[str] = set()
    guessed: tuple[str, ...] = ()
    if hasattr(data, "to_homogeneous"):
        kinds = data
        data = _homogeneous(kinds)
        partly = {key for store in kinds.stores for key in store.keys()} - set(data.to_dict())  # noqa: SIM118
        labelled = [kind for kind in kinds.node_types if any(plain(key) in VERTICES["y"] for key in kinds[kind].keys())]  # noqa: SIM118
        if len(labelled) > 1:
            guessed = (f"{name}: labels of {', '.join(labelled)} are taken for the same classes",)
    graph = from_fields(data.to_dict(), weight=weight, features=features, target=target, name=name)
    return replace(graph, notes=(*guessed, *graph.notes, *left_out({}, graph.num_vertices, name, sorted(partly))))


def from_fields(
    found: dict[str, Any], *, weight: str | None = None, features: Any = None, target: str = "auto", name: str = "pyg"
) -> Graph:
    """The graph in the fields of a ``Data``; otherwise as ``from_pyg``."""
    there = {key: value for key, value in found.items() if value is not None}
    keys = sorted_out(there, FLAT, name).keys
    if "edge_index" not in keys:
        raise DatasetError(
            f"{name}: has no edge_index, only {', '.join(found)}: undo transforms such as ToSparseTensor"
        )
    if weight and weight not in there:
        raise DatasetError(f"{name}: has no {weight!r}, only {', '.join(found)}")
    chosen = keys.get("edge_weight", "") if weight is None else weight
    if chosen and not hasattr(there[chosen], "shape"):
        raise DatasetError(f"{name}: {chosen} is a {type(there[chosen]).__name__}, no tensor of edge weights")
    if chosen and (shape := tuple(there[chosen].shape))[1:] not in ((), (1,)):
        raise DatasetError(
            f"{name}: {chosen} is {list(shape)}, but an edge has one weight: from_pyg(data, weight=''), or "
            "FILE.pt?weight=, leaves it out"
        )
    if weight is not None:  # the user has said which: the others are none
        there = {key: value for key, value in there.items() if key == weight or plain(key) not in EDGES["edge_weight"]}
    return from_mapping(there, weight=weight, features=features, target=target, name=name)


def _homogeneous(data: Any) -> Any:
    """One graph of all kinds of vertices. Raises: DatasetError unless all kinds have features of one width. Also for
    lists of vertices, which number one kind alone: PyG would join them unchanged."""
    for kind in data.node_types:
        for key, value in data[kind].items():
            if role_of(key) and not str(getattr(value, "dtype", "")).endswith("bool"):
                raise DatasetError(
                    f"HeteroData: {key} of {kind!r} is no bool mask, and may number vertices of that kind "
                    "alone: make it a mask [N]"
                )
    widths = {kind: int(data[kind].x.shape[-1]) if "x" in data[kind] else None for kind in data.node_types}
    if len(set(widths.values())) > 1:
        shown = ", ".join(f"{kind} {width or 'none'}" for kind, width in widths.items())
        raise DatasetError(f"HeteroData: features of its kinds of vertices ({shown}) must be of one width")
    return data.to_homogeneous()


def to_pyg(graph: Graph) -> Any:
    """A ``Data`` with the edges as they are listed: ``siafu.graph.tidy`` makes them those that we train on.

    Features and weights become float32, and sparse features dense, up to a limit. Labels of several classes per vertex
    become float32 too, for PyG's losses. Raises: ConfigError without PyG; DatasetError beyond the limit.
    """
    try:
        make = import_module("torch_geometric.data").Data
    except ImportError as error:
        raise ConfigError(f"to_pyg needs PyG: {extras.advice(error, extras.install('pyg'))}") from None
    return make.from_dict(tensors_of(graph))


def tensors_of(graph: Graph) -> dict[str, Any]:
    """The fields of a ``Data``: tensors and integers. PyG is not needed. Raises: ConfigError without torch."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        how = extras.advice(error, f"{extras.pip()} install torch")
        raise ConfigError(f"tensors need torch: {how}") from None
    features = densified(graph.features, graph.name) if isinstance(graph.features, SparseRows) else graph.features
    fields = {  # copies, all of them: a Graph is not written to
        "x": features.astype(np.float32),
        "edge_index": np.stack([graph.src, graph.dst]).astype(np.int64),
        "y": labels_for_losses(graph),
        **masks_of(graph.split),
    }
    if graph.weight is not None:
        fields["edge_weight"] = graph.weight.astype(np.float32)
    if graph.edge_type is not None:
        fields["edge_type"] = graph.edge_type.astype(np.int64)
    if isinstance(graph.ids, np.ndarray):  # others are no integers
        fields["n_id"] = graph.ids.copy()
    numbers = {"num_nodes": graph.num_vertices, "num_classes": graph.num_classes}
    if graph.num_edge_types > 1:
        numbers["num_edge_types"] = graph.num_edge_types
    return {key: torch.from_numpy(values) for key, values in fields.items()} | numbers
