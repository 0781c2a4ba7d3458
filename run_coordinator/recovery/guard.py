"""``siafu train --guard``: a process that only watches the launcher, and continues the run if the launcher dies or
hangs.

The launcher reports its run's directory through a pipe, and sends a heartbeat. If a signal ends it, or if it is silent
for ``servers.silence_s``, it is killed together with its servers, and ``siafu resume`` takes its place. A launcher that
ends by itself is not restarted, whatever its exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from siafu import start

#: In the launcher's environment: the descriptor of the pipe that it writes to.
VARIABLE = "SIAFU_GUARD"
_RUN, _BEAT, _OVER = "run", ".", "over"


def tell_run(run_dir: str, silence_s: float) -> None:
    """Tells the guard the run's directory, and how long the launcher may be silent from now on."""
    _write(f"{_RUN} {silence_s:g} {json.dumps(run_dir)}\n")  # one line of ASCII, whatever the name holds


def beat() -> None:
    """Tells the guard that the launcher lives."""
    _write(f"{_BEAT}\n")


def over() -> None:
    """Tells the guard that training has ended: the launcher may be silent while it saves, bills and stops members."""
    _write(f"{_OVER}\n")


def _write(line: str) -> None:
    if fd := os.environ.get(VARIABLE):
        with contextlib.suppress(OSError):  # the guard is gone: nobody watches us, and that is no reason to stop
            os.write(int(fd), line.encode())


@dataclass
class _Launcher:
    """The guarded launcher, and what it has reported."""

    process: subprocess.Popen[bytes]
    pipe: int
    run_dir: str = ""
    silence_s: float | None = None

    def watch(self) -> str:
        """Watches until the launcher ends: "" if it ended by itself, else how it was lost. Kills a launcher that
        hangs."""
        rest = b""
        while True:
            ready, _, _ = select.select([self.pipe], [], [], self.silence_s)
            if not ready:
                self.process.kill()
                self.process.wait()
                return f"silent for more than {self.silence_s:g} s"
            if not (data := os.read(self.pipe, 65536)):
                code = self.process.wait()
                return f"killed by {signal.Signals(-code).name}" if code < 0 else ""
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._hear(line.decode())

    def _hear(self, line: str) -> None:
        word, _, text = line.partition(" ")
        if word == _RUN:
            silence_s, _, run_dir = text.partition(" ")
            self.silence_s, self.run_dir = float(silence_s), json.loads(run_dir)
        elif word == _OVER:
            self.silence_s = None


def run(argv: Sequence[str], restarts: int) -> int:
    """Runs ``siafu ARGV`` under guard; returns the exit code of the launcher that ended by itself. ``restarts``: the
    most restarts in all."""
    command, told = start.command("siafu", *argv), [flag for flag in ("--json", "--quiet") if flag in argv]
    said = (word.removeprefix("--set=") for word in argv)
    # for ``run_coordinator.run_config.check_code``
    told += [f"--set={word}" for word in said if word.startswith("lambda.handler=")]
    for left in range(restarts, -1, -1):
        with _launched(command) as launcher:
            why = launcher.watch()
        if not why:
            return launcher.process.returncode
        print(f"siafu: the launcher was lost: {why}", file=sys.stderr)
        if not launcher.run_dir or not left:
            return 1
        command = start.command("siafu", "resume", launcher.run_dir, *told)
    return 1


@contextlib.contextmanager
def _launched(command: Sequence[str]) -> Iterator[_Launcher]:
    """Starts the launcher. Passes SIGTERM on to it, and ignores SIGINT: a terminal's Ctrl-C reaches the launcher
    itself."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # a launcher never waits for its guard
    environment = {**start.environment(), VARIABLE: str(writer)}
    with subprocess.Popen(command, env=environment, pass_fds=(writer,)) as process:
        os.close(writer)
        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
        }
        try:
            yield _Launcher(process, reader)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reader)
