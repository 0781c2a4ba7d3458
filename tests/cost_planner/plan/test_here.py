"""Runs on this machine: as the trainer would start them, and with what the machine gives."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cost_planner import memory
from cost_planner.plan import graphs, here
from cost_planner.plan.asked import Asked
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.memory_traffic import Bandwidth
from cost_planner.plan.speeds import Speeds
from run_coordinator import intervals
from siafu import allotment
from siafu.__main__ import main
from siafu.config import Config
from siafu.machine import num_environments

GRAPH = graphs.of_counts(200_000, 4_000_000, 32, 10)
CONFIG = Config().replace({"train.eval_every": 0, "model.hidden": "32"})
ASKED = Asked(CONFIG, GRAPH, Epochs(20), Speeds(), servers=[1, 2], modes=(("pipe", 0), ("async", 0)))


def test_every_backend_mode_and_number_of_servers_is_there_fastest_first():
    found = here.of(ASKED, Bandwidth())
    kinds = [(one.config.servers.backend, one.config.train.mode, one.config.data.parts) for one in found]
    assert len(set(kinds)) == len(kinds) == 8
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    for one in found:
        manifest = GRAPH.manifest(one.config.data.parts)
        assert one.config.train.intervals == intervals.of(one.config.replace({"train.intervals": 0}), manifest)
        assert one.memory_bytes == memory.predict(one.config, manifest).nbytes
        assert (one.ghost_bytes > 0) == (one.config.data.parts == 2)
        assert one.seconds == pytest.approx(
            one.simulated.first_s + (one.config.train.epochs - 1) * one.simulated.epoch_s
        )
        most = num_environments(one.config) * one.config.data.parts
        assert one.simulated.environments <= most * (one.config.servers.backend == "lambda")


def test_more_cores_are_faster_until_they_wait_for_memory(monkeypatch):
    gathers = replace(Speeds(), value_ns=1.0)
    asked = replace(ASKED, servers=[1], modes=(("pipe", 0),), backends=["cpu"], speeds=gathers)

    def epoch_s(cores: int, bandwidth: Bandwidth) -> float:
        monkeypatch.setattr(allotment, "cores", lambda: cores)
        return here.of(asked, bandwidth)[0].simulated.epoch_s

    assert epoch_s(8, Bandwidth()) < 0.5 * epoch_s(2, Bandwidth())
    slow = Bandwidth(1e9, 2**20)
    assert epoch_s(8, slow) == pytest.approx(epoch_s(2, slow), rel=0.15)


def test_environments_compute_for_the_time_that_their_memory_buys_if_the_run_says_so():
    asked = replace(ASKED, servers=[1], modes=(("pipe", 0),), backends=["lambda"], lambdas=1)

    def epoch_s(cpu_share: str) -> float:
        config = CONFIG.replace({"lambda.memory_mb": 192, "lambda.cpu_share": cpu_share})
        return here.of(replace(asked, config=config), Bandwidth())[0].simulated.epoch_s

    assert epoch_s("auto") == epoch_s("free")
    assert 3 * epoch_s("free") < epoch_s("real") < epoch_s("free") * 1769 / 192


def test_cool_caches_slow_environments_that_sleep_in_all_but_products():
    def epoch_s(cpu_share: str, **speeds: float) -> float:
        config = CONFIG.replace({"lambda.memory_mb": 192, "lambda.cpu_share": cpu_share})
        asked = replace(ASKED, config=config, servers=[1], modes=(("pipe", 0),), backends=["lambda"], lambdas=1)
        return here.of(replace(asked, speeds=replace(Speeds(), **speeds)), Bandwidth())[0].simulated.epoch_s

    assert epoch_s("free", throttled=0.5) == epoch_s("free")
    assert 1.3 * epoch_s("real") < epoch_s("real", throttled=0.5) < 2 * epoch_s("real")
    products = epoch_s("real", flop_ns=1.0)
    assert products < epoch_s("real", flop_ns=1.0, throttled=0.5) < 1.2 * products


def test_too_little_memory_is_said(monkeypatch):
    found = here.of(replace(ASKED, servers=[1], modes=(("pipe", 0),)), Bandwidth())
    assert all(here.fits(one) for one in found)
    monkeypatch.setattr(allotment, "memory_bytes", lambda: 2**20)
    assert not any(here.fits(one) for one in found)


def test_plan_here_shows_this_machine_beside_the_options_and_no_dollars(capsys):
    counts = ["--vertices", "20k", "--edges", "400k", "--features", "32", "--classes", "5", "--epochs", "10"]
    few = ["--instance", "c8g.2xlarge", "--servers", "1", "--mode", "pipe", "--backend", "cpu", "--here"]
    assert main(["plan", *counts, *few, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["here"]] == ["cpu pipe"]
    assert found["here"][0]["epoch_s"] > 0 < found["here"][0]["memory_gib"]
    assert "usd" not in found["here"][0]
    assert found["options"][0]["usd"] > 0
    assert main(["plan", *counts, *few]) == 0
    out = capsys.readouterr().out
    assert f"on this machine, {allotment.cores()} cores" in out
    assert "1 x c8g.2xlarge" in out
    assert main(["plan", *counts, *few[:-1], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["here"] == []
