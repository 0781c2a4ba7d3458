"""A run whose checkpoints are copied to a bucket (moto's) goes on from there when its own are
gone, and bad numbers are left out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_coordinator import api
from run_coordinator.recovery.resume import resume
from siafu.errors import ConfigError, Diverged
from tests.infra.deployment import bucket

SETTINGS = {"train.mode": "pipe", "model.dropout": 0.5, "lambda.count": 1, "train.intervals": 2}


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with bucket() as box:
        for name, value in (("ENDPOINT_URL", box.endpoint), ("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test")):
            monkeypatch.setenv(f"AWS_{name}", value)
        yield f"s3://{box.bucket}/kept"


@pytest.mark.long
def test_a_run_goes_on_from_the_bucket_to_the_same_bits(url: str, tmp_path: Path):
    undisturbed = api.train("digits", epochs=6, run_dir=str(tmp_path / "undisturbed"), settings=SETTINGS)
    copied = {**SETTINGS, "run.checkpoint_to": url, "run.checkpoint_every": 2}
    api.train("digits", epochs=4, run_dir=str(tmp_path / "run"), settings=copied)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    again = resume(tmp_path / "run", epochs=6)
    assert again.result["weights_digest"] == undisturbed.result["weights_digest"]


def test_a_bucket_that_is_not_there_is_said_before_anything_starts(url: str, tmp_path: Path):
    settings = {**SETTINGS, "run.checkpoint_to": "s3://no-such-bucket/kept"}
    with pytest.raises(ConfigError, match="NoSuchBucket"):
        api.train("digits", epochs=1, run_dir=str(tmp_path / "run"), settings=settings)
    assert not (tmp_path / "run" / "logs").exists()


@pytest.mark.long
@pytest.mark.parametrize("on_nan", ["skip", "stop"])
def test_steps_with_bad_numbers_are_left_out_or_end_the_run(on_nan: str, tmp_path: Path):
    """The first step goes so far that everything after it overflows."""
    settings = {**SETTINGS, "run.on_nan": on_nan, "train.lr": 1e30, "servers.param_servers": 2}
    if on_nan == "stop":
        with pytest.raises(
            Diverged, match=r"gradient of epoch 1 interval \d+ \(graph server 0\) layer 1: 1\.\w+ holds NaN"
        ):
            api.train("digits", epochs=4, run_dir=str(tmp_path / "run"), settings=settings)
        return
    run = api.train("digits", epochs=4, run_dir=str(tmp_path / "run"), settings=settings)
    records = [json.loads(line) for line in (run.dir / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records if record["event"] == "skipped"] == [2, 3, 4]
    assert run.result["skipped_steps"] == 3
