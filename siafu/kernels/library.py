"""The compiled kernels (``siafu/kernels/src``), if they were built: one shared library, called through ctypes.

ctypes lets the interpreter lock go for the time of a call. Pointers are taken from arrays whose shape, dtype and order the
callers in this package have checked: nothing behind ``LIBRARY`` checks them again.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

PATH: Final = Path(__file__).with_name("_native.so")
#: By the number that the library gives them.
ISAS: Final = ("scalar", "neon", "avx2", "avx512", "avx512bf16")


def _load() -> ctypes.CDLL | None:
    if not PATH.exists():
        return None
    try:
        return ctypes.CDLL(str(PATH))
    except OSError as error:  # built for another machine
        logger.warning("compiled kernels: %s; SciPy does their work", error)
        return None


LIBRARY: ctypes.CDLL | None = _load()


def isa() -> str:
    """The instruction set in use; "numpy" without a compiled library."""
    return "numpy" if LIBRARY is None else ISAS[LIBRARY.siafu_isa()]
