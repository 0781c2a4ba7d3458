"""Measures this machine's cores and memory without a run. ``siafu plan --calibrate`` starts it as a process of its
own, in which BLAS has one thread, as in every worker of a run.

1. Products are computed as tensor tasks compute them (``siafu.arithmetic``), of dense rows and of bags of words, on one
   core.
2. Rows are copied into a table, and gathered from one that fits the core's own cache, on one core.
3. Memory is read and written on all cores: arrays that are copied, and as a gather reads it, random rows of a table,
   both eight times as large as the last-level cache. Cores share it: more of them would not be faster.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np

from siafu import allotment, arithmetic, start, variables
from siafu.errors import ConfigError
from siafu.kernels.caches import L2_BYTES, L3_BYTES
from siafu.kernels.gather import gather
from siafu.kernels.rows import Table
from siafu.sparse import INDEX_BYTES, Edges, SparseRows

#: Rows, width in and width out of products as tensor tasks have them.
PRODUCTS = ((1_500, 602, 64), (300, 602, 256), (5_000, 128, 128), (700, 64, 41))
#: Bags of words: rows, words of the dictionary, stored in each row, width out.
BAGS = 2_000, 4_000, 60, 64
#: Of a table: as many times the last-level cache, in rows of so many values.
TIMES_CACHE, WIDTH = 8, 64
#: Of each row of the sum.
NEIGHBOURS, SUMS = 32, 100_000
REPEATS, TIMEOUT_S = 9, 120.0


@dataclass(frozen=True)
class Rates:
    flop_ns: float  # of an addition or a multiplication in a product, on one core: the fastest of ``PRODUCTS``
    word_ns: float  # of a stored value and a column of the result in a product of bags of words, on one core
    word_back_ns: float  # and in the transposed product
    copy_ns: float  # of a value that is copied into a table, on one core
    value_ns: float  # of one that is gathered from a table in the core's own cache
    memory_gb_per_s: float  # of copies, read and written, all cores together
    random_gb_per_s: float  # of rows at random, read, all cores together
    cache_mib: float  # the last-level cache
    core_cache_mib: float  # a core's own


def measured() -> Rates:
    """The rates of this machine, in seconds. ConfigError if the process fails."""
    command = start.command("cost_planner.plan.machine_rates")
    try:
        done = subprocess.run(
            command,
            env={**start.environment(), **variables.threads()},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        return Rates(**json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        raise ConfigError(f"calibration: measuring products and memory failed: {error}") from None


def _here() -> Rates:
    allotment.keep_freed_memory()  # as servers do: new pages would be measured with every result
    rates = _flop_ns(), *_words_ns(), _copy_ns(), _value_ns(), _copied_gb_per_s(), _gathered_gb_per_s()
    return Rates(*rates, L3_BYTES / 2**20, L2_BYTES / 2**20)


def _flop_ns() -> float:
    random, found = np.random.default_rng(0), []
    for rows, into, out in PRODUCTS:
        left, right = (random.random(shape, np.float32) for shape in ((rows, into), (into, out)))
        seconds = _fastest(lambda left=left, right=right: arithmetic.matmul(left, right))  # type: ignore[misc]
        found.append(seconds / (2 * rows * into * out) * 1e9)
    return min(found)


def _words_ns() -> tuple[float, float]:
    random, (rows, width, stored, out) = np.random.default_rng(0), BAGS
    indices = np.sort(random.random((rows, width)).argpartition(stored, axis=1)[:, :stored], axis=1)
    words = np.ones(indices.size, np.float32)
    bags = SparseRows(np.arange(rows + 1) * stored, indices.astype(np.int32).ravel(), words, width)
    weights, gradients = (random.random((length, out), np.float32) for length in (width, rows))
    seconds = _fastest(lambda: arithmetic.matmul(bags, weights))
    back_s = _fastest(lambda: arithmetic.matmul_transposed(bags, gradients))
    return seconds / (words.size * out) * 1e9, back_s / (words.size * out) * 1e9


def _copy_ns() -> float:
    rows = np.ones((TIMES_CACHE * L3_BYTES // (4 * WIDTH), WIDTH), np.float32)
    table, every = Table(*rows.shape), slice(0, len(rows))
    return _fastest(lambda: table.write(every, rows)) / rows.size * 1e9


def _copied_gb_per_s() -> float:
    threads = allotment.cores()
    shape = threads, TIMES_CACHE * L3_BYTES // (4 * threads)
    read, written = np.ones(shape, np.float32), np.zeros(shape, np.float32)
    with ThreadPoolExecutor(threads) as pool:  # NumPy copies without Python's lock
        seconds = _fastest(lambda: list(pool.map(np.copyto, written, read)))
    return (read.nbytes + written.nbytes) / seconds / 1e9


def _value_ns() -> float:
    """Nanoseconds per value of a gather. Half of the cache is left for indices and sums."""
    seconds, edges, _ = _gathered(L2_BYTES // (2 * 4 * WIDTH), 1)
    return seconds / (edges * WIDTH) * 1e9


def _gathered_gb_per_s() -> float:
    seconds, edges, nbytes = _gathered(TIMES_CACHE * L3_BYTES // (4 * WIDTH), allotment.cores())
    missed = 1 - 1 / TIMES_CACHE
    return (edges * (INDEX_BYTES + missed * 4 * WIDTH) + nbytes) / seconds / 1e9


def _gathered(num_rows: int, threads: int) -> tuple[float, int, int]:
    """Gathers random rows of a table: seconds, edges, and bytes of the sums."""
    sums, random = min(SUMS, num_rows), np.random.default_rng(0)
    table = Table(num_rows, WIDTH, edges=NEIGHBOURS)
    table.write(np.arange(num_rows), np.ones((num_rows, WIDTH), np.float32))
    columns = np.sort(random.integers(0, num_rows, (sums, NEIGHBOURS), np.int32), axis=1)
    indptr = np.minimum(np.arange(num_rows + 1), sums) * NEIGHBOURS
    edges = Edges(indptr.astype(np.int64), columns.ravel(), None)
    out = np.empty((sums, WIDTH), np.float32)
    return _fastest(lambda: gather(edges, 0, sums, table, out=out, threads=threads)), columns.size, out.nbytes


def _fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest repetition: other programs only ever slow one down."""
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


if __name__ == "__main__":
    print(json.dumps(asdict(_here())))
