"""A file for ``dgl.load_graphs``, written without DGL; its layout stands in ``graph_data.sources.dglfile``."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import IO

import numpy as np

from graph_data.objects.dgl import frames_of
from graph_data.sinks import Written
from graph_data.sinks.npz import names_note
from graph_data.sources.dglfile import (
    ARRAY,
    BITS_COO,
    BITS_CSC,
    BITS_CSR,
    COO,
    CSR,
    FILE,
    FORMATS_GIVEN,
    GRAPHS_AT,
    HETERO,
    KINDS,
    META,
    NUM_CLASSES,
    NUM_EDGE_TYPES,
    UNIT,
)
from siafu.graph import Graph
from siafu.sparse import Array

KIND_OF = {kind: number for number, kind in KINDS.items()}


def save(graph: Graph, folder: Path) -> Written:
    """Writes FOLDER/NAME.dgl."""
    path = folder / f"{graph.name}.dgl"
    nodes, edges = frames_of(graph)
    labels = io.BytesIO()
    counts = {NUM_CLASSES: graph.num_classes}
    if graph.num_edge_types > 1:
        counts[NUM_EDGE_TYPES] = graph.num_edge_types
    _tensors(labels, {key: np.array([count], np.int64) for key, count in counts.items()})
    start = GRAPHS_AT + 8 + len(labels.getvalue())
    with path.open("wb") as file:
        file.write(struct.pack("<QQQQ", FILE, 2, 2, 1).ljust(GRAPHS_AT, b"\0"))
        file.write(struct.pack("<Q", start) + labels.getvalue())
        file.write(struct.pack("<Q", HETERO))
        _metagraph(file)
        allowed = BITS_COO | BITS_CSR | BITS_CSC
        file.write(struct.pack("<QQQQ", 1, UNIT, FORMATS_GIVEN | BITS_COO, FORMATS_GIVEN | allowed))
        _metagraph(file)
        file.write(struct.pack("<Qqq", COO, graph.num_vertices, graph.num_vertices))
        for ids in (graph.src, graph.dst, graph.src[:0]):
            _array(file, ids.astype(np.int64))
        file.write(b"\0\0" + struct.pack("<QQ", 1, graph.num_vertices))  # not sorted; vertices of the only kind
        for frame in (nodes, edges):
            file.write(struct.pack("<Q", 1))
            _tensors(file, frame)
        for kind in ("_N", "_E"):
            file.write(struct.pack("<Q", 1) + _string(kind))
        index = struct.pack("<QQ", 1, start)  # where every graph begins: a string, and its length again
        file.write(struct.pack("<Q", len(index)) + index + struct.pack("<Q", len(index)))
    return Written(str(path), notes=(f"in DGL: dgl.load_graphs({str(path)!r})[0][0]", *names_note(graph)))


def _metagraph(file: IO[bytes]) -> None:
    """Writes the metagraph: one kind of vertices, and one kind of edges from it to itself."""
    file.write(struct.pack("<QQqq", META, CSR, 1, 1))
    for ids in ([0, 1], [0], [0]):
        _array(file, np.array(ids, np.int64))
    file.write(b"\0")


def _tensors(file: IO[bytes], frame: dict[str, Array]) -> None:
    file.write(struct.pack("<Q", len(frame)))
    for name, values in frame.items():
        file.write(_string(name))
        _array(file, values)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _array(file: IO[bytes], values: Array) -> None:
    values = values.view(np.uint8) if values.dtype == bool else values  # as DGL stores masks
    kind, bits = KIND_OF[values.dtype.kind], 8 * values.dtype.itemsize
    file.write(struct.pack("<QQiiiBBH", ARRAY, 0, 1, 0, values.ndim, kind, bits, 1))
    file.write(struct.pack(f"<{values.ndim}qq", *values.shape, values.nbytes))
    file.write(np.ascontiguousarray(values).data)
