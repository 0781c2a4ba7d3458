"""The compiled kernels (``siafu/kernels/src``), if they were built: one shared library, called through ctypes.

ctypes releases the interpreter lock during a call. The callers in this package check the shape, dtype and order of the
arrays whose pointers they pass; the library does not check them again. But it checks the content of a CSR, edge by edge
(src/csr.hpp).
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

PATH: Final = Path(__file__).with_name("_native.so")
#: Instruction sets by their number in the library.
ISAS: Final = ("scalar", "neon", "avx2", "avx512", "avx512bf16", "amx")


def _load() -> ctypes.CDLL | None:
    if not PATH.exists():
        return None
    try:
        library = ctypes.CDLL(str(PATH))
        library.siafu_sources.restype = ctypes.c_char_p
        if _sources_digest() not in (None, library.siafu_sources().decode()):
            why = "were made of other sources: make setup builds them anew"
        elif library.siafu_isa() < 0:
            why = "were made for another processor: make clean, then make setup"
        else:
            return library
    except (OSError, AttributeError) as error:  # built for another machine, or long ago
        why = str(error)
    logger.warning("compiled kernels: %s; SciPy does their work", why)
    return None


def _sources_digest() -> str | None:
    """Returns ``siafu.kernels.build.sources_digest()``, computed here because Lambda's package lacks that module; None
    if the sources are missing."""
    files = sorted(Path(__file__).with_name("src").glob("*.[ch]pp"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16] if files else None


LIBRARY: ctypes.CDLL | None = _load()
#: Version of the kernels: results of other versions may differ in their last bits.
VERSION: Final = "numpy" if LIBRARY is None else LIBRARY.siafu_sources().decode()


def isa() -> str:
    """Returns the instruction set in use; "numpy" without a compiled library."""
    return "numpy" if LIBRARY is None else ISAS[LIBRARY.siafu_isa()]
