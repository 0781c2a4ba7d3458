"""Tells whether a process computes with compiled kernels, whose bits are the same everywhere, or with NumPy, whose
bits are its processor's.

NumPy's OpenBLAS picks its kernels by the processor when it is loaded, or by OPENBLAS_CORETYPE. This module also runs on
Lambda.
"""

from __future__ import annotations

import ctypes
import platform
import re
from functools import cache
from pathlib import Path

import numpy as np  # noqa: F401 (it loads OpenBLAS)

#: Prefix of a graph server's totals that name a kind of processor which computed for it
#: (``run_coordinator.reports.processors``).
PROCESSOR = "processor "
UNKNOWN = "unknown"
#: The most kinds of workers' processors that one graph server names; a fleet has a few.
MOST_KINDS = 16
_KIND = re.compile(r"[\w.-]{1,24}( [\w.-]{1,24}){0,2}", re.ASCII)
_CORE_NAMES = tuple(f"{prefix}openblas_get_corename{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", ""))


#: Last word of the kind of a process without compiled kernels.
NUMPY = "numpy"


@cache
def kind(isa: str) -> str:
    """Returns the machine and the instruction set of the compiled kernels (``siafu.kernels.library.isa``), such as
    "x86_64 avx512".

    Without compiled kernels, OpenBLAS' kernels decide the bits and are named: "x86_64 SkylakeX numpy". They are left
    out if NumPy has another BLAS.
    """
    return " ".join(filter(None, (platform.machine() or UNKNOWN, _core() if isa == NUMPY else "", isa)))


def told(kind: str) -> str:
    """Returns the kind that a worker reports; UNKNOWN if it is not valid."""
    return kind if _KIND.fullmatch(kind) else UNKNOWN


def _core() -> str:
    """Returns OpenBLAS' name of the processor whose kernels it uses; "" if no loaded OpenBLAS tells."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    paths = {line.split(maxsplit=5)[-1] for line in lines if "openblas" in line}
    for path in sorted(paths, key=lambda path: ("numpy" not in path, path)):  # SciPy may have brought one of its own
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for name in _CORE_NAMES:
            if hasattr(library, name):
                function = getattr(library, name)
                function.restype = ctypes.c_char_p
                return str(function().decode())
    return ""
