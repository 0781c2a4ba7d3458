"""A wall clock that jumps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, time
from pathlib import Path
from benchmarks.chaos import clock
file, true, running = Path(sys.argv[1]), time.time, time.monotonic()
clock.install(file, "graph_server 0")
before = time.time() - true()
file.write_text("0.5")
during, again, in_ns = time.time() - true(), time.time() - true(), time.time_ns() / 1e9 - true()
file.unlink()
after = time.time() - true()
assert abs(before) < 1 and abs(after) < 1
assert 60 < abs(during) < 12 * 3600 and abs(during - again) < 1 and abs(during - in_ns) < 1
assert 0 <= time.monotonic() - running < 60
"""


def test_it_is_wrong_by_hours_while_the_file_exists_and_the_running_clock_never(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "clock")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
