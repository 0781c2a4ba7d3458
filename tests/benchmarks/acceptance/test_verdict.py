"""Whether Lambdas pay, as predicted and as measured: who wins, and when the prediction counts as right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.acceptance import verdict
from run_coordinator import run_config
from siafu.config import Config


def run(epoch_s: float, backend: str) -> Any:
    config = Config().replace({"servers.backend": backend, "lambda.memory_mb": verdict.MEMORY_MB})
    return SimpleNamespace(config=config, seen=SimpleNamespace(epoch_s=epoch_s))


def runs(cpu_s: list[float], lambda_s: list[float]) -> Any:
    found = {"cpu": cpu_s, "lambda": lambda_s}
    return {(way, 64): [run(one, way) for one in seconds] for way, seconds in found.items()}


@pytest.mark.parametrize("way", verdict.WAYS)
def test_siafu_takes_the_settings_of_every_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def behind_link(source: str, setting: Any, epochs: int, mb_per_s: float, more: dict[str, Any]) -> Any:
        assert bool(mb_per_s) == (way == "lambda")
        return run_config.resolve(source, None, {**setting.settings, **more}, {})

    monkeypatch.setattr(verdict.plan, "behind_link", behind_link)
    config: Any = verdict.trained((way, 64), 10, seed=3)
    assert (config.servers.threads, config.train.seed) == (1, 3)
    if way == "lambda":
        assert config.lambdas.core * config.lambdas.count == pytest.approx(1, abs=0.01)


def test_a_verdict_is_the_median_of_pairs_and_a_faster_way_may_have_less_value() -> None:
    measured = runs([0.3, 0.2, 0.25], [0.2, 0.2, 0.2])
    row = verdict.verdict(64, measured, {("cpu", 64): 0.22, ("lambda", 64): 0.2})
    assert row["cpu: measured, ms"] == "250 (200 to 300)"
    assert row["time of CPUs / with Lambdas: predicted"] == "1.10"
    assert row["measured"] == "1.25 (1.00 to 1.50)"
    assert (
        float(row["value with Lambdas / of CPUs: predicted"]) < 1 < float(row["time of CPUs / with Lambdas: predicted"])
    )


@pytest.mark.parametrize(
    ("cpu_s", "lambda_s", "right"),
    [
        pytest.param(0.25, 0.2, True, id="as measured"),
        pytest.param(0.31, 0.2, False, id="an epoch too long"),
        pytest.param(0.21, 0.22, False, id="the other wins in time"),
        pytest.param(0.29, 0.17, True, id="close enough, and the sign is the same"),
    ],
)
def test_a_prediction_is_right_if_every_epoch_is_close_and_both_verdicts_have_the_sign(
    cpu_s: float, lambda_s: float, right: bool
) -> None:
    measured = runs([0.25, 0.25], [0.2, 0.2])
    assert verdict.is_right(64, measured, {("cpu", 64): cpu_s, ("lambda", 64): lambda_s}) is right
