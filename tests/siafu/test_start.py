"""siafu.start: processes of ours import what we import, and nothing that lies in the working folder."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.imports import files
from run_coordinator.export import exported
from siafu import start
from tests.test_imports import ROOMS

#: What somebody may call a file or a folder beside their data. Each notes that it was run, and is of no use.
NAMES = ("numpy", "random", "zmq", "json", "torch", "typing", "safetensors", "pip", "siafu", "graph_server")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder. At the end it asserts that nothing in it has run."""
    folder, marks = tmp_path / "data", tmp_path / "marks"
    for name in NAMES:
        file = folder / (f"{name}/__init__.py" if name in ("siafu", "graph_server") else f"{name}.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"open({str(marks)!r}, 'a').write({name!r} + ' ')\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "siafu").write_text("from siafu.__main__ import entry\nentry()\n")
    monkeypatch.chdir(folder)
    yield folder
    assert not marks.exists(), marks.read_text()


def siafu(folder: Path, *arguments: str, **variables: str) -> str:
    """What the command says on stdout; it must end with 0."""
    command = [sys.executable, str(folder.parent / "bin" / "siafu"), *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **variables})
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_run_runs_nothing_that_lies_in_the_working_folder(hostile: Path) -> None:
    """The coordinator, its servers, and a Lambda environment; PYTHONPATH has an empty
    entry, which means that folder."""
    said = siafu(
        hostile,
        "train",
        "digits",
        "--epochs",
        "2",
        "--quiet",
        "--json",
        "--backend",
        "lambda",
        PYTHONPATH=f"{start.ROOT}{os.pathsep}",
    )
    assert json.loads(said)["epochs"] == 2


def test_doctor_runs_nothing_that_lies_in_the_working_folder(hostile: Path) -> None:
    checks = json.loads(siafu(hostile, "doctor", "--json"))["checks"]
    assert [check["found"] for check in checks if not check["ok"]] == []


