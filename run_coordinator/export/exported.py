"""Runs exported models, each in a process of its own: torch and its relatives stay out of ours."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from run_coordinator import peers
from run_coordinator.export.whole import Inputs
from run_coordinator.pinned import variables
from siafu import extras
from siafu.errors import ConfigError, GnnError
from siafu.sparse import Array

#: What an export needs besides torch, as modules and for pip.
NEEDS = {"torch": (), "pyg": ("torch_geometric",), "dgl": (), "onnx": ("onnx", "onnxscript", "onnxruntime")}
SCRIPT = Path(__file__).with_name("modules") / "at_work.py"


def interpreter(to: str) -> str:
    """The Python that has the packages that the export needs. DGL's is the interpreter of the benchmark peers, unless
    this one has DGL. Raises: ConfigError naming the missing package."""
    if to == "dgl" and not _runs(sys.executable, "dgl"):
        python = peers.interpreter()
        if not _runs(python, "dgl"):
            raise ConfigError("--to dgl needs dgl and torch, and their environment cannot be made here")
        return python
    missing = [name for name in ("torch", *NEEDS[to]) if find_spec(name) is None]
    if missing:
        raise ConfigError(f"--to {to} needs {', '.join(missing)}: {extras.install('export')}")
    return sys.executable


def logits(python: str, to: str, folder: Path, inputs: Inputs) -> Array:
    """The logits of the model in ``folder``; for "onnx" writes the model there first. Raises GnnError with the
    process's last words if it fails."""
    with tempfile.TemporaryDirectory(prefix="siafu-export-") as name:
        given, found = Path(name) / "inputs.npz", Path(name) / "logits.npy"
        np.savez(given, **inputs.arrays)  # type: ignore[arg-type]
        command = [python, str(SCRIPT), to, str(folder), str(given), str(found)]
        ended = subprocess.run(command, capture_output=True, text=True, env=variables(), check=False)
        if ended.returncode:
            raise GnnError(
                f"--to {to}: the exported model fails: {_why(ended.stderr) or f'exit code {ended.returncode}'}"
            )
        rows: Array = np.load(found)
        return rows


def _why(trace: str) -> str:
    """The last line of a Python traceback that names the error."""
    lines = trace.strip().splitlines()
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return (raised or lines or [""])[-1][:300]


def _runs(python: str, to: str) -> bool:
    """Whether the interpreter can import the library."""
    return subprocess.run([python, str(SCRIPT), to], capture_output=True, env=variables(), check=False).returncode == 0
