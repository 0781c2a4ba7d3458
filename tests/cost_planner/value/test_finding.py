"""What is said of a table. Numbers of rules are those of ``cost_planner.value.finding``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cost_planner.value import break_even, finding, judge, value
from cost_planner.value.judge import StandIn
from siafu.baseline import BaselineConfig
from siafu.config import Config
from tests.cost_planner.value.runs import write

AS = StandIn(graph="c5.2xlarge", param="c5.large", gpu="g4dn.xlarge")
CPU = Config().replace({"servers.backend": "cpu", "train.mode": "pipe"})
LAMBDA = Config().replace({"servers.backend": "lambda", "train.mode": "pipe"})
VANILLA = BaselineConfig().replace({"baseline.ranks": 1})


def found(folder: Path, *runs: tuple[Config, float], gb_s: float = 0.0, **options: Any) -> dict[str, Any]:
    """A table of runs that take so many seconds to the target."""
    number = len(list(folder.iterdir()))
    read = [
        judge.read(write(folder / str(number + n), config, [0.9], epoch_s=seconds, gb_s=gb_s, **options))
        for n, (config, seconds) in enumerate(runs)
    ]
    table = judge.judged(read, AS)
    return {
        **table,
        "stand_in": {"graph": AS.graph, "param": AS.param, "gpu": AS.gpu, "num_gpus": 1},
        "machines": ["2 cores, Linux"],
    }


def test_break_even_is_exact_with_a_fixed_amount():
    seconds = break_even(100.0, 0.5, 0.001, fixed_usd=0.2)
    assert value(seconds, 0.2 + 0.001 * seconds) == pytest.approx(value(100.0, 0.5))
    assert break_even(100.0, 0.5, 0.0, fixed_usd=0.2) == pytest.approx(250.0)


def test_one_run_of_each_tells_nothing_of_noise(tmp_path):
    said = finding.of(found(tmp_path, (CPU, 100.0), (LAMBDA, 200.0)))
    assert said["best"] == "cpu pipe"
    assert said["best_beside_next"]["certain"] is None
    assert said["text"].startswith(
        "CPU servers alone (cpu pipe) have 4.00 times the value of Lambdas (lambda pipe) (one run"
    )
    assert "not measured on EC2: times of a machine with 2 cores" in said["but"][0]
    assert "shared cores" in said["but"][1]


def test_runs_that_overlap_are_no_finding(tmp_path):
    apart = found(tmp_path, (CPU, 100.0), (CPU, 150.0), (LAMBDA, 200.0), (LAMBDA, 300.0))
    assert finding.of(apart)["lambda_beside_cpu"]["certain"]
    assert "(in every run)" in finding.of(apart)["text"]
    overlap = found(tmp_path, (CPU, 100.0), (CPU, 250.0), (LAMBDA, 200.0), (LAMBDA, 300.0))
    assert finding.of(overlap)["lambda_beside_cpu"]["certain"] is False
    assert "that may be noise" in finding.of(overlap)["text"]


@pytest.mark.parametrize(("cpu_s", "lambda_s"), [(100.0, 200.0), (10.0, 20.0), (50.0, 300.0), (400.0, 30.0)])
def test_in_the_break_even_time_lambdas_are_worth_as_much(tmp_path, cpu_s, lambda_s):
    """Rule 2: on either side of the 60 s that servers cost at least."""
    cpu, lambdas = found(tmp_path, (CPU, cpu_s), (LAMBDA, lambda_s), gb_s=900.0)["rows"]
    seconds = finding.even_s(lambdas, cpu)
    parts = lambdas["cost"]["parts"]
    servers = sum(usd for part, usd in parts.items() if part != "lambda") / max(lambda_s, 60)
    usd = servers * max(seconds, 60) + parts["lambda"] * seconds / lambda_s
    assert value(seconds, usd) == pytest.approx(cpu["value"])


def test_lambdas_win_below_what_their_absence_leaves(tmp_path):
    """Rule 3: servers that spend 3/4 on tensor tasks are done in a quarter of the time."""
    seconds = {"GA_s": 1.0, "AV_s": 2.0, "AV_B_s": 1.0, "eval_s": 9.0}
    table = found(tmp_path, (CPU, 400.0), (LAMBDA, 500.0), gb_s=100.0, seconds=seconds)
    win = finding.of(table)["lambdas_win"]
    assert (win["tensor_share"], win["least_s"]) == pytest.approx((0.75, 100.0))
    cpu = table["rows"][0]
    assert value(100.0, cpu["cost"]["usd"] / 4 + win["usd"]) == pytest.approx(cpu["value"])
    assert "Tensor tasks are 75% of the CPU servers' work" in finding.of(table)["text"]


def test_baselines_on_cores_are_no_gpus(tmp_path):
    table = found(tmp_path, (CPU, 100.0), (VANILLA, 900.0))
    table["rows"][1]["devices"] = ["cpu"]
    said = finding.of(table)
    assert "vanilla, the best at the price of g4dn.xlarge, would need" in said["text"]
    assert any("vanilla: trained on CPU cores, priced as one g4dn.xlarge" in but for but in said["but"])


def test_ranks_that_would_share_a_gpu_are_named(tmp_path):
    two = VANILLA.replace({"baseline.ranks": 2, "baseline.method": "sancus"})
    said = finding.of(found(tmp_path, (CPU, 100.0), (VANILLA, 900.0), (two, 900.0)))
    assert any(but.startswith("sancus: more ranks than the 1 GPU of g4dn.xlarge") for but in said["but"])


def test_nothing_to_compare_is_said(tmp_path):
    alone = found(tmp_path, (CPU, 10.0))
    assert finding.of(alone)["text"].startswith("cpu pipe alone has reached the target")
    assert any("60 s at least" in but for but in finding.of(alone)["but"])
    alone["rows"][0]["value"] = None
    assert finding.of(alone)["text"].startswith("No contender has reached the target")


def test_the_whole_runs_bill_stands_beside_the_dollars_until_the_target(tmp_path):
    """``siafu cost`` and a report count different things: one line says which is which."""
    run = write(tmp_path / "run", LAMBDA, [0.5, 0.9, 0.8])
    (run / "result.json").write_text(json.dumps({"cost": {"usd": 0.0123}}))
    table = judge.judged([judge.read(run)], AS)
    (row,) = table["rows"]
    assert row["run_usd"] == 0.0123
    stand_in = {"graph": AS.graph, "param": AS.param, "gpu": AS.gpu, "num_gpus": 1}
    said = finding.of({**table, "stand_in": stand_in, "machines": []})["but"]
    (line,) = [but for but in said if "siafu cost" in but]
    assert "dollars count until the target" in line
    assert "lambda pipe $0.0123" in line
    assert "those bills exclude servers that were not on AWS" in line


def test_a_run_without_a_bill_is_not_given_one(tmp_path):
    (row,) = judge.judged([judge.read(write(tmp_path / "run", CPU, [0.9]))], AS)["rows"]
    assert row["run_usd"] is None
