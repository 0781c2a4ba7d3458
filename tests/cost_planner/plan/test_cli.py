"""``siafu plan``: acceptance of its answers, and one line for every mistake."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from cost_planner.plan import cli, ranking
from cost_planner.plan.asked import Asked
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.options import Catalogue
from cost_planner.plan.speeds import Speeds
from run_coordinator import prepared
from siafu.__main__ import main
from siafu.config import Config
from siafu.pricing import prices

COUNTS = ["--vertices", "65.6M", "--edges", "3.6B", "--features", "32", "--classes", "50"]
FRIENDSTER = ["plan", *COUNTS, "--model", "gcn", "--hidden", "32"]
LARGER = ["plan", "--vertices", "200M", "--edges", "10B", "--features", "64", "--classes", "40", "--hidden", "32"]
FEW = ["--instance", "c8gn.4xlarge,r8g.2xlarge", "--intervals", "16"]


@pytest.fixture(autouse=True)
def _few_simulations(monkeypatch):
    monkeypatch.setattr(ranking, "BUDGET", 8 * 3 * 4 * 16 * 9)


@pytest.mark.parametrize(
    ("argv", "servers"),
    [(FRIENDSTER, "24,32"), pytest.param(LARGER, "64", marks=pytest.mark.long)],
    ids=["friendster", "10 billion edges"],
)
def test_a_graph_of_billions_of_edges_is_answered_with_memory_and_quotas(argv, servers, capsys):
    assert main([*argv, *FEW, "--servers", servers, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    options = found["options"]
    assert [one["value"] for one in options] == sorted((one["value"] for one in options), reverse=True)
    for one in options:
        assert 0 < one["memory_gib"]["graph_server"] <= 0.9 * one["memory_gib"]["machine"]
        assert one["quotas"]["vcpus"] >= one["servers"] * 8
        assert one["seconds_range"][0] < one["seconds"] < one["seconds_range"][1]
        assert one["usd"] == pytest.approx(sum(one["cost"]["parts"].values()))
        assert one["epoch_s"] > 0 < one["setup_s"]
    assert [one["pareto"] for one in options].count(True) == len(found["pareto"]) >= 1
    assert options[0]["relative_value"] == 1
    assert any("Epochs" in line for line in found["assumptions"])
    assert all(one["break_even_seconds"] > 0 for one in found["gpus"])
    assert found["cheapest_within_time"] is None is found["fastest_within_usd"]


def test_limits_are_answered_by_number(capsys):
    limits = ["--within-time", "10d", "--within-usd", "0.000001"]
    assert main([*FRIENDSTER, "--servers", "32", *FEW, "--backend", "cpu", "--mode", "pipe", *limits, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    dollars = [option["cost"]["usd"] for option in found["options"]]
    assert dollars[found["cheapest_within_time"]] == min(dollars)
    assert found["fastest_within_usd"] is None


def test_the_answer_comes_first_and_fits_80_columns(capsys):
    argv = [*FRIENDSTER[:-4], "--model", "gat", "--servers", "32,64", "--intervals", "16"]
    assert main([*argv, "--instance", "c8gn.4xlarge,r8g.2xlarge,g6e.2xlarge"]) == 0
    *said, command = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    first = re.match(r"(Best value|Use CPUs only): cpu \S+ on (\d+) x \S+ takes \S+ min and \$\S+ for( 200)?$", said[0])
    assert first
    assert command.startswith(f"  siafu train SOURCE --on aws --set data.parts={first[2]}")
    assert max(map(len, said)) <= 80
    assert len(said) <= 40
    heads = next(line for line in said if "dollars" in line)
    assert heads.split() == ["option", "machines", "time", "dollars", "value"]
    # What may change the decision is said without --why; the rest is not.
    out = " ".join(" ".join(said).split())
    for words in (
        "No single GPU has the ",
        "x c7g.xlarge for parameter servers, disks and endpoints.",
        "needs quotas of ",
        "(L-1216C47A)",
        "Left out: ",
        "siafu has not been measured on EC2 or Lambda yet",
        "Prices of us-east-1",
        "The cut is not known: ",
        "--why",
    ):
        assert words in out, words
    assert "assumed:" not in out


def test_the_command_is_that_of_the_option_asked_for(capsys):
    argv = [*FRIENDSTER, *FEW, "--servers", "24,32", "--backend", "cpu", "--mode", "pipe"]
    assert main([*argv, "--within-time", "10d"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("cheapest within 240 h: ")
    machines, instance = re.search(r"^cheapest .* on (\d+) x ([\w.]+):", said).groups()
    assert f"--set data.parts={machines} " in said.splitlines()[-1]
    assert said.splitlines()[-1].endswith(f"--set cloud.graph_instance={instance}")


def test_the_table_says_what_it_rests_on(capsys):
    assert main([*FRIENDSTER, "--servers", "32", *FEW, "--within-usd", "1e-6", "--why"]) == 0
    out = capsys.readouterr().out
    for words in (
        "32 x ",
        "lambda pipe",
        "cpu async s=0",
        "fastest within",
        "none; the cheapest is",
        "assumed:",
        "No single GPU has",
        "siafu train SOURCE --on aws",
        "within the error" if "about even" in out else "the value of",
    ):
        assert words in " ".join(out.split())


def test_gpus_are_predicted_and_said_to_be_assumed(capsys):
    argv = [
        *FRIENDSTER,
        "--instance",
        "c8gn.4xlarge,g6e.2xlarge,p5.48xlarge",
        "--intervals",
        "16",
        "--servers",
        "8,24",
        "--mode",
        "pipe",
    ]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_backend = {one["backend"]: one for one in found["options"]}
    assert by_backend.keys() == {"cpu", "lambda", "gpu", "vanilla"}
    for name in ("gpu", "vanilla"):
        one = by_backend[name]
        assert one["basis"] == "assumed, not measured"
        assert one["seconds_range"][1] > 2 * one["seconds"]
        assert 0 < one["memory_gib"]["gpu"] <= 0.9 * one["memory_gib"]["gpu_card"]
    vanilla = by_backend["vanilla"]
    assert (vanilla["servers"], vanilla["ranks"], vanilla["mode"]) == (1, 8, None)
    assert vanilla["command"].startswith("siafu baseline vanilla SOURCE --ranks 8 --set")
    assert "servers.backend=gpu" in by_backend["gpu"]["command"]
    assert by_backend["cpu"]["basis"] == "calibrated"
    assert main([*argv, "--backend", "gpu,cpu"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "L40S 864 GB/s" not in out
    for words in ("gpu pipe*", "assumed, not measured", "siafu deploy installs no GPU driver"):
        assert words in out


def test_inductive_training_is_planned_for_counts_too_and_what_is_assumed_is_said(capsys):
    counts = ["--vertices", "100k", "--edges", "10M", "--features", "100", "--classes", "5"]
    command = ["plan", *counts, "--backend", "cpu", "--instance", "c7g.large", "--servers", "1", "--json"]
    found = []
    for flags in ([], ["--inductive"]):
        assert main([*command, *flags]) == 0
        found.append(json.loads(capsys.readouterr().out))
    whole, alone = (one["options"][0]["epoch_s"] for one in found)
    assert alone < whole
    for one in found:
        assert any("66% of the vertices train and 10% validate" in told for told in one["assumptions"])
    among = "44% of the edges are between training vertices"
    assert [any(among in told for told in one["assumptions"]) for one in found] == [False, True]


def test_shards_made_for_a_split_are_planned_for_it(tmp_path, monkeypatch):
    """Its training vertices are others than the first split's."""
    n, rng = 60, np.random.default_rng(0)
    order = np.stack([rng.permutation(n), rng.permutation(n)], axis=1)  # [N, 2]
    masks = {"train_mask": order < [10, 50], "val_mask": order == 58, "test_mask": order == 59}
    table = {"edge_index": rng.integers(n, size=(2, 300)), "x": np.eye(n, 4, dtype=np.float32), "y": np.arange(n) % 3}
    np.savez(tmp_path / "two.npz", **table, **masks)
    settings = {"source": tmp_path / "two.npz", "inductive": True, "split": 1, "cache_dir": tmp_path}
    config = Config().replace({f"data.{name}": str(value) for name, value in settings.items()})
    shards = str(prepared.shards_of(config))
    seen: list[Asked] = []

    def catalogue(asked: Asked) -> Catalogue:
        seen.append(asked)
        return Catalogue(asked)

    monkeypatch.setattr(cli, "Catalogue", catalogue)
    assert (
        main(["plan", shards, "--backend", "cpu", "--mode", "pipe", "--instance", "c7g.large", "--servers", "1"]) == 0
    )
    assert seen[0].config.data.split == 1


