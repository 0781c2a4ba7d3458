"""Weights that training begins with: drawn, or those of a saved model, which must be of this model."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from siafu.errors import ConfigError, DatasetError
from siafu.model_file import first_weights, load_model, packed, save_model
from siafu.models import ModelSpec, build

SPEC = ModelSpec("gcn", 5, 3, 10, widths=(4,), seed=1)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A run's directory with a model."""
    weights = build(replace(SPEC, seed=2, dtype="float64")).init()
    save_model(tmp_path / "model.safetensors", weights, SPEC, {"epoch": 3})
    return tmp_path


def test_without_a_model_to_begin_with_the_weights_are_drawn():
    drawn = build(SPEC).init()
    assert all(np.array_equal(W, drawn[name]) for name, W in first_weights(build(SPEC), "").items())


@pytest.mark.parametrize("name", [".", "model.safetensors"])
def test_a_run_or_a_file_gives_its_weights_in_the_dtype_of_the_model(saved: Path, name: str):
    expected = build(replace(SPEC, seed=2)).init()
    found = first_weights(build(SPEC), str(saved / name))
    assert list(found) == list(expected)
    for parameter, W in found.items():
        assert W.dtype == np.float32
        np.testing.assert_array_equal(W, expected[parameter])


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (replace(SPEC, in_features=6), r"0\.weight is \[5, 4\], must be \[6, 4\]$"),
        (replace(SPEC, bias=False), r"this model has no 0\.bias$"),
        (replace(SPEC, name="sage"), r"it has no 0\.neighbour$"),
    ],
)
def test_a_model_of_other_parameters_is_refused_in_one_line(saved: Path, spec: ModelSpec, complaint: str):
    with pytest.raises(ConfigError, match=rf"^train\.warm_start = {saved}: {complaint}"):
        first_weights(build(spec), str(saved))


def test_a_file_that_is_no_model_is_refused(tmp_path: Path):
    (tmp_path / "model.safetensors").write_text("no")
    with pytest.raises(DatasetError, match=r"model\.safetensors: not a model of siafu"):
        first_weights(build(SPEC), str(tmp_path))


def test_weights_that_are_not_finite_are_nothing_to_begin_with(tmp_path: Path):
    weights = build(SPEC).init()
    weights["1.bias"][2] = np.inf
    save_model(tmp_path / "model.safetensors", weights, SPEC, {})
    with pytest.raises(ConfigError, match=rf"^train\.warm_start = {tmp_path}: 1\.bias holds NaN or infinity$"):
        first_weights(build(SPEC), str(tmp_path))


def test_an_altered_weight_is_found(saved: Path):
    file = saved / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 4
    file.write_bytes(data)
    with pytest.raises(DatasetError, match=r"model\.safetensors: its weights have digest \w{16}, must have \w{16}"):
        load_model(file)


def test_models_of_before_there_were_digests_are_read(tmp_path: Path):
    weights = build(SPEC).init()
    (tmp_path / "model.safetensors").write_bytes(packed(weights, {"model": json.dumps(asdict(SPEC))}))
    assert load_model(tmp_path / "model.safetensors")[1] == SPEC


def test_a_full_disk_leaves_the_model_that_was_there(saved: Path, monkeypatch: pytest.MonkeyPatch):
    before = (saved / "model.safetensors").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DatasetError, match=r"model\.safetensors: cannot be written: No space left on device$"):
        save_model(saved / "model.safetensors", build(SPEC).init(), SPEC, {})
    assert [file.name for file in saved.iterdir()] == ["model.safetensors"]
    assert (saved / "model.safetensors").read_bytes() == before
