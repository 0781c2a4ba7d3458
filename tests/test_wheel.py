"""The wheel and the sdist: what is in them, their tags; installed with every Python that is here, and beside Hugging
Face's ``datasets`` in both orders; what is left when it is removed.

The environments are made anew with pip, which takes minutes and a package index: skipped, with the reason, without one.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

import pytest

from infra import distributions, kernels
from infra.imports import files
from infra.wheels import ARCHITECTURES
from siafu.kernels import build, elf
from tests.test_imports import ROOMS

ROOT = Path(__file__).parent.parent
SHIPPED = set(ROOMS) - {"benchmarks", "website"}
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

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

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
def published(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The sdist and this architecture's wheel, as ``make wheel`` makes them."""
    machine = platform.machine()
    arch = next((arch for arch, name in ARCHITECTURES.items() if name == machine), None)
    if arch is None or not kernels.has_zig():
        pytest.skip(
            f"wheels are not compiled here: {machine}, ziglang {'is' if kernels.has_zig() else 'not'} installed"
        )
    return distributions.build(tmp_path_factory.mktemp("dist"), [arch])


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return distributions.sdist(tmp_path_factory.mktemp("sdist"))


def built(sdist: Path, folder: Path, **variables: str) -> Path:
    """The wheel that pip makes of it with this machine's compiler."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, sdist]
    run("env", *(f"{name}={value}" for name, value in variables.items()), *pip, folder=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, sdist: Path) -> Path:
    return built(sdist, tmp_path_factory.mktemp("wheel"))


def test_the_sdist_holds_what_it_is_built_from_and_nothing_that_was_made(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {path.relative_to(ROOT).as_posix() for room in SHIPPED for path in files(f"{room}/**/*.py")}
    assert wanted <= found
    assert {"setup.py", "pyproject.toml", "LICENSE", "README.md", "siafu/kernels/src/isa.hpp"} <= found
    assert not [name for name in found if name.endswith((".so", ".pyc", ".o")) or name.startswith(("tests", "runs"))]


def test_the_wheel_holds_our_rooms_alone(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == SHIPPED


def test_the_wheel_holds_what_the_kernels_are_compiled_from(wheel: Path) -> None:
    """infra.kernels compiles them for Lambda."""
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "siafu" / "kernels" / "src").iterdir()}
    assert sources <= set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_every_table_and_template(wheel: Path) -> None:
    tables = [path for room in SHIPPED for kind in ("csv", "j2") for path in (ROOT / room).rglob(f"*.{kind}")]
    assert {path.relative_to(ROOT).as_posix() for path in tables} <= set(zipfile.ZipFile(wheel).namelist())


def test_a_type_checker_reads_the_types_of_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    """Each room has py.typed: without it, a ``Run`` of ``run_coordinator`` would be ``Any``."""
    venv.create(tmp_path / "venv")
    purelib = next((tmp_path / "venv" / "lib").iterdir()) / "site-packages"
    zipfile.ZipFile(wheel).extractall(purelib)
    calls = tmp_path / "calls.py"
    calls.write_text(
        "import siafu\nreveal_type(siafu.train(epochs=3))\nreveal_type(siafu.prepare)\nsiafu.train(epochz=3)\n"
    )
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", tmp_path / "venv" / "bin" / "python"]
    ended = attempt(*mypy, "--cache-dir", tmp_path / "cache", calls, folder=tmp_path)
    said = [line.partition(": ")[2] for line in ended.stdout.splitlines()]
    assert said[0] == 'note: Revealed type is "run_coordinator.run.Run"'
    assert said[1].endswith('-> siafu.shards.ShardSet"')
    assert said[2].startswith('error: Unexpected keyword argument "epochz" for "train"; did you mean "epochs"?')


def test_a_wheel_that_this_machines_compiler_made_for_its_processor_is_for_no_other_system(wheel: Path) -> None:
    assert wheel.name.endswith(f"-py3-none-linux_{platform.machine()}.whl")


def test_without_a_compiler_the_wheel_is_for_every_machine(sdist: Path, tmp_path: Path) -> None:
    made = built(sdist, tmp_path, CC="false", CXX="false")
    assert made.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(made) as archive:
        described = next(name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        assert "Root-Is-Purelib: true" in archive.read(described).decode()
        assert not [name for name in archive.namelist() if name.endswith(".so")]


def test_a_published_wheel_is_for_every_python_and_every_linux_since_glibc_2_28(published: list[Path]) -> None:
    wheel = published[1]
    assert wheel.name.endswith(f"-py3-none-manylinux_2_28_{platform.machine()}.whl")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read("siafu/kernels/_native.so")
    names = elf.needs(library).libraries
    assert not [name for name in names if "c++" in name or "gcc" in name]  # they are in it
    sets = build.instruction_sets(platform.machine())
    assert built_for(library) == set(sets)
    auditwheel = shutil.which("auditwheel", path=os.path.dirname(sys.executable))
    if auditwheel is not None:
        said = " ".join(run(auditwheel, "show", wheel, folder=wheel.parent).split())
        assert re.search(rf'consistent with the following platform tag: "manylinux_2_\d+_{platform.machine()}"', said)
        assert int(re.search(r"manylinux_2_(\d+)_", said.partition("platform tag:")[2])[1]) <= 28  # type: ignore[index]


def test_an_extra_in_a_checkout_that_is_set_up_compiles_nothing(sdist: Path, tmp_path: Path) -> None:
    """It took 6.5 minutes: make setup compiles for this machine, and the extra asked for every processor."""
    tree = distributions.unpacked(sdist, tmp_path)
    shutil.copy2(ROOT / "siafu" / "kernels" / "_native.so", tree / "siafu" / "kernels" / "_native.so")
    os.utime(tree / "siafu" / "kernels" / "_native.so")
    venv.create(tmp_path / "venv", system_site_packages=True, with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "-v", "-e", f"{tree}[data]"]
    setuptools = Path(sysconfig.get_path("purelib"))
    said = run("env", "-u", "SIAFU_ISAS", "CC=false", "CXX=false", f"PYTHONPATH={setuptools}", *pip, folder=tmp_path)
    assert "could not be built" not in said
    show = "from siafu import kernels; print(kernels.ISA)"
    assert run(python, "-c", show, folder=tmp_path).strip() != "numpy"


def built_for(library: bytes) -> set[str]:
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        bits = ctypes.CDLL(file.name).siafu_built()
    return {isa for index, isa in enumerate(build.ISAS) if bits >> index & 1}


def interpreter(version: str) -> str:
    """A Python of that version on this machine, of the system's, pyenv's or uv's; skips without one."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)  # HOME is one that the tests have made
    patterns = (f".pyenv/versions/{version}.*/bin/python3", f".local/share/uv/python/*-{version}.*/bin/python3")
    for python in (*(path for pattern in patterns for path in home.glob(pattern)), shutil.which(f"python{version}")):
        if python and not subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True).returncode:
            return str(python)
    pytest.skip(f"no Python {version} with venv is on this machine")


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_one_wheel_trains_with_every_python(published: list[Path], tmp_path: Path, version: str) -> None:
    run(interpreter(version), "-m", "venv", "venv", folder=tmp_path)
    pip = [tmp_path / "venv" / "bin" / "python", "-m", "pip", "install", "-q", "--prefer-binary", published[1]]
    ended = attempt(*pip, folder=tmp_path)
    if ended.returncode and "No matching distribution" in ended.stderr:
        pytest.skip(f"pip finds no dependency: {ended.stderr.strip().splitlines()[-1]}")
    assert ended.returncode == 0, ended.stderr
    siafu = tmp_path / "venv" / "bin" / "siafu"
    said = json.loads(run(siafu, "train", "digits", "--epochs", "40", "--quiet", "--json", folder=tmp_path))
    assert said["epochs"] == 40
    checks = json.loads(run(siafu, "doctor", "--json", folder=tmp_path))["checks"]
    found = {check["what"]: check["found"] for check in checks}
    assert found["arithmetic"].startswith("as everywhere")  # of compiled kernels: NumPy's bits are its own


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
