"""What Dorylus published against what its own times and AWS's prices give."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import dorylus, dorylus_dollars
from cost_planner.value import break_even, value

PAGE = Path(__file__).parents[2] / "docs/plan.md"
LINES = list(dorylus_dollars.published())
ROWS = {line.name: dorylus_dollars.recounted(line) for line in LINES}


def test_value_is_one_over_time_and_money():
    assert value(100.0, 0.5) == pytest.approx(0.02)
    assert value(100.0, 0.0) == float("inf")


def test_a_machine_that_takes_the_break_even_time_has_the_same_value():
    seconds = break_even(100.0, 0.5, usd_per_s=0.001)
    assert value(seconds, 0.001 * seconds) == pytest.approx(value(100.0, 0.5))


@pytest.mark.parametrize("line", LINES, ids=[line.name for line in LINES])
def test_servers_by_price_by_time_are_the_published_dollars(line):
    assert ROWS[line.name]["cpu_usd"] == pytest.approx(line.cpu_usd, rel=0.015)
    assert ROWS[line.name]["gpu_usd"] == pytest.approx(line.gpu_usd, rel=0.015)


@pytest.mark.parametrize(
    ("name", "implied", "vs_cpu", "vs_gpu"),
    [
        ("GCN Reddit-small", 0.037, 1.11, 0.27),
        ("GCN Reddit-large", 0.221, 1.38, 0.62),
        ("GCN Amazon", 0.298, 1.19, 2.49),
        ("GCN Friendster", 5.10, 1.95, 3.86),
        ("GAT Reddit-small", 0.681, 2.67, 0.25),
        ("GAT Amazon", 1.441, 2.76, 4.83),
    ],
)
def test_what_lambdas_cost_and_are_worth(name, implied, vs_cpu, vs_gpu):
    row = ROWS[name]
    assert row["implied_lambda_usd"] == pytest.approx(implied, abs=0.0051 if implied > 5 else 0.00051)
    assert row["value_vs_cpu"] == pytest.approx(vs_cpu, abs=0.0051)
    assert row["value_vs_gpu"] == pytest.approx(vs_gpu, abs=0.0051)


def test_what_the_simulator_says_of_lambdas_is_in_the_page():
    """Nothing is fitted to it: 0.5 to 4.1 times what the paper's dollars imply."""
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in PAGE.read_text().split("\n") if "| G" in row]
    said = {row[0]: row[1:] for row in rows if len(row) == 4}
    for name, row in ROWS.items():
        implied, simulated = row["implied_lambda_usd"], row["simulated_lambda_usd"]
        assert said[name] == [f"{implied:.3f}", f"{simulated:.3f}", f"{simulated / implied:.1f}"]


def test_lambdas_are_billed_for_tasks_in_steps_of_their_time(monkeypatch):
    """Of 4 Lambdas on each of 2 servers, 3 epochs in 6 s: each task of AV0 takes 4 x 2 ms and its bytes' way."""
    cluster = dorylus.Cluster(dorylus.Graph("small", 800, 4000, (100, 20, 5)), 2, 8, 10, 4)
    monkeypatch.setattr(dorylus, "simulated", lambda *_: SimpleNamespace(epoch_s=2.0))
    tasks = 3 * 2 * 4 * 3  # AV0, AV1, AV'0
    billed = tasks * 0.1 * 192 / 1024  # none takes a tenth of a second
    found = dorylus.lambda_usd(cluster, dorylus.Machines(), "pipe", 6.0)
    assert found == pytest.approx(tasks * 2e-7 + billed * 0.0000166667)
    slow = dorylus.lambda_usd(cluster, dorylus.Machines(latency_s=0.04), "pipe", 6.0)
    assert slow == pytest.approx(tasks * 2e-7 + 2 * billed * 0.0000166667)


@pytest.mark.parametrize("line", LINES, ids=[line.name for line in LINES])
def test_younger_gpus_that_are_so_much_slower_have_the_value_of_the_lambdas(line):
    for name, slowdown in ROWS[line.name]["break_even_slowdown"].items():
        seconds = slowdown * line.gpu_s
        usd = line.servers * dorylus_dollars.instance(name).usd_per_hour * seconds / 3600
        assert value(seconds, usd) == pytest.approx(value(line.lambda_s, line.lambda_usd))


def test_break_even_slowdowns_as_they_are_today():
    """By hand: (860.6 s x $0.20 / (2 x $0.526 / 3600 s)) ** 0.5 / 162.9 s, and so on."""
    found = {name: row["break_even_slowdown"] for name, row in ROWS.items()}
    assert found["GCN Reddit-small"] == pytest.approx({"g4dn.xlarge": 4.711, "g6.xlarge": 3.809}, abs=1e-3)
    assert found["GCN Friendster"] == pytest.approx({"g4dn.xlarge": 1.227, "g6.xlarge": 0.992}, abs=1e-3)
    assert dorylus_dollars.prices_used()["g4dn.xlarge"]["slowdown"] == pytest.approx(2.412, abs=1e-3)


def test_other_systems_as_the_paper_says_in_words():
    """17.7 times the value of DGL's sampling and 8.6 times AliGraph's on Amazon."""
    found = {(row["name"], row["system"]): row["dorylus_value_vs"] for row in dorylus_dollars.systems()}
    assert found["Amazon", "DGL (sampling)"] == pytest.approx(17.7, abs=0.1)
    assert found["Amazon", "AliGraph"] == pytest.approx(8.6, abs=0.05)
    assert found["Amazon", "Dorylus"] == 1.0


def test_it_prints_json_and_a_table(capsys):
    assert dorylus_dollars.main(["--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in said["rows"]] == list(ROWS)
    assert dorylus_dollars.main([]) == 0
    shown = capsys.readouterr().out
    assert "GCN Reddit-small" in shown
    assert "2026-07-20" in shown
