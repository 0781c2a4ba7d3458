"""``siafu.train`` of a graph that is in memory."""

import numpy as np
import pytest

import siafu
from bench import api
from siafu.errors import DatasetError
from siafu.shards import ShardSet
from tests.datasets.graphs import random_graph

EDGES = {"edge_index": np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), "x": np.eye(4), "y": np.array([0, 1, 0, 1])}


def test_its_shards_are_kept_like_those_of_any_source(tmp_path):
    config = api.resolve("", None, {"data.cache_dir": str(tmp_path)}, {"parts": 2})
    path = api.shards_of(config, EDGES)
    assert ShardSet.open(path).manifest.num_partitions == 2
    assert api.shards_of(config, EDGES) == path
    assert path.parent == tmp_path


def test_a_run_of_it_can_be_repeated_from_its_config(tmp_path):
    settings = {"data.cache_dir": str(tmp_path), "servers.backend": "cpu"}
    more = {"epochs": 2, "mode": "pipe", "hidden": 4, "settings": settings}
    run = siafu.train(random_graph(1), run_dir=str(tmp_path / "first"), **more)
    again = siafu.train(config=run.dir / "config.toml", run_dir=str(tmp_path / "again"))
    assert all((weight == again.weights()[name]).all() for name, weight in run.weights().items())


def test_what_is_no_graph_is_refused_before_there_is_a_run(tmp_path):
    with pytest.raises(DatasetError, match=r"^builtins\.int is no graph"):
        siafu.train(7, run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
