"""How to install a missing package: with this Python's pip, and from the checkout where siafu runs from one."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator

from siafu.errors import ConfigError
from siafu.start import ROOT


@contextlib.contextmanager
def needed(extra: str) -> Iterator[None]:
    """Wraps imports of modules that need an extra, at the start of a verb's work, so that its --help needs none.
    Raises: ConfigError that says how to install a missing package."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or os.path.isdir(os.path.join(ROOT, error.name.partition(".")[0])):
            raise  # a file of ours
        raise ConfigError(f"it needs {error.name}, which is not installed: {install(extra)}") from None


def advice(error: ImportError, how: str) -> str:
    """Returns ``how``, the advice to install a missing package. If the package is installed but cannot be loaded
    (ulimit -v, a broken library), returns the reason instead."""
    if isinstance(error, ModuleNotFoundError):
        return how
    return f"it is installed and cannot be loaded ({str(error).partition(chr(10))[0]})"


def install(*extras: str) -> str:
    """Returns the command line that installs extras of ``pyproject.toml``, for an error message."""
    named = f"[{','.join(extras)}]"
    if not os.path.isfile(os.path.join(ROOT, "pyproject.toml")):
        return f"{pip()} install {shlex.quote(f'siafu{named}')}"
    checkout = "." if _is_here(ROOT) else ROOT
    return f"{pip()} install -e {shlex.quote(f'{checkout}{named}')}"


def pip() -> str:
    """Returns the shortest command for this Python's pip from the working folder."""
    folder = os.path.dirname(sys.executable)
    beside = os.path.join(folder, "pip")
    called = shutil.which("pip")
    if called is not None and os.path.dirname(os.path.realpath(called)) == os.path.realpath(folder):
        return "pip"
    if os.path.isfile(beside):
        return shlex.quote(_shown(beside))
    return f"{shlex.quote(_shown(sys.executable))} -m pip"


def _shown(path: str) -> str:
    """Returns the path, relative if it lies below the working folder."""
    try:
        below = os.path.relpath(path)
    except OSError:  # the working folder was deleted
        return path
    return path if below.startswith(os.pardir) else below


def _is_here(folder: str) -> bool:
    try:
        return os.path.samefile(folder, os.curdir)
    except OSError:
        return False
