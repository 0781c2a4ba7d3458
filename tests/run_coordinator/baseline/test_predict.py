"""Which graph servers evaluate a baseline's model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graph_data.prepare import prepare
from run_coordinator.predict.plan import Plan, plan_of
from siafu import config as configs
from siafu import model_file, models
from siafu.baseline import BaselineConfig, first_settings
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from tests.toy_graphs import random_graph


def planned(folder: Path, method: str, settings: dict[str, Any]) -> Plan:
    config = BaselineConfig().replace(
        {**first_settings(method, "gcn"), "data.source": str(folder / "shards"), **settings}
    )
    config = config.replace({"data.parts": config.partitions})
    prepare(random_graph(1, 40), folder / "shards", parts=config.partitions, partitioner="random")
    manifest = ShardSet.open(folder / "shards").manifest
    spec = ModelSpec.of(config, manifest)
    model_file.save_model(folder / "model.safetensors", models.build(spec).init(), spec, {})
    (folder / "config.toml").write_text(configs.dump(config))
    (folder / "manifest.json").write_text(json.dumps({"data": dict(manifest.fingerprint)}))
    return plan_of(folder, settings={})


def test_one_for_each_rank_on_its_own_cores(tmp_path: Path) -> None:
    plan = planned(tmp_path, "pipegcn", {"baseline.ranks": 3})
    assert type(plan.config) is Config
    assert (plan.config.data.parts, plan.config.servers.backend) == (3, "cpu")
    assert plan.data == ShardSet.open(tmp_path / "shards").manifest.fingerprint


def test_but_not_one_for_each_batch(tmp_path: Path) -> None:
    assert planned(tmp_path, "allreduce", {"baseline.subgraphs": 8}).config.data.parts == 1


def test_not_for_a_model_that_they_do_not_have(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"baseline.norm = batch: graph servers do not normalise so"):
        planned(tmp_path, "vanilla", {"baseline.norm": "batch"})
    with pytest.raises(ConfigError, match=r"baseline.num_linear = 1: graph servers have no such layers"):
        planned(tmp_path, "pipegcn", {"baseline.num_linear": 1})
