"""What cannot be written is refused before anything is computed for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import siafu
from run_coordinator import run_directory
from run_coordinator.predict import files
from siafu import outputs
from siafu.__main__ import main
from siafu.config import Config
from siafu.errors import ConfigError


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that its user may read and not write into; root may do anything."""
    folder = tmp_path / "locked"
    folder.mkdir()
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and may(path, mode))
    return folder


@pytest.mark.parametrize("check", [outputs.check_file, outputs.check_folder])
def test_a_place_that_can_be_written_passes(check: Callable[[str, Path], None], tmp_path: Path) -> None:
    check("out", tmp_path / "new")
    (tmp_path / "there").touch()
    outputs.check_file("out", tmp_path / "there")
    outputs.check_folder("out", tmp_path)
    outputs.check_folder("out", tmp_path / "one" / "in" / "another")


def test_a_place_that_cannot_be_written_is_named(locked: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for check, place, why in (
        (outputs.check_file, tmp_path, "is a folder"),
        (outputs.check_file, tmp_path / "none" / "x", f"there is no folder {tmp_path / 'none'}"),
        (outputs.check_file, tmp_path / "file" / "x", f"there is no folder {tmp_path / 'file'}"),
        (outputs.check_folder, tmp_path / "file", f"{tmp_path / 'file'} is no folder"),
        (outputs.check_folder, tmp_path / "file" / "x" / "y", f"{tmp_path / 'file'} is no folder"),
        (outputs.check_folder, tmp_path / "gone", f"{tmp_path / 'gone'} is no folder"),
        (outputs.check_file, locked / "x", f"you may not write into {locked}"),
        (outputs.check_folder, locked, f"you may not write into {locked}"),
        (outputs.check_folder, locked / "x" / "y", f"you may not write into {locked}"),
    ):
        with pytest.raises(ConfigError) as refused:
            check("out", place)
        assert str(refused.value) == f"out = {place}: {why}"


def test_a_tilde_is_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    why = "~/x: ~ is not replaced here: give /home/ann/x"
    for call in (
        lambda: outputs.check_file("out", "~/x"),
        lambda: outputs.check_folder("out", Path("~/x")),
        lambda: siafu.prepare("digits", "~/x"),
    ):
        with pytest.raises(ConfigError, match=rf"^out = {why}$"):
            call()
    with pytest.raises(ConfigError, match=rf"^run\.dir = {why}$"):
        siafu.train("digits", run_dir="~/x")
    assert list(tmp_path.iterdir()) == []
    outputs.check_folder("out", "~x")


def test_all_that_write_at_their_end_look_first(
    locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for look in (
        lambda: files.check(locked / "x.csv"),
        lambda: outputs.check_picture(str(locked / "x.png")),
        lambda: run_directory.check_free(Config().replace({"run.dir": str(locked / "run")})),
        lambda: siafu.convert("no such graph", "npz", locked / "x"),
        lambda: siafu.train("no such graph", run_dir=str(locked / "run")),
        lambda: siafu.train_baseline("vanilla", "no such graph", run_dir=str(locked / "run")),
    ):
        with pytest.raises(ConfigError, match=r"you may not write into .*/locked$"):
            look()
    assert main(["report", str(tmp_path), "--out", str(locked / "x.html")]) == 2
    assert capsys.readouterr().err == f"siafu report: --out = {locked / 'x.html'}: you may not write into {locked}\n"
