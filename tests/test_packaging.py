"""Dockerfile, the workflow of CI and the Makefile: as far as they can be checked where they cannot run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_imports import ROOMS

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()
#: Instructions of the Dockerfile, continued lines joined.
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in re.sub(r"\\\n\s*", "", DOCKERFILE).splitlines()
    if line and not line.startswith("#")
]


# --- Dockerfile -------------------------------------------------------------------------------------------------------


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    ended = subprocess.run([hadolint, "--no-color", str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == ("", 0)


def test_every_image_has_a_tag_and_the_last_stage_is_not_roots() -> None:
    images = [words[1].split()[0] for words in INSTRUCTIONS if words[0] == "FROM"]
    assert len(images) == 2
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+-slim-\w+", image) for image in images)
    last = [words[0] for words in INSTRUCTIONS][::-1].index("FROM")
    users = [words[1] for words in INSTRUCTIONS[-last:] if words[0] == "USER"]
    assert users
    assert users[-1] not in ("root", "0")


def test_nothing_secret_and_nothing_but_the_wheels_sources_gets_into_the_image() -> None:
    assert IGNORED[1] == "*"
    wanted = {line.removeprefix("!") for line in IGNORED if line.startswith("!")}
    shipped = set(ROOMS) - {"benchmarks", "website"}
    assert wanted == {"pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", *shipped}
    assert all((ROOT / name).exists() for name in wanted)
    assert "**/*.so" in IGNORED
    assert not re.search(r"(?i)secret|token|password|aws_", DOCKERFILE)


def test_what_the_image_starts_is_there() -> None:
    assert ["ENTRYPOINT", '["siafu"]'] in INSTRUCTIONS
    assert 'siafu = "siafu.__main__:entry"' in (ROOT / "pyproject.toml").read_text()


# --- the workflow -----------------------------------------------------------------------------------------------------


def test_the_workflow_runs_targets_of_the_makefile_on_both_architectures() -> None:
    yaml = pytest.importorskip("yaml")
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow.keys() == {"name", True, "permissions", "concurrency", "jobs"}  # YAML 1.1 takes "on" for true
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    targets = [step["run"].removeprefix("make ") for step in steps if "run" in step]
    assert set(targets) == {"lint", "docs", "test", "wheel"}
    assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in targets)
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["runner"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert "secrets." not in text
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


# --- make audit -------------------------------------------------------------------------------------------------------

UNREACHED = "requests.exceptions.ProxyError: HTTPSConnectionPool(host='x'): Max retries exceeded with url: /"
FOUND = "Found 1 known vulnerability in 1 package\nurllib3 1.0 PYSEC-1 Max retries exceeded"
CLEAN = "No known vulnerabilities found"
SKIPPED = (
    f"{CLEAN}\nyarl  Dependency not found and could not be audited: yarl (1)\nzipp  it could not be audited: zipp (4)"
)
UNKNOWN = "make audit: 2 packages are not known to the index that can be reached: they were not checked"


@pytest.mark.parametrize(
    ("said", "code", "expected", "is_right"),
    [
        (CLEAN, 0, CLEAN, True),
        (SKIPPED, 0, f"{CLEAN}\n{UNKNOWN}", True),
        (FOUND, 1, FOUND, False),
        (UNREACHED, 1, "make audit: the advisories cannot be reached: nothing was checked", True),
        ("error: unrecognized arguments", 2, "error: unrecognized arguments", False),
    ],
)
def test_an_audit_fails_by_what_it_finds_and_not_by_the_network(
    tmp_path: Path, said: str, code: int, expected: str, is_right: bool
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "pip-audit"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit {code}\n")
    for path in (program, tmp_path / "bin" / "python", tmp_path / ".setup-dev"):
        path.touch()
        path.chmod(0o755)
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    ended = subprocess.run(["make", "-s", "audit", f"VENV={tmp_path}"], cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout.strip() == expected
    assert (ended.returncode == 0) is is_right


def test_no_package_index_is_named() -> None:
    """Which one a user's pip asks is the user's choice."""
    hosts = re.compile(r"\b(pypi|pytorch|pythonhosted|npmjs)\.(org|com)\b")
    named = [ROOT / name for name in ("Makefile", "Dockerfile", "setup.py", "pyproject.toml", "README.md")]
    named += [
        path for room in [*ROOMS, "docs", ".ci", ".github"] for path in (ROOT / room).rglob("*") if path.is_file()
    ]
    texts = {path: path.read_text() for path in named if path.suffix not in (".so", ".pyc", ".png", ".npz")}
    assert {path.name for path, text in texts.items() if hosts.search(text)} == set()
