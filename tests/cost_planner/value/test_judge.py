"""Time, money and value to one score, from what runs have written down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cost_planner.value import judge, table, trained
from cost_planner.value.judge import StandIn
from siafu.__main__ import main
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError, PriceUnknown
from siafu.pricing import cost
from siafu.pricing.prices import instance
from tests.cost_planner.value.runs import write

C5 = instance("c5.2xlarge").usd_per_hour / 3600
AS = StandIn(graph="c5.2xlarge", param="c5.large", gpu="g4dn.xlarge")


def cpu(**changes: Any) -> Config:
    return Config().replace({"servers.backend": "cpu", "train.mode": "pipe", "data.parts": 2, **changes})


def lambdas(**changes: Any) -> Config:
    return Config().replace({"servers.backend": "lambda", "train.mode": "async", "data.parts": 2, **changes})


def judged(*runs: Path, stand_in: StandIn = AS, **options: Any) -> dict[str, Any]:
    return judge.judged([trained.read(run) for run in runs], stand_in, **options)


def test_time_is_that_of_the_first_epoch_that_reaches_the_target(tmp_path):
    found = judged(write(tmp_path / "a", cpu(), [0.5, 0.7, 0.6, 0.9]), target=0.7)
    (row,) = found["rows"]
    assert (row["name"], row["seconds"], row["epochs"]) == ("cpu pipe", 200.0, 2)


def test_target_is_the_highest_that_all_reach(tmp_path):
    runs = write(tmp_path / "a", cpu(), [0.5, 0.9]), write(tmp_path / "b", lambdas(), [0.8, 0.7])
    found = judged(*runs)
    assert found["target"] == 0.8
    assert [row["epochs"] for row in found["rows"]] == [2, 1]


def test_servers_are_charged_as_what_they_stand_for(tmp_path):
    (row,) = judged(write(tmp_path / "a", cpu(), [0.9]))["rows"]
    assert row["cost"]["parts"]["graph_servers"] == pytest.approx(2 * C5 * 100)
    assert row["stand_in"]
    assert row["value"] == pytest.approx(1 / (100 * row["cost"]["usd"]))


def test_lambdas_come_on_top_of_servers(tmp_path):
    runs = write(tmp_path / "a", cpu(), [0.9]), write(tmp_path / "b", lambdas(), [0.9], gb_s=3.0)
    base, row = judged(*runs)["rows"]
    assert row["name"] == "lambda async s=0"
    assert row["cost"]["usd"] - base["cost"]["usd"] == pytest.approx(cost.lambda_usd(2, 3.0))
    assert row["relative_value"] == pytest.approx(base["cost"]["usd"] / row["cost"]["usd"])


def test_baselines_cost_what_their_machine_costs(tmp_path):
    config = BaselineConfig().replace({"baseline.method": "pipegcn", "baseline.ranks": 2})
    run = write(tmp_path / "a", config, [0.9])
    (row,) = judged(run)["rows"]
    assert (row["name"], row["cost"]["parts"]["gpu"]) == (
        "pipegcn ranks=2",
        pytest.approx(instance("g4dn.xlarge").usd_per_hour / 36),
    )
    with pytest.raises(ConfigError, match="on which machine"):
        judged(run, stand_in=StandIn("c5.2xlarge"))


def test_runs_of_one_name_are_repetitions(tmp_path):
    runs = [write(tmp_path / str(n), cpu(), [0.9], epoch_s=n * 100.0) for n in (1, 2, 6)]
    (row,) = judged(*runs, target=0.9)["rows"]
    assert (row["runs"], row["reached"], row["seconds"]) == (3, 3, 300.0)


@pytest.mark.parametrize("stopped", ["epochs", "patience"])
def test_who_failed_has_spent_what_a_success_must_make_up_for(tmp_path, stopped):
    """Rule 3: a contender that fails every second time was judged by the times that it did not."""
    runs = [write(tmp_path / str(n), cpu(), [0.9], epoch_s=100.0) for n in range(2)]
    (alone,) = judged(*runs, target=0.9)["rows"]
    missed = [write(tmp_path / f"missed-{n}", cpu(), [0.2, 0.3, 0.4], epoch_s=100.0, stopped=stopped) for n in range(2)]
    (row,) = judged(*runs, *missed, target=0.9)["rows"]
    assert (row["runs"], row["reached"], row["missed"], row["seconds"]) == (4, 2, 2, (100 + 100 + 300 + 300) / 2)
    assert row["cost"]["usd"] == pytest.approx(4 * alone["cost"]["usd"])
    assert sum(item["usd"] for item in row["cost"]["items"]) == pytest.approx(row["cost"]["usd"])
    assert row["value"] == pytest.approx(alone["value"] / 16)


@pytest.mark.parametrize("stopped", ["", "time", "budget"])
def test_who_was_stopped_before_is_neither_success_nor_failure(tmp_path, stopped):
    """Rule 4."""
    runs = [write(tmp_path / "a", cpu(), [0.9]), write(tmp_path / "b", cpu(), [0.2, 0.3], stopped=stopped)]
    (row,) = judged(*runs, target=0.9)["rows"]
    assert (row["runs"], row["reached"], row["missed"], row["cut_short"], row["seconds"]) == (2, 1, 0, 1, 100.0)
    assert [one.reached for one in judge.attempts(row)] == [True]


def test_who_stopped_at_a_lower_target_is_refused(tmp_path):
    """Rule 4: it was counted as failed."""
    goal = {"train.target_acc": 0.8}
    over = write(tmp_path / "a", cpu(**goal), [0.5, 0.9], stopped="target")
    at = write(tmp_path / "b", cpu(**goal), [0.5, 0.82], stopped="target")
    assert [row["reached"] for row in judged(over, at)["rows"]] == [2]
    assert [row["reached"] for row in judged(over, at, target=0.7)["rows"]] == [2]
    with pytest.raises(
        ConfigError, match=r"b: stopped at its own target, 0\.8 \(val\), with 0\.8200 \(val\): nothing says"
    ):
        judged(over, at, target=0.85)


def test_time_starts_with_the_roles_as_in_a_plan(tmp_path):
    """Rule 1: start-up was in nobody's time, but in everybody's bill."""
    (row,) = judged(write(tmp_path / "a", cpu(), [0.9], setup_s=20.0))["rows"]
    assert (row["seconds"], row["setup_s"]) == (120.0, 20.0)
    assert row["cost"]["amounts"]["seconds"] == 120.0
    runs = write(tmp_path / "b", cpu(), [0.9], setup_s=20.0), write(tmp_path / "c", lambdas(), [0.9], setup_s=None)
    rows = judged(*runs)["rows"]
    assert [(row["seconds"], row["setup_s"]) for row in rows] == [(100.0, None)] * 2


def test_baselines_are_judged_without_the_evaluations_that_they_stop_for(tmp_path):
    """Those of earlier epochs were in their times, 5 s each here."""
    config = BaselineConfig().replace({"baseline.ranks": 1})
    (row,) = judged(write(tmp_path / "a", config, [0.5, 0.6, 0.9]))["rows"]
    assert (row["seconds"], row["evaluation_s"]) == (300.0 - 2 * 5, 2 * 5)
    lines = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    for line in lines[1:]:  # a newer version's clock stands still meanwhile
        before = 5 * (line["epoch"] - 1)
        line["time_s"] = 100.0 * line["epoch"] - before
        line["evaluation_s"] = before + 5 * (line["event"] == "evaluation")
    (tmp_path / "a/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (row,) = judged(tmp_path / "a")["rows"]
    assert (row["seconds"], row["evaluation_s"]) == (300.0 - 2 * 5, 2 * 5)
    (row,) = judged(write(tmp_path / "b", cpu(), [0.5, 0.6, 0.9], seconds={"GA_s": 3.0, "eval_s": 1.0}))["rows"]
    assert (row["seconds"], row["evaluation_s"], row["evaluation_share"]) == (300.0, 0.0, 0.25)


def test_values_have_the_interval_of_their_ratio(tmp_path):
    runs = [
        write(tmp_path / f"{n}{k}", config(**{"train.seed": n}), [0.9], epoch_s=100.0 * (k + 1) + n)
        for k, config in enumerate((cpu, lambdas))
        for n in range(5)
    ]
    first, second = judged(*runs)["rows"]
    assert first["interval"] is None
    assert second["interval"][0] < second["relative_value"] < second["interval"][1] < 1
    assert judged(*runs[:-1])["rows"][1]["interval"] is None  # four pairs


def test_runs_have_their_spread(tmp_path):
    runs = [write(tmp_path / str(n), cpu(), [0.5, 0.9], epoch_s=n * 100.0) for n in (1, 2, 6)]
    (row,) = judged(*runs, target=0.9)["rows"]
    assert (row["seconds"], row["epochs"]) == (600.0, 2)
    assert row["spread"]["seconds"] == [200.0, 1200.0]
    assert row["spread"]["epochs"] == [2, 2]
    assert row["spread"]["usd"][0] < row["cost"]["usd"] < row["spread"]["usd"][1]
    assert row["spread"]["value"][0] < row["value"] < row["spread"]["value"][1]
    assert row["scores"] == pytest.approx({"train": 1.0, "val": 0.9, "test": 0.8})


def test_who_failed_has_a_row_that_says_why(tmp_path):
    run = trained.read(write(tmp_path / "a", cpu(), [0.9]))
    found = judge.judged([run], AS, failed={"gpu pipe": ["no GPU"], "cpu pipe": ["the loss is nan", "the loss is nan"]})
    gpu, both = found["rows"]
    assert (gpu["name"], gpu["runs"], gpu["value"], gpu["errors"]) == ("gpu pipe", 1, None, ["no GPU"])
    assert (both["runs"], both["reached"], both["errors"]) == (3, 1, ["the loss is nan"])
    assert found["relative_to"] == "cpu pipe"
    assert judge.judged([], AS, failed={"gpu pipe": ["no GPU"]})["target"] is None


def test_who_was_left_out_has_not_failed(tmp_path, capsys):
    """Names in brackets are no markup of rich's."""
    run = replace(trained.read(write(tmp_path / "a", cpu(), [0.9])), name="cpu [red]")
    failed = {"vanilla ranks=1": [], "gpu pipe": ["no GPU"], "cpu [red]": []}
    found = judge.judged([run], AS, failed=failed, left_out={"vanilla ranks=1": "baselines need torch"})
    row = found["rows"][0]
    assert (row["runs"], row["errors"], row["left_out"]) == (0, [], "baselines need torch")
    printed = {
        "source": "a[b]",
        "run_dir": None,
        "tuned": {"gpu pipe": {"asked": "gpu pipe", "size": None, "lr": 0.01, "tries": 3, "seconds": 9.0, "usd": 0.5}},
        "stand_in": AS.to_dict(),
        "machines": [],
        "predicted_widths": None,
        **found,
    }
    table.show({**printed, "finding": {"text": "", "but": []}}, Console(markup=False, width=120))
    said = capsys.readouterr().out
    rows = {line.split("  ")[0]: line for line in said.splitlines()}
    assert "left out" in rows["vanilla ranks=1"]
    assert "failed" in rows["gpu pipe"]
    assert "cpu [red]" in rows
    assert "vanilla ranks=1: baselines need torch" in said
    assert "a[b]: to 0.9" in said
    assert "- gpu pipe: learning rate 0.01; 3 tries, 9.0 s, $0.50" in said


