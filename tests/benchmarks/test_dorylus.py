"""The paper's ratios: simulated ones are within a fifth of all eleven; and what a step takes, by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.dorylus import TABLE_4, Machines, cpu_epoch_s, main, plan_of

PAGE = Path(__file__).parents[2] / "docs/plan.md"
AMAZON = TABLE_4["GCN", "Amazon"][0]


@pytest.mark.long
def test_all_ratios_of_the_paper_are_simulated_within_a_fifth(capsys):
    assert main(["--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["rows"]) == 11
    far = {row["name"]: row["off"] for row in said["rows"] if abs(row["off"]) >= 0.20}
    assert not far
    assert len(said["chosen"]) == 5 < len(said["rows"])
    assert set(said["chosen"]) <= set(said["machines"])
    table = PAGE.read_text().split("## Dorylus' clusters")[1].split("\nThe simulation")[0]
    assert [row["name"] for row in said["rows"] if f"{row['simulated']:.2f}" not in table] == []


def test_a_lambda_s_first_task_has_the_bytes_of_its_interval():
    # AV0: gathered rows there, pre-activations and activations back
    work = plan_of(AMAZON, Machines(), "async").work[1]
    rows = 9.2e6 / 8 / 90
    assert work.down == pytest.approx(4 * 300 * rows)
    assert work.up == pytest.approx(4 * 2 * 64 * rows)
    assert work.io == pytest.approx((work.down + work.up) * 0.3e-9)


def test_lambdas_of_a_server_share_its_bandwidth_and_none_has_more_than_its_own():
    """100 Lambdas have 200 Mbit/s each, few have 800 (the paper, section 6)."""
    rates = {}
    for lambdas in (4, 100):
        environments = plan_of(replace(AMAZON, lambdas=lambdas), Machines(), "pipe").environments
        assert environments is not None
        rates[lambdas] = environments.link.bytes_per_s * 8
    assert rates == {4: 800e6, 100: 200e6}


def test_the_cpu_only_variant_gathers_with_all_threads_and_sends_ghosts_with_one():
    """Of what a gather and a Scatter take, the first alone is quicker with twice the threads."""
    nothing = dict.fromkeys(("edge_ns", "value_ns", "element_ns", "row_ns", "flop_ns", "proxied_ns"), 0.0)
    narrow, wide = AMAZON, replace(AMAZON, vcpus=16)
    gathers = Machines(**{**nothing, "edge_ns": 1000.0})
    ghosts = Machines(**{**nothing, "row_ns": 1e6})
    assert cpu_epoch_s(wide, gathers) < 0.7 * cpu_epoch_s(narrow, gathers)
    assert cpu_epoch_s(wide, ghosts) == cpu_epoch_s(narrow, ghosts)
