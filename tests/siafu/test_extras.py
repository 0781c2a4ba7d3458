"""siafu.extras: what an error tells the user to type."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from infra.imports import ROOT as TREE
from infra.imports import files
from siafu import extras
from tests.test_imports import ROOMS


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python in tmp_path/my project/.venv with a pip beside it; its environment is not active."""
    folder = tmp_path / "my project" / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("pip", "python"):
        (folder / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return folder / "python"


def is_installed_in(folder: Path, monkeypatch: pytest.MonkeyPatch, checkout: bool) -> None:
    if checkout:
        (folder / "pyproject.toml").touch()
    monkeypatch.setattr(extras, "ROOT", str(folder))


def test_in_a_checkout_the_checkout_is_installed(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = python.parents[2]
    is_installed_in(project, monkeypatch, checkout=True)
    assert extras.install("aws") == f"'my project/.venv/bin/pip' install -e '{project}[aws]'"
    monkeypatch.chdir(project)
    assert extras.install("aws", "infra") == ".venv/bin/pip install -e '.[aws,infra]'"
    assert shlex.split(extras.install("aws"))[-1] == ".[aws]"


def test_from_a_wheel_the_package_is_installed(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_installed_in(tmp_path, monkeypatch, checkout=False)
    monkeypatch.setenv("PATH", str(python.parent))
    assert extras.install("aws") == "pip install 'siafu[aws]'"
    monkeypatch.chdir(python.parents[2])
    monkeypatch.setenv("PATH", "/nowhere")
    assert extras.install("plot") == ".venv/bin/pip install 'siafu[plot]'"


def test_another_pythons_pip_is_not_named(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would install beside siafu's Python, or not find siafu at all."""
    (tmp_path / "pip").touch(mode=0o755)
    assert extras.pip() == "'my project/.venv/bin/pip'"
    (python.parent / "pip").unlink()  # uv's environments have none
    assert extras.pip() == "'my project/.venv/bin/python' -m pip"


def test_a_deleted_working_folder_is_no_trouble(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_installed_in(python.parents[2], monkeypatch, checkout=True)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert extras.install("aws").endswith("[aws]'")
    os.chdir(tmp_path)


def test_no_message_says_it_on_its_own() -> None:
    literal = ("pip install 'siafu", "pip install torch")
    found = {
        path.relative_to(TREE).as_posix()
        for room in ROOMS
        for path in files(f"{room}/**/*.py")
        if any(text in path.read_text() for text in literal)
    }
    assert found == set()
