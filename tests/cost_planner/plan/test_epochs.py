"""How many epochs a mode needs: told, or as finished runs needed."""

from __future__ import annotations

import json

import pytest

from cost_planner.plan.epochs import of_runs
from siafu import config as configs
from siafu.config import Config
from siafu.errors import ConfigError


def run(folder, mode, scores, staleness=0):
    """A finished run's directory."""
    folder.mkdir()
    config = Config().replace({"train.mode": mode, "train.staleness": staleness})
    (folder / "config.toml").write_text(configs.dump(config))
    lines = []
    for epoch, score in enumerate(scores):
        lines.append({"event": "epoch", "epoch": epoch + 1, "time_s": float(epoch + 1), "usd": 0.0, "usage": {}})
        lines.append({"event": "evaluation", "epoch": epoch + 1, "val": {"acc": score}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_run_says_its_own_number_and_that_of_the_others(tmp_path):
    found = of_runs([run(tmp_path / "a", "pipe", [0.1, 0.5, 0.7, 0.8])], 0.7)
    assert found.of("pipe", 0) == found.of("no-pipe", 0) == 3
    assert found.of("async", 1) == round(3 * 1.407)


def test_what_was_measured_of_a_mode_goes_before_the_paper(tmp_path):
    runs = [run(tmp_path / "a", "pipe", [0.2] * 99 + [0.9]), run(tmp_path / "b", "async", [0.2] * 79 + [0.9])]
    found = of_runs(runs, None)
    assert (found.of("pipe", 0), found.of("async", 0)) == (100, 80)


def test_an_async_run_alone_says_what_pipe_would_need(tmp_path):
    found = of_runs([run(tmp_path / "a", "async", [0.2] * 140 + [0.9], staleness=1)], 0.9)
    assert found.of("async", 1) == 141
    assert found.of("pipe", 0) == pytest.approx(100, abs=1)


def test_a_target_that_was_never_reached_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"never reaches 0\.99, its best is 0\.8"):
        of_runs([run(tmp_path / "a", "pipe", [0.8])], 0.99)
