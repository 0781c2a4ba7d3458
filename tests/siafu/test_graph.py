from dataclasses import replace

import numpy as np
import pytest

from siafu import features as features_module
from siafu.errors import ConfigError, DatasetError
from siafu.graph import NONE, TRAIN, Graph, tidy
from siafu.sparse import SparseRows
from tests.graph_data.graphs import edge_dict, random_graph, sparse_rows, typed_edge_dict


def of_edges(n, edges, weight=None, **fields):
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    plain = Graph(
        name="g",
        num_vertices=n,
        src=src,
        dst=dst,
        weight=None if weight is None else np.array(weight, np.float32),
        features=np.zeros((n, 2), np.float32),
        labels=np.zeros(n, np.int64),
        num_classes=2,
        split=np.zeros((n, 1), np.uint8),
        directed=True,
    )
    return replace(plain, **fields)


def merged_by_hand(graph, directed):
    """The definition, edge by edge."""
    total = {}
    weight = np.ones(graph.num_edges) if graph.weight is None else graph.weight
    for u, v, w in zip(graph.src.tolist(), graph.dst.tolist(), weight.tolist(), strict=True):
        if u != v:
            total[u, v] = 1.0 if graph.weight is None else total.get((u, v), 0.0) + w
    if directed:
        return total
    return {pair: max(total.get(pair, 0), total.get(pair[::-1], 0)) for u, v in total for pair in [(u, v), (v, u)]}


# --- edges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_edges_are_merged_as_defined(seed, weighted, directed):
    graph = random_graph(seed, weighted=weighted)
    tidied = tidy(graph, directed)
    expected = merged_by_hand(graph, directed)
    found = edge_dict(tidied)
    assert found.keys() == expected.keys()
    assert tidied.num_edges == len(expected)
    assert all(found[pair] == pytest.approx(expected[pair], rel=1e-6) for pair in expected)
    assert tidied.directed == directed


def test_edges_are_sorted_by_target_then_source():
    tidied = tidy(random_graph(3), directed=True)
    assert np.array_equal(np.lexsort((tidied.src, tidied.dst)), np.arange(tidied.num_edges))


def test_ids_are_int32():
    assert tidy(random_graph()).src.dtype == np.int32


@pytest.mark.parametrize("directed", [False, True])
def test_parallel_edges_that_add_up_to_infinity_are_refused(directed):
    """They trained with a weight of inf, and the advice was a smaller learning rate."""
    graph = of_edges(2, [(0, 1), (0, 1)], [3e38, 3e38])
    with pytest.raises(
        DatasetError, match=r"parallel edges . -> . weigh 6e\+38 together, must be at most 3.4e\+38: divide"
    ):
        tidy(graph, directed)


def test_parallel_edges_of_a_weighted_graph_add_up():
    tidied = tidy(of_edges(2, [(0, 1), (0, 1)], [1.5, 2.0]), directed=True)
    assert edge_dict(tidied) == {(0, 1): 3.5}


def test_an_edge_listed_in_both_directions_keeps_its_weight():
    tidied = tidy(of_edges(2, [(0, 1), (1, 0)], [1.5, 1.5]))
    assert edge_dict(tidied) == {(0, 1): 1.5, (1, 0): 1.5}


def test_directions_that_disagree_both_get_the_larger_weight():
    tidied = tidy(of_edges(2, [(0, 1), (1, 0)], [1.0, 4.0]))
    assert edge_dict(tidied) == {(0, 1): 4.0, (1, 0): 4.0}


@pytest.mark.parametrize("weight", [None, []])
def test_a_graph_without_edges_stays_one(weight):
    assert tidy(of_edges(3, [], weight)).num_edges == 0


def test_the_source_graph_is_not_changed():
    graph = random_graph(1, weighted=True)
    src, weight, features = graph.src.copy(), graph.weight.copy(), graph.features.copy()
    tidy(graph, feature_norm="row")
    assert np.array_equal(graph.src, src)
    assert np.array_equal(graph.weight, weight)
    assert np.array_equal(graph.features, features)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_edges_of_each_type_are_merged_as_a_graph_of_their_own(seed, weighted, directed):
    graph = random_graph(seed, n=12, weighted=weighted, types=3)
    found = typed_edge_dict(tidy(graph, directed))
    assert {kind for _, _, kind in found} == {0, 1, 2}
    for kind in range(3):
        of_type = graph.edge_type == kind
        weight = graph.weight[of_type] if weighted else None
        alone = replace(
            graph, src=graph.src[of_type], dst=graph.dst[of_type], weight=weight, edge_type=None, num_edge_types=1
        )
        assert {(u, v): w for (u, v, r), w in found.items() if r == kind} == edge_dict(tidy(alone, directed))


