"""``siafu train``, or another verb that trains, as a process of its own, and every process that it has brought to life.

They are known by a mark in their PATH, which is all that even a Lambda environment inherits.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVERS = ("graph_server", "param_server")
ENVIRONMENT = "awslambdaric"


class Training:
    """Use in a ``with`` block: it leaves nothing behind, whatever the run does."""

    def __init__(
        self, run_dir: Path, *arguments: str, terminal: bool = False, verb: str = "train", run_dir_flag: bool = True
    ):
        """``arguments``: of the verb. ``terminal``: whether its stderr is one.
        ``run_dir_flag``: whether the verb has one."""
        self.run_dir = run_dir
        self._mark = f"/marked{os.urandom(8).hex()}"
        environ = {**os.environ, "PATH": f"{os.environ['PATH']}{os.pathsep}{self._mark}", "TERM": "xterm"}
        self._stderr = open(run_dir.with_suffix(".err"), "w+b", buffering=0)  # noqa: SIM115 (closed on exit)
        screen, stderr = pty.openpty() if terminal else (-1, self._stderr.fileno())
        into = [] if "--resume" in arguments or not run_dir_flag else ["--run-dir", str(run_dir)]
        command = [sys.executable, "-m", "siafu", verb, *arguments, "--json", *into]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environ,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_screen, args=(screen,))
        if terminal:
            os.close(stderr)
            self._reader.start()

    # --- what it says -------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float = 240) -> int:
        return self.process.wait(timeout_s)

    @property
    def result(self) -> dict[str, Any]:
        """The JSON object that it prints. Waits for its end."""
        assert self.process.stdout is not None
        result: dict[str, Any] = json.loads(self.process.stdout.read())
        return result

    @property
    def errors(self) -> str:
        """What it has said on stderr."""
        return Path(self._stderr.name).read_text(errors="replace")

    def _read_screen(self, screen: int) -> None:
        with contextlib.suppress(OSError):  # Linux says EIO when the last writer is gone
            while data := os.read(screen, 65536):
                self._stderr.write(data)
        os.close(screen)

    def epochs(self) -> int:
        """How many it has finished."""
        try:
            return (self.run_dir / "metrics.jsonl").read_text().count('"event": "epoch"')
        except FileNotFoundError:
            return 0

    # --- its processes ------------------------------------------------------------------------------------------------

    def pids(self, *roles: str) -> list[int]:
        """Those that run the given modules, by their ``--index``; without roles all that are left."""
        found: dict[int, tuple[int, list[bytes]]] = {}  # pid -> parent, command line
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                environ = Path(f"/proc/{entry}/environ").read_bytes()
                state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
                wanted = not roles or any(role.encode() in command for role in roles)
                if self._mark.encode() in environ and wanted and state != "Z":
                    found[int(entry)] = int(parent), command

        def index(pid: int) -> int:
            command = found[pid][1]
            return int(command[command.index(b"--index") + 1]) if b"--index" in command else 0

        # A child that is not what it will be yet has its parent's command line.
        born = [pid for pid, (parent, command) in found.items() if parent not in found or found[parent][1] != command]
        return sorted(born if roles else found, key=lambda pid: (index(pid), pid))

    def until(self, happened: Callable[[], object], what: str, timeout_s: float = 240) -> None:
        """Waits for it. AssertionError if it does not come, or if the run has ended before."""
        deadline = time.monotonic() + timeout_s
        while not happened():
            assert self.process.poll() is None, f"ended before {what}: {self.errors}"
            assert time.monotonic() < deadline, f"no {what} within {timeout_s:g} s: {self.errors}"
            time.sleep(0.02)

    def all_gone(self, timeout_s: float) -> bool:
        """Whether no process of the run is left within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self.pids():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()
        if self._reader.is_alive():
            self._reader.join()
        self._stderr.close()


def rank_of(pid: int) -> int:
    """Which rank of a baseline a process is."""
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(entry.removeprefix(b"RANK=")) for entry in environ if entry.startswith(b"RANK="))
