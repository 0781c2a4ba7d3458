"""METIS (Karypis & Kumar, SISC 1998) through pymetis: the partitioner and the vertex order both cut graphs with it."""

from __future__ import annotations

import numpy as np

from siafu.graph import Graph, pack, row_starts, unpack
from siafu.sparse import Array


def undirected(graph: Graph) -> tuple[Array, Array]:
    """CSR of neighbours, whatever the direction of edges."""
    n = graph.num_vertices
    if not graph.directed:
        return row_starts(graph.dst, n), graph.src
    keys = np.unique(np.concatenate([pack(graph.dst, graph.src, n), pack(graph.src, graph.dst, n)]))
    row, column = unpack(keys, n)
    return row_starts(row, n), column


def part_graph(indptr: Array, indices: Array, parts: int, seed: int, weight: Array | None, recursive: bool) -> Array:
    import pymetis  # only here: deployed servers import this room, prepare nothing, and have no wheel of it for arm

    dtype = pymetis.zero_copy_dtype()
    adjacency = pymetis.CSRAdjacency(indptr.astype(dtype, copy=False), indices.astype(dtype, copy=False))
    _, owner = pymetis.part_graph(
        parts,
        adjacency,
        vweights=None if weight is None else weight.astype(dtype, copy=False),
        recursive=recursive,
        options=pymetis.Options(seed=seed % 2**31),
    )
    return np.asarray(owner, np.int32)
