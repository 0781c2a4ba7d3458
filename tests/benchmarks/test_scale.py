"""The arithmetic of docs/scale.md: against sums done by hand, and against what the document shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scale
from benchmarks.scale import SETTINGS
from cost_planner import memory
from cost_planner.plan import cores, quotas
from cost_planner.plan.bounds import CORES, LINKS, Floors

DOCUMENT = Path(__file__).parents[2] / "docs/scale.md"
HALF = SETTINGS[1].option


def test_the_document_shows_what_is_computed_here(capsys: pytest.CaptureFixture[str]):
    assert scale.main() == 0
    text = DOCUMENT.read_text()
    for table in capsys.readouterr().out.strip().split("\n\n"):
        assert table in text, "docs/scale.md is out of date: put in what python -m benchmarks.scale prints"


def test_with_enough_environments_the_lambdas_are_no_longer_the_slowest():
    bare, share = Floors.of(HALF.in_pipe), cores.lambda_share(192)
    enough = scale.enough(HALF) / HALF.machines
    for environments, is_slowest in ((1.1 * enough, False), (0.9 * enough, True)):
        sums = bare.table.sum(axis=0)
        sums[CORES] /= share * environments
        sums[LINKS] /= environments
        assert (sums.argmax() in (CORES, LINKS)) is is_slowest


def test_connections_are_those_of_a_mesh():
    found = scale.connections(HALF, 992)
    #  a graph server: 31 peers both ways, 4 parameter servers, the coordinator, 31 workers
    #  and the calls that they live in
    assert found == {"graph server": 62 + 4 + 1 + 62, "parameter server": 32 + 6 + 1 + 992, "worker": 5}


def test_a_parameter_server_of_a_thousand_workers_needs_more_files_than_a_process_gets():
    found = quotas.open_files(HALF, 992)
    assert found["parameter server"] == 15 + 992 + 32 + 9 > quotas.SERVER_FILES
    assert found["worker"] == 24
    assert quotas.open_files(HALF, 2000)["graph server"] < quotas.SERVER_FILES


def test_invocations_stay_within_the_quotas_even_one_per_task():
    found = scale.once(SETTINGS[0])
    assert found["invocations per second: pulling until the deadline"] == pytest.approx(992 / 890)
    assert found["invocations per second: one per task"] < found["invocations per second: allowed"]
    assert found["seconds until all environments are there"] == pytest.approx(9.92)
    assert found["messages with ghosts' rows, per server and epoch, each way"] == 100 * 31 * 2
    gradients = 3200 / 4 * 4 * (32 * 48 + 48 + 48 * 50 + 50) / 1e6
    assert found["MB of gradients to each parameter server, per epoch"] == pytest.approx(gradients)


def test_memory_fits_the_servers():
    """An option that does not fit is none; environments are let have 3/4 of theirs."""
    for setting in SETTINGS:
        option = setting.option
        assert option.memory_gib[memory.GRAPH_SERVERS] < 0.9 * option.machine.mem_gib
