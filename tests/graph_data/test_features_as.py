"""Feature columns of a second graph are those of the first, by their names."""

from dataclasses import replace

import numpy as np
import pytest

from graph_data.objects.frames import from_pandas
from graph_data.prepare import cached, prepare
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.sparse import SparseRows
from tests.graph_data.graphs import random_graph, sparse_rows
from tests.graph_data.test_standard import features_of

OPTIONS = {"parts": 2, "partitioner": "chunk", "order": "given"}
NAMES = ("age", "income", "posts", "links", "score")


def named(names: tuple[str, ...] = NAMES, seed: int = 0, sparse: bool = False) -> Graph:
    """A graph whose column of a name is the same, wherever it stands."""
    graph = random_graph(seed=seed, sparse=sparse)
    X = graph.features.dense() if isinstance(graph.features, SparseRows) else np.asarray(graph.features)
    X = np.concatenate([X, X + 7], axis=1)
    every = (*NAMES, *(f"more {name}" for name in NAMES))
    features = X[:, [every.index(name) for name in names]]
    return replace(graph, features=sparse_rows(features) if sparse else features, names={"features": names})


def told(shards) -> tuple[str, ...]:
    return shards.notes()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("norm", ["none", "row", "standard"])
def test_columns_in_another_order_are_taken_by_name(norm, stream, tmp_path):
    first = prepare(named(), tmp_path / "first", feature_norm=norm, **OPTIONS)
    turned, given = named(NAMES[::-1], seed=1), {"feature_norm": norm, "stream": stream, **OPTIONS}
    found = prepare(turned, tmp_path / "turned", features_as=first.path, **given)
    expected = prepare(named(seed=1), tmp_path / "expected", features_as=first.path, **given)
    np.testing.assert_array_equal(features_of(found), features_of(expected))
    assert found.names()["features"] == NAMES
    assert told(found) == (f"random: feature columns are taken by name, in the order of {first.path}",)
    assert told(expected) == ()


def test_sparse_rows_are_sorted_again(tmp_path):
    first = prepare(named(sparse=True), tmp_path / "first", **OPTIONS)
    turned = named(("score", "more age", *NAMES[:4]), seed=1, sparse=True)
    found = prepare(turned, tmp_path / "turned", features_as=first.path, **OPTIONS)
    expected = np.zeros((found.manifest.num_vertices, len(NAMES)), np.float32)
    for part in map(found.partition, range(2)):
        expected[part.vertices] = part.features.dense()
    np.testing.assert_array_equal(expected, np.asarray(named(seed=1).features, np.float32))
    assert told(found) == (
        f"random: feature columns are taken by name, in the order of {first.path}; left out: 'more age'",
    )


def test_a_column_that_is_missing_is_named_and_nothing_is_written(tmp_path):
    first = prepare(named(), tmp_path / "first", **OPTIONS)
    with pytest.raises(
        DatasetError,
        match=r"^random: has no feature column 'income', 'score', which .*first was made with, only 'posts', ",
    ):
        prepare(
            named(("posts", "age", "links", "more age", "more score")),
            tmp_path / "out",
            features_as=first.path,
            **OPTIONS,
        )
    assert not (tmp_path / "out").exists()


def test_without_names_on_one_side_columns_are_taken_by_position_and_a_note_says_so(tmp_path):
    bare = replace(named(), names={})
    first, unnamed = prepare(named(), tmp_path / "first", **OPTIONS), prepare(bare, tmp_path / "bare", **OPTIONS)
    found = prepare(bare, tmp_path / "out", features_as=first.path, **OPTIONS)
    assert told(found) == ("random: feature columns are taken by position, since random has no names for them",)
    found = prepare(named(), tmp_path / "out", features_as=unnamed.path, **OPTIONS)
    assert told(found) == (
        f"random: feature columns are taken by position, since {unnamed.path} has no names for them",
    )
    assert told(prepare(bare, tmp_path / "out", features_as=unnamed.path, **OPTIONS)) == ()


def test_the_cache_tells_whose_columns_they_are(tmp_path):
    for name, order in (("a", NAMES), ("b", NAMES[::-1]), ("c", NAMES)):
        prepare(named(order), tmp_path / name, **OPTIONS)
    given = [{}, *({"features_as": tmp_path / name} for name in "abc")]
    found = [cached(named(seed=2), cache_dir=tmp_path / "cache", **OPTIONS, **options) for options in given]
    assert len(set(found)) == 3
    assert found[1] == found[3]


