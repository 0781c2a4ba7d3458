"""infra.package and infra.wheels: the function's zip. Wheels come from the cache or from
pip's index: skipped without both."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from infra import kernels, package, wheels
from infra.wheels import Target
from siafu.errors import ConfigError
from siafu.kernels import library

linux = pytest.mark.skipif(sys.platform != "linux", reason="a package for this machine is for Linux alone")


@pytest.fixture(scope="module")
def here() -> package.Package:
    try:
        return package.build_here()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def var_task(here: package.Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's files: what /var/task is on Lambda."""
    folder: Path = tmp_path_factory.mktemp("task")
    with zipfile.ZipFile(here.path) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def no_cache(here: package.Package, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, but for the wheels."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "wheels").symlink_to(package.cache() / "wheels")
    monkeypatch.setattr(package, "cache", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is all that pip knows of."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def names(built: package.Package) -> list[str]:
    with zipfile.ZipFile(built.path) as archive:
        return archive.namelist()


def run(folder: Path, code: str) -> str:
    """What ``code`` prints in an interpreter that sees this folder alone."""
    command = [sys.executable, "-I", "-S", "-B", "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {code}"]
    command.append(str(folder))
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def empty_wheel(folder: Path, file: str) -> None:
    name, version, tag = file.split("-", 2)
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{file}.whl", "w") as archive:
        for part, text in files.items():
            archive.writestr(f"{name}-{version}.dist-info/{part}", text)


# --- the package ------------------------------------------------------------------------------------------------------


@pytest.mark.long
@linux
def test_two_builds_of_the_same_tree_have_the_same_bytes(here, no_cache):
    again = package.build_here()
    assert again.path.parent == no_cache
    assert again.sha256 == here.sha256


@pytest.mark.long
@linux
def test_a_package_is_built_once(here):
    before = here.path.stat().st_ino
    assert package.build_here().path.stat().st_ino == before


@linux
def test_the_handler_imports_where_there_is_nothing_but_the_package(var_task):
    assert run(var_task, "import lambda_funcs.handler, siafu.models as m; m.build; print(m.MODELS.keys())")


@linux
def test_nothing_that_numpy_needs_was_stripped(var_task):
    parts = (
        "numpy.linalg, numpy.fft, numpy.random, numpy.ma, numpy.polynomial, numpy.testing, numpy.ctypeslib, zmq.auth"
    )
    assert run(var_task, f"import {parts}; print(numpy.linalg.det(numpy.eye(3)))") == "1.0"


@linux
def test_numpy_and_pyzmq_are_the_versions_that_are_installed_here(var_task):
    import numpy as np
    import zmq

    found = run(var_task, "import numpy, zmq; print(numpy.__version__, zmq.__version__, numpy.__file__)").split()
    assert found[:2] == [np.__version__, zmq.__version__]
    assert found[2].startswith(str(var_task))


@linux
def test_modules_travel_compiled_and_unchecked_for_our_python(here):
    with zipfile.ZipFile(here.path) as archive:
        tag = sys.implementation.cache_tag
        compiled = archive.read(f"siafu/__pycache__/ops.{tag}.pyc")
    # by hash of the source, and never compared with it (PEP 552)
    assert int.from_bytes(compiled[4:8], "little") == 0b01
    assert b"/var/task/siafu/ops.py" in compiled


@linux
def test_of_ours_only_what_the_handler_needs_is_shipped(here):
    ours = {name for name in names(here) if name.split("/")[0] not in ("numpy", "numpy.libs", "zmq", "pyzmq.libs")}
    sources = {name for name in ours if name.endswith(".py")}
    assert {"lambda_funcs/handler.py", "lambda_funcs/worker.py", "lambda_funcs/desk.py", "siafu/ops.py"} <= sources
    assert {"siafu/arithmetic.py", "siafu/kernels/library.py", "siafu/kernels/dense.py"} <= sources
    assert not sources & {"lambda_funcs/local_pool.py", "siafu/member.py", "siafu/kernels/build.py"}
    assert not [name for name in names(here) if "/tests/" in name or name.endswith((".pyi", ".h", ".a"))]


@linux
def test_kernels_of_this_installation_are_shipped_as_they_are(here, var_task):
    if library.LIBRARY is None:
        pytest.skip("there are none: no compiler")
    assert (var_task / package.KERNELS).read_bytes() == library.PATH.read_bytes()
    assert here.kernels == library.PATH.stat().st_size
    load = f"import ctypes; print(ctypes.CDLL(sys.argv[1] + '/{package.KERNELS}').siafu_isa())"
    assert run(var_task, load) == str(library.LIBRARY.siafu_isa())


@pytest.mark.long
@linux
def test_without_kernels_here_a_package_for_here_has_none(no_cache, monkeypatch):
    monkeypatch.setattr(library, "LIBRARY", None)
    built = package.build_here()
    assert built.kernels == 0
    assert package.KERNELS not in names(built)


@linux
def test_licences_of_what_is_shipped_are_shipped(here):
    assert {"numpy", "pyzmq"} <= {name.split("-")[0] for name in names(here) if "LICENSE" in name}


@linux
def test_sizes_are_those_of_the_files_and_within_limits(here, var_task):
    files = [path for path in var_task.rglob("*") if path.is_file()]
    assert here.unzipped == sum(path.stat().st_size for path in files) < package.MAX_NBYTES
    assert here.zipped == here.path.stat().st_size < 50 * 2**20  # what Lambda takes in one request
    assert here.beyond_numpy < 60 * 2**20


@linux
def test_entries_have_fixed_times_and_may_be_read_by_lambda(here):
    with zipfile.ZipFile(here.path) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 for entry in entries} == {0o100644, 0o100755}


@pytest.mark.long
@linux
def test_old_packages_leave_the_cache(here, no_cache):
    old = no_cache / "old.zip"
    old.write_text("")
    os.utime(old, (0, 0))
    package.build_here()
    assert not old.exists()


@pytest.fixture
def arm_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What stands for the library that is cross-compiled."""
    path = tmp_path / "kernels.so"
    path.write_bytes(b"for arm")
    monkeypatch.setattr(kernels, "cross_compiled", lambda target, cache: path)
    return path


@pytest.mark.long
def test_the_package_for_aws_has_the_runtimes_architecture(arm_kernels):
    try:
        built = package.build("arm64")
    except ConfigError as error:
        pytest.skip(str(error))
    tag = f"cpython-{built.runtime.removeprefix('python').replace('.', '')}-aarch64-linux-gnu.so"
    assert [name for name in names(built) if name.startswith("numpy/_core/_multiarray_umath") and name.endswith(tag)]
    assert built.unzipped < package.MAX_NBYTES
    with zipfile.ZipFile(built.path) as archive:
        assert archive.read(package.KERNELS) == b"for arm"
    assert built.kernels == 7
    arm_kernels.write_bytes(b"other")
    assert package.build("arm64").kernels == 5


def test_no_function_gets_a_python_that_aws_has_deprecated(monkeypatch):
    """3.10, since October 2026."""
    asked: list[str] = []

    def build(target: Target) -> None:
        asked.append(target.runtime)
        raise wheels.NoWheelError("none")

    monkeypatch.setattr(package, "_build", build)
    monkeypatch.setattr(package, "sys", SimpleNamespace(version_info=SimpleNamespace(minor=10)))
    with pytest.raises(wheels.NoWheelError):
        package.build("arm64")
    assert asked == ["python3.11", "python3.12", "python3.13", "python3.14"]


# --- the command ------------------------------------------------------------------------------------------------------


@linux
def test_command_shows_sizes(here, monkeypatch, capsys):
    monkeypatch.setattr(package, "build", lambda arch: here)
    assert package.main([]) == 0
    found = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (found["zipped"], found["kernels"]) == (str(here.zipped), str(here.kernels))


def test_command_says_in_one_line_what_is_wrong(monkeypatch, capsys):
    def build(target: Target) -> None:
        raise ConfigError("pip cannot download numpy")

    monkeypatch.setattr(package, "_build", build)
    assert package.main([]) == 2
    assert capsys.readouterr().err == "infra.package: pip cannot download numpy\n"


# --- wheels -----------------------------------------------------------------------------------------------------------


def test_unknown_architecture_is_refused():
    with pytest.raises(ConfigError, match="architecture mips: must be one of x86_64, arm64"):
        package.build("mips")


def test_only_wheels_that_the_runtimes_c_library_can_load_are_asked_for():
    assert Target.of_lambda("arm64", "python3.11").tags[0] == "manylinux_2_26_aarch64"
    assert Target.of_lambda("x86_64", "python3.13").tags[0] == "manylinux_2_34_x86_64"


def test_a_wheel_of_the_right_kind_is_taken_and_kept(index, tmp_path):
    for tag in ("manylinux_2_28_x86_64", "manylinux_2_17_aarch64", "manylinux_2_17_x86_64"):
        empty_wheel(index, f"thing-1.0-cp312-cp312-{tag}")
    target = Target.of_lambda("x86_64", "python3.12")
    found = wheels.wheel(target, "thing", "1.0", tmp_path / "cache")
    assert found == tmp_path / "cache" / str(target) / "thing-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    for wheel in index.iterdir():
        wheel.unlink()
    assert wheels.wheel(target, "thing", "1.0", tmp_path / "cache") == found


def test_without_a_wheel_for_the_runtime_others_are_named(index, tmp_path):
    empty_wheel(index, "thing-1.0-cp311-cp311-manylinux_2_28_x86_64")
    empty_wheel(index, "thing-0.9-cp311-cp311-manylinux_2_17_x86_64")
    expected = (
        r"thing 1.0 has no wheel for python3.11 on x86_64 with glibc 2.26: .*\(python3.12, python3.13, python3.14\)"
    )
    with pytest.raises(wheels.NoWheelError, match=expected):
        wheels.wheel(Target.of_lambda("x86_64", "python3.11"), "thing", "1.0", tmp_path)


def test_without_an_index_the_error_is_pips_own(index, tmp_path):
    with pytest.raises(ConfigError, match=r"pip cannot download thing==1.0: .*from versions: none") as caught:
        wheels.wheel(Target.of_lambda("x86_64", "python3.12"), "thing", "1.0", tmp_path)
    assert not isinstance(caught.value, wheels.NoWheelError)
    assert "\n" not in str(caught.value)
