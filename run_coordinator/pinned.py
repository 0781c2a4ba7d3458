"""Python environments for packages that need other versions than siafu's, below ~/.cache/siafu.

Each environment is named after its pins, and one process at a time makes it. It counts only once its marker, written
last, exists: a killed installation is never used.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from siafu.config import cache_folder
from siafu.locks import locked


def folder(name: str, pins: bytes, cache: Path | None = None) -> Path:
    """The folder of the environment for these pins, whether it exists or not. ``cache``: replaces ~/.cache/siafu."""
    return (cache or cache_folder()) / f"{name}-{hashlib.sha256(pins).hexdigest()[:12]}"


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Holds a lock while this process makes the environment at ``home``. OSError if its folder cannot be written."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("w") as file:
        locked(file, wait=True)
        yield


def variables() -> dict[str, str]:
    """The environment variables of its Python: ours without what would lead it to our packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def reason(output: str) -> str:
    """The line of pip's output that says why it failed; "" without output."""
    lines = output.strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [""])[-1]
