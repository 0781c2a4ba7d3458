"""What a rank makes of the machine: its transport, its threads, and what it says when ranks do not meet."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_baselines import group as groups
from gpu_baselines import rank
from gpu_baselines.group import TorchGroup
from gpu_baselines.network_links import Link
from gpu_baselines.rank import _not_met, _transport
from gpu_baselines.run import Run
from siafu import config as configs
from siafu.errors import ConfigError, GnnError, PeerLost
from siafu.models import ModelSpec
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.training import config_of, prepared
from tests.toy_graphs import random_graph

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_cards")
@pytest.mark.parametrize(
    ("asked", "device", "local_ranks", "found"),
    [
        ("auto", CPU, 2, "gloo"),
        ("auto", CUDA, 2, "nccl"),
        ("auto", CUDA, 3, "gloo"),
        ("gloo", CUDA, 2, "gloo"),
        ("nccl", CUDA, 2, "nccl"),
    ],
)
def test_nccl_is_where_every_rank_has_a_gpu(asked: str, device: torch.device, local_ranks: int, found: str) -> None:
    assert _transport(asked, device, local_ranks) == found


@pytest.mark.usefixtures("two_cards")
@pytest.mark.parametrize(
    ("device", "local_ranks", "why"),
    [(CPU, 1, "is between GPUs, and this rank computes on the CPU"), (CUDA, 3, "3 ranks of this machine have 2 GPUs")],
)
def test_nccl_that_cannot_be_is_the_users_mistake(device: torch.device, local_ranks: int, why: str) -> None:
    """It was told as ranks that did not come in time."""
    with pytest.raises(ConfigError, match=rf"baseline.transport = nccl: .*{why}"):
        _transport("nccl", device, local_ranks)


def test_only_who_waited_in_vain_says_that_others_did_not_come() -> None:
    late = _not_met(1, "gloo", 20, "Timed out after 21 seconds waiting for clients. 1/2 clients joined.")
    assert type(late) is PeerLost
    assert str(late).startswith("rank 1: the others did not come within 20 s: Timed out")
    taken = _not_met(0, "gloo", 20, "The server socket has failed to listen: EADDRINUSE\nmore")
    assert type(taken) is GnnError
    assert str(taken) == "gloo does not start: The server socket has failed to listen: EADDRINUSE"


def test_ranks_of_one_machine_share_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ranks there are elsewhere, and whichever group of them a part of the program talks to."""
    monkeypatch.setattr("siafu.allotment.cores", lambda: 12)
    config = config_of("cagnet", 4, baseline__replicas=2)
    shards = prepared(random_graph(3), tmp_path, config.partitions)

    def threads(group: Any) -> tuple[int, int]:
        run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), CPU)
        column = group.subgroup([group.rank // 2 * 2, group.rank // 2 * 2 + 1])
        return run.threads, replace(run, group=column).threads

    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert on_ranks(4, threads) == [(3, 3)] * 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert on_ranks(4, threads) == [(6, 6)] * 4


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_what_is_posted_is_counted_at_once(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over NCCL it was counted when it was waited for, perhaps between two epochs: in none of them."""
    for name, value in {
        "get_world_size": 2,
        "get_rank": 0,
        "get_backend": backend,
        "isend": None,
        "irecv": None,
    }.items():
        monkeypatch.setattr(groups.dist, name, lambda *args, value=value: value)
    group = TorchGroup(timeout_s=1, link=Link())
    rows = torch.zeros(3, 2)
    group.post([rows[:0], rows], [rows[:0], rows], "gradient")
    assert group.traffic.by_link(2) == {"gradient": [0, 24]}


def test_ranks_are_patient_until_they_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that read its part for longer than ``timeout_s`` was lost before the first epoch."""
    made: list[timedelta] = []

    def new_group(members: list[int], timeout: timedelta, **_: object) -> int:
        made.append(timeout)
        return len(made)

    settled: list[tuple[timedelta, Any]] = []
    for name, value in {"get_world_size": 2, "get_rank": 0, "get_backend": "gloo"}.items():
        monkeypatch.setattr(groups.dist, name, lambda *args, value=value: value)
    monkeypatch.setattr(groups.dist, "new_group", new_group)
    monkeypatch.setattr(groups.dist.distributed_c10d, "_set_pg_timeout", lambda s, of: settled.append((s, of)))
    group = TorchGroup(timeout_s=7, link=Link())
    group.twin().twin()
    soon, patient = timedelta(seconds=7), timedelta(seconds=groups.SETUP_S)
    assert (made, settled) == ([patient] * 2, [])
    group.settled()
    assert settled == [(soon, None), (soon, 1), (soon, 2)]
    group.twin()
    assert made[2] == soon


#: A rank whose part is read slowly, or which stands still in its third epoch.
SLOW = """
import os, sys, time
from gpu_baselines import rank
from gpu_baselines.methods import halo
read, trained, epochs = halo.load, halo.HaloTraining.epoch, []
slow = os.environ["RANK"] == "1" and os.environ["SLOW"]
def load(*args, **settings):
    time.sleep(4 * (slow == "setup"))
    return read(*args, **settings)
def epoch(self, number):
    epochs.append(number)
    time.sleep(4 * (slow == "epoch" and len(epochs) == 3))
    return trained(self, number)
halo.load, halo.HaloTraining.epoch = load, epoch
sys.exit(rank.main(sys.argv[1:]))
"""


@pytest.mark.long
@pytest.mark.parametrize("slow", ["setup", "epoch"])
def test_ranks_wait_for_a_slow_start_and_for_no_slow_epoch(slow: str, tmp_path: Path) -> None:
    config = config_of("vanilla", 2, baseline__timeout_s=1.0, train__epochs=4)
    shards = prepared(random_graph(4, 40), tmp_path, 2)
    (tmp_path / "config.toml").write_text(configs.dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--config", tmp_path / "config.toml", "--shards", shards.path, "--run-dir", tmp_path / "run"]
    ranks = []
    for number in range(2):
        told = {"SLOW": slow, "RANK": number, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = os.environ | {name: str(value) for name, value in told.items()}
        command = [sys.executable, "-c", SLOW, *map(str, words)]
        ranks.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    said = [child.communicate(timeout=120)[1] for child in ranks]
    if slow == "setup":
        assert [child.returncode for child in ranks] == [0, 0], said
    else:
        assert ranks[0].returncode == 1
        assert "rank 1 or 1 is lost" in said[0]


@pytest.mark.parametrize("rank_here", [0, 1])
def test_whoever_broadcasts_has_its_tensor_untouched(rank_here: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over Gloo from a GPU's memory, it was written over by its own copy: autograd refused what was to come."""
    for name, value in {"get_world_size": 2, "get_rank": rank_here, "get_backend": "gloo"}.items():
        monkeypatch.setattr(groups.dist, name, lambda *args, value=value: value)
    monkeypatch.setattr(groups.dist, "broadcast", lambda tensor, root, group: tensor.fill_(7) if rank_here else None)
    # Gloo cannot reach it: neither columns of another tensor, nor a GPU's memory.
    tensor = torch.ones(3, 4)[:, ::2]
    before = tensor._version
    TorchGroup(timeout_s=1, link=Link()).broadcast(tensor, 0, "weights")
    assert (tensor._version > before) == (rank_here == 1)
    assert bool((tensor == (7 if rank_here else 1)).all())


def test_a_run_directory_that_was_used_or_cannot_be_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Left(BaseException):
        pass

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "metrics.jsonl").touch()
    (tmp_path / "file").touch()
    for folder, why in (("used", "a run was there; --resume goes on with it"), ("file/run", "Not a directory")):
        with pytest.raises(Left, match="2"):
            rank.main(["--config", "none", "--shards", "none", "--run-dir", str(tmp_path / folder)])
        assert capsys.readouterr().err == f"gpu_baselines: rank 0: --run-dir {tmp_path / folder}: {why}\n"
    rank._take_place(tmp_path / "used", resume=True)
    rank._take_place(tmp_path / "a" / "new", resume=False)
    assert (tmp_path / "a" / "new").is_dir()
