"""A child process in a group of its own that cannot outlive us, not even our kill -9 (``siafu.leash``).

Where there are no leashes, a child ends when it next calls us and finds its connection reset.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from siafu.leash import Leash

PIPE_NBYTES = 65536  # what a pipe holds: one read of so much takes everything written before it


class Process:
    """``output`` is the read end of its stdout and stderr, non-blocking; ``exit_fd`` gets readable when it has ended
    (Linux; None elsewhere: ask ``ended``)."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        """Starts it. Raises OSError when the machine has no more processes or descriptors."""
        with ExitStack() as undo:
            self._leash = Leash()
            undo.callback(self._leash.close)
            self._popen = subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                pass_fds=(self._leash.fd,),
            )
            undo.enter_context(self._popen)  # closes the output and reaps, ...
            undo.callback(self._popen.kill)  # ... after this
            self._leash.tie(self._popen.pid)
            self.pid = self._popen.pid
            self.exit_fd = os.pidfd_open(self.pid) if sys.platform == "linux" else None
            undo.pop_all()  # all is well: it stays
        assert self._popen.stdout is not None
        self._stdout = self._popen.stdout
        self.output = self._stdout.fileno()
        os.set_blocking(self.output, False)

    def signal(self, signum: signal.Signals) -> None:
        """To the whole group; nothing happens if nobody is left in it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, only a zombie is left
            os.killpg(self.pid, signum)

    def ended(self) -> bool:
        """Reaps it as a side effect, so prefer ``exit_fd``."""
        return self._popen.poll() is not None

    def reap(self) -> str:
        """How it ended, as Lambda says it: "exit status 1" or "signal: SIGKILL". It must have ended, or this waits."""
        self.signal(signal.SIGKILL)  # what is left of the group, while the unreaped leader still holds its number
        code = self._popen.wait()
        return f"exit status {code}" if code >= 0 else f"signal: {signal.Signals(-code).name}"

    def read_output(self) -> bytes | None:
        """What it wrote and nobody read yet; b"" after the end of the output, None if there is nothing now."""
        try:
            return os.read(self.output, PIPE_NBYTES)
        except BlockingIOError:
            return None

    def peak_kib(self) -> int:
        """Largest resident set so far. 0 once it has ended, and where there is no /proc."""
        try:
            with open(f"/proc/{self.pid}/status", "rb") as file:
                status = file.read()
        except OSError:
            return 0
        at = status.find(b"VmHWM:")
        return 0 if at < 0 else int(status[at + 6 :].split(None, 1)[0])

    def close(self) -> None:
        """Closes our descriptors. To be called after ``reap``."""
        self._stdout.close()
        self._leash.close()
        if self.exit_fd is not None:
            os.close(self.exit_fd)
