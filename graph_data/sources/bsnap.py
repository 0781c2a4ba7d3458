"""Dorylus' graphs: a folder with graph.bsnap, features.bsnap and labels.bsnap, little-endian.

    bsnap:PATH[?features=FILE&split=FILE&target=auto|classes|labels|numbers&name=NAME]

    PATH             the folder, or its graph.bsnap
    graph.bsnap      i32 4 (bytes of a vertex id), u32 V, u64 E, then E times u32 source, u32 target; no self-loops
    features.bsnap   u32 F, then V rows of F f32
    labels.bsnap     u32 kinds, then V times u32
    parts_P/graph.bsnap.parts    text, the partition of a vertex in each line: ``--partitioner file:PATH``

Dorylus knows no splits: the first 66% of a chunk's vertices are for training, the next 10% for validation, and
the rest is never looked at. ``split=positional`` is that with one chunk, ``split=positional:K`` with K of equal
size; else ``split`` is a .npy file or a table, as for edge lists. What the format cannot hold, siafu keeps beside
it and reads again: split.npy, weight.npy [E], type.npy [E] with num_edge_types.npy [1], and labels.npy where
labels are missing, several, or no classes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.census import Block, Census, take_census
from graph_data.rowfile import RowFile
from graph_data.sources.beside import features_of, options_of, split_of
from graph_data.sources.randomrows import no_features, random_width
from graph_data.sources.sizes import Sizes
from graph_data.targets import labels_as
from siafu.errors import DatasetError
from siafu.graph import NONE, TRAIN, VAL, Graph, id_dtype
from siafu.sparse import Array

log = logging.getLogger(__name__)

OPTIONS = ("features", "split", "target", "name")
GRAPH, FEATURES, LABELS = "graph.bsnap", "features.bsnap", "labels.bsnap"
HEADER = np.dtype([("id_bytes", "<i4"), ("vertices", "<u4"), ("edges", "<u8")])
ID_BYTES = 4
POSITIONAL_SHARES = (0.66, 0.10)  # Dorylus' training and validation vertices of a chunk
KINDS = {"weight": "iuf", "type": "iu"}  # of numpy's dtypes, that a value of each edge may have
SIDE_FILES = {
    "split": "split.npy",
    "weight": "weight.npy",
    "type": "type.npy",
    "types": "num_edge_types.npy",
    "labels": "labels.npy",
}


@dataclass(frozen=True)
class FeatureFile:
    """The rows of features.bsnap, read by slices when they are asked for."""

    path: Path
    shape: tuple[int, int]
    dtype = np.dtype("<f4")
    ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(len(self))
        width = self.shape[1]
        offset = 4 + 4 * width * start
        return np.fromfile(self.path, self.dtype, max(0, stop - start) * width, offset=offset).reshape(-1, width)


@dataclass(frozen=True)
class Bsnap:
    """A folder of Dorylus: an ``EdgeSource``, and the files of its vertices."""

    name: str
    folder: Path
    num_vertices: int
    listed: int
    features: str | None
    split: str | None
    target: str

    @property
    def pieces(self) -> tuple[str, ...]:
        return (str(self.folder / GRAPH),)

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        return np.dtype(np.float32) if self.beside("weight") else None

    def num_edges(self) -> int:
        return self.listed

    def beside(self, what: str) -> Path | None:
        """One of SIDE_FILES, if it exists."""
        path = self.folder / SIDE_FILES[what]
        return path if path.is_file() else None

    def blocks(self, piece: int, rows: int) -> Iterator[Block]:
        weight = self.per_edge("weight")
        for start in range(0, self.listed, rows):
            ends = self.ends(start, min(rows, self.listed - start)).astype(np.int64)
            values = None if weight is None else weight[start : start + rows].astype(np.float32, copy=False)
            yield ends[:, 0], ends[:, 1], values

    def ends(self, start: int, count: int) -> Array:
        """Sources and targets of some edges, u32 [count, 2]."""
        offset = HEADER.itemsize + 2 * ID_BYTES * start
        return np.fromfile(self.folder / GRAPH, "<u4", 2 * count, offset=offset).reshape(-1, 2)

    def per_edge(self, what: str) -> RowFile | None:
        """A value for each edge from a side file. Raises: DatasetError if their number differs."""
        path = self.beside(what)
        if path is None:
            return None
        found = RowFile(path)
        if found.shape != (self.listed,):
            raise DatasetError(f"{path}: {list(found.shape)}, but {GRAPH} has {self.listed} edges")
        if found.dtype.kind not in KINDS[what]:
            raise DatasetError(
                f"{path}: values of {found.dtype}, must be numbers{'' if what == 'weight' else ', whole ones'}"
            )
        return found

    def census(self, rows: int, dense_ids: int) -> Census:
        return take_census(self, self.num_vertices, rows, dense_ids)

    @property
    def typed(self) -> bool:
        """Whether edges have types: then they cannot be read a block at a time."""
        return self.beside("type") is not None

    def vertex_files(self) -> tuple[Path, ...]:
        """Every file that is read besides the edges."""
        named = [Path(text) for text in (self.features, self.split) if text and Path(text).is_file()]
        beside = [path for what in SIDE_FILES if (path := self.beside(what))]
        return (*named, *beside, *(path for file in (FEATURES, LABELS) if (path := self.folder / file).is_file()))

    def vertices(self, census: Census, scratch: Path | None) -> Graph:
        """Everything of the graph but its edges; features stay on disk."""
        labels, classes = self.labels()
        none = np.empty(0, np.int32)
        kinds = self.per_edge("type")
        return Graph(
            name=self.name,
            num_vertices=self.num_vertices,
            src=none,
            dst=none,
            weight=np.empty(0, np.float32) if self.beside("weight") else None,
            features=self.feature_rows(),
            labels=labels,
            num_classes=classes,
            split=self.split_rows(),
            directed=True,
            edge_type=None if kinds is None else np.empty(0, np.uint16),
            num_edge_types=1 if kinds is None else self.num_edge_types(kinds),
            numbers_said=self.target == "numbers",
            random_features=random_width(self.features or "") is not None,
        )

    def num_edge_types(self, kinds: RowFile) -> int:
        """The number of edge types: from the side file; without it, one more than the largest type."""
        path = self.beside("types")
        if path is None:
            return int(kinds[:].max(initial=0)) + 1
        found = RowFile(path)
        if found.shape != (1,) or found.dtype.kind not in "iu":
            raise DatasetError(
                f"{path}: {found.dtype} {list(found.shape)}, must be one integer: how many types there are"
            )
        return int(found[:][0])

    def feature_rows(self) -> Any:
        if self.features:
            return features_of(self.features, self.num_vertices)
        path = self.folder / FEATURES
        if not path.is_file():
            raise no_features(f"{self.folder} (no {FEATURES})")
        size, (head,) = _head(path, "<u4", 1)
        width = int(head)
        if width < 1 or size != 4 + 4 * width * self.num_vertices:
            raise DatasetError(
                f"{path}: {size} bytes, must be {4 + 4 * width * self.num_vertices}: {self.num_vertices} vertices, as "
                f"in {GRAPH}, of {width} features"
            )
        return FeatureFile(path, (self.num_vertices, width))

    def labels(self) -> tuple[Array, int]:
        """Labels and the number of classes."""
        path, beside = self.folder / LABELS, self.beside("labels")
        kinds = 1
        if not beside or path.is_file():
            size, (kinds,) = _head(path, "<u4", 1)
            if size != 4 + 4 * self.num_vertices:
                raise DatasetError(
                    f"{path}: {size} bytes, must be {4 + 4 * self.num_vertices}: a label of each of the "
                    f"{self.num_vertices} vertices of {GRAPH}"
                )
        if beside:
            labels = labels_as(RowFile(beside)[:], self.target, str(beside))
            classes = labels.shape[1] if labels.ndim == 2 else 1 if labels.dtype.kind == "f" else int(kinds)
            return labels, classes
        return np.fromfile(path, "<u4", offset=4).astype(np.int64), int(kinds)

    def split_rows(self) -> Array:
        text = self.split or (str(self.beside("split")) if self.beside("split") else None)
        if text and text.partition(":")[0] == "positional":
            return positional(text.partition(":")[2] or "1", self.num_vertices, self.name)
        return split_of(text, self.num_vertices)


def load(argument: str) -> Graph:
    """The whole graph in memory. Raises: DatasetError for a file that is missing, cut
    short, or does not fit the others."""
    found = parse(argument)
    ends = found.ends(0, found.listed)
    vertices = found.vertices(Census(found.num_vertices, found.listed, None, ends[:0, 0], ends[:0, 1]), None)
    dtype = id_dtype(found.num_vertices)
    weight, kinds = found.per_edge("weight"), found.per_edge("type")
    return replace(
        vertices,
        src=ends[:, 0].astype(dtype),
        dst=ends[:, 1].astype(dtype),
        weight=None if weight is None else weight[:],
        edge_type=None if kinds is None else kinds[:],
        features=vertices.features[:],
    )


def parse(argument: str) -> Bsnap:
    """The graph that an argument of the form above names. Raises: DatasetError for an invalid option or graph.bsnap."""
    path, given = options_of(argument, OPTIONS, "bsnap:")
    folder = Path(path) if not path.endswith(".bsnap") else Path(path).parent
    graph = folder / GRAPH
    size, (header,) = _head(graph, HEADER, 1)
    id_bytes, vertices, edges = (int(header[key]) for key in ("id_bytes", "vertices", "edges"))
    if id_bytes != ID_BYTES:
        raise DatasetError(f"{graph}: vertex ids of {id_bytes} bytes, must be {ID_BYTES}: is it a graph of Dorylus'?")
    nbytes = HEADER.itemsize + 2 * ID_BYTES * edges
    if size != nbytes:
        raise DatasetError(f"{graph}: {size} bytes, must be {nbytes} for the {edges} edges of its header")
    name = given.get("name") or folder.resolve().name
    return Bsnap(name, folder, vertices, edges, given.get("features"), given.get("split"), given.get("target", "auto"))


def sizes(argument: str) -> Sizes:
    found = parse(argument)
    nbytes = sum(file.stat().st_size for file in found.vertex_files())
    return Sizes(found.num_vertices, found.listed, nbytes, found.weight_dtype is not None)


def positional(chunks: str, num_vertices: int, name: str) -> Array:
    """Dorylus' own split, uint8 [N, 1]: in each of ``chunks`` equal ranges of vertices the first 66% train, the next
    10% validate."""
    if not chunks.isdecimal() or not 1 <= int(chunks) <= num_vertices:
        raise DatasetError(f"{name}: split positional:{chunks}, must have 1..{num_vertices} chunks")
    split = np.full(num_vertices, NONE, np.uint8)
    for part in np.array_split(split, int(chunks)):  # views
        train, val = (int(share * len(part)) for share in (POSITIONAL_SHARES[0], sum(POSITIONAL_SHARES)))
        part[:train], part[train:val] = TRAIN, VAL
    log.warning("%s: split by position: %d vertices are in no part of it", name, np.count_nonzero(split == NONE))
    return split[:, None]


def _head(path: Path, dtype: Any, count: int) -> tuple[int, Array]:
    """The file's size, and the first values in it. Raises: DatasetError if it is missing, or too short for them."""
    try:
        size, found = path.stat().st_size, np.fromfile(path, dtype, count)
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}") from None
    if len(found) < count:
        raise DatasetError(f"{path}: {size} bytes, is too short for its header")
    return size, found
