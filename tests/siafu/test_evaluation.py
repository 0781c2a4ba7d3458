"""Which epochs are evaluated."""

import pytest

from siafu.config import Train
from siafu.evaluation import SMALL, EvaluatedEpochs, is_evaluated, usual_eval_every
from siafu.graph import MESSAGE, TEST_NEGATIVE, TEST_PAIR, TRAIN_NEGATIVE, TRAIN_PAIR, VAL_NEGATIVE, VAL_PAIR
from siafu.shards import Manifest, SplitSizes


@pytest.mark.parametrize(
    ("eval_every", "expected"),
    [
        (0, [6]),
        (-1, [0, 1, 2, 3, 4, 5, 6]),  # as long as no graph has told what it stands for
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


# --- where nobody says ------------------------------------------------------------------------------------------------


def shards(vertices: int, edges: int, **changes) -> Manifest:
    return Manifest(
        siafu="0",
        name="made up",
        num_vertices=vertices,
        num_edges=edges,
        num_features=1,
        num_classes=7,
        multilabel=False,
        directed=False,
        weighted=False,
        sparse_features=False,
        feature_norm="none",
        partitioner="metis",
        order="given",
        seed=0,
        num_partitions=1,
        splits=(SplitSizes(vertices, 0, 0),),
        cut_edges=0,
        partitions=(),
        **changes,
    )


@pytest.mark.parametrize(
    ("vertices", "edges", "every"),
    [
        (2_708, 10_556, 1),  # cora
        (34_493, 495_924, 1),  # coauthor physics
        (1000, SMALL - 1000, 1),
        (1000, SMALL - 999, 10),
        (23_296, 11_461_342, 10),  # synthetic:reddit-small?scale=0.1
        (1_569_960, 264_339_468, 10),  # amazon
    ],
)
def test_a_small_graph_is_evaluated_each_epoch_and_a_large_one_each_tenth(vertices, edges, every):
    assert usual_eval_every(shards(vertices, edges)) == every


def test_evaluation_is_below_a_tenth_of_the_work_where_it_looks_along_more_than_an_epoch():
    """Work as the edges that are looked along. In pairs an epoch scores each training edge and one false one."""
    inductive = usual_eval_every(shards(10**5, 10**6, edge_types="inductive", type_counts=(240_000, 760_000)))
    assert inductive == 42  # 1 / (1 + 42 x 0.24) = 9.0%
    counts = {
        MESSAGE: 1_700_000,
        TRAIN_PAIR: 1_700_000,
        TRAIN_NEGATIVE: 8 * 1_700_000,
        VAL_PAIR: 50_000,
        VAL_NEGATIVE: 5_000_000,
        TEST_PAIR: 100_000,
        TEST_NEGATIVE: 10_000_000,
    }
    links = shards(10**5, 10**7, edge_types="links", type_counts=tuple(counts.values()))
    every = usual_eval_every(links)
    assert 1 / 11 > 15_150_000 / (15_150_000 + every * 3_400_000) > 0.09


def test_an_inductive_graph_without_training_edges_is_evaluated_now_and_then():
    assert usual_eval_every(shards(10**5, 10**6, edge_types="inductive", type_counts=(0, 10**6))) == 10**7
