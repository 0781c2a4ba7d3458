"""Lines of literal tables such as ``MODELS`` and ``HOSTS``: ``"module:name"``, a class or function that is imported
when it is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from siafu.errors import ConfigError, one_of


def loaded(line: str) -> Any:
    """Imports the class or function that a line names. Raises: ModuleNotFoundError if its module needs a package that
    is not installed."""
    module, _, name = line.partition(":")
    return getattr(importlib.import_module(module), name)


def named(table: Mapping[str, str], name: str, what: str) -> Any:
    """Imports the entry ``name`` of a table. Raises: ConfigError, which calls the name ``what``, if there is no such
    entry."""
    if name not in table:
        raise ConfigError(f"{what} {name!r}: unknown, {one_of(name, table)}")
    return loaded(table[name])
