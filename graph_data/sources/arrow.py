"""pyarrow, where it is installed: it reads Parquet and CSV files and keeps ids that are no integers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from siafu import extras
from siafu.errors import ConfigError


def arrow(module: str = "pyarrow") -> Any:
    """A module of pyarrow. Raises: ConfigError if that is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        how = extras.advice(error, extras.install("data"))
        raise ConfigError(f"Parquet and CSV files need pyarrow: {how}") from None


def first_line_of(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(". ")
