"""One run that suffers a schedule: started, watched, hurt, resumed if its launcher was killed, and judged."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos import fork_server, member
from benchmarks.chaos.hub import tally
from benchmarks.chaos.proxy import ChaosProxy
from benchmarks.chaos.schedule import Fault, Schedule
from run_coordinator.cli import EXIT_AT_LIMIT
from siafu import run_files, start
from siafu.errors import ConfigError
from siafu.run_files import RESULT

#: A run that is not over by then has failed the trial.
LIMIT_S = 120.0
POLL_S = 0.02
#: Which processes a fault hits, by a word of their command line.
HIT = {
    "graph server": "graph_server",
    "parameter server": "param_server",
    "Lambda": "awslambdaric",
    "launcher": "benchmarks.chaos.launcher",
}


@dataclass
class Trial:
    """What became of a run."""

    seed: int
    mode: str
    keys: bool = False
    ended: bool = False
    error: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)  # that hit something
    restarts: list[dict[str, Any]] = field(default_factory=list)
    resumes: list[float] = field(default_factory=list)  # seconds from each death of a launcher to the next epoch
    seconds: float = 0.0


@dataclass(frozen=True)
class Born:
    """A process of a run. Two with the same pid differ in when they began."""

    pid: int
    began: str  # clock ticks since boot
    words: tuple[str, ...]  # of its command line

    def is_a(self, whom: str) -> bool:
        """``whom``: of ``HIT``."""
        return HIT[whom] in self.words


def suffer(
    schedule: Schedule,
    arguments: Sequence[str],
    run_dir: Path,
    over: threading.Event | None = None,
    limit_s: float = LIMIT_S,
    look: Callable[[Sequence[Born]], None] | None = None,
    look_s: float = 10.0,
) -> Trial:
    """Runs ``siafu train`` with these arguments under the schedule, or until ``over``. Leaves no process behind.
    Several threads may each have a run at a time. ``look`` is shown who lives, every ``look_s`` seconds."""
    trial = Trial(schedule.seed, schedule.mode, schedule.keys)
    with tempfile.TemporaryDirectory() as folder, ChaosProxy(schedule.seed) as proxy:
        run = _Run(Path(folder), run_dir, trial, proxy, schedule, over or threading.Event(), limit_s)
        try:
            security = "curve" if schedule.keys else "auto"
            run.start(
                "train",
                *arguments,
                "--mode",
                schedule.mode,
                "--run-dir",
                str(run_dir),
                "--set",
                f"servers.security={security}",
            )
            run.watch(look, look_s)
        finally:
            run.end()
        trial.faults.update(tally(run.log))
    return trial


class _Run:
    def __init__(
        self,
        folder: Path,
        run_dir: Path,
        trial: Trial,
        proxy: ChaosProxy,
        schedule: Schedule,
        over: threading.Event,
        limit_s: float,
    ):
        self.run_dir, self.trial, self.proxy, self.schedule = run_dir, trial, proxy, schedule
        self.log, self._births, self._file = folder / "log", folder / "births", folder / "faults.json"
        self._full, self._clock, self._errors = folder / "full", folder / "clock", folder / "stderr"
        self._result = folder / "stdout"
        self._over, self._limit_s = over, limit_s
        self._begun = time.monotonic()
        told = member.settings(schedule.messages, time.monotonic(), proxy.address, folder)
        self._file.write_text(json.dumps(told))
        self._births.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._undo: list[tuple[float, Any]] = []  # what to put right again, and when

    def start(self, *arguments: str) -> None:
        command = start.command("benchmarks.chaos.launcher", str(self._file), *arguments, "--json", "--quiet")
        # Files: nobody reads before its end, and a pipe holds less than a long run's result.
        with open(self._errors, "ab") as errors, open(self._result, "wb") as result:
            self._process = fork_server.Popen(
                command, stdin=subprocess.DEVNULL, stdout=result, stderr=errors, start_new_session=True
            )
        self._process.note(self._births)

    def watch(self, look: Callable[[Sequence[Born]], None] | None, look_s: float) -> None:
        """Until the run ends by itself, or the limit comes."""
        assert self._process is not None
        todo = list(self.schedule.faults)
        first_at: float | None = None
        look_at = self._begun
        while time.monotonic() - self._begun < self._limit_s and not self._over.is_set():
            now = time.monotonic()
            if first_at is None and self._epochs() >= self.schedule.epochs:
                first_at = now
            while todo and first_at is not None and now - first_at >= todo[0].at_s:
                self._inflict(todo.pop(0))
            for at, undo in [item for item in self._undo if item[0] <= now]:
                self._undo.remove((at, undo))
                undo()
            if look is not None and now >= look_at:
                look(self._alive())
                look_at = now + look_s
            if self._process.poll() is not None:
                return self._ended()
            time.sleep(POLL_S)
        self.trial.error = f"not over after {time.monotonic() - self._begun:.0f} s; {self._last_line()}"

    def _ended(self) -> None:
        assert self._process is not None
        trial, output = self.trial, self._result.read_bytes()
        trial.seconds = time.monotonic() - self._begun
        trial.ended = True
        with contextlib.suppress(ValueError):
            trial.result = json.loads(output)
        finished = (self.run_dir / RESULT).is_file()  # whatever became of the launcher then
        if not (finished or self._process.returncode in (0, EXIT_AT_LIMIT)) or "weights_digest" not in trial.result:
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
                self._full.touch()
                self._later(3 * fault.seconds, lambda: self._full.unlink(missing_ok=True))
            case "clock jump":
                self._clock.write_text(str(fault.luck))
                self._later(3 * fault.seconds, lambda: self._clock.unlink(missing_ok=True))
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
        self._process.kill()
        self._process.wait()
        killed = time.monotonic()
        self.trial.faults["kill launcher"] += 1
        if (self.run_dir / RESULT).is_file():  # it had finished the run, and was about to leave: nothing is to go on
            shutil.copyfile(self.run_dir / RESULT, self._result)
            return
        self.trial.restarts = _restarts(self.run_dir)  # also those that a launcher before had got over
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
        with contextlib.suppress(ConfigError):  # it has not begun
            return sum(record["event"] == "epoch" for record in run_files.records(self.run_dir))
        return 0

    def _pids(self, word: str = "") -> list[int]:
        """Processes of the run that live, those whose command line has the word, in the order of their age."""
        return [process.pid for process in self._alive() if not word or word in process.words]

    def _alive(self) -> list[Born]:
        lines = [line.split(" ") for line in self._births.read_text().splitlines()]
        return [Born(int(pid), at, tuple(words)) for pid, at, *words in lines if fork_server.began_at(int(pid)) == at]

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
        for line in self._births.read_text().splitlines():  # members of a launcher that was killed are our children now
            with contextlib.suppress(ChildProcessError):
                os.waitpid(int(line.split(" ")[0]), os.WNOHANG)
        if self._process is not None:
            self._process.wait()


def undisturbed(mode: str, arguments: Sequence[str], run_dir: Path) -> Trial:
    """The run that the others are compared with."""
    return suffer(Schedule(0, mode), arguments, run_dir)


def _restarts(run_dir: Path) -> list[dict[str, Any]]:
    """Those that a launcher that was killed had got over."""
    with contextlib.suppress(ConfigError):
        return [dict(record) for record in run_files.records(run_dir) if record["event"] == "restart"]
    return []


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
