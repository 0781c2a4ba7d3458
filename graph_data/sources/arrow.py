"""pyarrow, where it is installed: reads Parquet and CSV files, and holds ids that are no integers."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from typing import Any

from siafu import extras
from siafu.errors import ConfigError


def arrow(module: str = "pyarrow") -> Any:
    """A module of pyarrow. Raises: ConfigError if that is not installed."""
    if "pandas" not in sys.modules:
        # pyarrow's C++ imports pandas at the first array, and takes whatever ends this import for "there is none": a
        # Ctrl-C during it, a second or more, would be lost
        with contextlib.suppress(Exception):  # pandas is optional, for pyarrow and for us
            import_module("pandas")
    try:
        return import_module(module)
    except ImportError as error:
        how = extras.advice(error, extras.install("data"))
        raise ConfigError(f"tables (Parquet, CSV, DataFrames) and ids that are texts need pyarrow: {how}") from None


def first_line_of(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(". ")
