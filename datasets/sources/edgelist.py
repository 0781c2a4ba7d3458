"""Graphs whose edges are rows of Parquet or CSV files, with what is known of their vertices in files beside them.

    PATH[?src=COLUMN&dst=COLUMN&weight=COLUMN&num_vertices=N&features=FILE&labels=FILE&split=FILE&name=NAME]

PATH is a file (.parquet, .csv, .csv.gz, .tsv), a pattern with ``*``, or a folder of such files. Source and target are the
first two columns unless ``src`` and ``dst`` name them; there is no weight unless ``weight`` names its column. Ids are
integers from 0 to 2^63 - 1. They are vertex numbers if ``num_vertices`` is given or a .npy file has one row per vertex;
else the ids that occur are renumbered 0, 1, 2, ... in ascending order, and the shards keep them in ids.npy.
Features are a .npy file [N, F], a scipy .npz file, a table by id, or ``random:F`` (the default is random:32, float16).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from datasets.census import Census, Numbering, take_census
from datasets.edges import Block
from datasets.sources import columns, vertexfiles
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.sparse import Array

OPTIONS = ("src", "dst", "weight", "num_vertices", "features", "labels", "split", "name")
ROWS = 1 << 21  # edges that are read together where they all go to memory
DENSE_IDS = 1 << 28
MAX_VERTICES = 2**31 - 1


@dataclass(frozen=True)
class EdgeList:
    """An edge list on disk: an ``EdgeSource``, and the files of its vertices."""

    name: str
    files: tuple[Path, ...]
    src: str
    dst: str
    weight: str | None
    num_vertices: int | None  # if ids are vertex numbers
    features: str
    labels: str | None
    split: str | None

    @property
    def pieces(self) -> tuple[str, ...]:
        return tuple(str(file) for file in self.files)

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        return np.dtype(np.float64) if self.weight else None

    def blocks(self, piece: int, rows: int) -> Iterator[Block]:
        names = [self.src, self.dst, *([self.weight] if self.weight else [])]
        for src, dst, *weight in columns.blocks(self.files[piece], names, rows, "iif" if self.weight else "ii"):
            yield src, dst, weight[0].astype(np.float64, copy=False) if weight else None

    def num_edges(self) -> int:
        """Exact for Parquet, about right for text."""
        return sum(columns.num_rows(file) for file in self.files)

    def largest_id(self, default: int) -> int:
        """From the statistics of Parquet files, if they all have them and it is plausible; else ``default``."""
        found = [columns.largest(file, column) for file in self.files for column in (self.src, self.dst)]
        known = [value for value in found if value is not None]
        return max(known) if len(known) == len(found) and max(known) <= 4 * self.num_edges() else default

    def census(self, rows: int, dense_ids: int) -> Census:
        tables = [path for path in (self.features, self.labels, self.split) if path and _is_table(path)]
        more = chain.from_iterable(vertexfiles.ids_in(table) for table in dict.fromkeys(tables))
        found = take_census(self, self.num_vertices, rows, dense_ids, more)
        if found.num_vertices > MAX_VERTICES:
            raise DatasetError(f"{self.name}: {found.num_vertices} vertices, must be <= {MAX_VERTICES}")
        return found

    def vertex_files(self) -> tuple[Path, ...]:
        """Every file that the vertices' data comes from."""
        named = [path for path in (self.features, self.labels, self.split) if path]
        return tuple(
            file
            for path in named
            if not vertexfiles.random_width(path)
            for file in ([Path(path)] if vertexfiles.is_by_number(path) else columns.files_of(path))
        )

    def vertices(self, census: Census, scratch: Path | None) -> Graph:
        """Everything of the graph but its edges; features may be on disk (``vertexfiles.features``)."""
        n, ids = census.num_vertices, census.ids
        labels = np.full(n, -1, np.int64) if not self.labels else vertexfiles.labels(self.labels, n, ids)
        none = np.empty(0, np.int32)
        return Graph(
            name=self.name,
            num_vertices=n,
            src=none,
            dst=none,
            weight=np.empty(0, np.float32) if self.weight else None,
            features=vertexfiles.features(self.features, n, ids, scratch),  # type: ignore[arg-type]
            labels=labels,
            num_classes=labels.shape[1] if labels.ndim == 2 else max(1, int(labels.max()) + 1),
            split=vertexfiles.split(self.split, n, ids) if self.split else np.zeros((n, 0), np.uint8),
            directed=True,
            ids=ids,
        )


