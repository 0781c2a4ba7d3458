"""Every way in which this machine can compute a kernel: its instruction sets, and numpy as if nothing were compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from siafu.kernels.library import ISAS, LIBRARY


def _present() -> list[str]:
    if LIBRARY is None:
        return ["numpy"]
    best = LIBRARY.siafu_isa()
    found = [name for number, name in enumerate(ISAS) if LIBRARY.siafu_use_isa(number) == number]
    LIBRARY.siafu_use_isa(best)
    return ["numpy", *found]


INSTRUCTION_SETS = _present()


@contextmanager
def using(name: str) -> Iterator[None]:
    """What is called inside computes with this instruction set, or without the compiled library."""
    if name == "numpy":
        with pytest.MonkeyPatch.context() as patch:
            for module in list(sys.modules.values()):
                if module.__name__.startswith("siafu.kernels.") and hasattr(module, "LIBRARY"):
                    patch.setattr(module, "LIBRARY", None)
            yield
        return
    assert LIBRARY is not None
    best = LIBRARY.siafu_isa()
    LIBRARY.siafu_use_isa(ISAS.index(name))
    try:
        yield
    finally:
        LIBRARY.siafu_use_isa(best)
