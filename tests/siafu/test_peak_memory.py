"""The most memory that a process has held, as Linux says it."""

from __future__ import annotations

import subprocess
import sys

from siafu.peak_memory import peak_bytes

HOLD = """
import sys
from siafu.peak_memory import peak_bytes
before = peak_bytes()
memory = bytearray(b"1" * 50_000_000)
del memory
print(before, peak_bytes())
"""


def test_memory_that_was_given_back_counts():
    told = subprocess.run([sys.executable, "-c", HOLD], capture_output=True, text=True, check=True).stdout
    before, after = map(int, told.split())
    assert 5_000_000 < before < 60_000_000 < after < before + 150_000_000


def test_where_the_system_does_not_tell_there_is_none(tmp_path):
    assert peak_bytes(tmp_path / "status") is None
    (tmp_path / "status").write_text("Name:\tpython\n")
    assert peak_bytes(tmp_path / "status") is None
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t  2048 kB\n")
    assert peak_bytes(tmp_path / "status") == 2 * 2**20
