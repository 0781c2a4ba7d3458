"""siafu.table: classes and functions that tables name."""

from __future__ import annotations

import pytest

from siafu.errors import ConfigError
from siafu.table import loaded, named

TABLE = {"pair": "collections:namedtuple", "absent": "no_such_package.module:Class"}


def test_a_line_is_imported_when_it_is_used():
    assert named(TABLE, "pair", "thing") is loaded("collections:namedtuple")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        named(TABLE, "absent", "thing")


def test_an_unknown_name_is_told_of_with_the_names_that_there_are():
    with pytest.raises(
        ConfigError, match=r"^thing 'pairs': unknown, must be one of pair, absent; did you mean pair\?$"
    ):
        named(TABLE, "pairs", "thing")
