"""The first pass over a list of edges: which vertices there are, whether every edge is sound, and a sample of them.

Memory: one byte per possible id as long as ids are small, else 8 to 24 bytes per vertex, whatever the number of edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graph_data.ahead import ahead
from graph_data.sources.ids import Ids, NamedIds
from siafu.errors import DatasetError
from siafu.graph import Graph, each_once
from siafu.sparse import Array

SAMPLE = 1 << 18  # edges that are drawn, to know how they spread over the ids
SAMPLE_SEED = 0
FIRST_MAP = 1 << 16  # ids that the map of those seen begins with
# numbers up to the largest id, for each id there is, that a table may have: one id of 10**9 is no table of 4 GB
SPREAD = 32
MERGE_AT = 1 << 20  # new ids that wait until they are merged

Block = tuple[Array, Array, "Array | None"]  # int64 src, int64 dst, and weight of some edges, in the source's order


class EdgeSource(Protocol):
    """A list of edges that can be read again and again, always in the same order."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """Names of the parts that can be read independently: files."""

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        """float32 or float64; None: every edge weighs 1."""

    def blocks(self, piece: int, rows: int) -> Iterator[Block]:
        """The edges of one piece in blocks of about ``rows``."""


@dataclass(frozen=True, eq=False)
class Census:
    """The result of the first pass over the edges."""

    num_vertices: int
    num_edges: int  # as listed
    ids: Ids | None  # int64 [N], ascending, or names: the id of every vertex; None: ids are 0..N-1
    src: Array  # int64 [S], ids of the ends of edges drawn at random
    dst: Array
    # table -> its ids, and how many of them are in no edge
    apart: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Input(EdgeSource, Protocol):
    """A graph whose edges are read several times. The rest of it is read once the vertices are known."""

    def census(self, rows: int, dense_ids: int) -> Census:
        """Which vertices there are: ``take_census`` of all blocks."""

    def vertices(self, census: Census, scratch: Path | None) -> Graph:
        """All but the edges; features may be on disk, in the file ``scratch``."""


def take_census(
    edges: EdgeSource,
    num_vertices: int | None,
    rows: int,
    dense_ids: int,
    tables: Mapping[str, Iterable[Array]] | None = None,
    blocks: Callable[[int, int], Iterator[Block]] | None = None,
) -> Census:
    """Reads every edge once, in blocks of ``rows``.

    With ``num_vertices``, ids are vertex numbers; else the vertices are the ids that occur, here or in ``tables`` (name
    -> int64 arrays of ids that need not have an edge), in ascending order. ``dense_ids``: ids below it are mapped by
    themselves, a byte each. ``blocks``: replaces the edges' own. Raises: DatasetError naming the piece and row of an
    invalid id or weight.
    """
    seen = None if num_vertices else _Seen(dense_ids)
    rng = np.random.default_rng(SAMPLE_SEED)
    drawn, count = _Reservoir(rng), 0
    for piece, name in enumerate(edges.pieces):
        first = 1

        def look(block: Block, name: str = name) -> None:
            nonlocal first
            src, dst, weight = block
            _check(name, first, num_vertices, src, dst, weight)
            if seen:
                seen.add(src)
                seen.add(dst)
            drawn.add(src, dst)
            first += len(src)

        for _ in ahead(look, (blocks or edges.blocks)(piece, rows), 1):  # one block is looked at while the next is read
            pass
        count += first - 1
    apart = _add_tables(seen, tables or {}) if seen else {}
    ids = seen.ids() if seen else None
    n = num_vertices or (0 if ids is None else len(ids))
    if n < 1:
        raise DatasetError(f"{edges.pieces[0]}: has no edge, so no vertex")
    if ids is not None and ids[0] == 0 and ids[-1] == n - 1:
        ids = None
    return Census(n, count, ids, *drawn.kept(), apart)


def _add_tables(seen: _Seen, tables: Mapping[str, Iterable[Array]]) -> dict[str, tuple[int, int]]:
    """Adds the ids of tables to those of edges. Returns table -> number of its ids, and how many of them are in no
    edge."""
    found, in_edges = {}, seen.copy()
    for name, blocks in tables.items():
        total = apart = 0
        for ids in blocks:
            total += len(ids)
            apart += len(ids) - in_edges.count(ids)
            seen.add(ids)
        found[name] = (total, apart)
    return found


def _check(name: str, first: int, num_vertices: int | None, src: Array, dst: Array, weight: Array | None) -> None:
    for ids in (src, dst) if num_vertices and len(src) else ():
        assert num_vertices
        if ids.max() >= num_vertices or ids.min() < 0:
            row = int(np.argmax((ids < 0) | (ids >= num_vertices)))
            raise DatasetError(f"{name}: row {first + row}: vertex {ids[row]}, must be in 0..{num_vertices - 1}")
    if weight is not None:
        with np.errstate(over="ignore", under="ignore"):
            kept = weight.astype(np.float32, copy=False)  # as it is kept: 1e-50 is 0
        good = np.isfinite(kept) & (kept > 0)
        if not good.all():
            row = int(np.argmin(good))
            raise DatasetError(f"{name}: row {first + row}: weight {weight[row]}, must be finite and > 0")


class _Reservoir:
    """About SAMPLE edges from a stream of unknown length: each is kept with the same, falling chance."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._chance = 1.0
        self._ends: list[Array] = []  # int64 [2, k] each

    def add(self, src: Array, dst: Array) -> None:
        if not len(src):
            return
        count = len(src) if self._chance == 1 else int(self._rng.binomial(len(src), self._chance))
        rows = slice(None) if count == len(src) else self._rng.integers(0, len(src), count)
        self._ends.append(np.stack([src[rows], dst[rows]]))
        while sum(ends.shape[1] for ends in self._ends) > 2 * SAMPLE:
            ends = np.concatenate(self._ends, axis=1)
            self._ends = [ends[:, self._rng.random(ends.shape[1]) < 0.5]]
            self._chance /= 2

    def kept(self) -> tuple[Array, Array]:
        ends = np.concatenate([np.empty((2, 0), np.int64), *self._ends], axis=1)
        return ends[0], ends[1]


