"""Servers as processes on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from bench.hosts import Death
from siafu.address import Address
from siafu.config import Config
from siafu.leash import Leash

#: One thread per process for dense products: parallelism comes from intervals, and bits must not depend on a core count.
_ENVIRONMENT = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class LocalHost:
    """Processes on this machine. Use in a ``with`` block: it kills what is left."""

    def __init__(self, listen: str, run_dir: Path, shards: Path, config_file: Path, run_id: bytes):
        self.listen = listen
        self.run_dir, self.shards, self.config_file, self.run_id = run_dir, shards, config_file, run_id
        self._logs = run_dir / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        # All mutable state:
        self._processes: dict[Address, subprocess.Popen[bytes]] = {}
        self._leashes: list[Leash] = []

    @classmethod
    def make(cls, config: Config, run_dir: Path, shards: Path, config_file: Path, run_id: bytes) -> LocalHost:
        return cls(config.servers.listen, run_dir, shards, config_file, run_id)

    def start(self, member: Address, coordinator: str) -> None:
        command = [
            sys.executable, "-m", member.role, "--coordinator", coordinator, "--run-id", self.run_id.hex(),
            "--index", member.name, "--config", str(self.config_file), "--shards", str(self.shards),
            "--run-dir", str(self.run_dir),
        ]  # fmt: skip
        environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        leash = Leash()
        self._leashes.append(leash)
        with open(self.log_file(member), "wb") as log, _undisturbed():
            process = self._processes[member] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True, pass_fds=(leash.fd,),
            )  # fmt: skip
            leash.tie(process.pid)

    def log_file(self, member: Address) -> Path:
        return self._logs / f"{member.role}-{member.name}.log"

    @property
    def pids(self) -> dict[Address, int]:
        return {member: process.pid for member, process in self._processes.items()}

    def dead(self) -> Death | None:
        """A member whose process has ended; one that was killed rather than one that gave up."""
        codes = {member: code for member, process in self._processes.items() if (code := process.poll()) is not None}
        if not codes:
            return None
        member = min(codes, key=codes.__getitem__)
        log = self.log_file(member)
        lines = log.read_text(errors="replace").strip().splitlines()
        return Death(member, codes[member], f"{lines[-1][-300:] if lines else 'its log is empty'} ({log})")

    @property
    def num_alive(self) -> int:
        return sum(process.poll() is None for process in self._processes.values())

    def kill(self, member: Address) -> None:
        if member in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._processes[member].pid, signal.SIGKILL)

    def wait(self, timeout_s: float) -> bool:
        """Whether every process has ended within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
        return True

    def collect(self) -> None:
        """It all lies in the run directory already."""

    def __enter__(self) -> LocalHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._processes:
            self.kill(member)
        for process in self._processes.values():
            process.wait()
        for leash in self._leashes:
            leash.close()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Puts off Ctrl-C and a polite kill: between a child's birth and our knowing of it, they would leave it behind."""
    if threading.current_thread() is not threading.main_thread():  # only that one hears of signals
        yield
        return
    came: list[int] = []
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
        for number in came:
            signal.raise_signal(number)
