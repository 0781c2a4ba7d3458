"""``run.on_nan``, as the coordinator sees it: rule 7 of ``run_coordinator.coordinator``."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from run_coordinator.actions import Record
from run_coordinator.coordinator import LAST_WORD_S, Coordinator
from run_coordinator.recovery.history import rewind
from siafu.address import graph_server, param_server
from siafu.checkpoints import TrainingState
from siafu.config import Config
from siafu.errors import GnnError
from siafu.progress import summary
from siafu.wire import EpochReport, Hello, ModelWeights, Ready, Skipped

WHERE = "gradient of epoch 1 interval 3 (graph server 1) layer 0: 0.weight"


def coordinator(on_nan: str, before: TrainingState | None = None) -> Coordinator:
    """Of one graph server and two parameter servers, which train."""
    settings = {"data.parts": 1, "servers.param_servers": 2, "run.on_nan": on_nan, "run.checkpoint_seconds": 0.0}
    core = Coordinator(Config().replace(settings), before=before)
    core.begin(0.0)
    for member in core.members:
        core.handle(member, Hello(member.role, member.index, core.config.digest, "tcp://x"), 1.0)
        core.handle(member, Ready(member.role, member.index), 1.0)
    return core


def epoch(core: Coordinator, number: int, loss: float) -> list[object]:
    report = EpochReport(0, number, np.array([loss]), 0, np.zeros(1, np.int64), json.dumps({}))
    return core.handle(graph_server(0), report, 2.0 + number)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run_unless_steps_may_be_left_out(loss: float):
    core = coordinator("stop")
    epoch(core, 0, loss)
    with pytest.raises(GnnError, match=f"epoch 1: the loss is {loss}"):
        core.tick(2.0 + LAST_WORD_S)
    core = coordinator("skip")
    epoch(core, 0, loss)
    assert not math.isfinite(core.ledger.losses[0])


def test_a_step_left_out_is_recorded_once_whoever_tells_of_it():
    core = coordinator("skip")
    assert core.handle(param_server(1), Skipped(1, 1, WHERE), 3.0) == [
        Record({"event": "skipped", "epoch": 2, "where": WHERE})
    ]
    assert core.handle(param_server(0), Skipped(0, 1, "sum of all gradients of epoch 1: 0.weight"), 3.0) == []
    assert core.ledger.skipped == {1: WHERE}


def test_what_was_left_out_before_a_failure_stays_counted_and_what_is_run_again_does_not():
    core = coordinator("skip")
    for number in range(4):
        epoch(core, number, 0.5)
    for number in (1, 3):
        core.handle(param_server(0), Skipped(0, number, WHERE), 3.0)
    ledger = json.loads(json.dumps(core._dump(3, 9.0)))
    assert Coordinator(core.config, before=TrainingState(3, {3: {}}, {}, ledger)).ledger.skipped == {1: WHERE}


def test_metrics_of_steps_that_are_run_again_go(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"event": "skipped", "epoch": epoch, "where": WHERE}) for epoch in (2, 4)]
    metrics.write_text("\n".join(lines) + "\n")
    rewind(metrics, 3, -1)
    assert metrics.read_text().splitlines() == lines[:1]


@pytest.mark.parametrize(("skipped", "line"), [(0, None), (1, "1 step with"), (3, "3 steps with")])
def test_the_result_counts_them_and_the_summary_says_so(skipped: int, line: str | None):
    core = coordinator("skip")
    core.stopped = "epochs"
    for number in range(skipped):
        core.handle(param_server(0), Skipped(0, number, WHERE), 3.0)
    for server in (0, 1):
        core.handle(param_server(server), ModelWeights("final", 4, {"W": np.ones(1)}, 1), 4.0)
    result = core.result()
    assert result["skipped_steps"] == skipped
    found = [text for text in summary({**result, "run_dir": "runs/x"}) if text.startswith("skipped")]
    assert found == ([f"skipped     {line} NaN or infinity: see metrics.jsonl"] if line else [])
