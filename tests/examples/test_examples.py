"""examples/: every script and notebook runs, in an empty folder, and says what its text promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
#: Notebook -> packages that it imports.
NOTEBOOKS = {"first_run": (), "own_data": ("pandas", "pyarrow"), "reading_a_run": ("pandas", "matplotlib")}
#: A process of its own: Jupyter's packages warn, and warnings are errors here.
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
print(nbformat.writes(notebook))
"""


def ended(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), "IPYTHONDIR": str(folder / "ipython")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **paths, "JUPYTER_RUNTIME_DIR": str(folder / "jupyter")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def said_by(script: str, folder: Path, *more: str) -> str:
    done = ended([str(EXAMPLES / f"{script}.py"), *more], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(pattern: str, text: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, text)]


@pytest.mark.long
def test_first_run_learns_and_repeats_bit_for_bit(tmp_path: Path) -> None:
    said = said_by("first_run", tmp_path)
    assert numbers(r"test accuracy (\S+),", said)[0] > 0.9
    assert "bit for bit: True" in said


@pytest.mark.long
def test_own_data_learns_from_frames_and_predicts_another_graph(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="needs the extra data")
    said = said_by("own_data", tmp_path)
    assert "600 vertices" in said
    assert "p_books" in said
    assert numbers(r"not seen (\S+)", said)[0] > 0.7


@pytest.mark.long
def test_plan_cost_lists_options_that_are_each_faster_or_cheaper(tmp_path: Path) -> None:
    said = said_by("plan_cost", tmp_path)
    seconds, usd = numbers(r"(\d+) s \(", said), numbers(r"\) +\$(\S+)", said)
    assert len(seconds) == len(usd) > 2
    assert (seconds, usd) == (sorted(seconds), sorted(usd, reverse=True))
    assert "So: " in said


@pytest.mark.long
def test_beside_pyg_reaches_the_same_accuracy_with_both(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed")
    ours, theirs = numbers(r"test accuracy (\S+),", said_by("beside_pyg", tmp_path))
    assert ours > 0.9
    assert abs(ours - theirs) < 0.05


@pytest.mark.long
def test_paper_figure_reaches_the_same_accuracy_in_every_mode(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    best = numbers(r"best test accuracy (\S+);", said_by("paper_figure", tmp_path))
    assert len(best) == 3
    assert min(best) > 0.9
    assert "<svg" in (tmp_path / "paper_figure.svg").read_text()


@pytest.mark.parametrize("script", ["own_data", "beside_pyg"])
def test_an_example_without_its_package_says_so_in_one_line(script: str, tmp_path: Path) -> None:
    missing = {"own_data": "pandas", "beside_pyg": "torch"}[script]
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError('no', name={missing!r})")
    runs = f"import sys, runpy; sys.path.insert(0, '.'); runpy.run_path({str(EXAMPLES / script)!r} + '.py')"
    done = ended(["-c", runs], tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"{script}.py needs {missing}: pip install {missing}.*\n", done.stderr)


def test_notebooks_are_kept_without_outputs_and_are_those_that_are_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == set(NOTEBOOKS)
    for name in NOTEBOOKS:
        for cell in json.loads((EXAMPLES / f"{name}.ipynb").read_text())["cells"]:
            assert not cell.get("outputs"), name
            assert cell.get("execution_count") is None, name


@pytest.mark.long
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    for package in ("nbclient", "ipykernel", *NOTEBOOKS[name]):
        pytest.importorskip(package, reason=f"{package} is not installed")
    done = ended(["-c", EXECUTE, str(EXAMPLES / f"{name}.ipynb")], tmp_path)
    assert done.returncode == 0, done.stderr
    cells: list[dict[str, Any]] = [cell for cell in json.loads(done.stdout)["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    shown = "".join("".join(output.get("data", {}).get("text/plain", "")) for output in outputs)
    assert "Run(" in shown or "weight" in shown
    assert any("text/html" in output.get("data", {}) for output in outputs)
