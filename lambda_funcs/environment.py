"""One emulated Lambda environment: a child process with AWS's runtime interface client, and the service it talks to.

A function runs here as on Lambda: with an init, one invocation at a time, the deadline, the memory limit, crashes, and
the bill. The child is the unmodified `python -m awslambdaric HANDLER`; this side serves it the Runtime API. An
environment has no thread: `LocalPool` owns a selector, calls back when one of our descriptors is ready, and calls
`tick` at `wake_at`. Every such call returns the invocation that it ended, or None.

Each environment listens on a port of its own. A path prefix on one shared port would work for curl, which carries the
invocations, but not for the client's http.client, which reports an init error and refuses `host:port/prefix`.

Every user of this machine can connect to that port, and an invocation carries its worker's secret key. So only the
child itself is served. The check is made once per connection; the runtime keeps a single one, so invocations cost
nothing extra.
"""

import logging
import math
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from lambda_funcs import runtime_api
from lambda_funcs.invocation import Function, Invocation, error_payload, handler_error, report
from lambda_funcs.process import Process
from siafu.errors import RemoteProtocolError

logger = logging.getLogger(__name__)

MEMORY_SAMPLE_S = 0.1  # the kernel's high-water mark also shows peaks between two samples
TAIL_NBYTES = 4096  # of log: the length that Lambda's LogType=Tail returns


@dataclass
class _Task:
    """The invocation being served. ``started`` is when the runtime got it: None while the environment inits."""

    request_id: str
    payload: bytes
    cold: bool
    deadline: float
    started: float | None = None


