"""One run under a schedule, and what its end is taken for."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from benchmarks.chaos.proxy import ChaosProxy
from benchmarks.chaos.schedule import Fault, Schedule
from benchmarks.chaos.trial import Trial, _Run


def test_a_launcher_that_is_killed_after_it_finished_its_run_has_finished_it(tmp_path: Path):
    """Seed 1923: the kill came between result.json and the launcher's last word. ``siafu resume`` rightly refused."""
    run_dir, trial = tmp_path / "run", Trial(1923, "async")
    run_dir.mkdir()
    (run_dir / "result.json").write_text(json.dumps({"weights_digest": "a1"}))
    with ChaosProxy(1923) as proxy:
        schedule = Schedule(1923, "async", faults=(Fault(0.0, "kill launcher", 0.0, 0.0),), epochs=0)
        run = _Run(tmp_path, run_dir, trial, proxy, schedule, threading.Event(), 30.0)
        run._process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        try:
            run.watch(None, 10.0)
        finally:
            run.end()
    assert (trial.ended, trial.error, trial.result) == (True, "", {"weights_digest": "a1"})
    assert trial.resumes == []
