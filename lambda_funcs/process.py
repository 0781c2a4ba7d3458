"""A child process that ends when this process ends, even by SIGKILL (``siafu.leash``).

On systems without leashes, a child ends when it next calls us and finds its connection reset.

A port on loopback is open to every user of the machine. ``connected`` says whether a connection to it is the child's.
The kernel (sock_diag(7), or the table of connections in /proc/net/tcp) names the socket at the other end, and
/proc/PID/fd lists the child's sockets. SO_PEERCRED does not work for TCP.
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
PIPE_NBYTES = 65536  # capacity of a pipe: one read of this size takes everything written before it


class Process:
    """The child process. ``output``: the read end of its stdout and stderr, non-blocking. ``exit_fd``: readable once it
    has ended (Linux; None elsewhere: ask ``ended``)."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        """Starts the process. Raises: OSError if the machine has no more processes or descriptors."""
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
        """Sends a signal to the whole process group; does nothing if the group is empty."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, only a zombie is left
            os.killpg(self.pid, signum)

    def ended(self) -> bool:
        """Whether the process has ended. Reaps it as a side effect, so prefer ``exit_fd``."""
        return self._popen.poll() is not None

    def reap(self) -> str:
        """Kills the rest of the process group, waits for the process, and returns how it ended, in Lambda's words:
        "exit status 1" or "signal: SIGKILL"."""
        self.signal(signal.SIGKILL)  # while the unreaped leader still holds the group's number
        code = self._popen.wait()
        return f"exit status {code}" if code >= 0 else f"signal: {signal.Signals(-code).name}"

    def read_output(self) -> bytes | None:
        """Reads the output so far, up to 64 KiB. Returns b"" after its end, None if there is nothing new."""
        try:
            return os.read(self.output, PIPE_NBYTES)
        except BlockingIOError:
            return None

    def peak_kib(self) -> int:
        """Returns the largest resident set so far, in KiB. 0 once the process has ended, and on systems without
        /proc."""
        try:
            with open(f"/proc/{self.pid}/status", "rb") as file:
                status = file.read()
        except OSError:
            return 0
        at = status.find(b"VmHWM:")
        return 0 if at < 0 else int(status[at + 6 :].split(None, 1)[0])

    def connected(self, sock: socket.socket) -> bool:
        """Whether the child is at the other end of this IPv4 connection. Always True if the system cannot tell
        (``can_tell_peers``)."""
        if not can_tell_peers():
            return True
        try:
            inode = _other_end(sock)
            folder = f"/proc/{self.pid}/fd"
            return any(_link(f"{folder}/{fd}") == f"socket:[{inode}]" for fd in os.listdir(folder))
        except OSError:  # the child is gone
            return False

    def close(self) -> None:
        """Closes our descriptors. Call it after ``reap``."""
        self._stdout.close()
        self._leash.close()
        if self.exit_fd is not None:
            os.close(self.exit_fd)


def can_tell_peers() -> bool:
    """Whether this system can tell to which process a connection belongs."""
    return CONNECTIONS.exists()


def _other_end(sock: socket.socket) -> int:
    """Returns the inode of the socket at the other end of an IPv4 connection on this machine; 0 if it is gone."""
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
    """Formats an IPv4 address and port as /proc/net/tcp does."""
    return b"%08X:%04X" % (struct.unpack("=I", socket.inet_aton(host))[0], port)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile
        return ""
