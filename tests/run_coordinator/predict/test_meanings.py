"""Names decide what classes and relations of a new graph mean; what a run does not know is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import siafu
from graph_data.prepare import prepare
from run_coordinator import api
from run_coordinator.predict import Predictions
from run_coordinator.predict.meanings import Meanings
from run_coordinator.run import Run
from siafu.__main__ import main
from siafu.errors import ConfigError
from siafu.graph import Graph
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import Array
from tests.toy_graphs import random_graph

WORDS = ("ant", "bee", "moth", "wasp")
KINDS = ("cites", "likes", "writes")
BARE = random_graph(5, 60, num_edges=300, num_features=9)
GRAPH = replace(
    BARE,
    edge_type=np.random.default_rng(0).integers(0, 3, BARE.num_edges),
    num_edge_types=3,
    names={"classes": WORDS, "edge_types": KINDS},
)


def called_otherwise(graph: Graph, names: Mapping[str, tuple[str, ...]]) -> Graph:
    """The same graph with its numbers in the order of these names; what they leave away must not occur."""
    number = {
        kind: np.array([*(words.index(w) if w in words else -1 for w in graph.names[kind]), -1])
        for kind, words in names.items()
    }
    assert graph.edge_type is not None
    return replace(
        graph,
        names=names,
        labels=number["classes"][graph.labels],
        num_classes=len(names["classes"]),
        edge_type=number["edge_types"][graph.edge_type],
        num_edge_types=len(names["edge_types"]),
    )


def without(graph: Graph, relation: int) -> Graph:
    """Without the edges of a relation, which it still knows."""
    assert graph.edge_type is not None
    assert graph.weight is not None
    kept = graph.edge_type != relation
    return replace(
        graph, src=graph.src[kept], dst=graph.dst[kept], weight=graph.weight[kept], edge_type=graph.edge_type[kept]
    )


# --- through servers --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("named")
    prepare(GRAPH, folder / "shards", directed=True)
    return api.train(
        str(folder / "shards"), run_dir=str(folder / "run"), backend="cpu", model="rgcn", epochs=3, parts=1, intervals=2
    )


def scored(run: Run, graph: Graph, folder: Path) -> Predictions:
    prepare(graph, folder, directed=True)
    return siafu.predict(run, graph=str(folder), scores="logits")


@pytest.mark.long
def test_a_graph_that_numbers_its_names_otherwise_is_the_same_graph(run: Run, tmp_path: Path) -> None:
    otherwise = called_otherwise(GRAPH, {"classes": WORDS[::-1], "edge_types": KINDS[::-1]})
    ours, found = siafu.predict(run, scores="logits"), scored(run, otherwise, tmp_path / "otherwise")
    np.testing.assert_allclose(found.values, ours.values, rtol=1e-5, atol=1e-6)
    assert found.result["scores"] == {
        split: {key: pytest.approx(value, rel=1e-5) for key, value in scores.items()}
        for split, scores in ours.result["scores"].items()
    }
    assert sorted(path.name for path in run.dir.iterdir() if path.name.startswith("predict")) == []


@pytest.mark.long
def test_a_graph_with_fewer_relations_is_one_in_which_the_others_do_not_occur(run: Run, tmp_path: Path) -> None:
    fewer = without(GRAPH, 1)
    known = scored(run, fewer, tmp_path / "known")
    subset = called_otherwise(fewer, {"classes": WORDS, "edge_types": ("cites", "writes")})
    np.testing.assert_array_equal(scored(run, subset, tmp_path / "subset").values, known.values)


@pytest.mark.long
def test_a_graph_may_have_one_of_the_relations(run: Run, tmp_path: Path) -> None:
    """Shards of one relation keep no types: its name says which."""
    only = without(without(GRAPH, 0), 2)
    known = scored(run, only, tmp_path / "known")
    found = {}
    for kind in ("likes", "cites"):
        subset = replace(only, edge_type=None, num_edge_types=1, names={"classes": WORDS, "edge_types": (kind,)})
        found[kind] = scored(run, subset, tmp_path / kind).values
    np.testing.assert_array_equal(found["likes"], known.values)
    assert np.abs(found["cites"] - known.values).max() > 1e-3
    with pytest.raises(ConfigError, match=r"edge type 'follows' is unknown to .*run, which has 'cites', 'likes'"):
        scored(run, replace(subset, names={"classes": WORDS, "edge_types": ("follows",)}), tmp_path / "follows")


def test_words_are_the_runs_where_the_graph_has_no_labels(run: Run, tmp_path: Path) -> None:
    bare = replace(GRAPH, labels=np.full(60, -1), num_classes=1, names={"edge_types": KINDS})
    prepare(bare, tmp_path / "bare", directed=True)
    result = siafu.predict(run, graph=str(tmp_path / "bare"))
    assert result.result["scores"] is None
    words = ["predict", str(run.dir), "--graph", str(tmp_path / "bare"), "--out", str(tmp_path / "p.csv"), "--quiet"]
    assert main(words) == 0
    words = [line.split(",")[1] for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    assert result.classes is not None
    assert words == [WORDS[c] for c in result.classes]


def test_an_unknown_class_costs_one_line_and_no_server(run: Run, tmp_path: Path) -> None:
    new = replace(GRAPH, names={"classes": ("ant", "bee", "hornet", "wasp"), "edge_types": KINDS})
    before = sorted(run.dir.iterdir())
    with pytest.raises(
        ConfigError, match=r"new: class 'hornet' is unknown to .*run, which has 'ant', 'bee', 'moth', 'wasp'$"
    ):
        scored(run, new, tmp_path / "new")
    assert sorted(run.dir.iterdir()) == before


# --- what is mapped, and what is refused ------------------------------------------------------------------------------


def spec(**fields: int) -> ModelSpec:
    return ModelSpec(name="rgcn", in_features=9, num_train=1, **{"num_classes": 4, "num_edge_types": 3, **fields})


def meanings(names: Mapping[str, tuple[str, ...]], **fields: int) -> Meanings:
    return Meanings.of(Path("run"), spec(**fields), names)


def prepared(graph: Graph, folder: Path) -> ShardSet:
    return prepare(graph, folder / "shards", directed=True)


def place(found: object) -> list[int]:
    kept: Array = found.place  # type: ignore[attr-defined]
    return kept.tolist()


def test_equal_names_stay_as_they_are(tmp_path: Path) -> None:
    shards = prepared(GRAPH, tmp_path)
    known = meanings(GRAPH.names)
    assert (known.of_classes(shards, "new"), known.of_relations(shards, "new")) == (None, None)


def test_numbers_without_names_are_their_own_names(tmp_path: Path) -> None:
    shards = prepared(replace(GRAPH, names={}), tmp_path)
    assert meanings({}, num_classes=7).of_classes(shards, "new") is None  # labels up to 3 of 7
    assert place(meanings({}, num_edge_types=5).of_relations(shards, "new")) == [0, 1, 2]
    known = meanings({"edge_types": ("0", "1", "2", "9")}, num_edge_types=4)  # of a CSV whose types are 0, 1, 2, 9
    assert place(known.of_relations(shards, "new")) == [0, 1, 2]
    with pytest.raises(ConfigError, match=r"^new: edge type '1' is unknown to run, which has '0', '2', '9'$"):
        meanings({"edge_types": ("0", "2", "9")}).of_relations(shards, "new")


def test_a_class_that_no_split_judges_may_be_unknown(tmp_path: Path) -> None:
    split = np.where(GRAPH.labels[:, None] == 3, np.uint8(0), GRAPH.split)
    shards = prepared(replace(GRAPH, split=split, names={"classes": ("bee", "ant", "moth", "hornet")}), tmp_path)
    assert place(meanings(GRAPH.names).of_classes(shards, "new")) == [1, 0, 2, -1]


def test_all_that_is_unknown_is_named(tmp_path: Path) -> None:
    shards = prepared(GRAPH, tmp_path)
    with pytest.raises(ConfigError, match=r"^new: edge types 'likes', 'writes' are unknown to run, which has 'cites'"):
        meanings({"edge_types": ("cites", "follows")}, num_edge_types=2).of_relations(shards, "new")
    untyped = prepared(BARE, tmp_path)
    with pytest.raises(ConfigError, match=r"^new: its edges have no types, the model tells 'cites', 'likes', 'writes'"):
        meanings(GRAPH.names).of_relations(untyped, "new")


def test_outputs_beyond_the_words_are_called_by_their_numbers() -> None:
    assert meanings(GRAPH.names, num_classes=6).classes == (*WORDS, "4", "5")


def test_types_of_our_own_are_no_relations(tmp_path: Path) -> None:
    """Edges that are predicted are typed in shards too; ``siafu predict`` once took those for relations."""
    links = prepare(BARE, tmp_path / "links", task="link", negatives=2, eval_negatives=5)
    assert links.manifest.num_edge_types > 1
    assert meanings({}, num_edge_types=1).of_relations(links, "new") is None


# --- columns of labels, and what a warm start takes for what ----------------------------------------------------------

COLUMNS = ("A", "B", "C")
MANY = replace(
    BARE, labels=np.random.default_rng(1).integers(0, 2, (60, 3), np.uint8), num_classes=3, names={"classes": COLUMNS}
)


def numbers(graph: Graph) -> Graph:
    return replace(graph, labels=graph.labels + np.random.default_rng(2).random((60, 3), np.float32))


@pytest.mark.long
@pytest.mark.parametrize("made", [lambda graph: graph, numbers], ids=["labels", "numbers"])
def test_columns_of_labels_in_another_order_are_refused(made: Callable[[Graph], Graph], tmp_path: Path) -> None:
    graph = made(MANY)
    prepare(graph, tmp_path / "shards")
    run = api.train(str(tmp_path / "shards"), run_dir=str(tmp_path / "run"), backend="cpu", epochs=1)
    turned = replace(graph, labels=graph.labels[:, [2, 0, 1]], names={"classes": ("C", "A", "B")})
    prepare(turned, tmp_path / "turned")
    words = r"turned: classes or columns of labels are 'C', 'A', 'B', those that .*run was trained on 'A', 'B', 'C': "
    with pytest.raises(ConfigError, match=words):
        siafu.predict(run, graph=str(tmp_path / "turned"))
    with pytest.raises(ConfigError, match=words):
        api.train(
            str(tmp_path / "turned"), run_dir=str(tmp_path / "again"), backend="cpu", epochs=1, warm_start=str(run.dir)
        )
    prepare(graph, tmp_path / "same")
    assert siafu.predict(run, graph=str(tmp_path / "same")).result["scores"]


def test_a_warm_start_takes_no_relation_or_class_for_another(run: Run, tmp_path: Path) -> None:
    for changed in ({"edge_types": ("quotes", *KINDS[1:])}, {"classes": (*WORDS[1:], "yak")}):
        folder = tmp_path / next(iter(changed))
        prepare(replace(GRAPH, names={**GRAPH.names, **changed}), folder, directed=True)
        with pytest.raises(ConfigError, match="its weights would be taken for others of them"):
            api.train(
                str(folder),
                run_dir=str(tmp_path / "run"),
                backend="cpu",
                model="rgcn",
                epochs=1,
                warm_start=str(run.dir),
            )
