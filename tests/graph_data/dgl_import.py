"""DGL for tests, where it is installed: ``pip install --no-deps dgl==2.1.0 psutil tqdm requests``."""

import os
import sys
import types
import warnings
from importlib import import_module
from unittest import mock

import pytest


def imported_dgl():
    """DGL 2.1.0 beside a torch that it has no graphbolt binary for: empty modules stand in for that, and
    for pandas, which its download code alone uses (and which pyarrow would take up, were it installed
    for DGL's sake). Skips without DGL.
    """
    if "dgl" not in sys.modules:
        stand_ins = {name: types.ModuleType(name) for name in ("dgl.graphbolt", "pandas")}
        stand_ins["dgl.graphbolt"].__path__ = []
        with mock.patch.dict(os.environ, DGLBACKEND="pytorch"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sys.modules.update({name: module for name, module in stand_ins.items() if name not in sys.modules})
            try:
                import_module("dgl")
            except ImportError as error:
                pytest.skip(f"needs DGL: {error}")
            finally:
                if sys.modules.get("pandas") is stand_ins["pandas"]:
                    del sys.modules["pandas"]
    return sys.modules["dgl"]
