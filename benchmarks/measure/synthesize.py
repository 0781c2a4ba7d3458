"""Writes a large random edge list in bounded memory.

Each edge is listed once, in one direction. Its source is drawn by a power law; its target half of the time from the
same community, else like the source. Ids are vertex numbers, scattered by a bijection: they tell nothing of either. A
block of edges depends on the seed and its own number alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graph_data.sources.arrow import arrow
from siafu.errors import ConfigError
from siafu.sparse import Array

BLOCK = 1 << 20  # edges, and rows of a row group
SKEW = 2.0  # a vertex of rank r is drawn in proportion to r^(1/SKEW - 1)
INSIDE = 0.5  # share of edges inside a community
COMMUNITY = 1000  # vertices of a community
COMMUNITY_STRIDE = 2_654_435_761  # prime: neighbours in rank land in communities far apart
FILE_EDGES = 100_000_000  # of each file


def edge_block(number: int, count: int, num_vertices: int, seed: int) -> tuple[Array, Array]:
    """int64 sources and targets, [count] each, of the block of this number."""
    rng = np.random.default_rng([seed, number])
    src = _drawn(rng, count, num_vertices)
    dst = _drawn(rng, count, num_vertices)
    inside = rng.random(count, dtype=np.float32) < INSIDE
    near = src[inside] - src[inside] % COMMUNITY + rng.integers(0, COMMUNITY, int(inside.sum()))
    dst[inside] = np.minimum(near, num_vertices - 1)
    stride = _coprime(num_vertices)
    return src * stride % num_vertices, dst * stride % num_vertices


def _drawn(rng: np.random.Generator, count: int, num_vertices: int) -> Array:
    """Vertices by a power law; hubs are spread over the communities."""
    rank = (rng.random(count, dtype=np.float32) ** np.float32(SKEW) * np.float32(num_vertices)).astype(np.int64)
    rank += rng.integers(0, max(1, num_vertices >> 20), count)  # float32 has 24 bits: fill the gaps between
    return np.minimum(rank, num_vertices - 1) * COMMUNITY_STRIDE % num_vertices


def _coprime(num_vertices: int) -> int:
    """A stride that visits every vertex number once, below 2^31 so that products fit int64."""
    stride = int(num_vertices * 0.6180339887) | 1
    while np.gcd(stride, num_vertices) != 1:
        stride += 2
    return stride


def write(out: Path, num_vertices: int, num_edges: int, seed: int) -> Iterator[int]:
    """Writes OUT/edges-NNN.parquet; yields how many edges there are so far. Raises: ConfigError for what cannot be."""
    if not 2 <= num_vertices < 2**31 or num_edges < 1:
        raise ConfigError(f"{num_vertices} vertices and {num_edges} edges, must be in 2..{2**31 - 1} and >= 1")
    pa, parquet = arrow("pyarrow"), arrow("pyarrow.parquet")
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    out.mkdir(parents=True, exist_ok=True)
    done = 0
    while done < num_edges:
        last = min(num_edges, done + FILE_EDGES)
        options = {"compression": "snappy", "use_dictionary": False}
        with parquet.ParquetWriter(out / f"edges-{done // FILE_EDGES:03d}.parquet", schema, **options) as writer:
            while done < last:
                count = min(BLOCK, last - done)
                ends = edge_block(done, count, num_vertices, seed)
                writer.write_table(pa.table(dict(zip(("src", "dst"), ends, strict=True)), schema), row_group_size=BLOCK)
                done += count
                yield done
