"""``siafu.train`` of a graph that is in memory."""

import numpy as np
import pytest

import siafu
from run_coordinator import prepared, run_config
from siafu.errors import ConfigError, DatasetError
from siafu.progress import summary
from siafu.shards import ShardSet
from tests.graph_data.graphs import random_graph

EDGES = {"edge_index": np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), "x": np.eye(4), "y": np.array([0, 1, 0, 1])}


def test_its_shards_are_kept_like_those_of_any_source(tmp_path):
    config = run_config.resolve("", None, {"data.cache_dir": str(tmp_path)}, {"parts": 2})
    path = prepared.shards_of(config, EDGES)
    assert ShardSet.open(path).manifest.num_partitions == 2
    assert prepared.shards_of(config, EDGES) == path
    assert path.parent == tmp_path


@pytest.mark.long
def test_a_run_of_it_can_be_repeated_from_its_config(tmp_path):
    settings = {"data.cache_dir": str(tmp_path), "servers.backend": "cpu"}
    more = {"epochs": 2, "mode": "pipe", "hidden": 4, "settings": settings}
    run = siafu.train(random_graph(1), run_dir=str(tmp_path / "first"), **more)
    again = siafu.train(config=run.dir / "config.toml", run_dir=str(tmp_path / "again"))
    assert all((weight == again.weights()[name]).all() for name, weight in run.weights().items())


def test_a_run_on_random_features_says_so(tmp_path):
    settings = {"data.cache_dir": str(tmp_path), "servers.backend": "cpu"}
    with pytest.raises(DatasetError, match=r"^arrays: has no features: .* in Python features='random:32'"):
        siafu.train({key: EDGES[key] for key in ("edge_index", "y")}, epochs=1, settings=settings)
    found = {
        x: siafu.train({**EDGES, "x": x}, epochs=1, settings=settings, run_dir=str(tmp_path / f"{n}")).result
        for n, x in enumerate(("random:3", "random"))
    }
    given = siafu.train(EDGES, epochs=1, settings=settings, run_dir=str(tmp_path / "own")).result
    assert [found[x]["features"] for x in found] == ["random:3", "random:32"]
    assert "features    random:3: the source has none, random ones are in their place" in summary(found["random:3"])
    assert "features" not in given
    assert not any(line.startswith("features") for line in summary(given))


def test_what_is_no_graph_is_refused_before_there_is_a_run(tmp_path):
    with pytest.raises(DatasetError, match=r"^builtins\.int is no graph"):
        siafu.train(7, run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_nothing_is_no_graph_and_not_the_digits(tmp_path):
    with pytest.raises(ConfigError, match=r"^source is None, must be a source's name or a graph: what made it"):
        siafu.train(None, run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_command_in_a_message_may_be_pasted_into_a_shell(tmp_path):
    folder = tmp_path / "my runs"
    folder.mkdir()
    (folder / "config.toml").write_text("")
    with pytest.raises(ConfigError, match=r"holds a run already; siafu resume '.*/my runs' continues it$"):
        siafu.train(EDGES, run_dir=str(folder))
