"""Joins the folders of ``dgl.distributed.partition_graph``, without DGL.

    distdgl:PATH[?features=FILE&target=...]        PATH: NAME.json, or a folder with one such file

NAME.json tells which ranges of vertices and edges each partition owns, in DGL's new numbering, which is ours too.
In part p/graph.dgl, ``_ID`` are the numbers of the partition's vertices and edges in the whole graph, and
``inner_edge`` says which edges it owns; every edge is owned once. node_feat.dgl and edge_feat.dgl hold what is
known of the owned ones, by kind/name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.objects.dgl import TYPE, of_frames
from graph_data.sources.beside import TOLD, options_of
from graph_data.sources.columns import path_and_options
from graph_data.sources.dglfile import Stored, read, read_tensors
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.sparse import Array

NEEDED = ("graph_name", "num_nodes", "num_edges", "num_parts", "node_map", "edge_map", "ntypes", "etypes")


def load(argument: str) -> Graph:
    """The whole graph in memory. Raises: DatasetError for a file that is missing,
    damaged, or does not fit the others."""
    text, given = options_of(argument, TOLD)
    path = _config(Path(text))
    config = _read(path)
    n, num_edges = int(config["num_nodes"]), int(config["num_edges"])
    ends, owned = np.zeros((2, num_edges), np.int64), np.zeros(num_edges, bool)
    for p in range(int(config["num_parts"])):
        file = _file(path, config, p, "part_graph")
        ids, pairs = _owned_edges(file, read(file)[0], n, num_edges)
        if owned[ids].any() or len(np.unique(ids)) < len(ids):
            raise DatasetError(f"{file}: owns an edge that another partition owns too")
        owned[ids] = True
        ends[:, ids] = pairs
    if not owned.all():
        raise DatasetError(f"{path}: edge {int(np.argmin(owned))} is owned by no partition, of {num_edges} edges")
    nodes, _ = _joined(path, config, "node", n)
    edges, partly = _joined(path, config, "edge", num_edges)
    if len(config["etypes"]) > 1:
        edges[TYPE] = _types(config, num_edges)
    return of_frames(
        ends,
        n,
        nodes,
        edges,
        num_edge_types=len(config["etypes"]),
        partly=partly,
        name=str(config["graph_name"]),
        **given,  # type: ignore[arg-type]
    )


def _config(path: Path) -> Path:
    if path.is_file():
        return path
    found = sorted(path.glob("*.json"))
    if len(found) != 1:
        raise DatasetError(f"{path}: {len(found)} .json files there, must be one: name it, distdgl:PATH/NAME.json")
    return found[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(path.read_text())
        missing = [key for key in NEEDED if key not in config]
    except (OSError, ValueError, TypeError) as error:
        raise DatasetError(f"{path}: not the JSON of a partitioned graph ({error})") from None
    if missing:
        raise DatasetError(f"{path}: not the JSON of a partitioned graph: has no {missing[0]!r}")
    if len(config["ntypes"]) != 1:
        raise DatasetError(f"{path}: has vertices of {len(config['ntypes'])} kinds, must have one")
    return config


def _file(path: Path, config: dict[str, Any], p: int, what: str) -> Path:
    try:
        return path.parent / str(config[f"part-{p}"][what])
    except (KeyError, TypeError):
        raise DatasetError(f"{path}: names no {what} of part-{p}") from None


def _owned_edges(file: Path, part: Stored, num_vertices: int, num_edges: int) -> tuple[Array, Array]:
    """Numbers in the whole graph of the edges that a partition owns, [k], and of their ends, [2, k]."""
    for frame, key in ((part.nodes, "_ID"), (part.edges, "_ID"), (part.edges, "inner_edge")):
        if key not in frame:
            raise DatasetError(f"{file}: has no {key!r}: written by DGL's partition_graph?")
    for numbers, limit, what in ((part.nodes["_ID"], num_vertices, "vertex"), (part.edges["_ID"], num_edges, "edge")):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < limit:
            raise DatasetError(f"{file}: {what} {numbers.max()}, must be in 0..{limit - 1}")
    inner = part.edges["inner_edge"] != 0
    return part.edges["_ID"][inner], part.nodes["_ID"][part.ends[:, inner]]


def _joined(path: Path, config: dict[str, Any], what: str, total: int) -> tuple[dict[str, Array], list[str]]:
    """Data of vertices or edges of all kinds, in the order of the whole graph, and the names that only some kinds
    have."""
    kinds: dict[str, Any] = config[f"{what}_map"]
    parts = []
    for p in range(int(config["num_parts"])):
        file = _file(path, config, p, f"{what}_feats")
        parts.append((file, read_tensors(file)))
    names = [
        {key.partition("/")[2] for _, carried in parts for key in carried if key.startswith(f"{kind}/")}
        for kind in kinds
    ]
    joined: dict[str, Array] = {}
    every = set.intersection(*names)
    for name in sorted(every):
        for kind, ranges in kinds.items():
            for (start, stop), (file, carried) in zip(ranges, parts, strict=True):
                values = carried.get(f"{kind}/{name}")
                if values is None or len(values) != stop - start or stop > total:
                    rows = "none" if values is None else len(values)
                    raise DatasetError(f"{file}: {kind}/{name} has {rows} rows, must have {stop - start}")
                if name not in joined:
                    joined[name] = np.zeros((total, *values.shape[1:]), values.dtype)
                joined[name][start:stop] = values
    return joined, sorted(set.union(*names) - every)


def _types(config: dict[str, Any], num_edges: int) -> Array:
    types = np.zeros(num_edges, np.uint16)
    for kind, number in config["etypes"].items():
        for start, stop in config["edge_map"][kind]:
            types[start:stop] = number
    return types


def files(argument: str) -> list[Path]:
    """All files of the partitioned graph."""
    path = _config(Path(path_and_options(argument)[0]))
    config = _read(path)
    what = ("part_graph", "node_feats", "edge_feats")
    return [path, *(_file(path, config, p, name) for p in range(int(config["num_parts"])) for name in what)]
