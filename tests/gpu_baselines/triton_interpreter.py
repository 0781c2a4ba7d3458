"""Triton's kernels without a GPU: interpreted, by numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def interpreted(code: str) -> None:
    """Runs it in a process of its own: Triton interprets for as long as a process lives. It must not fail."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, timeout=200
    )
    assert not done.returncode, done.stderr
