"""Bytes that a run's steps move between a server's processors and its memory. Pure.

1. All cores of a server share its memory's bandwidth: an epoch takes at least these bytes divided by it.
2. A gather reads an index for each edge, and a neighbour's row for each edge whose row is in no cache. Neighbours are
   assumed to lie anywhere in the table: an order with locality (``--order``) reads less.
3. Rows are gathered in tiles of columns (``siafu.kernels.rows``), down to a single cache line. If a tile of every row
   fits the last-level cache, no row is read twice. Of a larger table, a smaller share stays in the cache.
4. A Scatter reads and writes the rows that it copies. A tensor task reads and writes its operands once, also in an
   environment on the same machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from siafu.kernels.caches import LINE_BYTES
from siafu.kernels.rows import KEPT_SHARE, MANY_EDGES, PAIR_LINES
from siafu.sparse import INDEX_BYTES

#: Of the last-level cache, what the rows of a tile may fill: indices and results pass through it as well.
TILE_SHARE = 0.6


@dataclass(frozen=True)
class Bandwidth:
    """The rate of one machine's memory, all cores together. By default not known, and no limit."""

    bytes_per_s: float = math.inf  # of rows that are read and written in order
    cache_bytes: float = math.inf  # the last-level cache
    random_share: float = 1.0  # of that rate, what rows at random get
    #: A core's own cache (L2). Of Intel's servers since Skylake, Graviton2 and 3, and Zen 4 it is 1 MiB or more.
    core_cache_bytes: float = 2**20

    def missed_by_core(self, table_rows: float, row_bytes: float) -> float:
        """Share of the rows that a gather reads and a core's own cache does not hold."""
        nbytes = table_rows * LINE_BYTES * math.ceil(row_bytes / LINE_BYTES)
        return max(0.0, 1 - self.core_cache_bytes / max(1.0, nbytes))

    def gathered(self, edges: float, rows: float, table_rows: float, row_bytes: float, sum_bytes: float) -> float:
        """Bytes of sums over ``edges`` into ``rows`` rows of ``sum_bytes``, from ``table_rows`` rows of
        ``row_bytes``."""
        one_line = edges >= MANY_EDGES * rows and table_rows * LINE_BYTES <= KEPT_SHARE * self.cache_bytes
        missed = 0.0 if one_line else self._missed(table_rows, row_bytes)
        return edges * (INDEX_BYTES + missed) + rows * sum_bytes

    def _missed(self, table_rows: float, row_bytes: float) -> float:
        """Bytes of a neighbour's row that come from memory, on the mean (rule 3), at the rate of rows in order."""
        if table_rows * min(row_bytes, PAIR_LINES * LINE_BYTES) <= TILE_SHARE * self.cache_bytes:
            return 0.0
        share = max(0.0, 1 - self.cache_bytes / (table_rows * row_bytes))
        return share * max(row_bytes, LINE_BYTES) / self.random_share
