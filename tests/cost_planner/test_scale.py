"""The arithmetic of docs/scale.md: against sums done by hand, and against what the document shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_planner import scale
from cost_planner.scale import AWS, FRIENDSTER, SETTINGS, Setting

DOCUMENT = Path(__file__).parents[2] / "docs/scale.md"
HALF = SETTINGS[1]
N = FRIENDSTER.vertices // 32


def test_the_document_shows_what_is_computed_here():
    text = DOCUMENT.read_text()
    for table in scale.tables().split("\n\n"):
        assert table in text, "docs/scale.md is out of date: put in what python -m cost_planner.scale prints"
    for name, floor in scale.epoch_floor_s(HALF).items():
        assert name == "server's link" or f"{floor:.2f} s" in text, f"docs/scale.md: {name} takes {floor:.2f} s"


def test_ghosts_are_distinct_and_remote():
    remote = FRIENDSTER.vertices * 31 / 32
    assert replace(HALF, crossing=0.0).ghosts == 0
    sparse = replace(HALF, crossing=1e-4)  # hardly any vertex is hit twice
    assert sparse.ghosts == pytest.approx(1e-4 * FRIENDSTER.edges / 32, rel=1e-3)
    assert HALF.ghosts < SETTINGS[0].ghosts < remote


def test_rows_are_counted_as_the_program_moves_them():
    """GCN 32-48-50: H1 is published where it has an edge into a training vertex, dZ1 of training vertices; workers read
    Z1 and dH1 and write H1 and dZ1; Z0 is theirs once."""
    moved = scale.traffic(HALF)
    train = HALF.manifest.splits[0].train / FRIENDSTER.vertices
    assert 0.6 < train < 0.7
    ends = 1 / (HALF.manifest.partitions[0].cut_edges / HALF.ghosts)  # that an edge of a ghost is its last
    degrees = np.arange(1, 2_000)
    read = (ends * (1 - ends) ** (degrees - 1) * (1 - (1 - train) ** degrees)).sum()
    assert 0.6 < read < 0.8
    assert moved.ghosts == pytest.approx(HALF.ghosts * 4 * 48 * (read + train))
    assert moved.down == moved.up == pytest.approx(N * 4 * (48 + 48 * train))
    assert moved.constants == N * 4 * 32
    assert moved.messages == 100 * 31 * 2
    assert moved.gradients == 3200 / 4 * 4 * (32 * 48 + 48 + 48 * 50 + 50)
    assert scale.traffic(SETTINGS[2]).ghosts == moved.ghosts / 2  # bfloat16


def test_the_floor_of_an_epoch_is_the_busiest_links():
    floors = scale.epoch_floor_s(HALF)
    moved = scale.traffic(HALF)
    assert floors["server's link"] == pytest.approx((moved.ghosts + moved.down) / (15e9 / 8))
    assert floors["Lambdas' links"] == pytest.approx(moved.down * 32 / (1000 * 75e6))
    assert max(floors, key=lambda name: floors[name]) == "server's link"


def test_with_enough_environments_the_lambdas_are_no_longer_the_slowest():
    for setting in SETTINGS:
        enough = scale.environments_enough(setting)
        for environments, wait in ((enough, False), (enough - 1, True)):
            floors = scale.epoch_floor_s(replace(setting, environments=environments))
            slowest = max(floors["Lambdas' links"], floors["Lambdas' arithmetic"])
            assert (slowest > floors["server's link"] * (1 + 1e-9)) is wait


def test_connections_are_those_of_a_mesh():
    found = scale.connections(HALF)
    #  a graph server: 31 peers both ways, 4 parameter servers, the coordinator, 32 workers
    #  and the calls that they live in
    assert found == {"graph server": 62 + 4 + 1 + 64, "parameter server": 32 + 6 + 1 + 1000, "worker": 5}


def test_a_parameter_server_of_a_thousand_workers_needs_more_files_than_a_process_gets():
    found = scale.descriptors(HALF)
    assert found["parameter server"] > AWS.server_fds
    assert found["worker"] < AWS.lambda_fds
    assert scale.descriptors(HALF, alive=2000)["graph server"] < AWS.server_fds


def test_invocations_stay_within_the_quotas_even_one_per_task():
    found = scale.invocations(HALF)
    assert found["pulling until the deadline"] == pytest.approx(1000 / 890)
    assert found["one per task"] < found["allowed"]
    assert found["seconds until all are there"] == 10


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_memory_fits_the_servers_and_the_environments(setting: Setting):
    found = scale.memory_gib(setting)
    assert found["graph servers"] < scale.instance(setting.graph_instance).mem_gib
    assert found["Lambda environments"] * 1024 < setting.config.lambdas.memory_mb


def test_the_command_prints_the_tables_or_all_figures(capsys: pytest.CaptureFixture[str]):
    assert scale.main([]) == 0
    assert capsys.readouterr().out.strip() == scale.tables()
    assert scale.main(["--environments", "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[HALF.name]["descriptors"]["parameter server"] == 15 + 100 + 32 + 9
