"""Which epochs are evaluated."""

import pytest

from siafu.config import Train
from siafu.evaluation import is_evaluated


@pytest.mark.parametrize(
    ("eval_every", "expected"),
    [
        (0, [6]),
        (1, [0, 1, 2, 3, 4, 5, 6]),
        (3, [2, 5, 6]),
        (7, [6]),
        (9, [6]),
    ],
)
def test_evaluated_epochs_of_a_run_of_7(eval_every, expected):
    assert [epoch for epoch in range(7) if is_evaluated(epoch, Train(epochs=7, eval_every=eval_every))] == expected