def test_target_is_what_all_were_trained_to(tmp_path):
    goal = {"train.target_acc": 0.85}
    runs = write(tmp_path / "a", cpu(**goal), [0.5, 0.9]), write(tmp_path / "b", lambdas(**goal), [0.8])
    found = judged(*runs)
    assert found["target"] == 0.85
    assert [row["reached"] for row in found["rows"]] == [1, 0]


def test_servers_with_a_gpu_cost_what_such_a_machine_does(tmp_path):
    run = write(tmp_path / "a", cpu(**{"servers.backend": "gpu"}), [0.9])
    (row,) = judged(run)["rows"]
    assert row["cost"]["parts"]["graph_servers"] == pytest.approx(2 * instance("g4dn.xlarge").usd_per_hour / 36)
    with pytest.raises(ConfigError, match="a server with a GPU stands for"):
        judged(run, stand_in=StandIn("c5.2xlarge"))


def test_what_a_gpu_is_rented_for_costs_others_nothing(tmp_path):
    run = write(tmp_path / "a", cpu(), [0.9])
    alone, beside = (judged(run, stand_in=StandIn("c5.2xlarge", gpu=gpu))["rows"][0] for gpu in ("", "g4dn.xlarge"))
    assert alone["cost"]["usd"] == beside["cost"]["usd"]


