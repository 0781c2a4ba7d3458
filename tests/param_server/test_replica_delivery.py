"""Whole runs in random delivery orders: what must hold for every order, assignment of intervals, and duplicate."""

import pytest

from siafu import wire
from siafu.address import COORDINATOR
from tests.param_server.delivery import MODEL, Delivery, in_order, layer_of, make_config, same_bits

SEEDS = range(8)


def run(seed, **settings):
    delivery = Delivery(make_config(**settings), seed)
    delivery.run()
    assert all(interval.epoch == delivery.config.train.epochs for interval in delivery.intervals), "the run hangs"
    return delivery


def model(replica, which):
    ((send),) = replica.handle(COORDINATOR, wire.GetModel(which))
    assert send.to == COORDINATOR
    return send.message


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("num_replicas", [1, 2, 3])
def test_weights_are_bit_equal_to_the_plain_computation(num_replicas, staleness, seed):
    delivery = run(seed, num_replicas=num_replicas, staleness=staleness, schedule="cosine")

    expected = in_order(delivery.config, delivery.version_used)
    for reply in delivery.replies:
        assert same_bits(reply.tensors, layer_of(expected[reply.version], reply.layers[0]))
    for replica in delivery.replicas:
        final, best = model(replica, "final"), model(replica, "best")
        assert (final.version, best.version) == (4, 3)
        assert same_bits(final.tensors, expected[4])
        assert same_bits(best.tensors, expected[3])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_stash_peak_is_at_most_staleness_plus_2_and_nothing_is_left(staleness, seed):
    delivery = run(seed, num_replicas=2, staleness=staleness, epochs=7)

    for replica in delivery.replicas:
        assert replica.stash_peak <= staleness + 2
        assert replica.stash_references == {}
        assert replica.versions_held == (3, 7)  # the best and the last
        assert replica.num_pending == 0


def test_stash_holds_more_than_one_version_when_intervals_drift_apart():
    assert max(run(seed, staleness=2, epochs=7).replicas[0].stash_peak for seed in SEEDS) > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_sync_weights_do_not_depend_on_order_nor_assignment_nor_number_of_replicas(seed):
    reference = run(0, num_replicas=1).replicas[0]
    for replica in run(seed, num_replicas=3).replicas:
        assert same_bits(model(replica, "final").tensors, model(reference, "final").tensors)


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_every_kind_of_duplicate_is_counted(num_replicas):
    seen = set()
    for seed in SEEDS:
        seen |= {kind for replica in run(seed, num_replicas=num_replicas).replicas for kind in replica.duplicates}

    expected = {"FetchWeights", "Gradient", "IntervalDone", "EpochDone"} | (
        {"PartialSums"} if num_replicas > 1 else set()
    )
    assert seen == expected


def test_without_duplicates_nothing_is_counted():
    delivery = Delivery(make_config(num_replicas=2), seed=1, duplicated=0)
    delivery.run()

    assert [replica.duplicates for replica in delivery.replicas] == [{}, {}]


@pytest.mark.parametrize("seed", SEEDS)
def test_pending_sums_are_bounded_by_the_epochs_in_flight(seed):
    delivery = run(seed, num_replicas=2, staleness=1, epochs=7)

    assert delivery.peak_pending <= (1 + 1) * MODEL.spec.num_layers * len(delivery.intervals)
