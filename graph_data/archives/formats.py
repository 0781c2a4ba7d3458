"""Recognises the field's formats by names and first bytes, before anything is read."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from graph_data.archives.found import Found
from graph_data.sources.beside import TOLD, features_of, named_columns, options_of
from graph_data.sources.columns import path_and_options
from graph_data.sources.randomrows import random_width
from siafu.errors import DatasetError
from siafu.graph import Graph

#: Format -> module with ``find(file) -> Found | None``, which reads next to nothing, and
#: ``load(found, given) -> Graph``. A module whose graphs take more options than ``features`` and
#: ``target`` lists them as OPTIONS.
FORMATS = {
    "Planetoid's files": "graph_data.archives.planetoid",
    "an archive of heterophilous-graphs": "graph_data.archives.heterophilous",
    "an archive of gnn-benchmark": "graph_data.archives.gnnbenchmark",
    "a numpy archive of pickled matrices": "graph_data.archives.pickledmatrices",
    "DGL's pair of Reddit": "graph_data.archives.dglreddit",
    "GraphSAINT's folder": "graph_data.archives.graphsaint",
    "GraphSAGE's files": "graph_data.archives.graphsage",
    "Geom-GCN's files": "graph_data.archives.geomgcn",
    "LINQS' files": "graph_data.archives.linqs",
    "a MatrixMarket file": "graph_data.archives.matrixmarket",
}


class Recognised(NamedTuple):
    title: str  # a key of FORMATS
    module: Any
    found: Found

    def missing(self) -> Path | None:
        """A file of the format that is not there."""
        return next((file for file in self.found.files if not file.is_file()), None)


def recognised(path: Path) -> Recognised | None:
    """The format of a file, or of the one graph in a folder; None if no format of FORMATS fits.

    Raises: DatasetError if a folder holds several graphs.
    """
    if not path.is_dir():
        return _of_file(path) if path.is_file() else None
    seen: dict[tuple[str, str], tuple[Path, Recognised]] = {}
    for file in sorted(path.iterdir()):
        if file.is_file() and (one := _of_file(file)):
            seen.setdefault((one.title, one.found.name), (file, one))
    if len(seen) > 1:
        named = ", ".join(file.name for file, _ in list(seen.values())[:5])
        raise DatasetError(f"{path}: holds {len(seen)} graphs ({named}), must be one: name one of these files")
    return next((one for _, one in seen.values()), None)


def _of_file(file: Path) -> Recognised | None:
    for title, name in FORMATS.items():
        module = import_module(name)
        if (found := module.find(file)) is not None:
            return Recognised(title, module, found)
    return None


def files(argument: str) -> list[Path]:
    """All files that the graph is read from, except those that options name."""
    path = Path(path_and_options(argument)[0])
    one = recognised(path)
    return [path] if one is None else [file for file in one.found.files if file.is_file()]


def load(argument: str) -> Graph:
    """The graph in PATH[?features=FILE&target=KIND].

    Raises: DatasetError if one of its files is missing, or does not follow the format.
    """
    path = Path(path_and_options(argument)[0])
    if not path.exists():
        raise DatasetError(f"{path}: no such file")
    one = recognised(path)
    if one is None:
        raise DatasetError(f"{path}: none of the formats {', '.join(FORMATS)}")
    _, given = options_of(argument, getattr(one.module, "OPTIONS", TOLD))
    if file := one.missing():
        raise DatasetError(f"{one.found.shown}: {one.title}, but {file.name} is not beside it")
    try:
        graph: Graph = one.module.load(one.found, given)
    except ValueError as error:
        raise DatasetError(f"{one.found.shown}: {one.title}, but {error}") from None
    graph = replace(graph, notes=(f"{one.found.shown}: {one.title}, {_split(graph)}", *graph.notes))
    if told := given.get("features", ""):
        rows = features_of(told, graph.num_vertices)[:]
        names = {"features": columns} if (columns := named_columns(told)) else {}
        graph = replace(
            graph, features=rows, random_features=random_width(told) is not None, names={**graph.names, **names}
        )
    return graph


def _split(graph: Graph) -> str:
    columns = graph.split.shape[1]
    return "no split" if not columns else "public split" if columns == 1 else f"{columns} public splits"
