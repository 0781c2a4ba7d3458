"""``import siafu`` is cheap, and gives the calls of the other rooms when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import siafu


@pytest.mark.parametrize("name", ["prepare", "train", "repeat", "search", "Run"])
def test_the_calls_of_the_command_line_exist_in_python(name):
    assert callable(getattr(siafu, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'siafu' has no attribute 'trian'$"):
        siafu.trian  # noqa: B018


def test_importing_siafu_loads_no_other_room_and_no_package():
    code = "import sys, siafu; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "run_coordinator", "graph_data", "graph_server", "zmq"} & set(loaded)
