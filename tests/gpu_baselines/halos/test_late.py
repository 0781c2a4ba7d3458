"""Late halos against PipeGCN's equations, and what must not change a bit."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_baselines.clock import Clock
from gpu_baselines.group import Group
from gpu_baselines.halos.halo import Channel
from gpu_baselines.run import Run
from gpu_baselines.runner import made
from siafu.errors import DatasetError
from siafu.graph import tidy
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import Array
from tests.gpu_baselines import pipegcn_reference
from tests.gpu_baselines.pipegcn_reference import Lateness
from tests.gpu_baselines.ranks import Device, LateGroup, on_ranks
from tests.gpu_baselines.training import LR, WEIGHT_DECAY, config_of, differs_by, prepared, train
from tests.toy_graphs import random_graph

EPOCHS = 6
GRAPH = random_graph(1)
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model__name": "gcn", "model__hidden": "6,5", "model__layers": 3},
    "sage": {"model__name": "sage", "model__hidden": "6", "model__layers": 3},
    "gcnii": {"model__name": "gcnii", "model__hidden": "5", "model__layers": 3},
}
LATENESS = [
    Lateness(1),
    Lateness(2),
    Lateness(1, "F", 0.8),
    Lateness(1, "G", 0.8),
    Lateness(1, "FG"),
    Lateness(2, "FG", 0.5),
    Lateness(1, correct=True),
    Lateness(2, correct=True),
    Lateness(1, "FG", 0.8, True),
    Lateness(2, "FG", 0.9, True),
]


def settings_of(late: Lateness) -> dict[str, Any]:
    return {f"baseline__{name}": value for name, value in late._asdict().items()}


def parts(shards: ShardSet) -> Array:
    """[N]: the part of each vertex."""
    found = np.zeros(shards.manifest.num_vertices, int)
    for p in range(shards.manifest.num_partitions):
        found[shards.partition(p).vertices] = p
    return found


def reference_losses(config: Any, shards: ShardSet, late: Lateness) -> list[float]:
    return pipegcn_reference.losses(
        tidy(GRAPH, directed=True),
        parts(shards),
        ModelSpec.of(config, shards.manifest),
        late,
        epochs=EPOCHS,
        lr=LR,
        weight_decay=WEIGHT_DECAY,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the shards that tests share."""
    return tmp_path_factory.mktemp("shards")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "late"),
    [("gcn", late) for late in LATENESS] + [(name, late) for name in ("sage", "gcnii") for late in LATENESS[-6::3]],
    ids=str,
)
def test_late_training_is_what_the_equations_say(name: str, late: Lateness, folder: Path) -> None:
    config = config_of("pipegcn", 3, model__dropout=0.4, **MODELS[name], **settings_of(late))
    shards = prepared(GRAPH, folder, 3)
    wanted = reference_losses(config, shards, late)
    assert differs_by(train(config, shards, EPOCHS).losses, wanted) < 1e-12


def test_the_reference_without_parts_is_exact_training(folder: Path) -> None:
    """Its own check: one part has no halo, however late."""
    config = config_of("vanilla", 1, model__dropout=0.4, **MODELS["gcn"])
    shards = prepared(GRAPH, folder, 1)
    assert differs_by(train(config, shards, EPOCHS).losses, reference_losses(config, shards, Lateness(1))) < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_depth_0_is_vanilla_bit_for_bit(name: str, folder: Path) -> None:
    shards = prepared(GRAPH, folder, 3)
    found = [
        train(config_of(method, 3, model__dropout=0.4, baseline__depth=0, **MODELS[name]), shards, EPOCHS)
        for method in ("vanilla", "pipegcn")
    ]
    assert found[0].losses == found[1].losses


def test_late_rows_are_as_many_bytes_as_rows_of_today(folder: Path) -> None:
    shards = prepared(GRAPH, folder, 3)
    vanilla, late = (train(config_of(method, 3, **MODELS["gcn"]), shards, EPOCHS) for method in ("vanilla", "pipegcn"))
    assert late.bytes == vanilla.bytes


@pytest.mark.parametrize("settings", [{}, {"baseline__overlap": False}], ids=["again", "without a thread"])
def test_when_rows_come_changes_no_bit(settings: dict[str, Any], folder: Path) -> None:
    shards = prepared(GRAPH, folder, 3)
    common = {"model__dropout": 0.4, "baseline__smooth": "FG", **MODELS["sage"]}
    first = train(config_of("pipegcn", 3, **common), shards, EPOCHS)
    other = train(config_of("pipegcn", 3, **common, **settings), shards, EPOCHS)
    assert other.losses == first.losses
    assert all(np.array_equal(other.weights[name], W) for name, W in first.weights.items())


@pytest.mark.parametrize("depth", [1, 2])
def test_pipegcn_learns_as_vanilla_does(depth: int, folder: Path) -> None:
    graph = random_graph(5, num_vertices=60, num_edges=200)
    shards = prepared(graph, folder, 2)
    common = {"model__name": "sage", "model__hidden": "16"}
    vanilla = train(config_of("vanilla", 2, **common), shards, 40).losses
    late = train(config_of("pipegcn", 2, baseline__depth=depth, **common), shards, 40).losses
    assert late[-1] < 0.05 * late[0]
    assert late[-1] < vanilla[-1] + 0.01 * vanilla[0]


