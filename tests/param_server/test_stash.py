"""Rules S1-S5 of param_server.stash."""

import numpy as np
import pytest

from param_server.stash import Stash
from siafu.errors import StaleWeights


def weights(version):
    return {"0.weight": np.full(1, version)}


def published(upto):
    stash = Stash(0, weights(0))
    for version in range(1, upto + 1):
        stash.publish(version, weights(version))
    return stash


def test_s1_first_request_fixes_the_version_for_all_later_ones():
    stash = published(0)
    assert stash.acquire((0, 7)) == 0
    stash.publish(1, weights(1))
    assert stash.acquire((0, 7)) == 0
    assert stash.acquire((1, 7)) == 1
    assert stash.weights(0)["0.weight"] == 0


def test_s2_version_is_held_once_however_many_refer_to_it():
    stash = published(0)
    for interval in range(100):
        stash.acquire((0, interval))
    assert stash.versions == (0,)
    assert stash.references == {0: 100}


def test_s2_version_is_dropped_with_its_last_reference():
    stash = published(0)
    stash.acquire((0, 1))
    stash.acquire((0, 2))
    stash.publish(1, weights(1))
    stash.release((0, 1))
    assert stash.versions == (0, 1)
    stash.release((0, 2))
    assert stash.versions == (1,)
    assert stash.references == {}


def test_s2_previous_version_goes_at_publish_when_nobody_needs_it():
    assert published(5).versions == (5,)


def test_s2_pinned_version_stays_until_unpinned():
    stash = published(2)
    stash.pin(2)
    stash.publish(3, weights(3))
    assert (stash.versions, stash.pinned) == ((2, 3), (2,))
    stash.unpin(2)
    assert (stash.versions, stash.pinned) == ((3,), ())


def test_s2_unpinned_version_stays_while_it_is_stashed_or_latest():
    stash = published(0)
    stash.pin(0)
    stash.acquire((0, 0))
    stash.unpin(0)
    stash.publish(1, weights(1))
    assert stash.versions == (0, 1)


def test_s2_best_version_is_replaced_by_a_better_one():
    stash = published(1)
    stash.keep_best(1)
    stash.publish(2, weights(2))
    stash.publish(3, weights(3))
    assert (stash.versions, stash.best) == ((1, 3), 1)
    stash.keep_best(3)
    assert (stash.versions, stash.best) == ((3,), 3)


def test_s2_version_that_is_gone_raises_stale_weights():
    stash = published(2)
    for ask in (stash.weights, stash.pin, stash.keep_best):
        with pytest.raises(StaleWeights, match="version 1: not held, there are 2"):
            ask(1)
    assert (stash.pinned, stash.best) == ((), None)


def test_s3_release_of_a_key_without_stash_changes_nothing():
    stash = published(1)
    stash.acquire((1, 0))
    stash.release((0, 0))
    stash.release((1, 0))
    stash.release((1, 0))
    assert (stash.versions, stash.references) == ((1,), {})


def test_s4_versions_are_published_in_order():
    with pytest.raises(AssertionError, match="version 3 after 1"):
        published(1).publish(3, weights(3))


def test_s5_peak_counts_latest_and_stashed_versions_only():
    stash = published(0)
    stash.pin(0)
    for version in range(1, 5):
        stash.publish(version, weights(version))
    assert (stash.peak, len(stash.versions)) == (1, 2)
    stash.acquire((4, 0))  # versions 4, then 4 and 5, then 4 and 6
    stash.publish(5, weights(5))
    stash.publish(6, weights(6))
    stash.release((4, 0))
    assert stash.peak == 2
