"""``python -m benchmarks measure epoch``: ratios from the times of contenders, and one small real run."""

from __future__ import annotations

import argparse
import json

import pytest

from benchmarks.__main__ import main
from benchmarks.measure import epoch
from benchmarks.measure.rounds import Contender, Times

GRAPH = "synthetic:reddit-small?scale=0.004"


def times(seconds, test_acc=0.5):
    against = {"siafu": [2.0], "siafu, bfloat16": [1.0]}
    check = {"losses": [2.0, 1.0], "test_acc": test_acc, "peak_nbytes": 2**30, "phases_ms": {"loss": 1.0}}
    return Times(seconds=[seconds], against=against, check=check)


def test_summary_has_the_ratios_that_are_asked_about():
    found = {
        "siafu": times(2.0),
        "siafu, bfloat16": times(1.0, 0.52),
        "dgl": times(8.0),
        "dgl_cached": times(3.0),
        "pyg": Times(failed="needs about 90 GiB, 20 are free"),
    }
    args = argparse.Namespace(threads=2, rounds=1, profile=True)
    summary = epoch._summary(args, found)
    assert (summary["ratio_vs_dgl"], summary["ratio_vs_dgl_cached"], summary["ratio_vs_pyg"]) == (4, 1.5, None)
    assert summary["bf16_speedup"] == 2
    assert summary["accuracy_spread"] == pytest.approx(0.02)
    assert summary["ms of siafu"] == {"loss": 1.0}


def test_row_shows_what_came_out():
    row = epoch._row("dgl", times(8.0))
    assert (row["ms/epoch"], row["times siafu"], row["peak GiB"], row["loss"], row["epochs"]) == (8000, 4, 1, 1.0, 2)
    assert epoch._row("pyg", Times(failed="died")) == {"contender": "pyg", "note": "died"}


def test_peer_that_this_machine_cannot_hold_is_not_started():
    contenders = [Contender("siafu", (), {}, 1 << 60, peer=False), Contender("pyg", (), {}, 1 << 60, peer=True)]
    fitting, too_large = epoch._fitting(contenders)
    assert [contender.name for contender in fitting] == ["siafu"]  # ours is tried
    assert too_large["pyg"].failed.startswith("needs about 1073741824 GiB, ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hidden", "0"], "--hidden 0: must be >= 1"),
        (["--epochs-per-round", "0"], "--epochs-per-round 0: must be >= 1"),
        (["--peers", "torch"], "--peers torch: unknown, must be of dgl, dgl_cached, pyg"),
        (["--model", "gat", "--hidden", "9"], "hidden width 9 must be a multiple of the 8 heads"),
    ],
)
def test_mistakes_are_named(words, message, capsys):
    assert main(["measure", "epoch", "--graph", GRAPH, *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_siafus_own_loops_agree(model, capsys):
    words = [
        "--graph",
        GRAPH,
        "--model",
        model,
        "--hidden",
        "8",
        "--peers",
        "",
        "--rounds",
        "1",
        "--epochs-per-round",
        "2",
    ]
    assert main(["measure", "epoch", *words, "--profile", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["contender"]: row for row in found["rows"]}
    assert rows["siafu"]["epochs"] == 3
    assert rows["siafu, bfloat16"]["loss"] == pytest.approx(rows["siafu"]["loss"], rel=0.02)
    if model == "gcn":
        assert rows["siafu, no cache"]["losses"] == pytest.approx(rows["siafu"]["losses"], rel=1e-4)
    assert found["bf16_speedup"] > 0
    assert "loss" in found["ms of siafu"]


def test_servers_are_measured_beside_the_loop(monkeypatch, capsys):
    seconds = iter([3.0, 2.0, 4.0, 6.0])
    monkeypatch.setattr(epoch, "_train", lambda *_: next(seconds))
    words = ["--graph", GRAPH, "--hidden", "4", "--servers", "--rounds", "1", "--epochs-per-round", "1", "--json"]
    assert main(["measure", "epoch", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    base = found["rows"][0]["seconds"][0]
    ratios = dict(zip(epoch.SERVERS, (3 / base, 2 / base, 4 / base, 6 / base), strict=True))
    assert found["servers_over_single"] == pytest.approx(ratios)


def test_peers_that_are_asked_for_are_measured_beside_the_servers(monkeypatch, capsys):
    seconds = iter([3.0, 2.0, 4.0, 6.0])
    monkeypatch.setattr(epoch, "_train", lambda *_: next(seconds))
    monkeypatch.setattr(epoch.peers, "interpreter", lambda: "python")
    monkeypatch.setattr(epoch, "race", lambda beside, *_: {one.name: Times(seconds=[2.0]) for one in beside})
    words = [
        "--graph",
        GRAPH,
        "--model",
        "gat",
        "--hidden",
        "8",
        "--servers",
        "--peers",
        "dgl",
        "--rounds",
        "1",
        "--json",
    ]
    assert main(["measure", "epoch", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["contender"] for row in found["rows"]] == ["siafu", "dgl", *epoch.SERVERS]
    assert found["servers_over_dgl"] == dict(zip(epoch.SERVERS, (1.5, 1.0, 2.0, 3.0), strict=True))


@pytest.mark.long
def test_epoch_seconds_of_a_real_training_run(tmp_path):
    args = argparse.Namespace(
        graph=GRAPH, model="gcn", hidden=4, layers=2, lr=0.01, epochs_per_round=2, order="given", threads=2
    )
    assert epoch._train(args, 1, ("--backend", "cpu"), tmp_path / "run") > 0
