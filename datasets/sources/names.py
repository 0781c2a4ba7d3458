"""Which source a name means."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from datasets.sources.columns import SUFFIXES
from siafu.errors import DatasetError
from siafu.graph import Graph

SOURCES = {  # kind -> function of the rest of the name; "KIND" and "KIND:REST" name a source
    "digits": "datasets.sources.digits:load",
    "edges": "datasets.sources.edgelist:load",
    "npz": "datasets.sources.npz:load",
    "synthetic": "datasets.sources.synthetic:load",
}

DATA_VARIABLE = "SIAFU_DATA"  # the folder where bare names are looked up first
DATA_FOLDERS = ("data", "../shared/data")


class Source(NamedTuple):
    kind: str  # a key of SOURCES
    argument: str  # what its function is called with

    def load(self) -> Graph:
        module, _, function = SOURCES[self.kind].partition(":")
        graph: Graph = getattr(import_module(module), function)(self.argument)
        return graph


def resolve(name: str) -> Source:
    """What a source's name means: KIND, KIND:REST, a path to a .npz file, a path, pattern or folder of edge lists
    (``datasets.sources.edgelist``), or NAME of a NAME.npz in a data folder.

    Raises: DatasetError that lists what is known.
    """
    kind, _, rest = name.partition(":")
    if kind in SOURCES:
        return Source(kind, rest)
    if name.endswith(".npz"):
        return Source("npz", name)
    path = name.partition("?")[0]
    if path.endswith(SUFFIXES) or (
        Path(path).is_dir() and any(f.name.endswith(SUFFIXES) for f in Path(path).iterdir())
    ):
        return Source("edges", name)
    folders = [Path(f) for f in (os.environ.get(DATA_VARIABLE, ""), *DATA_FOLDERS) if f]
    for folder in folders:
        if (folder / f"{name}.npz").is_file():
            return Source("npz", str(folder / f"{name}.npz"))
    known = [*SOURCES, *sorted({path.stem for folder in folders for path in folder.glob("*.npz")})]
    raise DatasetError(f"source {name!r} is not a .npz, .parquet or .csv file and not one of {', '.join(known)}")