def test_edges_with_types_are_sorted_by_target_source_and_type():
    tidied = tidy(random_graph(3, n=6, types=3))
    assert np.array_equal(np.lexsort((tidied.edge_type, tidied.src, tidied.dst)), np.arange(tidied.num_edges))
    assert (tidied.edge_type.dtype, tidied.src.dtype) == (np.uint16, np.int32)


def test_one_type_is_no_types():
    graph = random_graph()
    tidied = tidy(replace(graph, edge_type=np.zeros(graph.num_edges, int)))
    assert tidied.edge_type is None
    assert edge_dict(tidied) == edge_dict(tidy(graph))


# --- what is refused --------------------------------------------------------------------------------------------------

nan_at_1_1 = np.array([[0, 0], [0, np.nan], [0, 0]], np.float32)

REFUSED = {
    "no vertex": ({"num_vertices": 0}, "g: 0 vertices, must be >= 1"),
    "target too large": ({"dst": np.array([1, 3])}, "g: edge 1 has target vertex 3, must be in 0..2"),
    "source negative": ({"src": np.array([-1, 0])}, "g: edge 0 has source vertex -1, must be in 0..2"),
    "uneven ends": ({"dst": np.array([1])}, "g: 1 edge targets, must be 2"),
    "ends are floats": ({"src": np.array([0.0, 1.0])}, "g: edge sources are float64 [2], must be integers [E]"),
    "too few weights": ({"weight": np.ones(1, np.float32)}, "g: 1 edge weights, must be 2"),
    "weight NaN": ({"weight": np.array([1, np.nan])}, "g: edge 1 has weight nan, must be finite and > 0"),
    "weight zero": ({"weight": np.array([0.0, 1.0])}, "g: edge 0 has weight 0.0, must be finite and > 0"),
    "weight below float32": ({"weight": np.array([1, 1e-50])}, "g: edge 1 has weight 1e-50, must be finite and > 0"),
    "weight dtype": ({"weight": np.array(["a", "b"])}, "g: edge weights are <U1, must be real numbers"),
    "feature NaN": ({"features": nan_at_1_1}, "g: feature 1 of vertex 1 is nan, must be finite"),
    "feature beyond float32": (
        {"features": np.full((3, 2), 1e300)},
        "g: feature 0 of vertex 0 is inf, must be finite",
    ),
    "feature rows": ({"features": np.zeros((2, 2))}, "g: 2 feature rows, must be 3"),
    "features of one axis": ({"features": np.zeros(3)}, "g: features have 1 axes, must be 2, [N, F]"),
    "features are text": ({"features": np.array([["a"]] * 3)}, "g: features are <U1, must be real numbers"),
    "label too large": ({"labels": np.array([0, 2, 0])}, "g: vertex 1 has label 2, must be in -1..1"),
    "label below -1": ({"labels": np.array([0, 0, -2])}, "g: vertex 2 has label -2, must be in -1..1"),
    "label count": ({"labels": np.array([0])}, "g: 1 labels, must be 3"),
    "label dtype": (
        {"labels": np.array(["a", "b", "c"])},
        "g: labels are <U1 [3], must be integers or numbers, [N] or [N, C]",
    ),
    "classes as numbers": (
        {"labels": np.zeros(3)},
        (
            "g: labels are float64 [3], 1 number(s) per vertex, but there are 2 classes: make both the "
            "same, or classes integers"
        ),
    ),
    "number infinite": (
        {"labels": np.array([[0, 1], [2, np.nan], [np.inf, 1]]), "num_classes": 2},
        "g: vertex 2 has label inf, must be a finite float32, or NaN where it is unknown",
    ),
    "number beyond float32": (
        {"labels": np.array([0, -1e300, 1]), "num_classes": 1},
        "g: vertex 1 has label -1e+300, must be a finite float32, or NaN where it is unknown",
    ),
    "type too large": (
        {"edge_type": np.array([0, 2]), "num_edge_types": 2},
        "g: edge 1 has type 2, must be in 0..1",
    ),
    "type negative": ({"edge_type": np.array([-1, 0])}, "g: edge 0 has type -1, must be in 0..0"),
    "types of another count": ({"edge_type": np.zeros(1, int)}, "g: 1 edge types, must be 2"),
    "type dtype": ({"edge_type": np.zeros(2)}, "g: edge types are float64 [2], must be integers [E]"),
    "types missing": ({"num_edge_types": 3}, "g: 3 edge types, but no edge has a type"),
    "types too many": ({"num_edge_types": 65537}, "g: 65537 edge types, must be in 1..65536"),
    "keys too large": (
        {"num_vertices": 1 << 25, "edge_type": np.zeros(2, int), "num_edge_types": 1 << 13},
        "g: 33554432 vertices and 8192 edge types: N * N * types must be < 2^63",
    ),
    "label columns": (
        {"labels": np.zeros((3, 3), np.uint8)},
        "g: 3 label columns, must be 2, the number of classes",
    ),
    "label not a bit": (
        {"labels": np.array([[0, 1], [1, 0], [0, 7]])},
        "g: vertex 2 has 7 in label column 1, must be 0 or 1, -1 = unknown",
    ),
    "classes": ({"num_classes": 0}, "g: 0 classes, must be >= 1"),
    "split shape": ({"split": np.zeros(3, np.uint8)}, "g: split is uint8 [3], must be uint8 [N, S]"),
    "split rows": ({"split": np.zeros((2, 1), np.uint8)}, "g: 2 split rows, must be 3"),
    "split role": ({"split": np.full((3, 1), 4, np.uint8)}, "g: vertex 0 has role 4 in split 0, must be in 0..3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_malformed_graph_is_refused_with_its_reason(case):
    fields, message = REFUSED[case]
    graph = replace(of_edges(3, [(0, 1), (1, 2)]), **fields)
    with pytest.raises(DatasetError) as caught:
        tidy(graph)
    assert str(caught.value) == message


SPARSE_REFUSED = {
    "column too large": ([0, 1, 1, 2], [0, 2], [1, 1], "g: vertex 2 has feature column 2, must be in 0..1"),
    "columns unsorted": (
        [0, 0, 2, 2],
        [1, 0],
        [1, 1],
        "g: feature columns of vertex 1 are not sorted, or one is there twice",
    ),
    "column twice": (
        [0, 2, 2, 2],
        [1, 1],
        [1, 1],
        "g: feature columns of vertex 0 are not sorted, or one is there twice",
    ),
    "rows do not add up": (
        [0, 1, 1, 1],
        [0, 1],
        [1, 1],
        "g: sparse feature rows do not add up to their 2 column indices",
    ),
    "value NaN": ([0, 0, 0, 1], [1], [np.nan], "g: feature 1 of vertex 2 is nan, must be finite"),
}


@pytest.mark.parametrize("case", SPARSE_REFUSED)
def test_malformed_sparse_features_are_refused_with_their_reason(case):
    indptr, indices, data, message = SPARSE_REFUSED[case]
    rows = SparseRows(np.array(indptr), np.array(indices, np.int32), np.array(data, np.float32), 2)
    with pytest.raises(DatasetError) as caught:
        tidy(of_edges(3, [], features=rows))
    assert str(caught.value) == message


def test_sparse_columns_may_fall_from_one_row_to_the_next_across_empty_rows():
    matrix = np.array([[0, 0], [0, 1], [0, 0], [1, 0]], np.float32)
    assert np.array_equal(tidy(of_edges(4, [], features=sparse_rows(matrix))).features.dense(), matrix)


# --- features and splits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [("u1", "u1"), ("f2", "f2"), ("f4", "f4"), ("f8", "f4"), ("i8", "f4"), ("?", "u1")],
)
def test_narrow_feature_dtypes_are_kept(given, kept):
    assert tidy(of_edges(3, [], features=np.ones((3, 2), given))).features.dtype == np.dtype(kept)


@pytest.mark.parametrize("sparse", [False, True])
def test_row_norm_makes_l1_norms_one_and_leaves_zero_rows(sparse):
    graph = random_graph(sparse=sparse)
    before = graph.features.dense() if sparse else graph.features
    after = tidy(graph, feature_norm="row").features
    assert isinstance(after, SparseRows) == sparse
    after = after.dense() if sparse else after
    total = before.sum(axis=1, keepdims=True)
    assert after.dtype == np.float32
    assert np.allclose(after * total, before)
    assert np.allclose(after.sum(axis=1), (total > 0).ravel())


def test_row_norm_is_of_absolute_values():
    features = np.array([[-1.0, 1.0], [3.0, 1.0]], np.float32)
    assert np.array_equal(
        tidy(of_edges(2, [], features=features), feature_norm="row").features, [[-0.5, 0.5], [0.75, 0.25]]
    )


@pytest.mark.parametrize("block", [1, 7, 1 << 24])
@pytest.mark.parametrize("sparse", [False, True])
def test_standard_norm_is_the_z_score_over_all_vertices(sparse, block, monkeypatch):
    monkeypatch.setattr(features_module, "BLOCK_VALUES", block)
    graph = random_graph(sparse=sparse)
    before = (graph.features.dense() if sparse else graph.features).astype(np.float64)
    after = tidy(graph, feature_norm="standard").features
    assert np.allclose(after, (before - before.mean(axis=0)) / before.std(axis=0), atol=1e-6)


def test_standard_norm_makes_constant_columns_zero():
    features = np.full((3, 2), 0.1, np.float32)
    assert not tidy(of_edges(3, [], features=features), feature_norm="standard").features.any()


def test_standard_norm_of_sparse_features_has_a_memory_limit(monkeypatch):
    monkeypatch.setattr(features_module, "DENSE_LIMIT_BYTES", 799)
    with pytest.raises(
        DatasetError, match="random: standardised features are dense and take 800 bytes, the limit is 799"
    ):
        tidy(random_graph(sparse=True), feature_norm="standard")


def test_unknown_feature_norm_is_a_config_error():
    with pytest.raises(ConfigError, match="feature norm 'l2' is not one of none, row, standard"):
        tidy(random_graph(), feature_norm="l2")


@pytest.mark.parametrize(
    ("labels", "classes", "target", "dtype"),
    [
        (np.array([0, 1, -1], np.int32), 2, "classes", np.int64),
        (np.eye(3, dtype=bool), 3, "labels", np.uint8),
        (np.array([0.5, np.nan, 2]), 1, "numbers", np.float32),
        (np.full((3, 2), 2.0), 2, "numbers", np.float32),
    ],
    ids=["classes", "labels", "number", "numbers"],
)
def test_what_labels_are_follows_from_their_dtype(labels, classes, target, dtype):
    tidied = tidy(of_edges(3, [], labels=labels, num_classes=classes))
    assert (tidied.target, tidied.labels.dtype, tidied.multilabel) == (target, dtype, target == "labels")


def test_vertices_without_all_their_numbers_leave_every_split():
    labels, split = np.array([[0, 1], [2, np.nan], [3, 4]]), np.full((3, 1), TRAIN, np.uint8)
    tidied = tidy(of_edges(3, [], labels=labels, num_classes=2, split=split))
    assert tidied.split.ravel().tolist() == [TRAIN, NONE, TRAIN]


@pytest.mark.parametrize("weight", [None, [1, 1, 1, 2, 1]])
def test_types_that_are_made_to_run_backwards_are_warned_of(weight, caplog):
    edges = [(0, 1), (1, 0), (1, 2), (1, 2), (2, 2)]  # the first two are each other's inverse only if of one type
    for kinds, more in (([0, 0, 1, 1, 1], 1), ([0, 1, 1, 1, 1], 3)):
        graph = of_edges(3, edges, weight, edge_type=np.array(kinds), num_edge_types=2)
        tidy(graph)
        assert caplog.messages[0].startswith(
            f"g: {more} edges of 2 types are listed one way alone, and will run backwards"
        )
        caplog.clear()
        tidy(graph, directed=True)
        tidy(replace(graph, edge_type=None, num_edge_types=1))
        tidy(tidy(graph))
        assert len(caplog.messages) == 1  # of the inner call
        caplog.clear()


def test_vertices_without_a_label_leave_every_split_and_are_counted(caplog):
    labels, split = np.array([0, -1, 1]), np.full((3, 2), TRAIN, np.uint8)
    tidied = tidy(of_edges(3, [], labels=labels, split=split))
    assert tidied.split.tolist() == [[TRAIN, TRAIN], [NONE, NONE], [TRAIN, TRAIN]]
    assert caplog.messages == ["g: 1 vertices without a label were in a split and are left out of it"]


def test_a_graph_is_shown_by_what_it_holds() -> None:
    graph = of_edges(2000, [(0, 1), (1, 2)], features=np.zeros((2000, 3), np.float32), labels=np.zeros(2000, np.int64))
    shown = f"Graph({graph.name}: 2,000 vertices, 2 edges, 3 features, labels: {graph.num_classes} classes)"
    assert repr(graph) == shown
    numbers = replace(graph, labels=np.zeros((2000, 2), np.float32), num_classes=2)
    assert repr(numbers).endswith("labels: 2 numbers)")
