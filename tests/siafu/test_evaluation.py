"""Which epochs are evaluated."""

import pytest

from siafu.config import Train
from siafu.evaluation import EvaluatedEpochs, is_evaluated


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
    train = Train(epochs=7, eval_every=eval_every)
    assert [epoch for epoch in range(7) if is_evaluated(epoch, train)] == expected
    epochs = EvaluatedEpochs(train)
    assert list(epochs) == expected
    assert epochs[-1:] == expected[-1:]
    assert [epochs.after(epoch) for epoch in range(-1, 8)] == [
        next((later for later in expected if later > epoch), None) for epoch in range(-1, 8)
    ]


def test_any_number_of_epochs_is_no_list():
    epochs = EvaluatedEpochs(Train(epochs=10**15, eval_every=10))
    assert (len(epochs), epochs[-1], epochs.after(10**14)) == (10**14, 10**15 - 1, 10**14 + 9)


def test_without_training_the_first_weights_are_evaluated():
    epochs = EvaluatedEpochs(Train(epochs=0))
    assert list(epochs) == [0]
    assert (epochs.after(-1), epochs.after(0)) == (0, None)
