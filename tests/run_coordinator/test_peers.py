"""The peers' environment: one per set of pins, made once, done without where it cannot be made."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from benchmarks.measure import peer_process
from run_coordinator import peers


def test_other_pins_are_another_environment(monkeypatch, tmp_path):
    before = peers.folder(tmp_path)
    monkeypatch.setattr(peers, "TORCH", "torch==9.9.9")
    assert peers.folder(tmp_path) != before
    assert before.parent == tmp_path


def test_finished_environment_is_used_as_it_is(monkeypatch, tmp_path):
    home = peers.folder(tmp_path)
    home.mkdir()
    (home / peers.MARKER).write_text("{}")
    monkeypatch.setattr(peers, "_run", None)  # nothing is started
    assert peers.interpreter(tmp_path) == str(home / "bin" / "python")


def test_half_made_environment_is_made_again(monkeypatch, tmp_path):
    home = peers.folder(tmp_path)
    (home / "lib").mkdir(parents=True)
    calls = []

    def run(*command):
        calls.append(command)
        home.mkdir(exist_ok=True)

    monkeypatch.setattr(peers, "_run", run)
    assert peers.interpreter(tmp_path) == str(home / "bin" / "python")
    assert not (home / "lib").exists()
    assert calls[0] == (sys.executable, "-I", "-m", "venv", str(home))
    assert json.loads((home / peers.MARKER).read_text())["failed"] == []


def test_missing_peer_is_said_and_the_rest_is_kept(monkeypatch, tmp_path, capsys):
    def run(*command):
        peers.folder(tmp_path).mkdir(exist_ok=True)
        if "dgl==2.1.0" in command:
            raise peers.subprocess.CalledProcessError(
                1, command, stderr="ERROR: No matching distribution found for dgl\n"
            )

    monkeypatch.setattr(peers, "_run", run)
    assert peers.interpreter(tmp_path) == str(peers.folder(tmp_path) / "bin" / "python")
    assert "without --no-deps dgl==2.1.0: ERROR: No matching distribution found for dgl" in capsys.readouterr().err


def test_without_an_environment_siafus_own_python_serves(monkeypatch, tmp_path, capsys):
    def run(*command):
        raise peers.subprocess.CalledProcessError(1, command, stderr="no network\n")

    monkeypatch.setattr(peers, "_run", run)
    assert peers.interpreter(tmp_path) == sys.executable
    assert "no environment for DGL and PyG (no network)" in capsys.readouterr().err


def test_peer_process_imports_nothing_of_siafu():
    tree = ast.parse(Path(peer_process.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {
        name
        for name in names
        if name.partition(".")[0] in ("siafu", "benchmarks", "run_coordinator", "graph_data", "tests")
    }


@pytest.mark.parametrize("contender", ["torch", "scipy"])
def test_products_are_those_of_the_normalised_adjacency(tmp_path, contender):
    import numpy as np

    indptr, indices = np.array([0, 2, 2, 3]), np.array([1, 2, 0], np.int32)
    np.save(tmp_path / "in_indptr.npy", indptr)
    np.save(tmp_path / "in_indices.npy", indices)
    setup = {"graph": str(tmp_path), "threads": 1, "width": 5}
    work = peer_process.CONTENDERS["gather"][contender](setup)
    A = np.eye(3)
    A[0, 1] = A[0, 2] = A[2, 0] = 1
    degree = A.sum(1)
    expected = (A / np.sqrt(degree[:, None] * degree)) @ work.rows
    np.testing.assert_allclose(np.array(work.check({})["sample"]), expected, rtol=1e-5)