@pytest.mark.parametrize("late", [Lateness(1), Lateness(2), Lateness(1, "FG", 0.3, True)], ids=str)
@pytest.mark.parametrize("name", ["gat", "sage"])
def test_rows_that_do_not_change_are_never_too_late(
    name: str, late: Lateness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the weights move, every epoch is like the one before, and so is its gradient."""
    # a layer's gradient is exact after those above it
    moves = 3 * late.depth + 3 * len(late.smooth.replace("none", ""))
    monkeypatch.setattr("gpu_baselines.learner.learning_rate", lambda epoch, train: LR if epoch >= moves else 0.0)
    shards = prepared(GRAPH, folder, 3)
    common = {"model__name": name, "model__hidden": "8", "train__optimizer": "sgd", "train__momentum": 0.0}
    vanilla = train(config_of("vanilla", 3, **common), shards, moves + 1)
    found = train(config_of("pipegcn", 3, **common, **settings_of(late)), shards, moves + 1)
    assert differs_by(found.losses[moves:], vanilla.losses[moves:]) < 1e-12
    for key, W in vanilla.weights.items():
        assert np.allclose(found.weights[key], W, rtol=0, atol=1e-12), key


def test_features_that_are_fetched_once_are_never_late(folder: Path) -> None:
    """With zeros in their place, what is summed before training would lack halos for ever."""
    shards = prepared(GRAPH, folder, 3)
    one_layer = {"model__layers": 1, "model__dropout": 0.4}
    vanilla, late = (train(config_of(method, 3, **one_layer), shards, EPOCHS) for method in ("vanilla", "pipegcn"))
    assert late.losses == vanilla.losses
    again = train(config_of("pipegcn", 3, baseline__preaggregate=False, **one_layer), shards, EPOCHS)
    assert again.losses[0] != vanilla.losses[0]  # as published: the first epoch's halo is zeros


@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("late", [Lateness(1), Lateness(3, "FG", 0.8, True)], ids=str)
def test_a_resumed_run_has_the_same_bits(late: Lateness, after: int, folder: Path) -> None:
    config = config_of("pipegcn", 2, model__dropout=0.4, **MODELS["gcnii"], **settings_of(late))
    shards = prepared(GRAPH, folder, 2)
    assert resumed_losses(config, shards, after) == train(config, shards, EPOCHS).losses


def resumed_losses(config: Any, shards: ShardSet, after: int, epochs: int = EPOCHS) -> list[float]:
    """Of a run that was stopped after so many epochs, and went on in new processes."""

    def session(kept: list[Any] | None, first: int, stop: int) -> list[Any]:
        def one(group: Any) -> Any:
            torch.set_num_threads(1)
            method = made(Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu")))
            if kept:
                method.net.load(kept[group.rank][1])
                method.restore(kept[group.rank][2])
            losses = [method.epoch(epoch) for epoch in range(first, stop)]
            state = {name: value.clone() for name, value in method.state().items()}
            found = losses, method.net.weights(), state
            method.close()
            return found

        return on_ranks(config.baseline.ranks, one)

    before = session(None, 0, after)
    return [*before[0][0], *session(before, after, epochs)[0][0]]


def test_threads_are_joined(folder: Path) -> None:
    before = set(threading.enumerate())
    train(config_of("pipegcn", 3), prepared(GRAPH, folder, 3), 2)
    assert set(threading.enumerate()) <= before


def test_a_checkpoint_of_another_depth_is_refused(folder: Path) -> None:
    shards = prepared(GRAPH, folder, 2)

    def one(group: Any) -> None:
        config = config_of("pipegcn", 2, baseline__depth=2)
        method = made(Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu")))
        try:
            method.epoch(5)  # nothing was restored
        finally:
            method.close()

    with pytest.raises(DatasetError, match=r"no halo rows of epoch 3 .* another baseline.depth"):
        on_ranks(2, one)


@pytest.mark.parametrize("method", ["vanilla", "pipegcn"])
def test_the_time_of_exchanges_that_return_before_they_are_done_is_theirs(method: str, tmp_path: Path) -> None:
    """As over NCCL: PipeGCN's said what launching them took. Losses are those of exchanges that are done at once."""
    takes_s, exchanges = 0.002, 4  # an epoch: two layers, forward; one, backward, as features want no gradient
    config = config_of(method, 2, **MODELS["sage"], baseline__overlap=False, baseline__preaggregate=False)
    shards = prepared(GRAPH, tmp_path, 2)

    def work(group: Group) -> tuple[list[float], float, Any]:
        torch.set_num_threads(1)
        device = Device(takes_s)
        run = Run(
            config,
            shards,
            LateGroup(group, device, "setup"),
            ModelSpec.of(config, shards.manifest),
            torch.device("cpu"),
            Clock(device.synchronise),
        )
        halo = made(run)
        losses = [halo.epoch(epoch) for epoch in range(EPOCHS)]
        return losses, run.clock.seconds["communicate"], halo.facts()

    for losses, communicated_s, facts in on_ranks(2, work):
        assert losses == train(config, shards, EPOCHS).losses
        assert communicated_s >= EPOCHS * exchanges * takes_s
        if method == "pipegcn":
            assert facts["exchange_seconds_per_epoch"] >= exchanges * takes_s


def test_a_thread_of_a_rank_computes_on_the_ranks_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's device belongs to a thread, and a new one has card 0: every rank's exchanges would have used it."""
    chosen: list[tuple[str, int]] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda card: chosen.append((threading.current_thread().name, card)))
    channel = Channel(torch.device("cpu"))
    assert channel.submit(lambda: len(chosen)).result(10) == 1  # before any exchange
    channel.close()
    assert chosen == [("exchange", 3)]