def test_lambdas_under_way_are_in_the_bill_and_its_items(tmp_path):
    run = write(tmp_path / "a", lambdas(), [0.9], gb_s=3.0)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[1]["usd"] = 1.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    bill = judged(run)["rows"][0]["cost"]
    assert bill["parts"]["lambda"] == pytest.approx(1.0)
    assert sum(item["usd"] for item in bill["items"]) == pytest.approx(bill["usd"])


def test_who_does_not_get_there_has_no_value(tmp_path):
    runs = write(tmp_path / "a", cpu(), [0.9]), write(tmp_path / "b", lambdas(), [0.4])
    row = judged(*runs, target=0.9)["rows"][1]
    assert (row["reached"], row["value"], row["relative_value"], row["best"]) == (0, None, None, 0.4)


def test_a_run_on_aws_keeps_its_own_machines(tmp_path):
    config = cpu(**{"run.on": "aws", "cloud.graph_instance": "c7g.xlarge"})
    (row,) = judged(write(tmp_path / "a", config, [0.9]))["rows"]
    assert row["cost"]["parts"]["graph_servers"] == pytest.approx(2 * instance("c7g.xlarge").usd_per_hour / 36)
    assert not row["stand_in"]


def test_mistakes_are_named(tmp_path):
    run = write(tmp_path / "a", cpu(), [0.9])
    with pytest.raises(ConfigError, match="nowhere: not a run directory"):
        trained.read(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="nothing was evaluated"):
        trained.read(write(tmp_path / "b", cpu(), []))
    with pytest.raises(ConfigError, match=r"--relative-to gpu: must be one of cpu pipe"):
        judged(run, beside="gpu")
    with pytest.raises(PriceUnknown, match=r"c5\.tiny"):
        judged(run, stand_in=StandIn("c5.tiny"))
    with pytest.raises(ConfigError, match="has no rest score to compare: nothing of that split was scored"):
        judged(run, split="rest")


