"""``siafu doctor PATH``: whether files are as they were written."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from graph_data.prepare import prepare
from run_coordinator.verify_run import examined
from siafu.__main__ import main
from siafu.errors import ConfigError
from siafu.model_file import save_model
from tests.siafu.killed_saving import SPEC, state, store
from tests.toy_graphs import random_graph


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's directory, with its model and two checkpoints."""
    (tmp_path / "config.toml").write_text("[train]\nepochs = 6\n")
    (tmp_path / "manifest.json").write_text("{}")  # a run has one too
    save_model(tmp_path / "model.safetensors", state(5).weights[5], SPEC, {"epoch": 5})
    for version in (5, 6):
        store(tmp_path / "checkpoints", keep=2).save(state(version))
    return tmp_path


def spoil(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)


def test_a_prepared_graph_is_read_to_its_last_byte(tmp_path: Path):
    shards = prepare(random_graph(1, 60), tmp_path / "toy", parts=2)
    ((what, ok, found),) = examined(shards.path)
    assert (what, ok) == ("prepared graph", True)
    assert "2 part(s)" in found
    spoil(shards.path / "part-001" / "degree.npy")
    ((what, ok, found),) = examined(shards.path)
    assert (what, ok) == ("prepared graph", False)
    assert found.startswith(f"{shards.path / 'part-001' / 'degree.npy'}: sha256")


def test_an_aggregate_that_was_overwritten_is_found(tmp_path: Path):
    shards = prepare(random_graph(1, 60), tmp_path / "toy", parts=1)
    crc = zlib.crc32(bytes(1000))
    kept = shards.path / "part-000" / f"aggregate-{0:016x}-{0:08x}-{crc:08x}.npy"
    kept.write_bytes(bytes(1000))
    ((_, ok, found),) = examined(shards.path)
    assert (ok, found.endswith("and 1 kept aggregate(s) of layer 0")) == (True, True)
    kept.write_bytes(b"\7" * 1000)
    ((_, ok, found),) = examined(shards.path)
    assert (ok, "it was altered; delete it, and the next run makes it again" in found) == (False, True)


def test_a_run_s_models_and_checkpoints_are_looked_at(run: Path):
    spoil(run / "checkpoints" / "epoch-0006" / "optimiser.safetensors")
    found = examined(run)
    assert [(what, ok) for what, ok, _ in found] == [
        ("model", True),
        ("checkpoint", True),
        ("checkpoint", False),
        ("records", True),
    ]
    assert found[0][2] == f"{run / 'model.safetensors'}: gcn, 39 parameters"
    assert found[1][2] == f"{run / 'checkpoints' / 'epoch-0005'}: after 5 epochs, with weights of 3, 4, 5"
    assert "optimiser.safetensors: its SHA-256 is not" in found[2][2]


@pytest.mark.parametrize("name", ["config.toml", "names.json", "manifest.json", "result.json", "metrics.jsonl"])
def test_a_file_of_a_run_that_was_left_empty_is_damage(run: Path, name: str):
    """As after a loss of power; before, siafu doctor RUN read weights alone."""
    (run / "result.json").write_text("{}")
    (run / "metrics.jsonl").write_text('{"event": "start"}\n')
    (run / "names.json").write_text('{"classes": ["a", "b"]}')
    *_, last = examined(run)
    assert last == ("records", True, f"{run}: 1 measurement, 1 kind of names")
    (run / name).write_text("")
    *_, (what, ok, found) = examined(run)
    assert (what, ok) == ("records", False)
    assert found.startswith(f"{run / name}: ")


def test_a_checkpoint_or_a_model_alone_is_too(run: Path):
    assert examined(run / "checkpoints" / "epoch-0006")[0][:2] == ("checkpoint", True)
    assert examined(run / "model.safetensors")[0][:2] == ("model", True)
    spoil(run / "model.safetensors")
    assert examined(run / "model.safetensors")[0][1] is False


def test_nothing_of_ours_is_the_user_s_mistake(tmp_path: Path):
    with pytest.raises(ConfigError, match="neither a prepared graph nor"):
        examined(tmp_path)


def test_doctor_says_it_in_lines_or_as_json(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok    model           ")
    assert lines[-1] == "no damage found"
    spoil(run / "model.safetensors")
    assert main(["doctor", str(run)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAIL  model           ")
    assert lines[-1] == "something is damaged: see FAIL above"
    assert main(["doctor", str(run), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [check["ok"] for check in report["checks"]] == [False, True, True, True]
    assert not report["ok"]
