"""Rows in 2, 4 or 8 bits and back, compiled (``src/quantise_rows.cpp``): 20 to 40 times as fast as arrays of numpy.

``gpu_baselines.halos.quantise`` defines the bytes, and replaces these functions if the library is missing; then they
must not be called.
"""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

from siafu.kernels.library import LIBRARY
from siafu.sparse import Array

COMPILED: Final = LIBRARY is not None and hasattr(LIBRARY, "siafu_quantise")


class _Quantise(ctypes.Structure):
    """``Quantise`` of quantise.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("rows", "index", "parameters", "codes")),
        *((name, ctypes.c_int64) for name in ("num_rows", "width", "row_codes")),
        ("key", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("bits", "threads")),
    )


def quantise(
    rows: Array, index: Array, bits: int, key: int, parameters: Array, codes: Array, *, threads: int = 1
) -> bool:
    """Fills parameters (bfloat16 as uint16 [k, 2]) and codes (uint8 [k, row_codes]) of the rows (float32 [n, F]) at
    index (int64 [k], in 0..n-1, which is not checked). Returns False if a value is NaN or too large to be sent.

    Raises: ValueError for another shape, dtype or order.
    """
    call = _call(rows, index, bits, parameters, codes, threads)
    call.key = key
    return bool(_library().siafu_quantise(ctypes.byref(call)))


def dequantise(parameters: Array, codes: Array, bits: int, rows: Array, index: Array, *, threads: int = 1) -> None:
    """Decodes the output of ``quantise`` into the rows at index. Raises: ValueError as ``quantise`` does."""
    _library().siafu_dequantise(ctypes.byref(_call(rows, index, bits, parameters, codes, threads)))


def _library() -> ctypes.CDLL:
    assert LIBRARY is not None
    return LIBRARY


def _call(rows: Array, index: Array, bits: int, parameters: Array, codes: Array, threads: int) -> _Quantise:
    k, width = len(index), rows.shape[1]
    row_codes = (width * bits + 7) // 8
    for name, array, dtype, shape in (
        ("rows", rows, np.float32, (len(rows), width)),
        ("index", index, np.int64, (k,)),
        ("parameters", parameters, np.uint16, (k, 2)),
        ("codes", codes, np.uint8, (k, row_codes)),
    ):
        if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
            raise ValueError(
                f"{name}: {array.dtype} {list(array.shape)}, must be contiguous {dtype.__name__} {list(shape)}"
            )
    if bits not in (2, 4, 8) or not width or threads < 1:
        raise ValueError(f"{width} values in {bits} bits on {threads} threads, must be >= 1, 2, 4 or 8, and >= 1")
    return _Quantise(
        rows.ctypes.data,
        index.ctypes.data,
        parameters.ctypes.data,
        codes.ctypes.data,
        k,
        width,
        row_codes,
        0,
        bits,
        threads,
    )
