"""Child processes that end with their parent, even if it is killed by kill -9.

The child's process group owns a pipe's asynchronous events, with SIGKILL as the event's signal. When the last writer,
which is this process, is gone, the kernel hangs up the pipe and kills the group. PR_SET_PDEATHSIG would need code in
the child or between fork and exec (we may have threads), would miss grandchildren, and would depend on the thread that
forked. Linux only; on other systems nothing happens, and a child must notice by itself that its parent is gone.
"""

from __future__ import annotations

import os
import signal
import sys

if sys.platform == "linux":
    import fcntl


class Leash:
    """Ties a child to this process: ``Popen(…, start_new_session=True, pass_fds=(leash.fd,))``, then ``tie``. ``close``
    kills the child's group."""

    def __init__(self) -> None:
        self.fd, self._ours = os.pipe()

    def tie(self, pid: int) -> None:
        """Ties the process group that ``pid`` leads."""
        if sys.platform == "linux":
            fcntl.fcntl(self.fd, fcntl.F_SETOWN, -pid)  # negative: the group, whose leader may have ended already
            fcntl.fcntl(self.fd, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_ASYNC)
        self._close_theirs()

    def close(self) -> None:
        """Closes the pipe, which kills the tied group. May be called again."""
        self._close_theirs()
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def _close_theirs(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
