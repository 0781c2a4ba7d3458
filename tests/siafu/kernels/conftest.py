"""The fixture of tests that every instruction set must pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using


@pytest.fixture(params=INSTRUCTION_SETS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    with using(request.param):
        yield request.param