class _Seen:
    """The set of ids that occurred: a map of bytes while all are small, then a sorted array."""

    def __init__(self, dense_ids: int) -> None:
        self._dense_ids = dense_ids
        self._count = 0  # ids added, each as often as it came
        self._map: Array | None = np.zeros(FIRST_MAP, bool)
        self._sorted = np.empty(0, np.int64)
        self._waiting: list[Array] = []

    def add(self, ids: Array) -> None:
        if not len(ids):
            return
        largest = int(ids.max())
        self._count += len(ids)
        room = min(self._dense_ids, FIRST_MAP + SPREAD * self._count)
        if self._map is not None and largest < room and ids.min() >= 0:
            if largest >= len(self._map):
                grown = np.zeros(max(2 * len(self._map), largest + 1), bool)
                grown[: len(self._map)] = self._map
                self._map = grown
            self._map[ids] = True
            return
        if self._map is not None:
            self._sorted, self._map = np.flatnonzero(self._map), None
        self._waiting.append(each_once(ids.copy()))
        if sum(map(len, self._waiting)) > max(MERGE_AT, len(self._sorted) // 2):
            self._merge()

    def copy(self) -> _Seen:
        """A copy: ``add`` to one does not change the other."""
        self._merge()
        made = _Seen(self._dense_ids)
        made._map, made._sorted = None if self._map is None else self._map.copy(), self._sorted
        return made

    def count(self, ids: Array) -> int:
        """How many of these ids were added before."""
        if self._map is not None:
            known = ids[(ids >= 0) & (ids < len(self._map))]
            return int(np.count_nonzero(self._map[known]))
        if not len(self._sorted):
            return 0
        ascending = np.sort(ids)  # searching in order stays in the cache
        place = np.minimum(np.searchsorted(self._sorted, ascending), len(self._sorted) - 1)
        return int(np.count_nonzero(self._sorted[place] == ascending))

    def ids(self) -> Array:
        if self._map is not None:
            return np.flatnonzero(self._map)
        self._merge()
        return self._sorted

    def _merge(self) -> None:
        self._sorted = each_once(np.concatenate([self._sorted, *self._waiting]))
        self._waiting = []


class Numbering:
    """Maps ids to vertex numbers: an id's place among the ids in ascending order."""

    def __init__(self, ids: Ids | None, dense_ids: int) -> None:
        """``dense_ids``: how many table entries of 4 bytes there may be."""
        self._ids = ids
        self._table: Array | None = None
        room = 0 if ids is None else min(dense_ids, FIRST_MAP + SPREAD * len(ids))
        if isinstance(ids, np.ndarray) and ids[0] >= 0 and ids[-1] < room:
            self._table = np.full(int(ids[-1]) + 1, -1, np.int32)
            self._table[ids] = np.arange(len(ids), dtype=np.int32)

    def of(self, ids: Array) -> Array:
        """int64 numbers of ids, or hashes of ids, that all occur."""
        if self._ids is None or not len(ids):
            return ids
        if isinstance(self._ids, NamedIds):
            return self._ids.numbers(ids)
        if self._table is not None:
            return self._table[ids].astype(np.int64)
        order = np.argsort(ids)  # searching in order stays in the cache
        numbers = np.empty(len(ids), np.int64)
        numbers[order] = np.searchsorted(self._ids, ids[order])
        return numbers

    def blocks(self, edges: EdgeSource, piece: int, rows: int) -> Iterator[tuple[Array, Array, Array | None]]:
        """The blocks of ``edges`` with vertex numbers for ids, without self-loops."""
        for src, dst, weight in edges.blocks(piece, rows):
            src, dst = self.of(src), self.of(dst)
            apart = src != dst
            if not apart.all():
                src, dst, weight = src[apart], dst[apart], None if weight is None else weight[apart]
            yield src, dst, weight
