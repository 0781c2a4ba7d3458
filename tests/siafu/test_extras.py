"""siafu.extras: what an error tells the user to type."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.imports import ROOT as TREE
from infra.imports import files
from siafu import extras
from siafu.__main__ import VERBS
from siafu.errors import ConfigError
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


def test_what_is_installed_and_cannot_be_loaded_is_not_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """``ulimit -v``, or a library of another machine: pip would do nothing."""

    def fail(name: str) -> None:
        raise ImportError("libarrow.so: failed to map segment from shared object", name=name)

    for module, call in (
        ("graph_data.sources.arrow", "arrow"),
        ("graph_data.objects.frames", "_narwhals"),
        ("siafu.outputs", "_matplotlib"),
    ):
        found = importlib.import_module(module)
        monkeypatch.setattr(found, "import_module", fail)
        with pytest.raises(ConfigError, match=r": it is installed and cannot be loaded \(libarrow\.so: failed to map"):
            getattr(found, call)()


#: Packages of all extras, by the names that they are imported by.
OPTIONAL = (
    *("aws_cdk", "boto3", "botocore", "cdk_nag", "constructs", "dgl", "jinja2", "localstack_client", "matplotlib"),
    *("mlflow", "networkx", "ogb", "onnx", "onnxruntime", "onnxscript", "pandas", "polars", "pyarrow", "ray"),
    *("tensorboard", "torch", "torch_geometric", "wandb", "ziglang"),
)
#: siafu without them: prints each command's exit code and what it said. Nothing else is imported in a new way.
WITHOUT = """
import contextlib, importlib.machinery, io, json, sys
class Lacking(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in OPTIONAL else super().find_spec(name, path, target)
OPTIONAL, commands = json.loads(sys.argv[1])
sys.meta_path[:] = [Lacking if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
from siafu.__main__ import main
for command in commands:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
#: Commands that need a package of an extra -> that extra.
AT_USE = {
    "destroy --yes": "aws",
    "status": "aws",
    "attach": "aws",
    "logs": "aws",
    "cost some-run": "aws",
    "cost --refresh-prices new.csv": "aws",
    "train --on aws --quiet": "aws",
    "train --on ray --quiet": "ray",
    "train edges.csv --features random:4 --quiet": "data",
    "baseline pipegcn": "gpu",
    "plan digits --plot it.png": "plot",
}


def without_extras(folder: Path, *commands: str) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each, in one process that finds no optional package."""
    told = json.dumps([OPTIONAL, [command.split() for command in commands]])
    command = [sys.executable, "-c", WITHOUT, told]
    env = {**os.environ, "PYTHONPATH": str(TREE), "HOME": str(folder)}
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stderr
    return [tuple(json.loads(line)) for line in ended.stdout.splitlines()]


@pytest.mark.long
def test_every_verb_explains_itself_without_any_extra(tmp_path: Path) -> None:
    commands = [f"{verb} {flag}" for verb in VERBS for flag in ("--help", "--help-all")]
    for command, (code, out, err) in zip(commands, without_extras(tmp_path, *commands), strict=True):
        assert (code, err) == (0, ""), command
        assert out.startswith(f"usage: siafu {command.split()[0]} "), command


def test_a_verb_that_needs_an_extra_names_it_at_use(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    needed = dict(AT_USE)
    if shutil.which("node"):
        needed["deploy --dry-run"] = "infra"
    for command, (code, out, err) in zip(needed, without_extras(tmp_path, *needed), strict=True):
        assert code == 2, (command, err)
        assert f"[{needed[command]}]'" in err.splitlines()[-1], (command, err)
        assert "Traceback" not in err + out, command
