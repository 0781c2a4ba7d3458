"""Error budgets at work: what was foretold, what follows from it, and what every combination must keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_baselines import kernels
from gpu_baselines.halos.budget import Choice, Costs
from gpu_baselines.halos.budgeted import seen
from gpu_baselines.halos.message_cost import LinkCosts
from gpu_baselines.halos.quantise import Layout
from siafu.baseline import Baseline
from siafu.errors import ConfigError
from tests.gpu_baselines.halos.test_late import resumed_losses
from tests.gpu_baselines.training import config_of, prepared, train
from tests.toy_graphs import random_graph

GRAPH = random_graph(5, num_vertices=60, num_edges=200)
MODEL: dict[str, Any] = {"model__name": "sage", "model__hidden": "16", "model__layers": 3}
#: Times that make bytes dear: what is measured on a busy machine would decide otherwise from day to day.
SLOW_LINK = Costs(compute_s=1e-3, byte_s=1e-5, exchange_s=0.0, value_s=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shards")


@pytest.fixture
def slow_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_baselines.halos.budgeted.measured", lambda run, compute_s, now: SLOW_LINK)


def budgeted(budget: float, **settings: Any) -> Any:
    common = {"baseline__period": 5, **MODEL, **settings}
    return config_of("pipegcn", 2, baseline__depth=0, baseline__error_budget=budget, **common)


def choices(trained: Any) -> dict[str, Any]:
    found: dict[str, Any] = trained.facts["halo_choices"]
    return found


def test_a_budget_that_allows_nothing_is_vanilla(folder: Path, slow_link: None) -> None:
    shards = prepared(GRAPH, folder, 2)
    vanilla = train(config_of("vanilla", 2, **MODEL), shards, 8)
    exact = train(budgeted(1e-12), shards, 8)
    assert exact.losses == vanilla.losses
    assert exact.bytes == vanilla.bytes
    assert {(one["late"], one["bits"]) for one in choices(exact).values()} == {(False, None)}


def test_layers_differ_and_no_choice_is_over_the_budget(folder: Path, slow_link: None) -> None:
    trained = train(budgeted(0.3), prepared(GRAPH, folder, 2), 18)
    found = choices(trained)
    assert set(found) == {"forward.1", "forward.2", "backward.1", "backward.2"}
    assert all(0 < one["error"] <= 0.3 for one in found.values())
    assert len({(one["late"], one["bits"]) for one in found.values()}) > 1


def test_it_learns_as_vanilla_does_with_fewer_bytes(folder: Path, slow_link: None) -> None:
    shards = prepared(GRAPH, folder, 2)
    vanilla, found = train(config_of("vanilla", 2, **MODEL), shards, 40), train(budgeted(0.3), shards, 40)
    assert found.losses[-1] < vanilla.losses[-1] + 0.01 * vanilla.losses[0]
    rows = [sum(one.bytes[kind] for kind in ("halo", "gradient")) for one in (vanilla, found)]
    assert rows[1] < 0.5 * rows[0]


@pytest.mark.parametrize("after", [2, 3, 9])
def test_a_resumed_run_keeps_its_plan_and_its_bits(after: int, folder: Path, slow_link: None) -> None:
    """Before the first plan, at it, and between two."""
    config, shards = (
        budgeted(0.4, baseline__smooth="G", baseline__gamma=0.5, baseline__correct=True),
        prepared(GRAPH, folder, 2),
    )
    assert resumed_losses(config, shards, after, epochs=14) == train(config, shards, 14).losses


COMBINED: dict[str, dict[str, Any]] = {
    "quantised and late": {"baseline__scheme": "fixed", "baseline__bits": 4},
    "with error feedback": {"baseline__scheme": "fixed", "baseline__bits": 4, "baseline__feedback": True},
    "smoothed, with error feedback": {
        "baseline__scheme": "fixed", "baseline__bits": 4, "baseline__feedback": True, "baseline__smooth": "FG",
        "baseline__gamma": 0.5, "baseline__correct": True,
    },
    "uniform widths, two epochs late": {"baseline__scheme": "uniform", "baseline__depth": 2, "baseline__period": 3},
    "adaptive widths, two epochs late": {
        "baseline__scheme": "adaptive", "baseline__depth": 2, "baseline__period": 3, "baseline__group_size": 4,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", COMBINED)
def test_quantised_rows_that_come_late(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths change while messages are on their way: they are unpacked as they were packed."""
    alike = LinkCosts(np.ones((2, 2)), np.zeros((2, 2)))
    monkeypatch.setattr(
        "gpu_baselines.halos.message_cost.measured", lambda group, device, now: alike
    )  # the clock is no fact
    shards = prepared(GRAPH, folder, 2)
    plain = train(config_of("pipegcn", 2, **MODEL), shards, 20)
    config = config_of("pipegcn", 2, **{**MODEL, **COMBINED[name]})
    found = train(config, shards, 20)
    assert found.losses[-1] < plain.losses[-1] + 0.03 * plain.losses[0]
    assert found.bytes["halo"] < 0.5 * plain.bytes["halo"]
    assert resumed_losses(config, shards, 3, epochs=7) == found.losses[:7]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_what_rounding_does_is_foretold(bits: int) -> None:
    """Against the quantiser's own rows: never above what was said, and not far below."""
    rows = torch.randn(400, 50, generator=torch.Generator().manual_seed(bits)) + 0.5
    packing = kernels.packing(Layout(np.full(400, bits, np.uint8)), torch.device("cpu"), 1)
    came = torch.empty_like(rows)
    packing.unpack(packing.pack(rows, np.uint64(7)), came)
    error = float((came - rows).norm() / rows.norm())
    foretold = seen(rows, rows).error(Choice(False, bits))
    assert 0.93 * foretold < error < 1.01 * foretold


def test_costs_are_measured_before_the_first_plan(folder: Path) -> None:
    """With clocks as they are: whatever is chosen, it is allowed."""
    found = choices(train(budgeted(0.3), prepared(GRAPH, folder, 2), 6))
    assert all(one["error"] <= 0.3 for one in found.values())


def test_what_lateness_does_is_foretold() -> None:
    before, rows = torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    assert seen(rows, before).error(Choice(True, None)) == pytest.approx(4 / np.sqrt(10))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"error_budget": 0.1, "scheme": "fixed"}, "baseline.error_budget = 0.1: chooses the bits itself"),
        ({"correct": True}, "baseline.correct = true: needs baseline.depth >= 1"),
        ({"depth": 1, "smooth": "F", "gamma": 1.0}, "baseline.gamma = 1.0: must be < 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Baseline(**settings)
