from dataclasses import replace

import numpy as np
import pytest

from graph_data.link_split import Shares, counts_line, hold_out, messages
from siafu.errors import ConfigError, DatasetError
from siafu.graph import (
    MESSAGE,
    TEST_NEGATIVE,
    TEST_PAIR,
    TRAIN_NEGATIVE,
    TRAIN_PAIR,
    VAL_NEGATIVE,
    VAL_PAIR,
    tidy,
)
from tests.graph_data.graphs import edge_dict, random_graph, typed_edge_dict

SHARES = Shares(val=0.1, test=0.2, negatives=3, eval_negatives=7)
SEEDS = range(3)


def split(seed=0, shares=SHARES, **shape):
    """The tidy graph, and {type: [(src, dst)]} of what became of it."""
    graph = tidy(random_graph(seed, **{"n": 60, "edges": 300, **shape}))
    found = {kind: [] for kind in range(7)}
    for u, v, kind in typed_edge_dict(hold_out(graph, shares, seed)):
        found[kind].append((u, v))
    return graph, found


def units(edges):
    """Undirected: each pair once."""
    return {(min(u, v), max(u, v)) for u, v in edges}


def both_ways(edges):
    return sorted([*edges, *((v, u) for u, v in edges)])


# --- rules 1 and 2: what is held out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_every_edge_has_one_role(seed):
    graph, found = split(seed)
    roles = [units(found[kind]) for kind in (TRAIN_PAIR, VAL_PAIR, TEST_PAIR)]
    assert set.union(*roles) == units(edge_dict(graph))
    assert sum(map(len, roles)) == graph.num_edges // 2


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_are_exact_to_an_edge(seed):
    graph, found = split(seed)
    count = graph.num_edges // 2
    assert (len(found[VAL_PAIR]), len(found[TEST_PAIR])) == (round(0.1 * count), round(0.2 * count))


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_are_the_training_edges_in_both_directions(seed):
    _, found = split(seed)
    assert found[MESSAGE] == found[TRAIN_PAIR]
    assert sorted(found[MESSAGE]) == both_ways(units(found[TRAIN_PAIR]))


def test_a_partitioner_sees_the_messages_alone():
    graph = tidy(random_graph(n=60, edges=300, weighted=True))
    seen = messages(hold_out(graph, SHARES, seed=0))
    assert edge_dict(seen).items() <= edge_dict(graph).items()
    assert sorted(edge_dict(seen)) == both_ways(units(edge_dict(seen)))
    assert (seen.edge_type, seen.num_edge_types, seen.directed) == (None, 1, False)


def test_messages_keep_their_weights_and_pairs_weigh_one():
    graph = tidy(random_graph(n=60, edges=300, weighted=True))
    whole = edge_dict(graph)
    for (u, v, kind), weight in typed_edge_dict(hold_out(graph, SHARES, seed=1)).items():
        assert weight == (whole[u, v] if kind == MESSAGE else 1.0)


# --- rules 3 to 5: false edges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_no_false_edge_is_an_edge_a_loop_or_there_twice(seed):
    graph, found = split(seed)
    for kind in (TRAIN_NEGATIVE, VAL_NEGATIVE, TEST_NEGATIVE):
        assert not units(found[kind]) & units(edge_dict(graph))
        assert all(u != v for u, v in found[kind])
        assert len(set(found[kind])) == len(found[kind])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pool_is_so_many_pairs_per_training_edge_in_both_directions(seed):
    _, found = split(seed)
    assert len(found[TRAIN_NEGATIVE]) == 3 * len(found[TRAIN_PAIR])
    assert sorted(found[TRAIN_NEGATIVE]) == both_ways(units(found[TRAIN_NEGATIVE]))


@pytest.mark.parametrize("seed", SEEDS)
def test_who_ranks_held_out_edges_has_false_ones_to_rank_them_among(seed):
    _, found = split(seed)
    for pair, negative in ((VAL_PAIR, VAL_NEGATIVE), (TEST_PAIR, TEST_NEGATIVE)):
        ranking = {v for _, v in found[pair]}
        assert sorted(v for _, v in found[negative]) == sorted([*ranking] * 7)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_false_edge_for_evaluation_was_trained_on(seed):
    _, found = split(seed)
    assert not units(found[TRAIN_NEGATIVE]) & units(found[VAL_NEGATIVE] + found[TEST_NEGATIVE])


def test_either_end_of_a_held_out_edge_may_rank_it():
    _, found = split(n=200, edges=2000)
    assert 0.4 < np.mean([u < v for u, v in found[TEST_PAIR]]) < 0.6


