"""A child process that ends when this process ends, even by SIGKILL (``siafu.leash``).

Where there are no leashes, a child ends when it next calls us and finds its connection reset.

A port on loopback is open to every user of the machine. ``connected`` says whether a connection to one is the child's:
the kernel (sock_diag(7), or the table of connections in /proc/net/tcp) names the socket at its other end, and
/proc/PID/fd the child's sockets. SO_PEERCRED has no answer for TCP.
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from siafu.leash import Leash

CONNECTIONS = Path("/proc/net/tcp")  # of this network namespace; Linux
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20  # linux/netlink.h, linux/sock_diag.h
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

    def connected(self, sock: socket.socket) -> bool:
        """Whether the child is at the other end of this connection over IPv4. Always True on systems without
        /proc/net/tcp: ``can_tell_peers``."""
        if not can_tell_peers():
            return True
        try:
            inode = _other_end(sock)
            folder = f"/proc/{self.pid}/fd"
            return any(_link(f"{folder}/{fd}") == f"socket:[{inode}]" for fd in os.listdir(folder))
        except OSError:  # the child is gone
            return False

    def close(self) -> None:
        """Closes our descriptors. To be called after ``reap``."""
        self._stdout.close()
        self._leash.close()
        if self.exit_fd is not None:
            os.close(self.exit_fd)


def can_tell_peers() -> bool:
    """Whether this system tells whose a connection is."""
    return CONNECTIONS.exists()


def _other_end(sock: socket.socket) -> int:
    """Inode of the socket at the other end of a connection over IPv4 on this machine; 0 if there is none any more."""
    (host, port), (our_host, our_port) = sock.getpeername(), sock.getsockname()
    with contextlib.suppress(OSError):  # a container may lack sock_diag: then from the table, in milliseconds
        ask = struct.pack("!HH4s12x4s12x", port, our_port, socket.inet_aton(host), socket.inet_aton(our_host))
        ask += struct.pack("=I8s", 0, b"\xff" * 8)  # any device, no cookie
        body = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ask
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.send(struct.pack("=IHHII", 16 + len(body), _SOCK_DIAG_BY_FAMILY, 1, 0, 0) + body)
            answer = kernel.recv(1024)
        if struct.unpack_from("=H", answer, 4) == (_SOCK_DIAG_BY_FAMILY,):
            return int(struct.unpack_from("=I", answer, 16 + 68)[0])
    row = b"%b %b " % (_in_table(host, port), _in_table(our_host, our_port))
    rows = CONNECTIONS.read_bytes()
    at = rows.find(row)
    return 0 if at < 0 else int(rows[at:].split(None, 9)[8])


def _in_table(host: str, port: int) -> bytes:
    """An IPv4 address and port as they stand in /proc/net/tcp."""
    return b"%08X:%04X" % (struct.unpack("=I", socket.inet_aton(host))[0], port)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile
        return ""
