"""Child processes that end with their parent, even if it is killed by kill -9.

The child's group is named as the owner of a pipe's asynchronous events, with SIGKILL as the event's signal. When
the last writer, which is us, is gone, the kernel hangs up the pipe and kills the group. Unlike PR_SET_PDEATHSIG
it needs no code in the child nor between fork and exec (we may have threads), reaches grandchildren too, and
does not depend on the thread that forked. Linux only; elsewhere nothing happens, and a child must notice by
itself that nobody talks to it any more.
"""

from __future__ import annotations

import os
import signal
import sys

if sys.platform == "linux":
    import fcntl


class Leash:
    """``Popen(…, start_new_session=True, pass_fds=(leash.fd,))``, then ``tie``. ``close`` lets go, which kills."""

    def __init__(self) -> None:
        self.fd, self._ours = os.pipe()

    def tie(self, pid: int) -> None:
        """``pid`` leads its group."""
        if sys.platform == "linux":
            fcntl.fcntl(self.fd, fcntl.F_SETOWN, -pid)  # negative: the group, which the leader may already have left
            fcntl.fcntl(self.fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_ASYNC)
        self._close_theirs()

    def close(self) -> None:
        """May be called again."""
        self._close_theirs()
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def _close_theirs(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