def test_source_target_and_id_are_the_columns_of_the_first_graph_wherever_they_stand(tmp_path):
    """Reading the first two columns of the second table would turn every edge round."""
    users = "id_of,age\na,1\nb,2\nc,3\n".replace("id_of", "user")
    (tmp_path / "edges.csv").write_text("buyer,seller\na,b\nb,c\nc,b\n")
    (tmp_path / "users.csv").write_text(users)
    (tmp_path / "turned.csv").write_text("seller,buyer\nb,a\nc,b\nb,c\n")
    (tmp_path / "more.csv").write_text("age,user\n1,a\n2,b\n3,c\n")
    first = prepare(f"{tmp_path}/edges.csv?features={tmp_path}/users.csv", tmp_path / "first", directed=True)
    again = f"{tmp_path}/turned.csv?features={tmp_path}/more.csv"
    found = prepare(again, tmp_path / "again", directed=True, features_as=first.path)
    for name in ("in_indptr", "in_indices"):
        one, other = (np.load(shards.path / "part-000" / f"{name}.npy") for shards in (first, found))
        np.testing.assert_array_equal(one, other)
    assert told(found)[:2] == (
        "turned.csv: edges from [buyer] to [seller]",
        "more.csv: vertices by [user], features [age]",
    )


def test_ends_that_are_named_or_not_there_are_not_those_of_the_first_graph(tmp_path):
    (tmp_path / "edges.csv").write_text("buyer,seller\na,b\nb,c\n")
    (tmp_path / "turned.csv").write_text("seller,buyer\na,b\nb,c\n")
    (tmp_path / "other.csv").write_text("from,to\na,b\nb,c\n")
    first = prepare(f"{tmp_path}/edges.csv?features=random:2", tmp_path / "first", directed=True)
    for name, given, said in (
        ("turned", "&src=seller&dst=buyer", "[seller] to [buyer]"),
        ("other", "", "[from] to [to]"),
    ):
        source = f"{tmp_path}/{name}.csv?features=random:2{given}"
        found = prepare(source, tmp_path / f"shards {name}", directed=True, features_as=first.path)
        assert told(found)[0] == f"{name}.csv: edges from {said}"


@pytest.mark.parametrize("in_memory", [False, True])
def test_weight_and_type_are_the_columns_of_the_first_graph_too(in_memory, tmp_path):
    """Without them every edge of the second graph would weigh 1, and edges of two types be one."""
    pa = pytest.importorskip("pyarrow")
    columns = {"from": ["a", "b", "b"], "to": ["b", "c", "c"], "km": [2.0, 3.0, 5.0], "road": ["new", "new", "old"]}
    (tmp_path / "edges.csv").write_text("road,km,to,from\nnew,2,b,a\nnew,3,c,b\nold,5,c,b\n")
    source = f"{tmp_path}/edges.csv?features=random:2"
    first = f"{source}&weight=km&type=road"
    if in_memory:
        first = from_pandas(pa.table(columns), weight="km", edge_type="road", features="random:2")
    made = prepare(first, tmp_path / "first", directed=True)
    found = prepare(source, tmp_path / "again", directed=True, features_as=made.path)
    assert (found.manifest.num_edges, found.manifest.weighted, found.manifest.edge_types) == (3, True, "relations")
    assert found.manifest.fingerprint["edges"] == made.manifest.fingerprint["edges"]


def test_the_id_is_the_runs_column_though_an_end_that_is_named_has_its_name(tmp_path):
    (tmp_path / "edges.csv").write_text("user,friend\n1,2\n2,3\n")
    (tmp_path / "users.csv").write_text("age,user\n1,1\n2,2\n3,3\n")
    source = f"{tmp_path}/edges.csv?src=user&dst=friend&features={tmp_path}/users.csv"
    first = prepare(f"{source}&id=user", tmp_path / "first")
    again = prepare(source, tmp_path / "again", features_as=first.path)
    assert told(again)[1] == "users.csv: vertices by [user], features [age]"
