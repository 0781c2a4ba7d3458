"""Looks a function up in a literal table of names: ``PARTITIONERS``, ``ORDERS``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from siafu.errors import ConfigError


def named(table: dict[str, str], name: str, what: str) -> Any:
    """The function that the table names so ("module:function"). Raises: ConfigError for an unknown name."""
    if name not in table:
        raise ConfigError(f"{what} {name!r} is not one of {', '.join(table)}")
    module, _, function = table[name].partition(":")
    return getattr(import_module(module), function)
