"""Graphs whose edges are rows of Parquet or CSV files, with what is known of their vertices in files beside them.

    PATH[?src=COLUMN&dst=COLUMN&weight=COLUMN&type=COLUMN&num_edge_types=R&ids=auto|integer|text
          &num_vertices=N&features=FILE&labels=FILE&target=auto|classes|labels|numbers&split=FILE&name=NAME]

PATH is a file (.parquet, .csv, .csv.gz, .tsv), a pattern with ``*``, or a folder of such files. Source and target are the
first two columns unless ``src`` and ``dst`` name them; there is no weight or type unless a column is named. Ids are of any
type (``graph_data.sources.ids``): integers, or as the first row has them, or text if ``ids`` says so. They are vertex numbers
if ``num_vertices`` is given or a .npy file has one row per vertex; else the ids that occur are numbered 0, 1, 2, ... in
ascending order, and the shards keep them in ids.npy, or ids.parquet if they are no 64-bit integers. So it is with types: they
are 0..R-1 as they stand if ``num_edge_types`` is given; else those that occur, integers or words, are numbered.
Features are a .npy file [N, F], a scipy .npz file, a table by id, or ``random:F`` (float16); without any, it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from graph_data.census import Census, Numbering, take_census
from graph_data.edges import Block
from graph_data.sources import columns, ids, textfile, vertexfiles
from graph_data.sources.columns import WEIGHTS, Kind
from graph_data.sources.edgetypes import EdgeTypes
from graph_data.sources.ids import Seen
from graph_data.sources.randomrows import no_features, random_width
from graph_data.sources.vertexfiles import Table, is_by_number, table
from graph_data.targets import check_target
from siafu.errors import ConfigError, DatasetError
from siafu.graph import MAX_EDGE_TYPES, Graph
from siafu.sparse import Array

OPTIONS = (
    "src", "dst", "weight", "type", "num_edge_types", "ids", "num_vertices", "features", "labels", "target", "split", "name",
)  # fmt: skip
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
    type: str | None  # the column of the edges' types
    num_edge_types: int | None  # if types are numbers as they stand
    how: str  # ids are said to be: one of graph_data.sources.ids.HOWS
    id_type: Any  # what they are: an Arrow type; None: integers of 64 bits
    num_vertices: int | None  # if ids are vertex numbers
    features: str
    labels: str | None
    target: str
    split: str | None
    tables: dict[str, Table]  # of features, labels and split, those that are tables

    @property
    def pieces(self) -> tuple[str, ...]:
        return tuple(str(file) for file in self.files)

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        return np.dtype(np.float64) if self.weight else None

    def blocks(self, piece: int, rows: int) -> Iterator[Block]:
        """With ids, or hashes of ids, for vertices."""
        return self._blocks(piece, rows, self._id_kind())

    def _blocks(self, piece: int, rows: int, id_kind: Kind) -> Iterator[Block]:
        names, kinds = [self.src, self.dst], [id_kind, id_kind]
        if self.weight:
            names, kinds = [*names, self.weight], [*kinds, WEIGHTS]
        for src, dst, *weight in columns.blocks(self.files[piece], names, rows, kinds):
            yield src, dst, weight[0].astype(np.float64, copy=False) if weight else None

    def _id_kind(self, seen: Seen | None = None) -> Kind:
        return ids.kind_of(self.id_type, self.how, self.num_vertices, seen)

    def num_edges(self) -> int:
        """Exact for Parquet, about right for text."""
        return sum(columns.num_rows(file) for file in self.files)

    def largest_id(self, default: int) -> int:
        """From the statistics of Parquet files, if they all have them and it is plausible; else ``default``."""
        if self.id_type is not None:
            return default
        found = [columns.largest(file, column) for file in self.files for column in (self.src, self.dst)]
        known = [value for value in found if value is not None]
        return max(known) if len(known) == len(found) and 0 <= max(known) <= 4 * self.num_edges() else default

    def census(self, rows: int, dense_ids: int) -> Census:
        """Which vertices there are; ids that are no integers, by name."""
        seen = None if self.id_type is None else Seen()
        kind = self._id_kind(seen)
        more = chain.from_iterable(found.ids(kind) for found in dict.fromkeys(self.tables.values()))
        found = take_census(_Reading(self, kind), self.num_vertices, rows, dense_ids, more)
        if found.num_vertices > MAX_VERTICES:
            raise DatasetError(f"{self.name}: {found.num_vertices} vertices, must be <= {MAX_VERTICES}")
        if seen is None:
            return found
        named = seen.ids()
        self._check_headers(named)
        return replace(found, ids=named)

    def check_streams(self) -> None:
        """Raises: ConfigError if the edges cannot be read a block at a time: if they have types."""
        if self.type:
            raise ConfigError(
                f"{self.name}: edges with types need the graph in memory: raise --memory, or drop --stream"
            )

    def _check_headers(self, named: ids.NamedIds) -> None:
        """A first line of ids would pass for names of columns. Raises: DatasetError if it seems so."""
        for file in self.files:
            if columns.is_parquet(file) or not textfile.has_header(file):
                continue
            for name in (self.src, self.dst):
                if name in named:
                    raise DatasetError(
                        f"{file}: {name!r} of its first line is also an id: give it a first line that names its columns"
                    )

    def _feature_names(self) -> tuple[str, ...]:
        """Of the columns of a table of features; () if its columns have no names."""
        columns_ = self.tables["features"].values if "features" in self.tables else ()
        return () if all(name.isdecimal() for name in columns_) else columns_

    def vertex_files(self) -> tuple[Path, ...]:
        """Every file that the vertices' data comes from."""
        named = [path for path in (self.features, self.labels, self.split) if path and is_by_number(path)]
        return (*map(Path, named), *(file for found in self.tables.values() for file in found.files))

    def vertices(self, census: Census, scratch: Path | None) -> Graph:
        """Everything of the graph but its edges; features may be on disk (``vertexfiles.features``)."""
        n, found, kind = census.num_vertices, census.ids, self._id_kind()
        labels = vertexfiles.Labels(np.full(n, -1, np.int64))
        if self.labels:
            labels = vertexfiles.labels(self.labels, self.tables.get("labels"), n, kind, found, self.target)
        none = np.empty(0, np.int32)
        return Graph(
            name=self.name,
            num_vertices=n,
            src=none,
            dst=none,
            weight=np.empty(0, np.float32) if self.weight else None,
            features=vertexfiles.features(self.features, self.tables.get("features"), n, kind, found, scratch),  # type: ignore[arg-type]
            labels=labels.values,
            num_classes=labels.num_classes,
            split=vertexfiles.split(self.split, self.tables.get("split"), n, kind, found)
            if self.split
            else np.zeros((n, 0), np.uint8),
            directed=True,
            ids=found,
            names={
                key: names for key, names in (("classes", labels.names), ("features", self._feature_names())) if names
            },
            numbers_said=self.target == "numbers",
            random_features=random_width(self.features) is not None,
        )


