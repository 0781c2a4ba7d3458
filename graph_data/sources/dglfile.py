"""Reads the files of ``dgl.save_graphs`` and ``dgl.data.save_tensors`` without DGL, whose releases seldom agree with
torch's.

All little-endian; a string is its length (u64) and bytes, a list its length (u64) and items:

    array      u64 ARRAY, u64 0, i32 device, i32 its number, i32 axes, u8 kind (0 int, 1 uint, 2 float), u8 bits, u16 1,
               i64 shape[axes], i64 bytes, the values
    tensors    list of (string name, array)
    features   u64 TENSORS, u64 their number, tensors: a file of save_tensors
    file       u64 FILE, u64 2, u64 2, u64 graphs; from byte 4096: u64 where the graphs begin, tensors ("labels"),
               graphs
    graph      u64 HETERO, metagraph, list of units (one per kind of edges), list of u64 vertices (per kind); list of
               tensors (per kind of vertices), list of tensors (per kind of edges); lists of strings: names of the kinds
    unit       u64 UNIT, u64 formats, u64 formats allowed; then for each bit of formats: metagraph, matrix
    metagraph  u64 META, metagraph's own CSR matrix
    matrix     u64 CSR, i64 columns, i64 rows, arrays indptr, indices, edge ids (or none of them: 0..E-1), u8 sorted;
               or u64 COO, i64 columns, i64 rows, arrays row, column, edge ids, u8, u8 sorted
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graph_data.objects.dgl import TYPE, joined, of_frames
from graph_data.sources.beside import TOLD, options_of
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.sparse import Array

ARRAY, FILE, HETERO, UNIT, META = (
    0xDD5E40F096B4A13F,
    0xDD2E4FF046B4A13F,
    0xDD589FBE35224ABF,
    0xDD2E60F0F6B4A127,
    0xDD3C5FFE20046ABF,
)
CSR, COO, TENSORS = 0xDD6CD31205DFF127, 0xDD61FFD305DFF127, 0xDD5A9FBE3FA2443F
GRAPHS_AT = 4096
BITS_COO, BITS_CSR, BITS_CSC = 1, 2, 4  # of a unit's formats; CSC is a CSR of the edges turned around
FORMATS_GIVEN = 1 << 32  # what formats are or-ed with
KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
NUM_CLASSES, NUM_EDGE_TYPES = "num_classes", "num_edge_types"  # in the "labels" of a file, one number each: siafu's own


@dataclass(frozen=True)
class Stored:
    """A graph of one kind of vertices, as in its file."""

    num_vertices: int
    ends: Array  # int [2, E], in the order of edge ids
    nodes: dict[str, Array]
    edges: dict[str, Array]  # "_TYPE" tells the kind where there are several
    num_edge_types: int
    partly: tuple[str, ...] = ()  # what edges of some kinds alone carry


def load(argument: str) -> Graph:
    """The only graph in the file PATH[?features=FILE&target=...]. Raises: DatasetError for several graphs, or a file
    that ``dgl.save_graphs`` has not written."""
    text, given = options_of(argument, TOLD)
    path = Path(text)
    found, labels = read(path)
    beside = {key: value for key, value in labels.items() if key not in (NUM_CLASSES, NUM_EDGE_TYPES)}
    if twice := sorted(beside.keys() & found.nodes.keys()):
        raise DatasetError(
            f"{path}: {twice[0]!r} is in the graph's ndata and in the labels of save_graphs: keep one of them"
        )
    return of_frames(
        found.ends,
        found.num_vertices,
        found.nodes | beside,
        found.edges,
        num_classes=_count(path, labels, NUM_CLASSES),
        num_edge_types=_count(path, labels, NUM_EDGE_TYPES) or found.num_edge_types,
        partly=found.partly,
        name=path.name.partition(".")[0],
        **given,
    )


def _count(path: Path, labels: dict[str, Array], key: str) -> int | None:
    """A count that siafu has written into a file; None in others. Raises: DatasetError for an invalid count."""
    found = labels.get(key)
    if found is None:
        return None
    if found.shape != (1,) or found.dtype.kind not in "iu" or found[0] < 1:
        raise DatasetError(f"{path}: {key} is {found.dtype} {found.tolist()}, must be one integer >= 1")
    return int(found[0])


def read(path: Path) -> tuple[Stored, dict[str, Array]]:
    """The only graph of a file, and its "labels"."""
    data = _Bytes(path)
    data.expect(FILE, "a file of dgl.save_graphs")
    version, kind, count = data.number(), data.number(), data.number()
    if (version, kind) != (2, 2):
        data.refuse(f"is of version {version}, kind {kind}, must be 2, 2: save it with DGL 0.5 or later")
    if count != 1:
        data.refuse(f"holds {count} graphs, must hold one")
    data.at = GRAPHS_AT
    start = data.number()
    labels = data.tensors()
    data.at = start
    return _graph(data), labels


def read_tensors(path: Path) -> dict[str, Array]:
    """Tensors of a file of ``dgl.data.save_tensors``, by name."""
    data = _Bytes(path)
    data.expect(TENSORS, "a file of dgl.data.save_tensors")
    data.number()
    return data.tensors()


class _Bytes:
    """A file with a position; every length is compared with the rest of the file before it is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = 0  # the only state that changes
        try:
            self.bytes = np.memmap(path, np.uint8, "r")
        except (OSError, ValueError) as error:  # ValueError: an empty file
            raise DatasetError(f"{path}: not readable ({getattr(error, 'strerror', None) or error})") from None

    def refuse(self, what: str) -> None:
        raise DatasetError(f"{self.path}: {what}")

    def take(self, nbytes: int) -> Array:
        if not 0 <= nbytes <= len(self.bytes) - self.at:
            self.refuse(f"is cut short or damaged: {nbytes} bytes at {self.at}, of {len(self.bytes)}")
        self.at += nbytes
        return self.bytes[self.at - nbytes : self.at]

    def unpack(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(f"<{layout}", self.take(struct.calcsize(f"<{layout}")).tobytes())

    def number(self) -> int:
        return self.unpack("Q")[0]

    def expect(self, magic: int, what: str) -> None:
        if self.number() != magic:
            self.refuse(f"is not {what}, or damaged at byte {self.at - 8}")

    def count(self) -> int:
        """The length of a list, whose items take at least a byte each."""
        count = self.number()
        if count > len(self.bytes) - self.at:
            self.refuse(f"is cut short or damaged: {count} items at byte {self.at}, of {len(self.bytes)}")
        return count

    def string(self) -> str:
        return self.take(self.number()).tobytes().decode("utf-8", "replace")

    def array(self) -> Array:
        self.expect(ARRAY, "an array here")
        _, _, _, axes, kind, bits, lanes = self.unpack("QiiiBBH")
        if kind not in KINDS or bits not in (8, 16, 32, 64) or lanes != 1 or not 0 <= axes <= 8:
            self.refuse(f"holds an array of kind {kind}, {bits} bits, {lanes} lanes, {axes} axes at byte {self.at}")
        *shape, nbytes = self.unpack(f"{axes}qq")
        dtype = np.dtype(f"<{KINDS[kind]}{bits // 8}")
        if min(shape, default=0) < 0 or nbytes != int(np.prod(shape, dtype=np.float64)) * dtype.itemsize:
            self.refuse(f"holds an array of {shape} {dtype} in {nbytes} bytes at byte {self.at}")
        return np.frombuffer(self.take(nbytes), dtype).reshape(shape).copy()  # aligned, and no longer the file

    def tensors(self) -> dict[str, Array]:
        return {self.string(): self.array() for _ in range(self.count())}


def _graph(data: _Bytes) -> Stored:
    data.expect(HETERO, "a graph here")
    _metagraph(data)
    units = [_unit(data) for _ in range(data.count())]
    vertices = [data.number() for _ in range(data.count())]
    nodes = [data.tensors() for _ in range(data.count())]
    edges = [data.tensors() for _ in range(data.count())]
    if len(vertices) != 1 or len(nodes) != 1 or not units or len(edges) != len(units):
        data.refuse(f"has nodes of {len(vertices)} kinds, must have one: dgl.to_homogeneous makes them one")
    for ends, frame in zip(units, edges, strict=True):
        _same_length(data, frame, ends.shape[1], "edges")
    _same_length(data, nodes[0], vertices[0], "nodes")
    carried, partly = joined(edges)
    if len(units) > 1:
        carried[TYPE] = np.repeat(np.arange(len(units)), [ends.shape[1] for ends in units])
    return Stored(vertices[0], np.concatenate(units, axis=1), nodes[0], carried, len(units), partly)


def _same_length(data: _Bytes, frame: dict[str, Array], length: int, what: str) -> None:
    for key, values in frame.items():
        if not values.ndim or len(values) != length:
            data.refuse(f"{key!r} is {list(values.shape)}, but there are {length} {what}")


def _metagraph(data: _Bytes) -> None:
    data.expect(META, "a metagraph here")
    _matrix(data)


def _unit(data: _Bytes) -> Array:
    """The edges of one kind, [2, E], in the order of their ids."""
    data.expect(UNIT, "the edges of a graph here")
    formats, _ = data.number(), data.number()
    if not formats & FORMATS_GIVEN or not formats & (BITS_COO | BITS_CSR | BITS_CSC):
        data.refuse(f"stores edges in formats {formats:#x}: save it with DGL 0.5 or later")
    found = []
    for bit in (BITS_COO, BITS_CSR, BITS_CSC):
        if formats & bit:
            _metagraph(data)
            ends = _matrix(data)
            found.append(ends[::-1] if bit == BITS_CSC else ends)
    return found[0]


def _matrix(data: _Bytes) -> Array:
    """Rows and columns of the matrix's entries, [2, E], in the order of edge ids."""
    kind = data.number()
    if kind not in (CSR, COO):
        data.refuse(f"is damaged at byte {data.at - 8}: no matrix there")
    columns, rows = data.number(), data.number()
    first, column, ids = data.array(), data.array(), data.array()
    data.take(1 if kind == CSR else 2)
    if kind == CSR:
        counts = np.diff(first)
        if len(first) != rows + 1 or (counts < 0).any() or counts.sum() != len(column):
            data.refuse(f"is damaged: {rows} rows of edges do not add up to {len(column)}")
        first = np.repeat(np.arange(rows, dtype=column.dtype), counts)
    if len(first) != len(column) or len(ids) not in (0, len(column)):
        data.refuse(f"is damaged: {len(first)} sources, {len(column)} targets and {len(ids)} ids of edges")
    ends = np.stack([first, column])
    if ends.size and not (ends.min() >= 0 and first.max() < rows and column.max() < columns):
        data.refuse(f"has an edge beyond its {rows} vertices")
    if len(ids):
        if not np.array_equal(np.sort(ids), np.arange(len(ids))):
            data.refuse(f"is damaged: ids of edges are not 0..{len(ids) - 1}")
        ends[:, ids] = ends.copy()
    return ends