class _Connection:
    """One connection of the runtime; it keeps a single one for all its invocations."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.parser = runtime_api.RequestParser()
        self.unsent = b""


class _Log:
    """The environment's output: the last bytes in memory, and all of it in the file ``path`` if one is given."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("ab", buffering=0)
        self._tail = b""

    def write(self, data: bytes) -> None:
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError as error:  # a full disk ends the log, not the run
                logger.warning("no more log in %s: %s", self._file.name, error)
                self.close()
                self._file = None
        self._tail = (self._tail + data)[-TAIL_NBYTES:]

    def take_tail(self) -> str:
        tail, self._tail = self._tail, b""
        return tail.decode(errors="replace")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Environment:
    """An emulated environment: serves one invocation at a time until it fails or is stopped, and is ``gone`` once its
    process is reaped.

    All times are `time.monotonic()` seconds. All calls come from one thread, the selector's.
    """

    def __init__(self, name: str, function: Function, selector: selectors.BaseSelector, log_path: Path | None) -> None:
        """Starts the process. Raises: OSError if the machine has no more processes or descriptors."""
        self._function = function
        self._selector = selector
        self._born = time.monotonic()
        with ExitStack() as undo:
            self._log = undo.enter_context(closing(_Log(log_path)))
            self._listener = undo.enter_context(socket.create_server(("127.0.0.1", 0)))
            self._listener.setblocking(False)
            address = f"127.0.0.1:{self._listener.getsockname()[1]}"
            argv = [sys.executable, "-m", "awslambdaric", function.handler]
            self._process = Process(argv, env=function.environ(address, name), cwd=function.task_root)
            undo.pop_all()  # all is well: they stay open
        # All state that changes:
        self._task: _Task | None = None
        self._ready: float | None = None  # end of init
        self._parked: _Connection | None = None  # its `next` waits for an invocation
        self._connections: list[_Connection] = []
        self._watched: set[int] = set()  # our descriptors in the selector
        self._peak_kib = 0
        self._next_sample = self._born + MEMORY_SAMPLE_S
        self._refused = 0  # connections of strangers
        self._dying = False  # was sent a signal; takes no more work
        self.gone = False  # reaped, everything closed

        self._watch(self._listener.fileno(), self._on_accept)
        self._watch(self._process.output, self._on_output)
        if self._process.exit_fd is not None:
            self._watch(self._process.exit_fd, self._on_exit)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def request_id(self) -> str | None:
        """The request id of the invocation being served; None if there is none."""
        task = self._task  # read once: the pool's `pids` asks from another thread
        return None if task is None else task.request_id

    @property
    def idle(self) -> bool:
        return self._task is None and not self._dying and not self.gone

    def wake_at(self) -> float:
        """Returns the time of the next `tick`, in monotonic seconds."""
        if self._task is not None:
            return min(self._task.deadline, self._next_sample)
        return self._next_sample if self._process.exit_fd is None else math.inf

    def assign(self, request_id: str, payload: bytes, now: float) -> None:
        """Serves this invocation next; the environment must be idle. A new environment is given its first invocation at
        once."""
        assert self.idle, "an environment serves one invocation at a time"
        cold = self._ready is None
        limit_s = self._function.init_timeout_s if cold else self._function.timeout_s
        self._task = _Task(request_id, payload, cold, deadline=now + limit_s)
        self._next_sample = now + MEMORY_SAMPLE_S
        self._deliver(now)

    def tick(self, now: float) -> Invocation | None:
        """Enforces the deadline and the memory limit."""
        if self._process.exit_fd is None and self._process.ended():
            return self._on_exit(now)
        task = self._task
        if task is not None and now >= task.deadline:
            initing = self._ready is None
            limit_s = self._function.init_timeout_s if initing else self._function.timeout_s
            message = f"{'Init' if initing else 'Task'} timed out after {limit_s:.2f} seconds"
            self._log.write(f"{task.request_id} {message}\n".encode())
            return self._fail(now, "Sandbox.Timedout", message)
        if now >= self._next_sample:
            self._next_sample = now + MEMORY_SAMPLE_S
            if task is not None and self._over_memory():
                return self._out_of_memory(now)
        return None

    def stop(self, now: float, reason: str) -> Invocation | None:
        """Sends SIGTERM to the process group, and ends an invocation in flight as Sandbox.Failure. Call `kill` if the
        environment is not gone soon."""
        outcome = None
        if self._task is not None:
            outcome = self._end(now, error_payload(self._task.request_id, "Sandbox.Failure", reason), "Sandbox.Failure")
        self._signal(signal.SIGTERM)
        return outcome

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    # -- the process

    def _signal(self, signum: signal.Signals) -> None:
        self._dying = True
        self._process.signal(signum)

    def _on_exit(self, now: float) -> Invocation | None:
        self._dying = True
        outcome = None
        for connection in list(self._connections):  # its last bytes may be a result
            outcome = self._on_connection(connection, now) or outcome
        how = self._process.reap()
        if self._task is not None:
            payload = error_payload(self._task.request_id, "Runtime.ExitError", f"Runtime exited with error: {how}")
            outcome = self._end(now, payload, "Runtime.ExitError")
        self._close()
        return outcome

    def _on_output(self, now: float) -> None:
        data = self._process.read_output()
        if data:
            self._log.write(data)
        elif data is not None:  # end of output; without this the selector would report it for ever
            self._unwatch(self._process.output)

    def _close(self) -> None:
        for connection in list(self._connections):
            self._drop(connection)
        for fd in list(self._watched):
            self._unwatch(fd)
        self._listener.close()
        self._process.close()
        self._log.close()
        self.gone = True

    def _over_memory(self) -> bool:
        self._peak_kib = max(self._peak_kib, self._process.peak_kib())
        return self._peak_kib > self._function.memory_mb * 1024

    # -- the Runtime API

    def _on_accept(self, now: float) -> Invocation | None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # the peer hung up between the event and the call
            return None
        except OSError as error:  # out of descriptors: the runtime would wait for us for ever
            self.kill()
            return None if self._task is None else self._fail(now, "Sandbox.Failure", str(error))
        if not self._process.connected(sock):
            sock.close()
            self._refused += 1
            if self._refused == 1:  # strangers must not be able to fill our log
                logger.warning("pid %d: refused a connection to its Runtime API that is not its own", self.pid)
            return None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else 40 ms an answer: Nagle and delayed ACK
        connection = _Connection(sock)
        self._connections.append(connection)
        self._watch(sock.fileno(), lambda at: self._on_connection(connection, at))
        return None

    def _on_connection(self, connection: _Connection, now: float) -> Invocation | None:
        self._send(connection, b"")
        try:
            data = connection.sock.recv(2**18)
            calls = connection.parser.feed(data)
        except BlockingIOError:
            return None
        except (RemoteProtocolError, ConnectionError) as error:
            if isinstance(error, runtime_api.ResponseTooLargeError) and self._task is not None:
                return self._fail(now, "Function.ResponseSizeTooLarge", str(error))
            self._log.write(f"Runtime API: {error}\n".encode())
            data, calls = b"", []
        if not data:
            if self._parked is connection:
                self.kill()  # a runtime that hangs up while it waits is ending; nothing may be assigned to it
            self._drop(connection)
            return None
        outcome = None
        for call in calls:
            outcome = self._on_call(connection, call, now) or outcome
        return outcome

    def _on_call(self, connection: _Connection, call: runtime_api.Call, now: float) -> Invocation | None:
        if isinstance(call, runtime_api.Next):
            if self._ready is None:
                self._ready = now
            self._parked = connection
            self._deliver(now)
            return None
        task = self._task
        if isinstance(call, runtime_api.InitError):
            self._send(connection, runtime_api.accepted())
            self.kill()  # it would exit by itself, and has written its log
            return None if task is None else self._end(now, call.payload, call.error_type)
        if task is None or task.request_id != call.request_id:
            self._send(connection, runtime_api.invalid_request_id())
            return None
        self._send(connection, runtime_api.accepted())
        if self._over_memory():  # exceeded since the last sample: Lambda would have killed it
            return self._out_of_memory(now)
        return self._end(now, call.payload, handler_error(call.payload) if call.failed else None)

    def _deliver(self, now: float) -> None:
        """Hands the task to the runtime if both are there."""
        task, connection = self._task, self._parked
        if task is None or connection is None:
            return
        self._parked = None
        task.started, task.deadline = now, now + self._function.timeout_s
        self._log.write(f"START RequestId: {task.request_id} Version: $LATEST\n".encode())
        deadline_ms = int((time.time() + self._function.timeout_s) * 1000)
        self._send(connection, runtime_api.invocation(task.request_id, task.payload, deadline_ms, self._function.arn))

    def _send(self, connection: _Connection, data: bytes) -> None:
        """Sends as much as the socket takes; the selector comes back for the rest."""
        pending, connection.unsent = connection.unsent + data, b""
        if not pending:
            return
        try:
            sent = connection.sock.send(pending)
        except BlockingIOError:
            sent = 0
        except ConnectionError:  # the process is ending; its exit is handled elsewhere
            return
        connection.unsent = pending[sent:]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        key = self._selector.get_key(connection.sock)
        if key.events != events:
            self._selector.modify(connection.sock, events, key.data)

    def _drop(self, connection: _Connection) -> None:
        if self._parked is connection:
            self._parked = None
        self._connections.remove(connection)
        self._unwatch(connection.sock.fileno())
        connection.sock.close()

    # -- the selector

    def _watch(self, fd: int, call: Callable[[float], Invocation | None]) -> None:
        self._watched.add(fd)
        self._selector.register(fd, selectors.EVENT_READ, call)

    def _unwatch(self, fd: int) -> None:
        if fd in self._watched:
            self._watched.remove(fd)
            self._selector.unregister(fd)

    # -- how an invocation ends

    def _out_of_memory(self, now: float) -> Invocation:
        used_mb = math.ceil(self._peak_kib / 1024)
        return self._fail(now, "Runtime.OutOfMemory", f"{used_mb} MB used, the limit is {self._function.memory_mb} MB")

    def _fail(self, now: float, error: str, message: str) -> Invocation:
        """Kills the environment, and ends its invocation with this error."""
        assert self._task is not None
        self.kill()
        return self._end(now, error_payload(self._task.request_id, error, message), error)

    def _end(self, now: float, payload: bytes, error: str | None) -> Invocation:
        task, self._task = self._task, None
        assert task is not None
        self._on_output(now)  # output written before the answer
        self._over_memory()
        init_ms = 1e3 * ((self._ready or now) - self._born) if task.cold else 0.0
        duration_ms = 0.0 if task.started is None else 1e3 * (now - task.started)
        peak_mb = math.ceil(self._peak_kib / 1024)
        billed_ms = math.ceil(init_ms + duration_ms)
        closing = report(self._function, task.request_id, error, init_ms, duration_ms, billed_ms, peak_mb)
        self._log.write(closing.encode())
        return Invocation(task.request_id, payload, error, init_ms, billed_ms, peak_mb, self._log.take_tail())