@dataclass(frozen=True)
class _Reading:
    """An edge list whose ids are read in a certain way."""

    edges: EdgeList
    id_kind: Kind

    @property
    def pieces(self) -> tuple[str, ...]:
        return self.edges.pieces

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        return self.edges.weight_dtype

    def blocks(self, piece: int, rows: int) -> Iterator[Block]:
        return self.edges._blocks(piece, rows, self.id_kind)


def load(argument: str) -> Graph:
    """The whole graph in memory, self-loops and all. Raises: DatasetError for a file or value that is no good; ConfigError
    without pyarrow."""
    edges = parse(argument)
    census = edges.census(ROWS, DENSE_IDS)
    numbering = Numbering(census.ids, 4 * DENSE_IDS)
    found = [
        (numbering.of(src), numbering.of(dst), weight)
        for piece in range(len(edges.pieces))
        for src, dst, weight in edges.blocks(piece, ROWS)
    ]
    src, dst, weight = zip(*found, strict=True) if found else ((), (), ())
    vertices = edges.vertices(census, scratch=None)
    features = vertices.features
    if not isinstance(features, np.ndarray) and hasattr(features, "ndim"):
        features = features[:]
    graph = replace(
        vertices,
        src=_joined(src),
        dst=_joined(dst),
        weight=np.concatenate([np.empty(0), *weight]) if edges.weight else None,
        features=features,
    )
    return EdgeTypes.read(edges.files, edges.type, edges.num_edge_types).of(graph) if edges.type else graph


