"""What servers install: siafu's sources, whole and reproducible, and all that they import there."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from types import SimpleNamespace

import pytest

from infra import wheelhouse
from infra.imports import ROOT
from infra.wheels import Target

#: Modules that run on a deployed machine.
ON_MACHINES = (
    "infra.machines.agent",
    "infra.machines.coordinate",
    "graph_server.__main__",
    "param_server.__main__",
    "lambda_funcs.local_pool",
)
#: What is installed here, but not there.
NOT_THERE = ("pymetis", "sklearn", "aws_cdk", "ray", "torch", "pyarrow")


def test_sources_are_the_same_bytes_for_the_same_tree():
    assert wheelhouse._sources() == wheelhouse._sources()


def test_sources_hold_all_rooms_and_what_setup_compiles():
    with tarfile.open(fileobj=io.BytesIO(wheelhouse._sources())) as archive:
        names = set(archive.getnames())
    assert {f"siafu/{room}/__init__.py" for room in wheelhouse.ROOMS} <= names
    assert {
        f"siafu/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "siafu" / "kernels" / "src").iterdir()
    } <= names
    assert {"siafu/setup.py", "siafu/pyproject.toml", "siafu/siafu/pricing/prices.csv", "siafu/siafu/py.typed"} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".so")]


def test_machines_import_nothing_that_they_do_not_install():
    code = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({NOT_THERE!r}))\n"  # None: importing it fails
        f"for name in {ON_MACHINES!r}: importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_wheels_are_pinned_to_what_is_installed_here():
    import numpy as np

    assert f"numpy=={np.__version__}" in wheelhouse._pinned()


@pytest.mark.parametrize(("ours", "theirs"), [(10, 11), (11, 11), (12, 12), (14, 14), (15, 14)])
def test_servers_have_this_pythons_version_or_the_nearest_that_amazon_linux_packages(
    monkeypatch, tmp_path, ours, theirs
):
    """NumPy 2.5, which a new environment of Python 3.12 gets, has no wheels for 3.11."""
    asked: list[Target] = []
    monkeypatch.setattr(wheelhouse, "sys", SimpleNamespace(version_info=SimpleNamespace(minor=ours)))
    monkeypatch.setattr(wheelhouse, "_cache", lambda: tmp_path)
    monkeypatch.setattr(wheelhouse, "_wheels", lambda target: (asked.append(target), [])[1])
    wheelhouse.build("arm64")
    assert [target.runtime for target in asked] == [wheelhouse.python()] == [f"python3.{theirs}"]


def test_wheels_may_need_the_c_library_of_amazon_linux_2023():
    tags = Target("arm64", wheelhouse.python(), wheelhouse.GLIBC).tags
    assert tags[0] == "manylinux_2_34_aarch64"
    assert "any" in tags
