"""PyG's ``.pt`` files: a ``Data``, its ``to_dict()``, or the one graph of a processed data set. Read without PyG; no
code in the file runs.

FILE.pt[?weight=FIELD&features=FILE|random:F&target=KIND]    no FIELD: no weight
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from graph_data.fields import WHOLE, sorted_out
from graph_data.objects.pyg import from_fields
from graph_data.sources import torchfile
from graph_data.sources.beside import TOLD, options_of
from siafu.errors import DatasetError
from siafu.graph import Graph

#: What a pickled ``Data`` names, in PyG 1 and 2: these stand for PyG's classes and hold their attributes alone
CLASSES = {
    "torch_geometric.data.data": ("Data", "DataEdgeAttr", "DataTensorAttr"),
    "torch_geometric.data.hetero_data": ("HeteroData",),
    "torch_geometric.data.storage": ("BaseStorage", "GlobalStorage", "NodeStorage", "EdgeStorage"),
    "torch_geometric.data.feature_store": ("TensorAttr",),
    "torch_geometric.data.graph_store": ("EdgeAttr",),
}
STANDINS = [
    type(name, (), {"__module__": module, "__qualname__": name}) for module, names in CLASSES.items() for name in names
]
WRITE = "write it with torch.save(data.to_dict(), path)"


def load(argument: str) -> Graph:
    """Loads the graph. Raises: DatasetError for a file without a graph, with several, or with several kinds of
    vertices; ConfigError without torch."""
    text, given = options_of(argument, ("weight", *TOLD))
    path = Path(text)
    if not path.is_file():
        raise DatasetError(f"{path}: no such file")
    fields = _fields(torchfile.read(path, STANDINS, _why), str(path))
    ends = sorted_out(fields, {"edge_index": WHOLE["edge_index"]}, str(path)).values
    if not hasattr(ends.get("edge_index"), "detach"):
        raise DatasetError(f"{path}: has no tensor edge_index: {WRITE}")
    return replace(from_fields(fields, **given, name=str(path)), name=path.name.partition(".")[0])


def _why(unknown: str) -> str:
    if unknown.startswith("numpy."):
        return "holds numpy arrays, must be tensors: torch.from_numpy makes them of one"
    return f"{f'holds a {unknown}, which is not read' if unknown else 'not a file of torch.save'}: {WRITE}"


def _fields(held: Any, shown: str) -> dict[str, Any]:
    """The attributes of the one ``Data``. A processed data set is (Data or its dict, where
    each graph begins[, its class])."""
    if isinstance(held, tuple) and _is_processed(held):
        held, slices = held[:2]
        graphs = max((len(starts) - 1 for starts in (slices or {}).values()), default=1)
        if graphs != 1:
            raise DatasetError(f"{shown}: holds {graphs} graphs, must be one: torch.save(dataset[i].to_dict(), path)")
    kind = type(held).__name__
    if kind == "HeteroData" or (isinstance(held, dict) and "_global_store" in held):
        raise DatasetError(f"{shown}: HeteroData: load it with PyG and pass siafu.from_pyg(data)")
    if kind == "Data":
        held = _mapping(held)
    if not isinstance(held, dict):
        raise DatasetError(f"{shown}: holds a {kind}, no graph: {WRITE}")
    return held


def _is_processed(held: tuple[Any, ...]) -> bool:
    """Whether it is a data set as PyG stores it, and not a graph that somebody saved beside something else: a split,
    labels, a number."""
    if len(held) not in (2, 3) or (len(held) == 3 and not isinstance(held[2], type)):
        return False
    if held[1] is None or held[1] == {}:
        return True
    fields = held[0] if isinstance(held[0], dict) else _mapping(held[0]) if type(held[0]).__name__ == "Data" else {}
    return isinstance(held[1], dict) and held[1].keys() <= fields.keys() | {"num_nodes", "_num_nodes"}


def _mapping(data: Any) -> Any:
    """Attributes of a ``Data`` or its stand-in: PyG 2 keeps them in a storage, PyG 1 in the object itself."""
    state = vars(data)
    if (store := state.get("_store")) is not None:
        return vars(store).get("_mapping")
    named = {"num_nodes": state["__num_nodes__"]} if "__num_nodes__" in state else {}
    return named | {key: value for key, value in state.items() if not key.startswith("_") and value is not None}