def parse(argument: str) -> EdgeList:
    """What an argument of the form above names. Raises: DatasetError for an option or a file that is not there."""
    path, query = columns.path_and_options(argument)
    given = dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))
    for key in given:
        if key not in OPTIONS:
            raise DatasetError(f"edges:{path} has no option {key!r}, only {', '.join(OPTIONS)}")
    files = columns.files_of(path)
    names = columns.column_names(files[0])
    if len(names) < 2:
        raise DatasetError(f"{files[0]}: has one column, must have two: source and target")
    src = given.get("src") or names[0]
    dst = given.get("dst") or next(name for name in names if name != src)
    weight, type_ = given.get("weight"), given.get("type")
    used = [name for name in (src, dst, weight, type_) if name]
    if len(set(used)) < len(used):
        raise DatasetError(
            f"edges:{path}: source {src!r}, target {dst!r}, weight {weight!r} and type {type_!r} must be different columns"
        )
    for file in files:
        columns.check_columns(file, used)
    how, target = given.get("ids") or "auto", given.get("target") or "auto"
    check_target(target)
    features = given.get("features")
    if not features:
        raise no_features(path)
    labels, split = given.get("labels"), given.get("split")
    num_vertices = _num_vertices(given.get("num_vertices"), [p for p in (features, labels, split) if p])
    id_type = ids.type_of(files, (src, dst), how)
    if id_type is not None and num_vertices:
        by = next((path for path in (features, labels, split) if path and is_by_number(path)), "--num-vertices")
        raise DatasetError(f"{files[0]}: ids are {ids.name_of(id_type)}, but {by} is of vertices by number")
    return EdgeList(
        name=given.get("name") or Path(path.rstrip("/")).name.partition(".")[0].replace("*", "") or "edges",
        files=tuple(files),
        src=src,
        dst=dst,
        weight=weight,
        type=type_,
        num_edge_types=_num_edge_types(given.get("num_edge_types"), type_),
        how=how,
        id_type=id_type,
        num_vertices=num_vertices,
        features=features,
        labels=labels,
        target=target,
        split=split,
        tables=_tables(features, labels, split),
    )


def _tables(features: str, labels: str | None, split: str | None) -> dict[str, Table]:
    """Those of features, labels and split that are tables. Raises: DatasetError for one that is not there."""
    given = {"labels": labels, "split": split}
    found = {key: table(text) for key, text in given.items() if text and not is_by_number(text)}
    if not random_width(features) and not is_by_number(features):
        files = columns.files_of(columns.file_and_columns(features)[0])
        taken = [name for other in found.values() if set(other.files) & set(files) for name in other.values]
        found["features"] = table(features, without=taken)
    return found


def _num_vertices(given: str | None, paths: list[str]) -> int | None:
    """N where ids are vertex numbers: as given, else the rows of the files that go by number."""
    counts = {path: vertexfiles.num_rows(path) for path in paths if is_by_number(path)}
    if given is not None:
        if not given.isdecimal() or not 1 <= int(given) <= MAX_VERTICES:
            raise DatasetError(f"num_vertices {given!r}, must be a number in 1..{MAX_VERTICES}")
        counts = {"num_vertices": int(given), **counts}
    first = next(iter(counts), None)
    for what, count in counts.items():
        if count != counts[first]:  # type: ignore[index]
            raise DatasetError(f"{what}: {count} rows, but {first} says {counts[first]}: both are the vertices")  # type: ignore[index]
    return counts[first] if first else None


def _num_edge_types(given: str | None, column: str | None) -> int | None:
    """As given, of types that are numbers. Raises: DatasetError for what cannot be, or if no column has types."""
    if given is None:
        return None
    if not given.isdecimal() or not 1 <= int(given) <= MAX_EDGE_TYPES:
        raise DatasetError(f"num_edge_types {given!r}, must be a number in 1..{MAX_EDGE_TYPES}")
    if not column:
        raise DatasetError(f"num_edge_types {given}, but no edge has a type: name the column of types too")
    return int(given)


def _joined(blocks: tuple[Array, ...]) -> Array:
    return np.concatenate([np.empty(0, np.int64), *blocks])