def load(argument: str) -> Graph:
    """The whole graph in memory. Raises: DatasetError for a file or value that is no good; ConfigError without pyarrow."""
    edges = parse(argument)
    census = edges.census(ROWS, DENSE_IDS)
    numbering = Numbering(census.ids, 4 * DENSE_IDS)
    found = [block for piece in range(len(edges.pieces)) for block in numbering.blocks(edges, piece, ROWS)]
    src, dst, weight = zip(*found, strict=True) if found else ((), (), ())
    vertices = edges.vertices(census, scratch=None)
    features = vertices.features
    if not isinstance(features, np.ndarray) and hasattr(features, "ndim"):
        features = features[:]
    return replace(
        vertices,
        src=_joined(src),
        dst=_joined(dst),
        weight=np.concatenate([np.empty(0), *weight]) if edges.weight else None,
        features=features,
    )


def parse(argument: str) -> EdgeList:
    """What an argument of the form above names. Raises: DatasetError for an option or a file that is not there."""
    path, _, query = argument.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    for key in given:
        if key not in OPTIONS:
            raise DatasetError(f"edges:{path} has no option {key!r}, only {', '.join(OPTIONS)}")
    files = columns.files_of(path)
    names = columns.column_names(files[0])
    if len(names) < 2:
        raise DatasetError(f"{files[0]}: has one column, must have two: source and target")
    src = given.get("src") or names[0]
    dst = given.get("dst") or next(name for name in names if name != src)
    weight = given.get("weight")
    if len({src, dst, weight}) < 3:
        raise DatasetError(
            f"edges:{path}: source {src!r}, target {dst!r} and weight {weight!r} must be different columns"
        )
    features = given.get("features") or f"random:{vertexfiles.RANDOM_WIDTH}"
    labels, split = given.get("labels"), given.get("split")
    return EdgeList(
        name=given.get("name") or Path(path.rstrip("/")).name.partition(".")[0].replace("*", "") or "edges",
        files=tuple(files),
        src=src,
        dst=dst,
        weight=weight,
        num_vertices=_num_vertices(given.get("num_vertices"), [p for p in (features, labels, split) if p]),
        features=features,
        labels=labels,
        split=split,
    )


def _is_table(path: str) -> bool:
    return not vertexfiles.random_width(path) and not vertexfiles.is_by_number(path)


def _num_vertices(given: str | None, paths: list[str]) -> int | None:
    """N where ids are vertex numbers: as given, else the rows of the files that go by number."""
    counts = {path: vertexfiles.num_rows(path) for path in paths if vertexfiles.is_by_number(path)}
    if given is not None:
        if not given.isdecimal() or not 1 <= int(given) <= MAX_VERTICES:
            raise DatasetError(f"num_vertices {given!r}, must be a number in 1..{MAX_VERTICES}")
        counts = {"num_vertices": int(given), **counts}
    first = next(iter(counts), None)
    for what, count in counts.items():
        if count != counts[first]:  # type: ignore[index]
            raise DatasetError(f"{what}: {count} rows, but {first} says {counts[first]}: both are the vertices")  # type: ignore[index]
    return counts[first] if first else None


def _joined(blocks: tuple[Array, ...]) -> Array:
    return np.concatenate([np.empty(0, np.int64), *blocks])
