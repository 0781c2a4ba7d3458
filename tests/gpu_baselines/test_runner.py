"""Runs that end, and are gone on with: what a resumed one reports is what it would have reported."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpu_baselines import rank_checkpoints, runner
from gpu_baselines.group import Group
from gpu_baselines.run import Run
from gpu_baselines.runner import _cut_metrics
from siafu.errors import DatasetError
from siafu.models import ModelSpec
from siafu.sparse import Array
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.training import config_of, prepared
from tests.toy_graphs import random_graph

GRAPH = random_graph(7, 40, num_edges=160, directed=False, weighted=False)
WHOLE: dict[str, Any] = {"train__epochs": 4, "run__checkpoint_every": 2, "model__hidden": 6}


def trained(
    tmp_path: Path, folders: list[Path], *, resume: bool, begun_s_ago: float = 0.0, **settings: Any
) -> dict[str, Any]:
    """On two ranks, with these run directories."""
    config = config_of("vanilla", 2, **WHOLE | settings)
    shards = prepared(GRAPH, tmp_path, 2)

    def one(group: Group) -> dict[str, Any]:
        torch.set_num_threads(1)
        run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu"))
        return runner.train(run, folders[group.rank], resume=resume, begun=time.monotonic() - begun_s_ago)

    return on_ranks(2, one)[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


SESSION = ("train_seconds", "evaluation_seconds")


def without_times(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in SESSION}


@pytest.mark.parametrize(
    ("why", "settings"),
    [
        ("epochs", {}),
        ("target", {"train__target_acc": 1e-6, "run__checkpoint_every": 1}),
        ("patience", {"train__patience": 1, "train__lr": 0.0, "train__epochs": 30, "run__checkpoint_every": 1}),
    ],
)
def test_a_run_that_was_killed_after_its_last_checkpoint_is_not_trained_on(
    why: str, settings: dict[str, Any], tmp_path: Path, folder: Path
) -> None:
    """Before its result was written: it trained one epoch more than it was asked to."""
    whole = trained(tmp_path, [folder] * 2, resume=False, **settings)
    again = trained(tmp_path, [folder] * 2, resume=True, **settings)
    assert whole["stopped"] == why
    assert without_times(again) == without_times(whole)


def test_a_checkpoint_is_on_the_disk_before_the_older_one_goes(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut between the two left none."""
    done: list[str] = []
    sync, remove = os.fsync, shutil.rmtree

    def fsync(file: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        done.append(f"{path.parent.name}/{path.name.strip('.').rpartition('.')[0]}")
        sync(file)

    def rmtree(path: Path, **how: Any) -> None:
        done.append(f"removed {Path(path).name}")
        remove(path, **how)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(rank_checkpoints.shutil, "rmtree", rmtree)
    trained(tmp_path, [folder] * 2, resume=False)
    before = done[: done.index("removed checkpoint-2")]
    assert {"checkpoint-4/rank-0", "checkpoint-4/rank-1", "checkpoint-4/whole.json"} <= set(before)


def test_bytes_per_link_are_of_all_sessions(tmp_path: Path, folder: Path) -> None:
    """They were those of this process over the epochs of all."""
    whole = trained(tmp_path, [folder] * 2, resume=False, run__checkpoint_every=3)
    again = trained(tmp_path, [folder] * 2, resume=True, run__checkpoint_every=3)
    assert again["bytes_per_link"] == whole["bytes_per_link"]
    assert sum(map(sum, whole["bytes_per_link"])) == whole["ghost_bytes_per_epoch"] > 0


def test_ranks_that_find_different_checkpoints_do_not_go_on(tmp_path: Path, folder: Path) -> None:
    """Under torchrun on several machines each looked into its own directory, and some began anew."""
    trained(tmp_path, [folder] * 2, resume=False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(DatasetError, match=r"different checkpoints \(rank 0: checkpoint-4, rank 1: none\)"):
        trained(tmp_path, [folder, elsewhere], resume=True)
    shutil.copytree(folder / "checkpoint-4", elsewhere / "checkpoint-2")
    with pytest.raises(DatasetError, match=r"\(rank 0: checkpoint-4, rank 1: checkpoint-2\): they must all see one"):
        trained(tmp_path, [folder, elsewhere], resume=True)


def test_a_line_that_was_not_written_to_its_end_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"epoch": 2}\n{"epoch": 3}\n{"epo')
    inode = file.stat().st_ino
    _cut_metrics(file, 2)
    assert file.read_text() == '{"epoch": 2}\n'
    assert file.stat().st_ino != inode  # whoever reads along can tell
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_who_resumes_before_there_is_a_checkpoint_begins_anew_and_so_do_its_metrics(
    tmp_path: Path, folder: Path
) -> None:
    """It appended the epochs that it did again."""
    for resume in (False, True):
        trained(tmp_path, [folder] * 2, resume=resume, run__checkpoint_every=0)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["event"] == "epoch"] == [1, 2, 3, 4]


def test_the_start_says_how_long_ranks_took_to_start_in_all_sessions(tmp_path: Path, folder: Path) -> None:
    for resume in (False, True):
        trained(tmp_path, [folder] * 2, resume=resume, begun_s_ago=100.0)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    first, second = (line["setup_s"] for line in lines if line["event"] == "start")
    assert 100 <= first < 110
    assert 200 <= second < 220
    assert all(line["time_s"] < 50 for line in lines if line["event"] == "epoch")


def test_no_clock_of_training_runs_while_a_baseline_evaluates(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluations of 10 s were in its times and in ``train_seconds``; here an epoch takes 1 s."""
    now, made, power = [0.0], runner.made, [4]  # epochs until there is none

    def slow(run: Run) -> Any:
        method = made(run)
        epoch, tally = method.epoch, method.tally

        def slow_epoch(number: int) -> float:
            if number == power[0]:
                raise OSError("no power")
            now[0] += 1.0
            return epoch(number)

        def slow_tally() -> Array:
            now[0] += 10.0
            return tally()

        monkeypatch.setattr(method, "epoch", slow_epoch)
        monkeypatch.setattr(method, "tally", slow_tally)
        return method

    monkeypatch.setattr(runner, "made", slow)
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: now[0]))
    config = config_of("vanilla", 1, **WHOLE | {"train__epochs": 6, "train__eval_every": 2})
    shards = prepared(GRAPH, tmp_path, 1)

    spec = ModelSpec.of(config, shards.manifest)

    def session(resume: bool) -> dict[str, Any]:
        def one(group: Group) -> dict[str, Any]:
            run = Run(config, shards, group, spec, torch.device("cpu"))
            return runner.train(run, folder, resume=resume, begun=now[0])

        return on_ranks(1, one)[0]

    with pytest.raises(OSError, match="no power"):
        session(resume=False)
    now[0], power[0] = 1000.0, -1
    result = session(resume=True)
    assert (result["train_seconds"], result["evaluation_seconds"], result["epoch_seconds_median"]) == (6, 30, 1)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(line["time_s"], line["evaluation_s"]) for line in lines if line["event"] == "epoch"] == [
        (1, 0), (2, 0), (3, 10), (4, 10), (5, 20), (6, 20)
    ]  # fmt: skip
    evaluated = [(line["time_s"], line["evaluation_s"]) for line in lines if line["event"] == "evaluation"]
    assert evaluated == [(2, 10), (4, 20), (6, 30)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", ["gnnpipe", "allreduce", "sampling", "cagnet"])
def test_every_kind_of_bytes_has_its_links(method: str, tmp_path: Path, folder: Path) -> None:
    """Those of pipelines and batches were nobody's."""
    config = config_of(method, 2, **WHOLE | {"train__epochs": 1})
    shards = prepared(GRAPH, tmp_path, config.partitions)

    def one(group: Group) -> dict[str, Any]:
        torch.set_num_threads(1)
        run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu"))
        return runner.train(run, folder, resume=False)

    result = on_ranks(2, one)[0]
    counted = {kind: nbytes for kind, nbytes in result["bytes_per_epoch"].items() if kind != "reduce"}
    assert sum(map(sum, result["bytes_per_link"])) == sum(counted.values())
    assert any(counted.values()) == (method != "allreduce")
