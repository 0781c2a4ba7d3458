"""The table of what saves the link; runs and the shaped network are played by the test."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.acceptance import link
from benchmarks.shaper import Traffic
from siafu.config import Config

PROXIED = Config().replace({"lambda.proxy": "127.0.0.1:1"})


def test_every_saver_is_measured_on_and_off_and_what_is_the_default_only_once():
    found = link.variants(PROXIED)
    assert next(iter(found)) == link.DEFAULTS
    assert list(found)[-1] == link.NOTHING
    for name, (key, on, off) in link.SAVERS.items():
        settings = {word: found[f"{name} {word}"].settings for word in ("on", "off") if f"{name} {word}" in found}
        assert settings.get("off") == {key: off}
        assert settings.get("on", {key: on}) == {key: on}
        assert found[link.NOTHING].settings[key] == off


def test_a_saver_that_is_off_by_default_is_measured_on():
    found = link.variants(PROXIED.replace({"lambda.fuse": "false"}))
    assert found["fusion on"].settings == {"lambda.fuse": True}
    assert "fusion off" not in found


def test_settings_are_keys_of_a_config():
    for variant in link.variants(PROXIED).values():
        PROXIED.replace(variant.settings)


class FakeShaper:
    """Each epoch 10 MB go down and 1 MB comes up; without affinity 5 times as much goes down."""

    down = 0.0
    address, cpu_s = "127.0.0.1:9", 0.1

    def __init__(self, **options: Any):
        self.epochs = 0

    def __enter__(self) -> FakeShaper:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    @property
    def traffic(self) -> dict[tuple[str, int], Traffic]:
        self.epochs += 1
        return {("g", 1): Traffic(int(1e6) * self.epochs, int(FakeShaper.down) * self.epochs)}


def played(source: str, *, epochs: int, on_status: Any, settings: dict[str, Any], **more: Any) -> Any:
    FakeShaper.down = 50e6 if settings.get("lambda.keep_constants") is False else 10e6
    for epoch in range(epochs):
        on_status(SimpleNamespace(epoch=epoch + 1))
    lines = [{"event": "epoch", "epoch_s": 9.0 if epoch < 2 else 0.5} for epoch in range(epochs)]
    return SimpleNamespace(result={"train_seconds": 1.0}, metrics=lambda: lines)


def test_the_command_says_what_affinity_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(link, "Shaper", FakeShaper)
    monkeypatch.setattr(link.api, "train", played)
    arguments = ["--rounds", "2", "--epochs", "4", "--links", "75MB,25MB", "--json", str(tmp_path / "link.json")]
    assert link.main(arguments) == 0
    found = json.loads((tmp_path / "link.json").read_text())
    assert found["affinity_saves"] == {"75 MB/s": 1 - 11 / 51, "25 MB/s": 1 - 11 / 51}
    assert found["links"]["75 MB/s"]["defaults"]["epoch_s"] == [0.5, 0.5]  # without the first two epochs
    assert "25 MB/s: affinity saves 78.4% of the bytes per epoch, must be 60%" in capsys.readouterr().out
    monkeypatch.setattr(link, "AFFINITY_SAVES", 0.8)
    assert link.main(arguments) == 1