def test_table_shows_means_and_below_them_the_least_and_the_most(tmp_path, capsys):
    runs = [str(write(tmp_path / str(n), cpu(), [0.5, 0.9], epoch_s=n * 100.0)) for n in (1, 2, 3)]
    other = str(write(tmp_path / "other", lambdas(), [0.9], gb_s=2.0))
    assert main(["value", *runs, other, "--target", "0.9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("cpu pipe"))
    assert lines[row].split()[2:7] == ["3", "400", "0.0", "2", "0.8000"]
    assert lines[row + 1].split()[0] == "200–600"
    assert not any("…" in line for line in lines)


def test_verb(tmp_path, capsys):
    runs = [str(write(tmp_path / "a", cpu(), [0.9])), str(write(tmp_path / "b", lambdas(), [0.4, 0.9], gb_s=2.0))]
    assert main(["value", *runs, "--json", "--relative-to", "lambda async s=0"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["relative_value"] for row in said["rows"]][1] == 1.0
    assert main(["value", *runs, "--target", "0.95"]) == 0
    assert "best 0.9" in capsys.readouterr().out
    other = str(write(tmp_path / "c", cpu(**{"data.source": "cora"}), [0.9]))
    assert main(["value", runs[0], other]) == 2
    assert "runs of 2 graphs" in capsys.readouterr().err
    for run in (runs[0], other):  # two ways to one graph
        (Path(run) / "manifest.json").write_text(json.dumps({"data": {"edges": "a1"}}))
    assert main(["value", runs[0], other]) == 0


def test_verb_judges_what_is_finished_of_runs_that_were_trained_together(tmp_path, capsys):
    together = tmp_path / "seeds"
    for number in (0, 1):
        write(together / f"seed-{number}", cpu(**{"train.seed": number}), [0.9])
    (together / "seed-1" / "result.json").unlink()
    assert main(["value", str(together)]) == 2  # not trained together: no plan
    (together / "plan.json").write_text("{}")
    capsys.readouterr()
    assert main(["value", str(together), "--json"]) == 0
    assert [(row["name"], row["runs"]) for row in json.loads(capsys.readouterr().out)["rows"]] == [("cpu pipe", 1)]
    (together / "seed-0" / "result.json").unlink()
    assert main(["value", str(together)]) == 2
    assert "nothing to compare: none of the runs in" in capsys.readouterr().err