def test_false_edges_are_spread_evenly():
    """Over the 40 vertices of a ring, each of which is an end of 1200 on average: one deviation is 33."""
    ring, found = np.arange(40), np.zeros(40, int)
    graph = tidy(replace(random_graph(n=40, edges=40), src=ring, dst=(ring + 1) % 40))
    for seed in range(100):
        kept = hold_out(graph, Shares(0, 0, 6, 1), seed)
        found += np.bincount(kept.dst[kept.edge_type == TRAIN_NEGATIVE], minlength=40)
    assert found.sum() == 100 * 2 * 6 * 40
    assert np.abs(found - 1200).max() < 150


def test_all_pairs_that_are_no_edge_can_be_asked_for():
    graph = tidy(random_graph(n=16, edges=30))
    edges = graph.num_edges // 2
    most = (16 * 15 // 2 - edges) // edges
    kept = hold_out(graph, Shares(0, 0, most, 1), seed=0)
    assert (kept.edge_type == TRAIN_NEGATIVE).sum() == 2 * edges * most


def test_all_that_a_vertex_can_rank_can_be_asked_for():
    cycle = np.arange(30)
    graph = tidy(replace(random_graph(n=30, edges=30), src=cycle, dst=(cycle + 1) % 30))
    kept = hold_out(graph, Shares(0.5, 0, 1, 30 - 1 - 2 - 4), seed=0)
    ranked = np.bincount(kept.dst[kept.edge_type == VAL_NEGATIVE], minlength=30)
    assert set(ranked.tolist()) == {0, 23}


# --- seeds, edge cases and refusals -----------------------------------------------------------------------------------


def test_a_seed_gives_one_split_and_another_seed_another():
    graph = tidy(random_graph(n=60, edges=300))
    one, same, other = (typed_edge_dict(hold_out(graph, SHARES, seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_edges_are_sorted_by_target_source_and_type():
    kept = hold_out(tidy(random_graph(n=60, edges=300)), SHARES, seed=0)
    assert np.array_equal(np.lexsort((kept.edge_type, kept.src, kept.dst)), np.arange(kept.num_edges))
    assert (kept.src.dtype, kept.edge_type.dtype, kept.directed) == (np.int32, np.uint16, True)


def test_nothing_need_be_held_out():
    graph, found = split(shares=Shares(0, 0, 1, 1))
    assert len(found[TRAIN_PAIR]) == graph.num_edges
    assert not any(found[kind] for kind in (VAL_PAIR, VAL_NEGATIVE, TEST_PAIR, TEST_NEGATIVE))


def test_what_was_made_is_said():
    graph = tidy(random_graph(n=60, edges=300))
    edges = graph.num_edges // 2
    val, test = round(0.1 * edges), round(0.2 * edges)
    line = counts_line(hold_out(graph, SHARES, seed=0))
    assert line.startswith(
        f"links: {edges - val - test} training edges and {3 * (edges - val - test)} false ones; "
        f"{val} validation edges and "
    )


REFUSED = {
    "too few for test": (
        {"edges": 3, "n": 20},
        Shares(0, 0.01, 1, 1),
        DatasetError,
        r"undirected edges, too few to hold out 0\.01 of them for test$",
    ),
    "none left": (
        {"edges": 1, "n": 20},
        Shares(0.9, 0, 1, 1),
        DatasetError,
        "random: 1 undirected edges, of which none is left for training$",
    ),
    "types": ({"types": 2}, SHARES, DatasetError, "random: its edges have 2 types, task link predicts one$"),
    "pool": (
        {"n": 10, "edges": 60},
        Shares(0.1, 0.1, 8, 1),
        ConfigError,
        (
            r"random: \d+ false training edges are asked for \(negatives per training edge\), but "
            r"only \d+ pairs of vertices"
        ),
    ),
    "ranked": (
        {},
        Shares(0.1, 0.1, 1, 40),
        ConfigError,
        r"random: eval_negatives = 40, but vertex \d+ has only \d+ other vertices that it has neither an edge nor",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_graph_has_no_room_for_is_refused(case):
    shape, shares, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        hold_out(tidy(random_graph(**shape)), shares, seed=0)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        (Shares(-0.1, 0.1, 1, 1), "val_edges -0.1 and test_edges 0.1: must be >= 0, and together < 1"),
        (Shares(0.5, 0.5, 1, 1), "val_edges 0.5 and test_edges 0.5: must be >= 0, and together < 1"),
        (Shares(0.1, 0.1, 0, 1), "negatives 0 and eval_negatives 1: must be >= 1"),
    ],
    ids=str,
)
def test_shares_that_no_graph_allows_are_refused(shares, message):
    with pytest.raises(ConfigError) as caught:
        shares.check()
    assert str(caught.value) == message