def test_a_model_whose_edges_are_not_counted_is_said_to_be_too_fast(capsys):
    argv = [*FRIENDSTER[:-4], *FEW, "--servers", "32", "--backend", "cpu", "--mode", "pipe", "--json"]
    for model, told in (("gcn", False), ("gat", False), ("rgcn", True)):
        assert main([*argv, "--model", model]) == 0
        assert any("too short" in line for line in json.loads(capsys.readouterr().out)["assumptions"]) == told


def test_a_type_that_the_settings_name_is_one_of_those_compared(monkeypatch, capsys):
    monkeypatch.setattr(prices, "instances", lambda region: [prices.instance("c8g.2xlarge", region)])
    words = "cloud.graph_instance is c5n.2xlarge; this plan compares all types. That one alone: --instance c5n.2xlarge"
    argv = ["plan", "--vertices", "1000", "--edges", "9000", "--features", "8", "--classes", "4", "--servers", "1"]
    argv += ["--backend", "cpu", "--mode", "pipe", "--intervals", "4", "--set", "cloud.graph_instance=c5n.2xlarge"]
    for more, told in (((), True), (("--instance", "c5n.2xlarge"), False)):
        assert main([*argv, *more]) == 0
        assert (words in " ".join(capsys.readouterr().out.split())) == told


