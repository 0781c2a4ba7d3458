"""The checksum of servers' tensors on the wire, and of prepared graphs: the same CRC-32 as zlib's, at the speed of
memory (src/checksum.cpp).

zlib's reaches 3 to 7 GB/s, less than loopback carries; Lambdas use zlib's.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from siafu.kernels.library import LIBRARY

#: The least size for the library: for fewer bytes the call costs more than it saves.
LEAST_BYTES = 1 << 12


def _compiled() -> Callable[[int, int, int], int] | None:
    """Returns the library's function (checksum to continue, address, size) -> checksum; None if the library or the
    processor's instruction for it is missing."""
    if LIBRARY is None or not hasattr(LIBRARY, "siafu_has_crc32") or not LIBRARY.siafu_has_crc32():
        return None
    function: Any = LIBRARY.siafu_crc32
    function.argtypes, function.restype = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_int64), ctypes.c_uint32
    return function  # type: ignore[no-any-return]


_CRC32 = _compiled()


def crc32(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Returns ``zlib.crc32(data, value)`` of contiguous bytes."""
    nbytes = memoryview(data).nbytes
    if _CRC32 is None or nbytes < LEAST_BYTES:
        return zlib.crc32(data, value)
    return _CRC32(value, np.frombuffer(data, np.uint8).__array_interface__["data"][0], nbytes)