def test_a_users_file_with_the_name_of_a_package_of_ours_is_named(tmp_path: Path) -> None:
    """It ended in "'graph_data' is not a package"."""
    for name in ("graph_data.py", "train.py"):
        (tmp_path / name).write_text("import siafu\nsiafu.from_arrays\n")
    environment = {**os.environ, "PYTHONPATH": str(start.ROOT)}
    command = [sys.executable, str(tmp_path / "train.py")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = f"ImportError: {tmp_path / 'graph_data.py'} hides siafu's package graph_data: rename it"
    assert ended.stderr.strip().splitlines()[-1] == said


@pytest.mark.long
def test_no_verb_runs_what_lies_in_the_working_folder(hostile: Path) -> None:
    siafu(hostile, "prepare", "digits", "--out", "shards")
    siafu(hostile, "train", "shards", "--epochs", "2", "--quiet", "--guard", "--run-dir", "run")
    siafu(hostile, "predict", "run", "--out", "found.csv")
    siafu(hostile, "resume", "run", "--epochs", "3", "--quiet")
    siafu(hostile, "train", "shards", "--epochs", "2", "--quiet", "--runs", "2", "--jobs", "2")
    siafu(hostile, "export", "run", "--to", "torch", "--out", "model")
    siafu(hostile, "baseline", "vanilla", "digits", "--ranks", "2", "--epochs", "2", "--quiet", "--device", "cpu")


def test_python_m_siafu_leaves_the_working_folder_before_it_imports_anything(hostile: Path) -> None:
    """A package siafu there is taken by Python itself: none of ours is asked."""
    (hostile / "siafu" / "__init__.py").unlink()
    command = [sys.executable, "-m", "siafu", "prepare", "digits", "--out", "shards"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("words", ["train", "prepare digits", "doctor"])
def test_a_working_folder_that_was_deleted_is_said(words: str, tmp_path: Path) -> None:
    code = (
        f"import os, sys; os.chdir({str(tmp_path)!r}); os.rmdir({str(tmp_path)!r}); "
        "os.execv(sys.executable, sys.argv[1:])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, sys.executable, "-m", "siafu", *words.split()], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"siafu {words.split()[0]}: the working folder was deleted: cd to one that exists\n"


def test_the_path_is_ours_without_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, chosen = tmp_path / "older", tmp_path / "chosen"
    (other / "siafu").mkdir(parents=True)
    (other / "siafu" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(chosen), str(other), "/usr/lib"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(chosen), "", str(other)]))
    assert start.paths() == [str(chosen), start.ROOT, str(other), "/usr/lib"]  # the siafu that was called
    monkeypatch.setenv("PYTHONPATH", ".")
    assert start.paths()[:2] == [str(tmp_path)] * 2  # the user has named it


def test_the_folder_of_a_script_is_not_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python puts it first on the path of whoever calls siafu.train; a graph_server.py may lie there."""
    main, scripts, packages = sys.modules["__main__"], tmp_path / "scripts", tmp_path / "site-packages"
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", [str(scripts), str(packages), start.ROOT])
    monkeypatch.setattr(main, "__file__", str(scripts / "go.py"), raising=False)
    assert start.paths() == [str(packages), start.ROOT]
    monkeypatch.setenv("PYTHONPATH", str(scripts))
    assert start.paths() == [str(scripts), str(packages), start.ROOT]
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(main, "__file__", str(packages / "tool.py"), raising=False)
    assert start.paths() == [str(scripts), str(packages), start.ROOT]


@pytest.mark.long
@pytest.mark.parametrize("module", ["siafu", "gpu_baselines"])
def test_a_profiler_of_python_may_start_it(module: str) -> None:
    """``python -m cProfile`` is a script in the standard library, which left the path with it."""
    command = [sys.executable, "-m", "cProfile", "-o", os.devnull, "-m", module, "--help"]
    ended = subprocess.run(command, cwd=start.ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "usage: " in ended.stdout, ended.stderr


@pytest.mark.long
def test_a_run_from_a_script_runs_nothing_that_lies_beside_the_script(hostile: Path) -> None:
    (hostile / "siafu" / "__init__.py").unlink()
    for name in (
        "numpy",
        "random",
        "zmq",
        "json",
        "torch",
        "typing",
        "safetensors",
        "pip",
    ):  # those the script itself would take
        (hostile / f"{name}.py").unlink()
    for name in ("param_server", "sitecustomize"):
        (hostile / f"{name}.py").write_text((hostile / "graph_server" / "__init__.py").read_text())
    (hostile / "go.py").write_text(
        "import siafu\nprint(siafu.train('digits', epochs=1, run_dir='../run').result['epochs'])\n"
    )
    (hostile / "sub").mkdir()
    ended = subprocess.run(
        [sys.executable, "../go.py"],
        cwd=hostile / "sub",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": start.ROOT},
    )
    assert (ended.stdout, ended.returncode) == ("1\n", 0), ended.stderr


def test_export_looks_for_dgl_without_what_lies_in_the_working_folder(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{start.ROOT}{os.pathsep}")
    exported._runs(sys.executable, "torch")


def test_a_checkout_may_be_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(start.ROOT)
    monkeypatch.setattr(sys, "path", ["", "/usr/lib"])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert start.paths() == [start.ROOT, "/usr/lib"]


#: Files that start a Python in another way, and why that is as good.
OTHERWISE = {
    "siafu/start.py": "is the way",
    "siafu/streams.py": "this process again, as it was started",
    "run_coordinator/export/exported.py": "a script of ours, by its path",
    "run_coordinator/peers.py": "-I: neither the working folder nor PYTHONPATH",
    "infra/localstack/install.py": "-I",
    "infra/localstack/stack.py": "in a folder of its own",
    "infra/package.py": "-I; compileall in a folder of our own",
    "lambda_funcs/environment.py": "in the function's folder, as Lambda does",
    "infra/distributions.py": "-I",
    "siafu/extras.py": "says what a user types",
    "infra/wheels.py": "says where pip is missing",
    "benchmarks/acceptance/beside_pyg.py": "scripts as users start them, in a folder of its own",
    "benchmarks/chaos/fork_server.py": "knows such commands when others give them",
    "run_coordinator/baseline/__init__.py": "for torchrun: gpu_baselines.__main__ leaves the working folder",
}


def test_every_python_is_started_by_start() -> None:
    found = set()
    for path in (path for room in ROOMS for path in files(f"{room}/**/*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if '"-m"' in text or "executable" in text else ():
            words = node.elts if isinstance(node, ast.List | ast.Tuple) else getattr(node, "args", [])
            by_module = isinstance(words, list) and any(isinstance(w, ast.Constant) and w.value == "-m" for w in words)
            if by_module and isinstance(node, ast.Call):
                by_module = ast.unparse(node.func) != "start.command"
            if by_module or (isinstance(node, ast.Attribute) and node.attr == "executable"):
                found.add(path.relative_to(start.ROOT).as_posix())
    assert found == OTHERWISE.keys()


def test_a_graph_server_starts_without_scipy() -> None:
    """Dense features need none of it, and it takes a third of the time that the process takes to start."""
    code = "import sys, graph_server.server; print([name for name in sys.modules if name.startswith('scipy')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
