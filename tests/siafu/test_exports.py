"""What ``siafu`` gives to editors is what it gives to Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import siafu

STUB = Path(siafu.__file__).with_suffix(".pyi")


def test_the_stub_names_what_is_loaded_and_from_where() -> None:
    """Functions with settings are spelled out there (tests/website/test_stub.py)."""
    body = ast.parse(STUB.read_text()).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    told = {alias.asname: node.module for node in imports for alias in node.names if alias.asname == alias.name}
    spelled_out = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    assert told | {name: siafu._ELSEWHERE[name] for name in spelled_out} == siafu._ELSEWHERE


@pytest.mark.parametrize("name", siafu.__all__)
def test_every_name_is_there_and_is_shown(name: str) -> None:
    assert getattr(siafu, name) is not None
    assert name in dir(siafu)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'siafu' has no attribute 'trian'"):
        _ = siafu.trian
