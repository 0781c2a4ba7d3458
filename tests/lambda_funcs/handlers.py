"""What the launcher tests run inside an environment. None sleeps: one that must wait, waits on a FIFO or for ever."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

Event = dict[str, Any]


def echo(event: Event, context: Any) -> Event:
    return {"event": event, "request_id": context.aws_request_id, "pid": os.getpid()}


def environment(event: Event, context: Any) -> Event:
    return {"variables": dict(os.environ), "remaining_ms": context.get_remaining_time_in_millis()}


def imports_ours(event: Event, context: Any) -> str:
    import siafu.errors

    return siafu.errors.__name__


def fail(event: Event, context: Any) -> None:
    raise ValueError("no such interval: 7")


def unserialisable(event: Event, context: Any) -> object:
    return object()


def crash(event: Event, context: Any) -> None:
    print("about to go", flush=True)
    os._exit(3)


def abort(event: Event, context: Any) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(event: Event, context: Any) -> None:
    """Tells ``event["started"]``, a FIFO, its pid; then it never returns."""
    if event.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [os.getpid()]
    if event.get("grandchild"):
        pids.append(subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"]).pid)
    if "started" in event:
        with open(event["started"], "w") as fifo:
            fifo.write(" ".join(map(str, pids)))
    threading.Event().wait()


def hold(event: Event, context: Any) -> int:
    """Returns once ``event["until"]``, a FIFO, was opened for writing and closed."""
    with open(event["until"]) as fifo:
        fifo.read()
    return os.getpid()


def hog(event: Event, context: Any) -> str:
    """Takes ``event["mb"]``; keeps them for ever or, if ``brief``, returns at once."""
    block = b"x" * (event["mb"] * 2**20)
    if not event["brief"]:
        threading.Event().wait()
    return f"{len(block)} bytes"


def rave(event: Event, context: Any) -> None:
    """Once it waits for its next invocation and ``event["until"]``, a FIFO, is closed, its connection says nonsense: a
    result that is too large, of nothing. A child says it: the runtime's threads stand still while it waits."""
    if os.fork() == 0:
        with open(event["until"]) as fifo:
            fifo.read()
        os.open(event["said"], os.O_WRONLY)  # closed by the end of the group
        port = int(os.environ["AWS_LAMBDA_RUNTIME_API"].rpartition(":")[2])
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError), socket.socket(fileno=int(name)) as sock:
                if sock.family == socket.AF_INET and sock.getpeername()[1] == port:
                    sock.sendall(
                        b"POST /2018-06-01/runtime/invocation/r0/response HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"
                    )
        signal.pause()


def talk(event: Event, context: Any) -> None:
    print("first line")
    print("x" * event["nbytes"])
    print("last line", file=sys.stderr)


def large(event: Event, context: Any) -> str:
    return "x" * int(event["nbytes"])