def test_tables_are_named_as_for_siafu_train(tmp_path, capsys):
    (tmp_path / "follows.csv").write_text("who,to_whom\n1,2\n2,3\n3,4\n4,1\n")
    (tmp_path / "users.csv").write_text("id,age,size,job\n1,5,1,x\n2,6,2,y\n3,7,2,x\n4,7,2,z\n")
    argv = ["plan", str(tmp_path / "follows.csv"), "--src", "to_whom", "--dst", "who"]
    argv += ["--features", f"{tmp_path}/users.csv#age,size", "--labels", f"{tmp_path}/users.csv#job"]
    few = ["--backend", "cpu", "--mode", "pipe", "--instance", "c8g.2xlarge", "--servers", "1"]
    assert main([*argv, *few, "--set", f"data.cache_dir={tmp_path}/cache", "--json"]) == 0
    graph = json.loads(capsys.readouterr().out)["graph"]
    assert (graph["vertices"], graph["features"], graph["classes"]) == (4, 2, 3)


def test_calibrating_alone_says_what_was_found(capsys, monkeypatch):
    found = Calibration(error=0.07, machine="two cores")
    monkeypatch.setattr("cost_planner.plan.calibrate.calibrate", lambda console: found)
    assert main(["plan", "--calibrate"]) == 0
    assert capsys.readouterr().out == "two cores: epochs to within 7%\n"


def test_another_machines_calibration_is_taken(tmp_path, capsys):
    Calibration(Speeds().scaled(100), error=0.5, machine="an abacus").save(tmp_path / "slow.json")
    argv = [*FRIENDSTER, *FEW, "--servers", "32", "--backend", "cpu", "--mode", "pipe", "--json"]
    epochs_s = []
    for told in ([], ["--calibration", str(tmp_path / "slow.json")]):
        assert main([*argv, *told]) == 0
        found = json.loads(capsys.readouterr().out)
        epochs_s.append(found["options"][0]["epoch_s"])
    assert epochs_s[1] > 10 * epochs_s[0]
    assert any("an abacus" in line for line in found["assumptions"])


def test_the_default_output_says_whether_lambdas_pay_where_both_were_looked_at(capsys):
    argv = ["plan", "--vertices", "100k", "--edges", "2M", "--features", "32", "--classes", "5", "--mode", "pipe"]
    argv += ["--instance", "c5n.2xlarge", "--servers", "1,2", "--max-vcpus", "12", "--backend"]
    assert main([*argv, "cpu,lambda", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["lambdas"]
    assert told["servers"] == 1  # two servers and a parameter server have 20 vCPUs
    assert told["max_vcpus"] == 12
    for key in ("more_value_in_runs", "cheaper_in_runs"):
        assert all(one["from"]["epochs"] >= 1 for one in told[key])
    assert main([*argv, "cpu,lambda"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"On 1 x c5n.2xlarge, with at most 12 vCPUs, Lambdas give {told['faster']:.2f} times the speed and" in said
    assert f"{told['relative_value']:.2f} times the value of CPUs alone. They are faster " in said
    assert main([*argv, "cpu"]) == 0
    assert "Lambdas give" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["plan"], "no graph: give SOURCE, or --vertices"),
        (["plan", "--vertices", "10k"], "--edges, --features, --classes missing: without SOURCE, give all four counts"),
        (["plan", "digits", "--edges", "10k"], "digits already has counts"),
        (["plan", "digits", "--features", "64"], "digits already has counts"),
        ([*FRIENDSTER, "--labels", "users.csv#job"], "--labels is for SOURCE, and there is none"),
        ([*FRIENDSTER, "--backend", "tpu"], "must be of cpu, lambda, gpu, vanilla"),
        (
            [*FRIENDSTER, "--backend", "gpu", "--instance", "g4dn.xlarge", "--servers", "1"],
            "a GPU has too little memory",
        ),
        ([*FRIENDSTER, "--backend", "cpu", "--instance", "g4dn.xlarge"], "nothing fits: machines with a GPU"),
        ([*FRIENDSTER, "--mode", "sync"], "must be of pipe, async, no-pipe"),
        ([*FRIENDSTER, "--servers", "0"], "must be whole numbers of at least 1"),
        ([*FRIENDSTER, "--within-time", "soon"], "must be seconds"),
        ([*FRIENDSTER, "--within-time", "-5"], "--within-time -5: must be >= 0"),
        ([*FRIENDSTER, "--within-time", ""], "--within-time is empty"),
        ([*FRIENDSTER, "--hidden", "4096", "--servers", "1"], "nothing fits: a graph server would hold at least"),
        ([*FRIENDSTER, "--like", "nowhere"], "not a run directory"),
        ([*FRIENDSTER, "--calibration", "nowhere.json"], "no calibration"),
    ],
)
def test_a_mistake_is_one_line(argv, words, capsys):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_target_alone_promises_nothing_and_the_command_has_each_modes_epochs(capsys):
    argv = [*FRIENDSTER, *FEW, "--servers", "32", "--backend", "cpu", "--mode", "async", "--staleness", "0", "--json"]
    assert main([*argv, "--epochs", "100", "--target-acc", "0.8"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "whether they reach 0.8 or not" in found["assumptions"][0]
    assert "train.epochs=108" in found["options"][0]["command"]
