"""One run that suffers a schedule: started, watched, hurt, resumed if its launcher was killed, and judged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.chaos import member
from bench.chaos.hub import tally
from bench.chaos.proxy import ChaosProxy
from bench.chaos.schedule import Fault, MessageFaults, Schedule

#: A run that is not over by then has failed the trial.
LIMIT_S = 120.0
POLL_S = 0.02
#: Which processes a fault hits, by a word of their command line.
HIT = {
    "graph server": "graph_server",
    "parameter server": "param_server",
    "Lambda": "awslambdaric",
    "launcher": "bench.chaos.launcher",
}


@dataclass
class Trial:
    """What became of a run."""

    seed: int
    mode: str
    ended: bool = False
    error: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)  # that hit something
    restarts: list[dict[str, Any]] = field(default_factory=list)
    resumes: list[float] = field(default_factory=list)  # seconds from each death of a launcher to the next epoch
    seconds: float = 0.0


def suffer(schedule: Schedule, arguments: Sequence[str], run_dir: Path) -> Trial:
    """Runs ``siafu train`` with these arguments under the schedule. Leaves no process behind."""
    trial = Trial(schedule.seed, schedule.mode)
    with tempfile.TemporaryDirectory() as folder, ChaosProxy(schedule.seed) as proxy:
        run = _Run(Path(folder), run_dir, trial, proxy, schedule)
        try:
            run.start("train", *arguments, "--mode", schedule.mode, "--run-dir", str(run_dir))
            run.watch()
        finally:
            run.end()
        trial.faults.update(tally(run.log))
    return trial


class _Run:
    def __init__(self, folder: Path, run_dir: Path, trial: Trial, proxy: ChaosProxy, schedule: Schedule):
        self.run_dir, self.trial, self.proxy, self.schedule = run_dir, trial, proxy, schedule
        self.log, self.full, self._file = folder / "log", folder / "full", folder / "faults.json"
        self._errors = folder / "stderr"
        self._begun = time.monotonic()
        told = member.settings(schedule.messages, time.time(), proxy.address, self.log)
        self._file.write_text(json.dumps(told))
        self._mark = f"/chaos{os.urandom(8).hex()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._undo: list[tuple[float, Any]] = []  # what to put right again, and when

    def start(self, *arguments: str) -> None:
        command = [
            sys.executable,
            "-m",
            "bench.chaos.launcher",
            str(self._file),
            str(self.full),
            *arguments,
            "--json",
            "--quiet",
        ]
        environ = {
            **os.environ,
            "PATH": f"{os.environ['PATH']}{os.pathsep}{self._mark}",
        }  # even a Lambda environment inherits it
        with open(self._errors, "ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ,
                start_new_session=True,
            )

    def watch(self) -> None:
        """Until the run ends by itself, or the limit comes."""
        assert self._process is not None
        todo = list(self.schedule.faults)
        epoch_at: float | None = None
        while time.monotonic() - self._begun < LIMIT_S:
            now = time.monotonic()
            if epoch_at is None and self._epochs():
                epoch_at = now
            while todo and epoch_at is not None and now - epoch_at >= todo[0].at_s:
                self._inflict(todo.pop(0))
            for at, undo in [item for item in self._undo if item[0] <= now]:
                self._undo.remove((at, undo))
                undo()
            if self._process.poll() is not None:
                return self._over()
            time.sleep(POLL_S)
        self.trial.error = f"not over after {LIMIT_S:g} s; {self._last_line()}"

    def _over(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        trial, output = self.trial, self._process.stdout.read()
        trial.seconds = time.monotonic() - self._begun
        trial.ended = True
        with contextlib.suppress(ValueError):
            trial.result = json.loads(output)
        if self._process.returncode or "weights_digest" not in trial.result:
            trial.error = trial.result.get("error") or f"exit code {self._process.returncode}; {self._last_line()}"
        trial.restarts += trial.result.get("restarts", [])

    # --- faults -------------------------------------------------------------------------------------------------------

    def _inflict(self, fault: Fault) -> None:
        verb, _, whom = fault.kind.partition(" ")
        match fault.kind:
            case "kill launcher":
                return self._kill_launcher()
            case "cut connections":
                self.proxy.cut(fault.luck)
            case "one-way partition":
                self.proxy.block(fault.luck)
            case "slow link":
                self.proxy.slow(fault.luck, fault.seconds)
            case "corrupt bytes":
                self.proxy.flip()
            case "disk full":
                self.full.touch()
                self._later(3 * fault.seconds, lambda: self.full.unlink(missing_ok=True))
            case "pause server":
                if not (pids := self._pids("graph_server") + self._pids("param_server")):
                    return
                pid = pids[int(fault.luck * len(pids))]
                _signal(pid, signal.SIGSTOP)
                self._later(fault.seconds, lambda: _signal(pid, signal.SIGCONT))
            case _:
                if not (pids := self._pids(HIT[whom])):
                    return
                _signal(pids[int(fault.luck * len(pids))], signal.SIGKILL if verb == "kill" else signal.SIGSTOP)
        self.trial.faults[fault.kind] += 1

    def _kill_launcher(self) -> None:
        """And ``siafu resume``, once nobody of the run is left."""
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        killed = time.monotonic()
        self.trial.faults["kill launcher"] += 1
        self.trial.restarts += _restarts(self.run_dir)
        for pid in self._pids("awslambdaric"):  # one that was stopped does not see that its server is gone
            _signal(pid, signal.SIGCONT)
        while self._pids() and time.monotonic() - killed < 10:
            time.sleep(POLL_S)
        before = self._epochs()
        self.start("resume", str(self.run_dir))
        assert self._process is not None
        while self._process.poll() is None and self._epochs() <= before and time.monotonic() - killed < LIMIT_S:
            time.sleep(POLL_S)
        self.trial.resumes.append(time.monotonic() - killed)

    def _later(self, seconds: float, undo: Any) -> None:
        self._undo.append((time.monotonic() + seconds, undo))

    # --- what is there ------------------------------------------------------------------------------------------------

    def _epochs(self) -> int:
        try:
            return (self.run_dir / "metrics.jsonl").read_text().count('"event": "epoch"')
        except FileNotFoundError:
            return 0

    def _pids(self, word: str = "") -> list[int]:
        """Processes of the run, those whose command line has the word, in the order of their age."""
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry)
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                environ = Path(f"/proc/{pid}/environ").read_bytes()
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                if self._mark.encode() in environ and state != "Z" and (not word or word.encode() in words):
                    found.append(pid)
        return sorted(found)

    def _last_line(self) -> str:
        lines = self._errors.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def end(self) -> None:
        """Nobody of the run is left."""
        while pids := self._pids():
            for pid in pids:
                _signal(pid, signal.SIGKILL)
            if self._process is not None:
                self._process.wait()
            time.sleep(POLL_S)
        if self._process is not None and self._process.stdout is not None:
            self._process.wait()
            self._process.stdout.close()


def undisturbed(mode: str, arguments: Sequence[str], run_dir: Path) -> Trial:
    """The run that the others are compared with."""
    return suffer(Schedule(0, mode, (), MessageFaults()), arguments, run_dir)


def _restarts(run_dir: Path) -> list[dict[str, Any]]:
    """Those that a launcher that was killed had got over."""
    lines: list[Mapping[str, Any]] = []
    with contextlib.suppress(FileNotFoundError, ValueError):
        lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [dict(line) for line in lines if line.get("event") == "restart"]


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
