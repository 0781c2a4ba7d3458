"""The known answer is every instruction set's; without compiled kernels it is another, which
is why doctor does not ask then."""

from __future__ import annotations

import pytest

from run_coordinator import known_answer
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_every_instruction_set_gives_the_known_answer(isa: str):
    with using(isa):
        assert (known_answer.digest() == known_answer.KNOWN) == (isa != "numpy")
