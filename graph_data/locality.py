"""Scores a vertex order before anything is gathered: cache misses, row ends, and edges between intervals.

A gather reads the rows of a stream of columns. Which reads miss a cache follows from the stream's footprint (Xiang et
al., ASPLOS'13): an LRU cache of c rows misses an access if the row was last read more than w accesses ago, where
windows of w accesses hold c different rows on average. Large streams are sampled by column, capacities with them
(SHARDS, Waldspurger et al., FAST'15), so the time is bounded. The caches are those of a common server, not of this
machine: the same graph gets the same order everywhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from siafu.sparse import Array

SAMPLED_EDGES: Final = 1 << 22
L2_BYTES, L3_BYTES = 1 << 20, 32 << 20
# 64 values of float32, or fewer where they exceed L3: tables were cut into such tiles when the model was fitted
ROW_BYTES, LINE_BYTES = (256, 64)
TILE_SHARE: Final = 0.6
INTERVALS: Final = 32  # of a partition, to count crossing edges: what the paper's servers have, about
#: In the time of an edge whose row is in L2: fitted to the compiled gather at widths 64 and 128. The end of a row costs
#: less there, and 8 at width 16.
L2_MISS, L3_MISS, ROW_END = 0.1, 0.7, 1.0


class Sample(NamedTuple):
    """Edges into the rows of one partition: all edges with a drawn column."""

    row: Array  # [k] vertices
    column: Array  # [k] vertices
    rate: float  # of columns drawn
    degree: Array  # [N] edges of each row


class Locality(NamedTuple):
    l2_misses: float  # share of the edges whose row is not in L2
    l3_misses: float
    row_ends: float  # rows of another length than the one before, which a processor does not foresee, per edge
    crossing: float  # share of the partition's inner edges that join two of INTERVALS equal slices

    @property
    def cost(self) -> float:
        """Predicted time of a gather per edge; 1 if every row were in L2."""
        return round(1 + L2_MISS * self.l2_misses + L3_MISS * self.l3_misses + ROW_END * self.row_ends, 4)


def sample_edges(indptr: Array, indices: Array, vertices: Array, seed: int) -> Sample:
    """A sample of the rows of these vertices, about SAMPLED_EDGES edges; CSR of the whole graph."""
    n = len(indptr) - 1
    degree = np.diff(indptr)
    rate = min(1.0, SAMPLED_EDGES / max(1, int(degree[vertices].sum())))
    drawn = np.random.default_rng(seed).random(n) < rate  # [N]
    inner = np.zeros(n, bool)
    inner[vertices] = True
    kept = drawn[indices]  # [m]
    kept &= np.repeat(inner, degree)
    edges = np.flatnonzero(kept)
    return Sample(np.searchsorted(indptr, edges, side="right") - 1, indices[edges], rate, degree)


def locality(sample: Sample, order: Array) -> Locality:
    """The locality of the sampled partition with its vertices in this order, int64 [n]."""
    n, degree = len(order), sample.degree
    place = np.arange(n, n + len(degree))  # [N], ghosts behind the inner vertices
    place[order] = np.arange(n)
    row, column = place[sample.row], place[sample.column]
    inner = column < n
    crossing = row[inner] * INTERVALS // n != column[inner] * INTERVALS // n
    gaps = _gaps(row, column, n + len(degree))
    l2, l3 = (_misses(gaps, sample.rate * cache / _row_bytes(n)) for cache in (L2_BYTES, L3_BYTES))
    ends = np.count_nonzero(np.diff(degree[order])) / max(1, int(degree[order].sum()))
    return Locality(l2, l3, ends, float(crossing.mean()) if len(crossing) else 0.0)


def _row_bytes(n: int) -> int:
    """Bytes of a row in the tables that the model was fitted to: the widest tile that stays in L3."""
    room = int(TILE_SHARE * L3_BYTES) // (LINE_BYTES * max(1, n))
    return min(ROW_BYTES, LINE_BYTES << (room.bit_length() - 1)) if room else ROW_BYTES


def _gaps(row: Array, column: Array, width: int) -> Array:
    """Number of times that each distance, int64 [k + 1], lies between two reads of a column. The stream of reads
    repeats without end."""
    k = len(row)
    stream = row * width + column
    stream.sort()
    stream %= max(1, width)
    stream *= k
    stream += np.arange(k)
    stream.sort()
    column, position = np.divmod(stream, max(1, k))
    first = np.ones(k, bool)
    np.not_equal(column[1:], column[:-1], out=first[1:])
    gap = np.diff(position, prepend=0)
    gap[first] = position[first] + k - position[np.roll(first, -1)]  # from the last read of the round before
    return np.bincount(gap, minlength=k + 1)


def _misses(gaps: Array, capacity: float) -> float:
    """Share of the reads that miss an LRU cache of this many columns."""
    k = len(gaps) - 1
    if not k:
        return 0.0
    longer = np.cumsum(gaps[::-1])[::-1]  # reads whose gap is at least w
    absent = np.append(np.cumsum(longer[:0:-1])[::-1], 0)  # [k + 1], sum of (gap - w) over the gaps above w
    footprint = (absent[0] - absent) / k  # different columns in a window of w reads, on average
    w = int(np.searchsorted(footprint, capacity))
    return float(longer[w + 1] / k) if w < k else 0.0
