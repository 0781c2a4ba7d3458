"""What the memory of this machine allows: what a gather is compared with."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from siafu.kernels.gather import BAD_EDGES, Base, GatherCall, row_type, source
from siafu.kernels.library import LIBRARY
from siafu.kernels.rows import ROW_TYPES, Table, address
from siafu.sparse import Array

#: Rows, by NumPy.
READ_AT_A_TIME = 1 << 16
#: So many that what a row costs beside them does not count.
EDGES_A_ROW = 1 << 12


def triad(nbytes: int, threads: int) -> float:
    """GB/s of ``a = b + 3 c`` over three arrays of ``nbytes`` together (McCalpin's STREAM)."""
    n = nbytes // 12
    a, b, c = (np.full(n, value, np.float32) for value in (0, 1, 2))
    start = time.perf_counter()
    if LIBRARY is None:
        np.multiply(c, np.float32(3), out=a)
        np.add(a, b, out=a)
    else:
        LIBRARY.siafu_triad(*(ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)), ctypes.c_int64(n), threads)
    return 12 * n / (time.perf_counter() - start) / 1e9


def read_rows(indices: Array, base: Base, threads: int, *, prefetch: int | None = None) -> float:
    """Seconds to read the row of every index (int32 [m]) of ``base`` in that order, and to do nothing with it.

    The limit of a gather: the same layout of the rows, the same order of columns; next to nothing is written.
    prefetch: edges ahead; 0 for none, None for what gather does.
    """
    width = base.shape[1]
    start = time.perf_counter()
    if LIBRARY is None:
        rows = base.read(slice(None)) if isinstance(base, Table) else base
        start = time.perf_counter()
        for first in range(0, len(indices), READ_AT_A_TIME):
            rows[indices[first : first + READ_AT_A_TIME]].sum(dtype=np.float64)
        return time.perf_counter() - start
    indptr = np.append(np.arange(0, len(indices), EDGES_A_ROW), len(indices))
    out = np.empty((len(indptr) - 1, width), np.float64 if row_type(base) == "float64" else np.float32)
    indices = np.ascontiguousarray(indices, np.int32)
    call = GatherCall(
        indptr=address(indptr),
        indices=address(indices),
        num_edges=len(indices),
        base=source(base),
        num_columns=len(base),
        out=address(out),
        out_stride=width,
        start=0,
        stop=len(out),
        width=width,
        type=ROW_TYPES.index(row_type(base)),
        padded=isinstance(base, Table),
        threads=threads,
        prefetch=-1 if prefetch is None else prefetch,
    )
    start = time.perf_counter()
    if LIBRARY.siafu_gather(ctypes.byref(call)):
        raise ValueError(BAD_EDGES)
    return time.perf_counter() - start
