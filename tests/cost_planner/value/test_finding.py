"""What is said of a table. Numbers of rules are those of ``cost_planner.value.finding``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cost_planner.value import break_even, finding, judge, trained, value
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
        trained.read(write(folder / str(number + n), config, [0.9], epoch_s=seconds, gb_s=gb_s, **options))
        for n, (config, seconds) in enumerate(runs)
    ]
    table = judge.judged(read, AS)
    return {
        **table,
        "stand_in": AS.to_dict(),
        "machines": ["2 cores, Linux"],
    }


def test_break_even_is_exact():
    seconds = break_even(100.0, 0.5, 0.001)
    assert value(seconds, 0.001 * seconds) == pytest.approx(value(100.0, 0.5))


def test_one_run_of_each_tells_nothing_of_noise(tmp_path):
    said = finding.of(found(tmp_path, (CPU, 100.0), (LAMBDA, 200.0)))
    assert said["best"] == "cpu pipe"
    assert said["lambda_beside_cpu"]["certain"] is None
    assert said["text"].startswith("Not enough runs: a claim needs 5 seeds of each contender, here there is 1")
    assert (
        "In these runs: CPU servers alone (cpu pipe) have 4.00 times the value of Lambdas (lambda pipe), and 2.00 "
        "times the speed." in said["text"]
    )
    assert said["lambda_beside_cpu"]["faster"] == pytest.approx(0.5)
    assert "not measured on EC2: times of a machine with 2 cores" in said["but"][0]
    assert "shared cores" in said["but"][1]


def seeded(config: Config, *seconds: float) -> list[tuple[Config, float]]:
    """A run of each seed."""
    return [(config.replace({"train.seed": seed}), took) for seed, took in enumerate(seconds)]


def test_what_seeds_have_in_common_leaves_the_claim(tmp_path):
    """Rule 1: the slowest run of one is slower than the fastest of the other, which was called noise."""
    cpu, lambdas = seeded(CPU, 100, 150, 220, 300, 400), seeded(LAMBDA, 140, 215, 305, 420, 570)
    said = finding.of(found(tmp_path, *cpu, *lambdas))
    pair = said["lambda_beside_cpu"]
    assert pair["certain"]
    assert pair["times"] == pytest.approx((100 / 141) ** 2, rel=0.01)
    assert "have 1.99 times (95% interval 1.9" in said["text"]
    slowest, fastest = (1 / one for one in pair["faster_interval"])
    speed = f"{1650 / 1170:.2f} times ({fastest:.2f} to {slowest:.2f}) the speed."
    assert f"5 seeds) the value of Lambdas (lambda pipe), and {speed}" in said["text"]
    assert pair["faster"] == pytest.approx(1170 / 1650)  # seconds of all runs; servers are billed by the second
    assert pair["faster_interval"][0] ** 2 == pytest.approx(pair["interval"][0], rel=0.01)
    assert "Not enough" not in said["text"]


def test_what_seeds_do_not_agree_on_is_no_finding(tmp_path):
    cpu, lambdas = seeded(CPU, 100, 150, 220, 300, 400), seeded(LAMBDA, 400, 150, 100, 320, 500)
    said = finding.of(found(tmp_path, *cpu, *lambdas))
    assert said["lambda_beside_cpu"]["certain"] is False
    assert "Lambdas (lambda pipe) may not differ from CPU servers alone (cpu pipe)" in said["text"]


def test_who_is_worth_most_is_told_apart_from_everybody(tmp_path):
    """Rule 2."""
    no_pipe = CPU.replace({"train.mode": "no-pipe"})
    first, last = seeded(CPU, 100, 101, 102, 103, 104), seeded(LAMBDA, 300, 301, 302, 303, 304)
    apart = found(tmp_path, *first, *seeded(no_pipe, 200, 201, 202, 203, 204), *last)
    assert "cpu pipe has the highest value: 3.9" in finding.of(apart)["text"]
    three = [*first, *last, *seeded(VANILLA, 900, 901, 902, 903, 904)]
    assert finding.of(found(tmp_path, *three))["text"].startswith(
        "cpu pipe has the highest value. CPU servers alone (cpu pipe)"
    )
    assert "widened for the choice among 2 pairs" in finding.of(apart)["text"]
    alike = found(tmp_path, *first, *seeded(no_pipe, 90, 120, 95, 125, 100), *last)
    assert "cpu pipe has the highest value here, but may not differ from cpu no-pipe (1." in finding.of(alike)["text"]


@pytest.mark.parametrize(("cpu_s", "lambda_s"), [(100.0, 200.0), (10.0, 20.0), (50.0, 300.0), (400.0, 30.0)])
def test_in_the_break_even_time_lambdas_are_worth_as_much(tmp_path, cpu_s, lambda_s):
    """Rule 3: on either side of the 60 s that servers cost at least."""
    cpu, lambdas = found(tmp_path, (CPU, cpu_s), (LAMBDA, lambda_s), gb_s=900.0)["rows"]
    seconds = finding.even_s(lambdas, cpu)
    parts = lambdas["cost"]["parts"]
    servers = sum(usd for part, usd in parts.items() if part != "lambda") / max(lambda_s, 60)
    usd = servers * max(seconds, 60) + parts["lambda"] * seconds / lambda_s
    assert value(seconds, usd) == pytest.approx(cpu["value"])


def test_lambdas_win_below_what_their_absence_leaves(tmp_path):
    """Rule 4: servers that spend 3/4 on tensor tasks are done in a quarter of the time."""
    seconds = {"GA_s": 1.0, "AV_s": 2.0, "AV_B_s": 1.0, "eval_s": 9.0}
    table = found(tmp_path, (CPU, 400.0), (LAMBDA, 500.0), gb_s=100.0, seconds=seconds)
    win = finding.of(table)["lambdas_win"]
    assert (win["tensor_share"], win["least_s"]) == pytest.approx((0.75, 100.0))
    cpu = table["rows"][0]
    assert value(100.0, cpu["cost"]["usd"] / 4 + win["usd_at_most"]) == pytest.approx(cpu["value"])
    assert "Tensor tasks are 75% of the CPU servers' work" in finding.of(table)["text"]


def test_a_price_at_which_lambdas_win_is_one_at_which_they_win(tmp_path):
    """Rule 4: it said "would win below $0.02, here they cost $0.000001" of Lambdas that lost."""
    cpu, lambdas = (table := found(tmp_path, (CPU, 400.0), (LAMBDA, 350.0), gb_s=100.0))["rows"]
    win, lambda_usd = finding.of(table)["lambdas_win"], lambdas["cost"]["parts"]["lambda"]
    servers = lambdas["cost"]["usd"] - lambda_usd
    assert value(350.0, servers + win["usd_here"]) == pytest.approx(cpu["value"])
    assert (lambda_usd < win["usd_here"]) == (lambdas["value"] > cpu["value"])
    assert "In that time, Lambdas win below a cost of" in finding.of(table)["text"]
    slow = finding.of(found(tmp_path, (CPU, 400.0), (LAMBDA, 900.0), gb_s=0.001))["text"]
    assert "is not the reason: free Lambdas would not win in that time either" in slow
    assert "win if" not in slow


def test_of_runs_below_a_minute_no_price_at_best_is_said(tmp_path):
    """Rule 4: what servers cost then does not follow their time."""
    seconds = {"GA_s": 1.0, "AV_s": 3.0}
    for cpu_s, said in ((230.0, False), (250.0, True)):  # of which a quarter is left
        text = finding.of(found(tmp_path, (CPU, cpu_s), (LAMBDA, 500.0), seconds=seconds))["text"]
        assert ("Tensor tasks are 75%" in text) == said


def test_cores_that_are_not_those_of_the_type_are_named(tmp_path):
    """c5.2xlarge has 8 vCPUs, of which a server of two would have all."""
    for cores, said in ((2, True), (16, False)):
        (row,) = found(tmp_path, (CPU.replace({"data.parts": 2}), 100.0), cores=cores)["rows"]
        table = found(tmp_path, (CPU.replace({"data.parts": 2}), 100.0), cores=cores)
        text = [but for but in finding.of(table)["but"] if "vCPUs" in but]
        assert row["threads"] == cores // 2
        assert bool(text) == said
        assert not said or text[0].startswith("a graph server computes on 1 core here, c5.2xlarge has 8 vCPUs")


def test_runs_that_do_not_count_as_successes_are_named(tmp_path):
    table = found(tmp_path, (CPU, 100.0), (LAMBDA, 200.0))
    table["rows"][0] |= {"runs": 3, "missed": 1, "cut_short": 1}
    first, second = finding.of(table)["but"][:2]
    assert first.startswith("runs that ended below the target: cpu pipe 1 of 3; their time and dollars count")
    assert second.startswith("runs that a limit stopped, or that did not finish: cpu pipe 1 of 3")


def test_which_evaluations_are_in_whose_time_is_said(tmp_path):
    seconds = {"GA_s": 3.0, "eval_s": 1.0}
    table = found(tmp_path, (CPU, 100.0), (VANILLA, 900.0), seconds=seconds)
    table["rows"][1]["evaluation_s"] = 7.0
    said = finding.of(table)["but"]
    assert any("of what they computed: cpu pipe 25%" in but for but in said)
    assert any(but.endswith("left out of their times: vanilla ranks=1 7 s a run") for but in said)
    old = found(tmp_path, (CPU, 100.0), (LAMBDA, 900.0), setup_s=None)
    assert (
        "start-up is in no contender's time: not all of these runs say how long theirs took" in finding.of(old)["but"]
    )


def test_baselines_on_cores_are_no_gpus(tmp_path):
    table = found(tmp_path, (CPU, 100.0), (VANILLA, 900.0))
    table["rows"][1]["devices"] = ["cpu"]
    said = finding.of(table)
    assert "vanilla ranks=1, the best at the price of g4dn.xlarge, would need" in said["text"]
    assert "vanilla ranks=1: trained on CPU cores, priced as one g4dn.xlarge, whose GPU would be faster" in said["but"]


def test_ranks_that_would_share_a_gpu_are_named(tmp_path):
    two = VANILLA.replace({"baseline.ranks": 2, "baseline.method": "sancus"})
    said = finding.of(found(tmp_path, (CPU, 100.0), (VANILLA, 900.0), (two, 900.0)))
    assert any(but.startswith("sancus ranks=2: more ranks than the 1 GPU of g4dn.xlarge") for but in said["but"])


def test_ranks_on_the_cores_of_a_type_without_a_gpu_are_not_told_of_one(tmp_path):
    two = VANILLA.replace({"baseline.ranks": 2})
    table = found(tmp_path, (CPU, 100.0), (two, 900.0))
    table["rows"][1]["devices"] = ["cpu"]
    table["stand_in"] = StandIn(graph="c7g.xlarge", param="c7g.xlarge", gpu="c7g.xlarge").to_dict()
    said = finding.of(table)["but"]
    assert "vanilla ranks=2: trained on CPU cores, priced as one c7g.xlarge, which has no GPU" in said
    assert not any("would share" in but or "faster" in but for but in said)


def test_nothing_to_compare_is_said(tmp_path):
    alone = found(tmp_path, (CPU, 10.0))
    assert finding.of(alone)["text"].startswith("cpu pipe alone has reached the target")
    assert any("at least 60 s" in but for but in finding.of(alone)["but"])
    alone["rows"][0]["value"] = None
    assert finding.of(alone)["text"].startswith("No contender has reached the target")


def test_the_whole_runs_bill_stands_beside_the_dollars_until_the_target(tmp_path):
    """``siafu cost`` and a report count different things: one line says which is which."""
    run = write(tmp_path / "run", LAMBDA, [0.5, 0.9, 0.8])
    (run / "result.json").write_text(json.dumps({"cost": {"usd": 0.0123}}))
    table = judge.judged([trained.read(run)], AS)
    (row,) = table["rows"]
    assert row["run_usd"] == 0.0123
    said = finding.of({**table, "stand_in": AS.to_dict(), "machines": []})["but"]
    (line,) = [but for but in said if "siafu cost" in but]
    assert "dollars count until the target" in line
    assert "lambda pipe $0.0123" in line
    assert "those bills exclude servers that were not on AWS" in line


def test_a_run_without_a_bill_is_not_given_one(tmp_path):
    (row,) = judge.judged([trained.read(write(tmp_path / "run", CPU, [0.9]))], AS)["rows"]
    assert row["run_usd"] is None
