"""Finished runs beside their plans: which settings, and when a prediction counts as close."""

from __future__ import annotations

import pytest

from benchmarks.acceptance import predictions
from cost_planner.plan.check import Check, Quantity
from run_coordinator import run_config

ALL = [run for runs in predictions.RUNS.values() for run in runs]


@pytest.mark.parametrize("run", ALL, ids=lambda run: run.words)
def test_siafu_takes_the_settings_of_every_run(run: predictions.Run) -> None:
    config = run_config.resolve(run.graph, None, run.settings, {})
    assert (config.model.name, config.data.parts, config.servers.backend) == (run.model, run.parts, run.backend)
    assert (config.data.inductive, config.data.task == "link") == (run.inductive, bool(run.decoder))


def test_runs_are_told_apart_and_an_unknown_task_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert len({run.words for run in ALL}) == len(ALL)
    with pytest.raises(SystemExit):
        predictions.main(["--task", "edges"])
    assert "must be one of node, inductive, link, all" in capsys.readouterr().err


def test_the_middle_round_is_compared_and_what_was_not_measured_is_left_empty() -> None:
    def of(measured_s: float) -> Check:
        quantities = {
            "epoch_s": Quantity(0.115, measured_s),
            "memory_bytes": Quantity(2e8, 1e8),
            "ghost_bytes": Quantity(None, None),
        }
        return Check("run", quantities, 0.1)

    rounds = [of(0.1), of(0.3), of(0.05)]
    assert predictions.is_close(rounds)
    assert not predictions.is_close([of(0.05)])
    assert predictions.row(predictions.Run("cora", "gcn", 16), rounds) == {
        "run": "cora, gcn 2 x 16, cpu, 1 part",
        "predicted epoch, ms": "115",
        "measured, ms": "100",
        "predicted / measured": 1.15,
        "memory, predicted / measured": 2.0,
        "ghost bytes, predicted / measured": "",
    }
