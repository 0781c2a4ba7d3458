"""A Python environment with DGL and PyG, to compare with: made once and kept below ~/.cache/siafu.

DGL and PyG cannot share siafu's environment: DGL 2.1.0 has no binaries for the torch that the others need, and imports
beside it only with a stand-in for one of its modules (``benchmarks/measure/peer_process.py``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from run_coordinator import pinned
from siafu.streams import say

#: pip's arguments, one line after the other; "?": peers that are missing then are skipped, the rest still run.
TORCH = "torch==2.13.0"
STEPS = (
    ("", "torch-geometric==2.8.1 numpy==2.4.6 scipy==1.17.1 setuptools<81"),
    ("?", "packaging pandas pyyaml pydantic networkx requests tqdm psutil safetensors"),
    ("?", "--no-deps dgl==2.1.0"),
)
MARKER = "complete.json"  # written last: what is installed


def folder(cache: Path | None = None) -> Path:
    """The folder of the environment for these pins and this Python, whether it exists or not."""
    pins = json.dumps([TORCH, STEPS, sys.version_info[:2]])
    return pinned.folder("peers", pins.encode(), cache)


def interpreter(cache: Path | None = None) -> str:
    """The peers' Python. Makes their environment first, which takes minutes, with progress on stderr. If that fails,
    returns siafu's own Python, which has SciPy, and torch if installed."""
    home = folder(cache)
    python = home / "bin" / "python"
    if (home / MARKER).is_file():
        return str(python)
    try:
        with pinned.alone(home):
            if not (home / MARKER).is_file():  # while we waited, another process may have made it
                _make(home, python)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"peers: no environment for DGL and PyG ({_reason(error)}): measured are those that siafu's own has")
        return sys.executable
    return str(python)


def _make(home: Path, python: Path) -> None:
    say(f"peers: installing torch, PyG and DGL into {home}, once; 2 GB")
    shutil.rmtree(home, ignore_errors=True)
    _run(sys.executable, "-I", "-m", "venv", str(home))
    try:
        _torch_for_cpus(home, python)
    except (OSError, subprocess.SubprocessError):
        say("peers: uv finds no torch for CPUs here: pip chooses one, perhaps with CUDA")
        _pip(python, TORCH)
    failed = []
    for optional, packages in (("", TORCH), *STEPS):
        try:
            _pip(python, *packages.split())
        except subprocess.SubprocessError as error:
            if not optional:
                raise
            say(f"peers: without {packages}: {_reason(error)}")
            failed.append(packages)
    (home / MARKER).write_text(json.dumps({"torch": TORCH, "steps": STEPS, "failed": failed}) + "\n")


def _torch_for_cpus(home: Path, python: Path) -> None:
    """Installs torch's CPU build, which saves 3 GB of CUDA. Uses uv, which knows where that build is."""
    _pip(python, "uv")
    chosen = ("--torch-backend", "cpu", "--no-deps", TORCH)
    _run(str(home / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(python), *chosen)


def _pip(python: Path, *arguments: str) -> None:
    say(f"peers: pip install {' '.join(arguments)}")
    _run(str(python), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=pinned.variables())
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command[:4], stderr=done.stderr)


def _reason(error: Exception) -> str:
    return pinned.reason(getattr(error, "stderr", None) or str(error)) or type(error).__name__
