"""What a gather is compared with: rates of this machine's memory, with and without the compiled library."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.measure import limits
from benchmarks.measure.limits import read_rows, triad
from siafu.kernels import Table


@pytest.mark.parametrize("compiled", [True, False])
def test_limits_are_measured(compiled: bool, monkeypatch: pytest.MonkeyPatch):
    if not compiled:
        monkeypatch.setattr(limits, "LIBRARY", None)
    assert triad(1 << 20, 2) > 0
    indices = np.arange(1000, dtype=np.int32) % 50
    for dtype, width in (("float32", 20), ("bfloat16", 300)):
        table = Table(50, width, dtype)
        table.write(slice(None), np.ones((50, width), np.float32))
        for base in (table, np.ones((50, width), np.float32)):
            assert read_rows(indices, base, 2) > 0
            assert read_rows(indices, base, 1, prefetch=0) > 0
