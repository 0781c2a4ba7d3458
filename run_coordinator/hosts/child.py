"""A process of this machine that writes to a log and ends with us: a server of a run, or its coordinator."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from siafu import start
from siafu.address import Address
from siafu.keys import Ring
from siafu.leash import Leash
from siafu.variables import threads

#: What a role's module is run by, if not by itself; ``benchmarks.chaos`` puts its own member between.
PROGRAM: tuple[str, ...] = ()
MAX_LINE = 300
_TAIL_BYTES = 4096


class Child:
    """A process that leads its own group. Call ``close``: it kills the rest of the group."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        variables: Mapping[str, str] | None = None,
        told: str | None = None,
        inherited: Sequence[int] = (),
    ):
        """``variables``: added to our environment. ``told``: given on stdin, where no other process and no file sees
        it. ``inherited``: file descriptors to pass on."""
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**start.environment(), **threads(), **(variables or {})}
        self._leash = Leash()
        try:
            with open(log, "ab") as output, _undisturbed():
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL if told is None else subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                    pass_fds=(self._leash.fd, *inherited),
                )
                self._leash.tie(self._process.pid)  # still undisturbed: an interrupt now would leave it behind
        except OSError:
            self._leash.close()
            raise
        if self._process.stdin is not None and told is not None:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:  # its end will be noticed
                stdin.write(told.encode())

    @classmethod
    def member(
        cls,
        member: Address,
        coordinator: str,
        run_id: bytes,
        *,
        shards: Path,
        run_dir: Path,
        listen: str = "",
        keys: Ring | None = None,
    ) -> Child:
        """``graph_server`` or ``param_server``, which logs to ``<run_dir>/logs/<role>-<index>.log``. ``run_dir``: has
        the run's config.toml.

        ``listen``: the address that it binds; empty: ``servers.listen``. ``keys``: go through its stdin.
        """
        command = start.command(
            *PROGRAM,
            member.role,
            "--coordinator",
            coordinator,
            "--run-id",
            run_id.hex(),
            "--index",
            member.name,
            "--shards",
            str(shards),
            "--run-dir",
            str(run_dir),
            *(("--listen", listen) if listen else ()),
            *(("--keys-on-stdin",) if keys else ()),
        )
        log = run_dir / "logs" / f"{member.role}-{member.name}.log"
        return cls(command, log, told=json.dumps(keys.dump()) if keys else None)

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process lives."""
        return self._process.poll()

    def last_line(self) -> str:
        """The last line of its log."""
        lines = self.tail(_TAIL_BYTES).strip().splitlines()
        return lines[-1][-MAX_LINE:] if lines else "its log is empty"

    def tail(self, nbytes: int) -> str:
        """The end of its log."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - nbytes))
            return log.read().decode(errors="replace")

    def interrupt(self) -> None:
        """Sends SIGINT, as Ctrl-C does."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """Kills the process and its group at once. No error if it is dead already."""
        self._signal(signal.SIGKILL)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within ``timeout_s``."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        self.kill()
        self._process.wait()
        self._leash.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Defers SIGINT, SIGTERM and SIGHUP: between a child's start and our record of it, they would leave it behind."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    came: list[int] = []
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in numbers}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
        for number in came:
            signal.raise_signal(number)
