"""The wheel beside Hugging Face's ``datasets``, installed in both orders, and what is left when it is removed.

The environments are made anew with pip, which takes minutes and a package index: skipped, with the reason, without one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.test_imports import ROOMS

ROOT = Path(__file__).parent.parent
SHIPPED = set(ROOMS) - {"benchmarks"}
NEIGHBOUR = "datasets"
#: Packages of extras, which a plain installation does not have.
EXTRAS = {
    "torch",
    "torch_geometric",
    "triton",
    "dgl",
    "boto3",
    "botocore",
    "ray",
    "aws_cdk",
    "cdk_nag",
    "constructs",
    "localstack",
    "localstack_client",
    "pyarrow",
    "pandas",
    "matplotlib",
    "jinja2",
    "markupsafe",
    "networkx",
    "tensorboard",
    "mlflow",
    "wandb",
    "onnxruntime",
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

IMPORT_ALL = """
import importlib, pkgutil, sys
wrong = []
for room in sys.argv[1].split(","):
    package = importlib.import_module(room)
    for found in pkgutil.walk_packages(package.__path__, room + "."):
        # Programs, those of other environments, and the kernels, which are no Python module.
        if found.name.endswith(("__main__", "._native")) or ".export.modules." in found.name:
            continue
        try:
            importlib.import_module(found.name)
        except Exception as error:
            missing = getattr(error, "name", None) or getattr(error.__cause__, "name", None)
            if str(missing).split(".")[0] not in sys.argv[2].split(","):
                wrong.append(f"{found.name}: {error}")
print("\\n".join(wrong))
"""


def attempt(*command: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """In an environment whose variables do not lead to this checkout."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables["SIAFU_ISAS"] = "native"  # the other instruction sets take minutes to compile
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def run(*command: object, folder: Path) -> str:
    ended = attempt(*command, folder=folder)
    assert ended.returncode == 0, f"{command}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # A copy: what setuptools once left in build/ would be packed again.
    kept = shutil.ignore_patterns(".git", ".venv", "build", "runs", "tests", "docs", "*.so", "__pycache__", ".*_cache")
    source = shutil.copytree(ROOT, folder / "source", ignore=kept)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source]
    run(*pip, folder=folder)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_our_rooms_alone(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == SHIPPED


def test_the_wheel_holds_what_the_kernels_are_compiled_from(wheel: Path) -> None:
    """infra.kernels compiles them for Lambda."""
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "siafu" / "kernels" / "src").iterdir()}
    assert sources <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize("ours_first", [True, False], ids=["siafu first", "datasets first"])
def test_siafu_and_hugging_faces_datasets_leave_each_other_whole(wheel: Path, tmp_path: Path, ours_first: bool) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    for package in [wheel, NEIGHBOUR] if ours_first else [NEIGHBOUR, wheel]:
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", package]
        ended = attempt(*pip, folder=tmp_path)
        if ended.returncode and "No matching distribution" in ended.stderr:
            pytest.skip(f"pip finds no {package}: {ended.stderr.strip().splitlines()[-1]}")
        assert ended.returncode == 0, ended.stderr

    look = [python, "-c", f"import {NEIGHBOUR}; print({NEIGHBOUR}.Dataset.from_dict({{'a': [1, 2]}}).num_rows)"]
    assert run(*look, folder=tmp_path).split() == ["2"]
    # A user's own bench.py beside the script stays the user's.
    (tmp_path / "bench.py").write_text("raise SystemExit('the wrong bench')\n")
    script = tmp_path / "script.py"
    script.write_text("import siafu\nprint(siafu.train('digits', epochs=2, backend='cpu').result['epochs'])\n")
    assert run(python, script, folder=tmp_path).split()[-1] == "2"
    assert run(python, "-c", IMPORT_ALL, ",".join(sorted(SHIPPED)), ",".join(EXTRAS), folder=tmp_path) == "\n"

    run(python, "-m", "pip", "uninstall", "-q", "-y", "siafu", folder=tmp_path)
    assert run(*look, folder=tmp_path).split() == ["2"]
    left = {path.name for path in (home / "lib").glob("python*/site-packages/*")}
    assert not left & SHIPPED
