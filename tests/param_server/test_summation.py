"""Rules U1-U5 of param_server.summation."""

import random

import numpy as np
import pytest

from param_server.summation import OrderedSum
from siafu.errors import RemoteProtocolError
from tests.param_server.delivery import same_bits, tree_sum

SIZES = [1, 2, 3, 5, 7, 8, 13, 16]


def values(num_leaves):
    """Float32 of many magnitudes: their sum depends on the order of additions."""
    rng = np.random.default_rng(num_leaves)
    return [
        {"0.weight": (rng.normal(size=(3, 2)) * 10.0 ** rng.integers(-4, 4, (3, 2))).astype(np.float32)}
        for _ in range(num_leaves)
    ]


def filled(leaves, num_leaves):
    total = OrderedSum(num_leaves)
    for leaf in leaves:
        assert total.add(leaf, values(num_leaves)[leaf])
    return total


def test_test_data_would_show_another_order_of_additions():
    forward, backward = values(13), values(13)[::-1]
    assert not same_bits(tree_sum(forward), tree_sum(backward))


@pytest.mark.parametrize("num_leaves", SIZES)
def test_u1_total_is_the_level_by_level_sum_in_any_order_of_arrival(num_leaves):
    expected = tree_sum(values(num_leaves))
    for seed in range(10):
        leaves = random.Random(seed).sample(range(num_leaves), num_leaves)
        assert same_bits(filled(leaves, num_leaves).total(), expected)


def test_u1_missing_right_child_is_the_left_one_alone():
    # level 0   0 1 2 3 4        level 2   (0 1 2 3)  4
    # level 1   01  23  4        level 3   all
    assert set(filled([4], 5).nodes()) == {(2, 1)}
    assert set(filled([4, 2, 3], 5).nodes()) == {(2, 1), (1, 1)}
    assert set(filled(range(5), 5).nodes()) == {(3, 0)}


def test_u2_ordered_arrival_holds_a_logarithm_of_values():
    total = OrderedSum(1000)
    most = 0
    for leaf in range(1000):
        total.add(leaf, {"b": np.ones(1)})
        most = max(most, len(total.nodes()))
    assert most <= 10
    assert total.total()["b"] == 1000


def test_u3_second_value_of_a_leaf_changes_nothing():
    total = filled(range(4), 5)
    assert not total.add(2, {"0.weight": np.full((3, 2), np.float32(1e9))})
    assert total.num_added == 4
    assert not total.complete
    total.add(4, values(5)[4])
    assert same_bits(total.total(), tree_sum(values(5)))


def test_u4_later_writes_to_the_callers_arrays_change_nothing():
    total = OrderedSum(3)
    for leaf, value in enumerate(values(3)):
        total.add(leaf, value)
        value["0.weight"][:] = np.nan
    assert same_bits(total.total(), tree_sum(values(3)))


def test_u4_read_only_arrays_are_taken():
    total = OrderedSum(3)
    for leaf, value in enumerate(values(3)):
        frame = value["0.weight"].tobytes()
        total.add(leaf, {"0.weight": np.frombuffer(frame, np.float32).reshape(3, 2)})
    assert same_bits(total.total(), tree_sum(values(3)))


def test_u4_nodes_handed_out_are_not_written_to_by_later_merges():
    left, right = filled([0, 1], 4), filled([2, 3], 4)
    nodes = left.nodes()
    before = {node: value["0.weight"].copy() for node, value in nodes.items()}
    left.merge(right.nodes())
    assert left.complete
    assert all(np.array_equal(nodes[node]["0.weight"], array) for node, array in before.items())


@pytest.mark.parametrize("num_leaves", SIZES)
@pytest.mark.parametrize("num_servers", [2, 3])
def test_u5_total_does_not_depend_on_which_server_got_which_leaf(num_servers, num_leaves):
    expected = tree_sum(values(num_leaves))
    for seed in range(10):
        rng = random.Random(seed)
        owner = [rng.randrange(num_servers) for _ in range(num_leaves)]
        sums = [filled([i for i in range(num_leaves) if owner[i] == q], num_leaves) for q in range(num_servers)]
        shares = [total.nodes() for total in sums]
        for q in rng.sample(range(num_servers), num_servers):
            for peer in rng.sample(range(num_servers), num_servers):
                if peer != q:
                    sums[q].merge(shares[peer])
            assert same_bits(sums[q].total(), expected)


def test_u5_subtrees_of_contiguous_leaves_are_few():
    assert len(filled(range(13), 32).nodes()) == 3  # 8 + 4 + 1


@pytest.mark.parametrize("node", [(0, 1), (1, 0), (3, 0)])
def test_u5_overlap_is_refused(node):
    with pytest.raises(RemoteProtocolError, match="already summed by another server"):
        filled([0, 1], 5).merge({node: values(5)[0]})


@pytest.mark.parametrize("node", [(0, 5), (1, 3), (4, 0), (-1, 0), (0, -1)])
def test_u5_node_outside_of_the_tree_is_refused(node):
    with pytest.raises(RemoteProtocolError, match="not in a tree over 5 leaves"):
        OrderedSum(5).merge({node: values(5)[0]})
