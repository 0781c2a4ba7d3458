"""LocalStack's own environment: one frozen set of packages below ~/.cache/siafu, made once, and never ours.

LocalStack needs Python 3.11, whatever siafu runs on, and pins that conflict with siafu's packages. The functions run on
its Python too: there they find AWS's runtime interface client, and everything else in their own zip.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from run_coordinator import pinned
from siafu.errors import ConfigError, GnnError

RUNTIME = "python3.11"  # of LocalStack, and so of the functions
HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
PLUGIN = HERE / "plugin"
COMMAND = "python -m infra.localstack install"
MARKER = "complete"  # written last: an installation that was killed is not taken for a whole one


def folder(cache: Path | None = None) -> Path:
    """The folder of the environment for these pins, whether it exists or not."""
    pins = REQUIREMENTS.read_bytes() + (PLUGIN / "pyproject.toml").read_bytes()
    return pinned.folder("localstack", pins, cache)


def installed(cache: Path | None = None) -> bool:
    return (folder(cache) / MARKER).is_file()


def interpreter(cache: Path | None = None) -> Path:
    """LocalStack's Python. ConfigError with advice if it is not installed."""
    if not installed(cache):
        raise ConfigError(f"LocalStack is not installed (510 MB, once): {COMMAND}")
    return folder(cache) / "bin" / "python"


def install(cache: Path | None = None) -> Path:
    """Makes the environment unless it exists, with progress on stderr; returns its Python.

    ConfigError without Python 3.11, GnnError with pip's words if a package cannot be installed.
    """
    home = folder(cache)
    with pinned.alone(home):  # while we wait, another process may make it
        if not installed(cache):
            _make(home)
    return interpreter(cache)


def _make(home: Path) -> None:
    base = _python()
    _say(f"installing into {home}, once; 510 MB, a minute or two")
    shutil.rmtree(home, ignore_errors=True)
    _run([base, "-I", "-m", "venv", str(home)])
    pip = [
        str(home / "bin" / "python"),
        "-I",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--progress-bar=off",
    ]
    _watch([*pip, "--no-deps", "--requirement", str(REQUIREMENTS)])
    with _copy_of(PLUGIN, home / "plugin") as source:  # a build writes beside its source, which may be read-only
        _run([*pip, "--no-deps", "--no-build-isolation", "--quiet", str(source)])
    (home / MARKER).write_text(f"{REQUIREMENTS.read_text()}")
    _say("installed")


def _python() -> str:
    """A Python 3.11 that runs: pyenv leaves commands that only say that no version is selected."""
    ours = [sys.executable] if sys.version_info[:2] == (3, 11) else []
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for candidate in [*ours, RUNTIME, *sorted(glob.glob(f"{pyenv}/versions/3.11*/bin/{RUNTIME}"), reverse=True)]:
        try:
            test = "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))"
            if (
                subprocess.run([candidate, "-I", "-c", test], capture_output=True, env=pinned.variables()).returncode
                == 0
            ):
                return candidate
        except OSError:
            continue
    raise ConfigError(f"LocalStack needs Python 3.11: no {RUNTIME} on PATH nor in {pyenv} (with venv and ensurepip)")


def _watch(command: list[str]) -> None:
    """Runs pip and shows its progress. Keeps its output in case it fails."""
    wanted = sum(1 for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#"))
    output: list[str] = []
    seen = 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=pinned.variables()
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            output.append(line)
            if line.startswith(("Collecting ", "Processing ")):
                seen += 1
                if seen % 25 == 0 or seen == wanted:
                    _say(f"{seen} of {wanted} packages")
            elif line.startswith("Installing collected"):
                _say("unpacking")
    if pip.returncode:
        raise _failure(command, "".join(output))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=pinned.variables())
    if done.returncode:
        raise _failure(command, done.stdout)


def _failure(command: list[str], output: str) -> GnnError:
    return GnnError(f"LocalStack cannot be installed: {' '.join(command[:4])}: {pinned.reason(output) or 'failed'}")


@contextmanager
def _copy_of(source: Path, target: Path) -> Iterator[Path]:
    shutil.copytree(source, target)
    yield target
    shutil.rmtree(target)


def _say(line: str) -> None:
    print(f"LocalStack: {line}", file=sys.stderr, flush=True)
