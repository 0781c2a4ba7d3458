"""Partitioners: assign each vertex to a partition.

A partitioner is a function ``(sides, parts, seed) -> int32 [N]``, the owner of every vertex. ``sides`` are CSRs over
all vertices: the rows of the first list the sources of in-edges, and if the graph is directed, those of the second the
targets of out-edges. All but metis take ``indices`` that lie on disk, and read them by ascending slices.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np

from graph_data.cut import sides_of
from graph_data.greedy import PASSES, greedy
from graph_data.metis import part_graph
from siafu.errors import ConfigError, DatasetError
from siafu.graph import Graph, pack, row_starts, unpack
from siafu.ops import GOLDEN, mixed
from siafu.shards import Edges
from siafu.sparse import Array
from siafu.table import named

log = logging.getLogger(__name__)

PARTITIONERS = {
    "metis": "graph_data.partitioners:metis",
    "chunk": "graph_data.partitioners:chunk",
    "random": "graph_data.partitioners:random",
    "hash": "graph_data.partitioners:hashed",
    "ldg": "graph_data.partitioners:ldg",
    "fennel": "graph_data.partitioners:fennel",
}
RESTREAMING = ("ldg", "fennel")  # take a number of passes: "fennel:10"
MAX_PASSES = 1000
FILE = "file"  # "file:PATH": who owns what was decided elsewhere


def partition(graph: Graph, name: str, parts: int, seed: int) -> Array:
    """Owner of every vertex of a tidy graph, int32 [N]: ``owners`` of its edges."""
    check_parts(graph.name, graph.num_vertices, name, parts)
    return owners(sides_of(graph), name, parts, seed)


def owners(sides: list[Edges], name: str, parts: int, seed: int) -> Array:
    """Owner of every vertex, int32 [N], by the named partitioner; every partition owns at least one vertex."""
    base, passes = split_name(name)
    if parts == 1:
        return np.zeros(len(sides[0].indptr) - 1, np.int32)
    if base == FILE:
        return _without_empty(from_file(Path(name.partition(":")[2]), len(sides[0].indptr) - 1, parts), parts, name)
    function, options = named(PARTITIONERS, base, "partitioner"), {"passes": passes} if passes else {}
    return _without_empty(function(sides, parts, seed, **options), parts, name)


def check_parts(graph_name: str, num_vertices: int, name: str, parts: int) -> None:
    """Raises: ConfigError for an unknown partitioner; DatasetError if there are fewer vertices than partitions."""
    if split_name(name)[0] != FILE:
        named(PARTITIONERS, split_name(name)[0], "partitioner")
    if not 1 <= parts <= num_vertices:
        raise DatasetError(f"{graph_name}: {parts} partitions, must be in 1..{num_vertices}, its vertex count")


def split_name(name: str) -> tuple[str, int | None]:
    """Splits NAME, NAME:PASSES (for RESTREAMING), or file:PATH. Raises: ConfigError if PASSES is no number in
    1..MAX_PASSES."""
    base, _, passes = name.partition(":")
    if base == FILE and passes:
        return FILE, None
    if not passes or base not in RESTREAMING:
        return name, None
    if not passes.isdecimal() or not 1 <= int(passes) <= MAX_PASSES:
        raise ConfigError(f"partitioner {name!r}: {passes!r} passes, must be a number in 1..{MAX_PASSES}")
    return base, int(passes)


def file_digest(name: str) -> str:
    """Digest of the file of a partitioner ``file:PATH``; "" for other partitioners, and for a missing file."""
    file = Path(name.partition(":")[2])
    return hashlib.sha256(file.read_bytes()).hexdigest() if split_name(name)[0] == FILE and file.is_file() else ""


def _without_empty(owner: Array, parts: int, name: str) -> Array:
    """Gives each partition without a vertex the last vertex of the largest one."""
    counts = np.bincount(owner, minlength=parts)
    for p in np.flatnonzero(counts == 0):
        largest = int(counts.argmax())
        owner[np.flatnonzero(owner == largest)[-1]] = p
        counts[largest] -= 1
        counts[p] = 1
        log.warning("partitioner %s left partition %d empty; it got a vertex of partition %d", name, p, largest)
    return owner


# --- partitioners -----------------------------------------------------------------------------------------------------


def metis(sides: list[Edges], parts: int, seed: int) -> Array:
    """Few cut edges (Karypis & Kumar, SISC 1998), vertices and edges balanced together.

    METIS could balance several weights, but pymetis passes only one per vertex: half of it counts the vertex, half its
    edges.
    """
    indptr, indices = _joined(sides)
    degree = np.diff(indptr)
    weight = degree + max(1, round(float(degree.mean())))  # [N]
    return part_graph(indptr, indices, parts, seed, weight=weight, recursive=False)


def _joined(sides: list[Edges]) -> tuple[Array, Array]:
    """CSR of neighbours, whatever the direction of edges."""
    if len(sides) == 1:
        return sides[0].indptr, sides[0].indices
    n = len(sides[0].indptr) - 1
    keys = np.unique(
        np.concatenate([pack(np.repeat(np.arange(n), np.diff(side.indptr)), side.indices, n) for side in sides])
    )
    row, column = unpack(keys, n)
    return row_starts(row, n), column


def chunk(sides: list[Edges], parts: int, seed: int) -> Array:
    """Contiguous ranges of ids with equal ``alpha |V| + |E|``, alpha = 8 (P - 1) (Gemini, OSDI'16, section 4.2)."""
    indptr = sides[0].indptr
    n = len(indptr) - 1
    cost = 8 * (parts - 1) * np.arange(1, n + 1) + indptr[1:]  # [N], of the vertices up to this one
    ends = np.searchsorted(cost, cost[-1] * np.arange(1, parts) / parts, side="left") + 1
    for i in range(len(ends)):  # every chunk gets a vertex, and leaves one for each chunk behind it
        ends[i] = min(max(ends[i], ends[i - 1] + 1 if i else 1), n - (parts - 1 - i))
    return np.searchsorted(ends, np.arange(n), side="right").astype(np.int32)


def ldg(sides: list[Edges], parts: int, seed: int, passes: int = PASSES) -> Array:
    """Linear deterministic greedy (Stanton & Kliot, KDD 2012): see ``graph_data.greedy``."""
    return greedy("ldg", sides, parts, passes)


def fennel(sides: list[Edges], parts: int, seed: int, passes: int = PASSES) -> Array:
    """Fennel (Tsourakakis et al., WSDM 2014): see ``graph_data.greedy``."""
    return greedy("fennel", sides, parts, passes)


def random(sides: list[Edges], parts: int, seed: int) -> Array:
    """A random owner for every vertex; vertex counts differ by at most one."""
    owner = np.arange(len(sides[0].indptr) - 1, dtype=np.int32) % parts
    return np.random.default_rng(seed).permutation(owner)


def hashed(sides: list[Edges], parts: int, seed: int) -> Array:
    """splitmix64 of the id (Steele, Lea & Flood, OOPSLA'14), modulo P: anyone can tell an owner without a table."""
    z = mixed(np.arange(1, len(sides[0].indptr), dtype=np.uint64) * GOLDEN)
    return (z % np.uint64(parts)).astype(np.int32)


def from_file(path: Path, num_vertices: int, parts: int) -> Array:
    """The partition in a text file, one number per line in the order of vertices: Dorylus' .parts, METIS' .part.P.

    Raises: DatasetError if it is malformed, or of another graph.
    """
    try:
        owner = np.array(path.read_text().split(), np.int64)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: not a partition's number per line ({error})") from None
    if len(owner) != num_vertices:
        raise DatasetError(f"{path}: {len(owner)} lines, must be {num_vertices}, one per vertex")
    if not 0 <= owner.min() <= owner.max() < parts:
        raise DatasetError(f"{path}: partitions {owner.min()}..{owner.max()}, must be in 0..{parts - 1}")
    return owner.astype(np.int32)
