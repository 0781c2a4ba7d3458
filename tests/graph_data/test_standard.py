"""By whose means and deviations features are standardised."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_data.options import Options
from graph_data.prepare import cached, prepare
from siafu.errors import ConfigError, DatasetError
from siafu.features import STANDARD, Standard
from siafu.graph import TEST, TRAIN
from tests.graph_data.graphs import random_graph

OPTIONS = {"feature_norm": "standard", "parts": 2, "partitioner": "chunk", "order": "given"}


def features_of(shards):
    found = np.zeros((shards.manifest.num_vertices, shards.manifest.num_features), np.float32)
    for p in range(shards.manifest.num_partitions):
        part = shards.partition(p)
        found[part.vertices] = part.features
    return found


def z_scores(graph, rows):
    X = np.asarray(graph.features.dense() if hasattr(graph.features, "dense") else graph.features, np.float64)
    return (X - X[rows].mean(axis=0)) / X[rows].std(axis=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_inductive_training_sees_nothing_of_other_vertices(sparse, tmp_path):
    graph = random_graph(sparse=sparse)
    shards = prepare(graph, tmp_path / "out", inductive=1, **OPTIONS)
    training = graph.split[:, 1] == TRAIN
    np.testing.assert_allclose(features_of(shards), z_scores(graph, training), rtol=1e-5, atol=1e-6)


def test_of_a_split_that_is_drawn_too(tmp_path):
    graph = replace(random_graph(n=60), split=np.zeros((60, 0), np.uint8))
    shards = prepare(graph, tmp_path / "out", inductive=0, train_per_class=3, **OPTIONS)
    split = np.zeros(60, np.uint8)
    for part in map(shards.partition, range(2)):
        split[part.vertices] = part.split[:, 0]
    np.testing.assert_allclose(features_of(shards), z_scores(graph, split == TRAIN), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_taken_is_kept_and_can_be_taken_for_another_graph(stream, tmp_path):
    graph, other = random_graph(), random_graph(seed=1)
    kept = prepare(graph, tmp_path / "out", stream=stream, **OPTIONS)
    X = graph.features.astype(np.float64)
    np.testing.assert_allclose(np.load(kept.path / STANDARD), [X.mean(axis=0), X.std(axis=0)])
    assert kept.manifest.files.keys() == {STANDARD}  # damage to it is noticed
    found = prepare(other, tmp_path / "other", stream=stream, features_as=kept.path, **OPTIONS)
    expected = (other.features - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(features_of(found), expected, rtol=1e-5, atol=1e-6)
    assert (found.path / STANDARD).read_bytes() == (kept.path / STANDARD).read_bytes()
    assert not (prepare(graph, tmp_path / "none").path / STANDARD).exists()


def test_the_cache_tells_whose_they_are(tmp_path):
    prepare(random_graph(), tmp_path / "out", **OPTIONS)
    prepare(random_graph(seed=1), tmp_path / "other", **OPTIONS)
    given = [{}, {"features_as": tmp_path / "out"}, {"features_as": tmp_path / "other"}]
    found = [cached(random_graph(seed=2), cache_dir=tmp_path / "cache", **OPTIONS, **options) for options in given]
    assert len(set(found)) == 3


def test_what_cannot_be_is_refused_and_leaves_nothing(tmp_path):
    prepare(random_graph(), tmp_path / "out", **OPTIONS)
    prepare(random_graph(), tmp_path / "none")
    out = tmp_path / "new"
    with pytest.raises(ConfigError, match=r"^features as .*out: feature norm is row, that of .*out is standard$"):
        prepare(random_graph(), out, features_as=tmp_path / "out", feature_norm="row")
    with pytest.raises(ConfigError, match=r"^features as .*none: feature norm is standard, that of .*none is another$"):
        prepare(random_graph(), out, features_as=tmp_path / "none", **OPTIONS)
    with pytest.raises(ConfigError, match=r"^features as .*nowhere: neither a run nor a prepared graph$"):
        prepare(random_graph(), out, features_as=tmp_path / "nowhere", **OPTIONS)
    wider = replace(random_graph(), features=np.ones((40, 7), np.float32))
    with pytest.raises(DatasetError, match=r"^random: it has 7 features, .*out was standardised with 5$"):
        prepare(wider, out, features_as=tmp_path / "out", **OPTIONS)
    untrained = replace(random_graph(), split=np.full((40, 1), TEST, np.uint8))
    with pytest.raises(ConfigError, match=r"^inductive split 0: random has no training vertex in it$"):
        prepare(untrained, out, inductive=0, **OPTIONS)
    assert not out.exists()


def test_a_file_that_is_none_is_named(tmp_path):
    for content, words in ((np.zeros(3), r"float64 \[3\], must be float64 \[2, F\]"), (None, "not readable")):
        (tmp_path / STANDARD).write_bytes(b"x") if content is None else np.save(tmp_path / STANDARD, content)
        with pytest.raises(DatasetError, match=words):
            Standard.load(Path(tmp_path))
    assert Options.of({**prepare.__kwdefaults__}).key().keys().isdisjoint({"standard", "features_as"})
