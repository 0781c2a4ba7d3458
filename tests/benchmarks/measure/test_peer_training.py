"""Every peer trains siafu's model: the same losses, epoch for epoch. Needs the peers' environment, or makes it."""

from __future__ import annotations

import json

import pytest

from benchmarks.__main__ import main

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_losses_are_siafus(model, capsys):
    words = ["--graph", "synthetic:reddit-small?scale=0.004", "--hidden", "16", "--rounds", "2", "--json"]
    assert main(["measure", "epoch", "--model", model, *words]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["contender"]: row for row in found["rows"]}
    peers = {"dgl", "pyg"} | ({"dgl_cached"} if model != "gat" else set())
    assert peers <= set(rows)
    for name in peers:
        assert rows[name]["losses"] == pytest.approx(rows["siafu"]["losses"], rel=1e-4), name
    assert found["ratio_vs_dgl"] > 0
    assert found["ratio_vs_pyg"] > 0


@pytest.mark.timeout(1800)
def test_products_are_siafus(capsys):
    words = ["--graph", "synthetic:reddit-small?scale=0.004", "--widths", "41,130", "--rounds", "1", "--json"]
    assert main(["measure", "gather", *words]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    errors = {(row["contender"], row["width"]): row["relative_error"] for row in rows if row["dtype"] == "float32"}
    assert {name for name, _ in errors} == {"siafu", "dgl", "torch", "pyg", "scipy"}
    assert max(errors.values()) < 1e-5
