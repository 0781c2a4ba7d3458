"""Products with a sparse matrix, each number summed in the matrix' order: compiled (src/plain.hpp), or SciPy's without
the library.

SciPy's own product fuses multiplication and addition if its compiler could, so arm and x86 processors round
differently.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from typing import Any, Final

import numpy as np

from siafu.kernels.caches import line_zeros
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array, SparseRows

#: A Lambda has no SciPy, and no library either if its package was made without a compiler.
AVAILABLE: Final = LIBRARY is not None or importlib.util.find_spec("scipy") is not None


class _SparseProduct(ctypes.Structure):
    """``SparseProduct`` of plain.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("indptr", "indices", "data", "rows", "out")),
        *((name, ctypes.c_int64) for name in ("n", "k", "m")),
        *((name, ctypes.c_int32) for name in ("is_double", "transposed")),
    )


class _SparseSquare(ctypes.Structure):
    """``SparseSquare`` of plain.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("indptr", "other_indptr", "indices", "other_indices", "data")),
        *((name, ctypes.c_void_p) for name in ("other_data", "out_indptr", "out_indices", "out_data")),
        *((name, ctypes.c_int64) for name in ("n", "k", "m")),
        ("is_double", ctypes.c_int32),
    )


def multiply(indptr: Array, indices: Array, data: Array, rows: Array, *, width: int | None = None) -> Array:
    """Returns S R ``[n, m]`` for the CSR matrix S ``[n, k]`` and rows R ``[k, m]``. With ``width`` = k: Sᵀ R ``[k, m]``
    for R ``[n, m]``.

    The dtype is that of the rows, float32 or float64; each number is summed in the order of S. Raises: ValueError for a
    column that is not in 0..k-1, or arrays that do not fit.
    """
    n, m, transposed = len(indptr) - 1, rows.shape[1], width is not None
    k = len(rows) if width is None else width
    if LIBRARY is None:
        matrix = _sparse().csr_array((data.astype(rows.dtype, copy=False), indices, indptr), shape=(n, k))
        return np.asarray((matrix.T if transposed else matrix) @ rows)
    if transposed and len(rows) != n:
        raise ValueError(f"{n} sparse rows and {len(rows)} rows do not fit")
    matrix = _checked(indptr, indices, data, rows.dtype)
    rows, out = np.ascontiguousarray(rows), line_zeros((k if transposed else n, m), rows.dtype)
    places = (array.ctypes.data for array in (*matrix, rows, out))
    call = _SparseProduct(*places, n, k, m, rows.dtype == np.float64, transposed)
    if LIBRARY.siafu_multiply_sparse(ctypes.byref(call)):
        raise ValueError(f"sparse rows: a column is not in 0..{k - 1}")
    return out


def multiply_both(indptr: Array, indices: Array, data: Array, other: SparseRows) -> SparseRows:
    """Returns S B ``[n, m]`` for the CSR matrix S ``[n, k]`` and sparse rows B ``[k, m]``, in B's dtype, float32 or
    float64.

    Raises: ValueError for a column that is out of range, or arrays that do not fit.
    """
    n, (k, m), dtype = len(indptr) - 1, other.shape, other.data.dtype
    if LIBRARY is None:
        sparse = _sparse()
        product = sparse.csr_array((data.astype(dtype, copy=False), indices, indptr), shape=(n, k)) @ sparse.csr_array(
            (other.data, other.indices, other.indptr), shape=(k, m)
        )
        product.sort_indices()
        return SparseRows(product.indptr.astype(np.int64), product.indices.astype(np.int32), product.data, m)
    left, right = _checked(indptr, indices, data, dtype), _checked(other.indptr, other.indices, other.data, dtype)
    pairs = (array.ctypes.data for both in zip(left, right, strict=True) for array in both)
    out_indptr = np.empty(n + 1, np.int64)
    call = _SparseSquare(*pairs, out_indptr.ctypes.data, None, None, n, k, m, dtype == np.float64)
    if LIBRARY.siafu_multiply_sparse_both(ctypes.byref(call)):
        raise ValueError(f"sparse rows: a column is not in 0..{k - 1}, or in 0..{m - 1}")
    out_indices, out = np.empty(int(out_indptr[-1]), np.int32), np.empty(int(out_indptr[-1]), dtype)
    call.out_indices, call.out_data = out_indices.ctypes.data, out.ctypes.data
    LIBRARY.siafu_multiply_sparse_both(ctypes.byref(call))
    return SparseRows(out_indptr, out_indices, out, m)


def _checked(indptr: Array, indices: Array, data: Array, dtype: Any) -> tuple[Array, Array, Array]:
    """Returns row pointers int64, columns int32 and values of ``dtype``. Raises: ValueError if the pointers are not
    valid."""
    indptr = np.ascontiguousarray(indptr, np.int64)
    if indptr[0] or (np.diff(indptr) < 0).any() or indptr[-1] > min(len(indices), len(data)):
        raise ValueError(
            f"sparse rows: they begin at {indptr[0]}, end at {indptr[-1]} of {len(indices)} columns and {len(data)} "
            "values, or do not follow each other"
        )
    return indptr, np.ascontiguousarray(indices, np.int32), np.ascontiguousarray(data, dtype)


def _sparse() -> Any:
    """Imports SciPy's sparse matrices by name: a Lambda's imports are read from the sources, and it never needs
    these."""
    return importlib.import_module("scipy.sparse")
