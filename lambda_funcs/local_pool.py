"""The launcher `local`: a pool of emulated Lambda environments on this machine.

It exists so that a run without AWS has the same cold starts, throttles, timeouts and bills as a run on AWS. One thread
owns the environments: it waits on all their descriptors at once, and on a mailbox for `invoke` and `close`. It sleeps
until something happens; only busy environments wake it regularly, to sample their memory.
"""

import contextlib
import errno
import json
import logging
import math
import os
import queue
import selectors
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lambda_funcs.environment import Environment
from lambda_funcs.invocation import NO_ROOM, Function, Invocation, error_payload
from lambda_funcs.process import CONNECTIONS, can_tell_peers
from siafu.config import Config
from siafu.errors import ConfigError, WorkerError
from siafu.variables import of_worker

__all__ = ["Invocation", "LocalPool"]

logger = logging.getLogger(__name__)

MAX_PAYLOAD_NBYTES = 2**20  # Lambda's quota of an asynchronous invocation
TERM_S = 0.5  # the time for a process to end by itself, as in Lambda's shutdown phase
KILL_S = 1.0  # the time for the kernel to end a killed process
CLOSE_S = 5.0  # longer than both together, so the thread has ended by then
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


@dataclass(frozen=True)
class _Request:
    request_id: str
    payload: bytes


class LocalPool:
    """Runs ``handler`` in at most ``max_environments`` processes at a time. Use with `with`, or call ``close``.

    ``memory_mb`` and ``timeout_s`` limit one invocation, ``init_timeout_s`` a cold start. ``on_done`` is called from
    the pool's thread, exactly once for each accepted ``invoke``; it may call ``invoke``, but neither wait nor
    ``close``. ``log_dir`` gets one file for each environment. ``variables`` set how a worker computes; None: those of
    this process (``siafu.variables``).
    """

    def __init__(
        self,
        *,
        handler: str = "lambda_funcs.handler.handler",
        memory_mb: int = 192,
        timeout_s: float = 900.0,
        init_timeout_s: float = 20.0,
        max_environments: int,
        on_done: Callable[[Invocation], None],
        log_dir: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        computes = of_worker() if variables is None else variables
        self._function = Function(handler, memory_mb, timeout_s, init_timeout_s, computes)
        self.limit, self.hangs_up = max_environments, False
        self._on_done = on_done
        self._log_dir = log_dir
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)
        # Between the callers and the thread:
        self._free = threading.Semaphore(max_environments)
        self._mailbox: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()  # None: close
        self._door = threading.Lock()  # so that no request comes after the None
        self._closed = False
        self._bell, self._bell_rope = os.pipe()
        os.set_blocking(self._bell_rope, False)
        # The thread's own:
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._environments: list[Environment] = []  # replaced, never changed: `pids` reads it from other threads
        self._num_started = 0
        # daemon: a caller that dies without `close` must end, not hang; its environments die with it
        self._thread = threading.Thread(target=self._run, name="lambda-pool", daemon=True)
        self._thread.start()

    @classmethod
    def make(
        cls, config: Config, index: int, max_environments: int, on_done: Callable[[Invocation], None], log_dir: Path
    ) -> "LocalPool":
        """Makes the pool of one graph server. Raises: ConfigError if the run needs keys, and this system cannot hide
        them from its other users."""
        lambdas = config.lambdas
        if config.servers.security == "curve" and not can_tell_peers():
            raise ConfigError(
                f"servers.security = curve: without {CONNECTIONS} other users of this machine could read the keys of "
                "local Lambdas; use --backend cpu, or Linux"
            )
        return cls(
            handler=lambdas.handler,
            memory_mb=lambdas.memory_mb,
            timeout_s=lambdas.timeout_s,
            max_environments=max_environments,
            on_done=on_done,
            log_dir=log_dir,
        )

    def __enter__(self) -> "LocalPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def invoke(self, payload: dict[str, object], request_id: str) -> None:
        """Starts an invocation and returns at once; ``on_done`` is called with its outcome.

        Raises: WorkerError if ``max_environments`` are busy, the payload is above Lambda's quota, or the pool is
        closed.
        """
        body = json.dumps(payload).encode()
        if len(body) > MAX_PAYLOAD_NBYTES:
            raise WorkerError(f"invocation {request_id}: payload of {len(body)} bytes, at most {MAX_PAYLOAD_NBYTES}")
        with self._door:
            if self._closed:
                raise WorkerError(f"invocation {request_id}: the pool is closed")
            if not self._free.acquire(blocking=False):
                limit = self.limit
                raise WorkerError(f"invocation {request_id}: throttled, all {limit} environments (the limit) are busy")
            self._mailbox.put(_Request(request_id, body))
            self._ring()

    @property
    def pids(self) -> dict[str, int]:
        """The pids of busy environments, by the request id that each serves."""
        serving = [(environment.request_id, environment.pid) for environment in self._environments]
        return {request_id: pid for request_id, pid in serving if request_id is not None}

    def close(self) -> None:
        """Ends all processes within 2 s; invocations in flight end as Sandbox.Failure. May be called again.

        Raises: WorkerError if the caller's ``on_done`` keeps the thread from ending.
        """
        with self._door:
            if not self._closed:  # else the thread is ending already, and the bell may be gone
                self._closed = True
                self._mailbox.put(None)
                self._ring()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            raise WorkerError(f"the pool did not close within {CLOSE_S} s: on_done does not return")

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of rings that the thread has yet to read
            os.write(self._bell_rope, b"\0")

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._take_mail():
                self._step(math.inf)
        except Exception:  # the edge of the thread: its callers must hear of their invocations
            logger.exception("the pool failed and closes")
        with self._door:
            self._closed = True
        self._end_all()
        self._selector.close()
        os.close(self._bell)
        os.close(self._bell_rope)

    def _end_all(self) -> None:
        """Reports invocations in flight as failed, and ends every process: SIGTERM, then SIGKILL."""
        now = time.monotonic()
        for environment in self._environments:
            self._settle(environment.stop(now, "the pool was closed"))
        while not self._mailbox.empty():  # only after a failure
            if (request := self._mailbox.get_nowait()) is not None:
                self._settle(_not_run(request, "the pool was closed"))
        self._drain(now + TERM_S)
        for environment in self._environments:
            environment.kill()
        self._drain(now + TERM_S + KILL_S)
        for environment in self._environments:
            logger.error("process %d survived SIGKILL for %.1f s", environment.pid, KILL_S)

    def _drain(self, until: float) -> None:
        while self._environments and time.monotonic() < until:
            self._step(until)

    def _step(self, until: float) -> None:
        """Waits for events until ``until`` (monotonic seconds) at most, and handles them."""
        until = min([until, *(environment.wake_at() for environment in self._environments)])
        timeout_s = None if until == math.inf else max(0.0, until - time.monotonic())
        for key, _ in self._selector.select(timeout_s):
            if self._selector.get_map().get(key.fd) is not key:
                continue  # closed by an event before it
            if key.fd == self._bell:
                os.read(self._bell, 65536)
            else:
                self._settle(key.data(time.monotonic()))
        now = time.monotonic()
        for environment in self._environments:
            if not environment.gone and now >= environment.wake_at():
                self._settle(environment.tick(now))
        if any(environment.gone for environment in self._environments):
            self._environments = [environment for environment in self._environments if not environment.gone]

    def _take_mail(self) -> bool:
        """Starts the invocations asked for; returns True once the pool is to close. Before each it handles events of
        environments: one that ended while the thread was busy must be given nothing."""
        while not self._mailbox.empty():
            self._step(0.0)
            request = self._mailbox.get_nowait()
            if request is None:
                return True
            self._place(request)
        return False

    def _place(self, request: _Request) -> None:
        """Gives the request to a warm environment, or to a new one."""
        environment = next((environment for environment in self._environments if environment.idle), None)
        if environment is None:
            try:
                environment = self._start()
            except OSError as error:
                self._settle(_not_started(request, error))
                return
        environment.assign(request.request_id, request.payload, time.monotonic())

    def _start(self) -> Environment:
        self._num_started += 1
        name = f"env-{self._num_started:04d}"
        log_path = None if self._log_dir is None else self._log_dir / f"{name}.log"
        environment = Environment(name, self._function, self._selector, log_path)
        self._environments = [*self._environments, environment]
        return environment

    def _settle(self, outcome: Invocation | None) -> None:
        if outcome is None:
            return
        self._free.release()  # first, so that on_done may invoke again
        try:
            self._on_done(outcome)
        except Exception:  # the edge of the thread: the other invocations go on
            logger.exception("on_done failed for invocation %s", outcome.request_id)


def _not_started(request: _Request, error: OSError) -> Invocation:
    """Returns the outcome of an invocation for which no environment could be started. If the machine is out of a
    resource, it is a refusal, like a service's: the function itself may be sound."""
    if error.errno not in _NO_ROOM:
        return _not_run(request, f"no environment could be started: {error}")
    reason = error.strerror or str(error)
    payload = error_payload(request.request_id, NO_ROOM, reason)
    return Invocation(request.request_id, payload, NO_ROOM, 0.0, 0, 0, "", reason)


def _not_run(request: _Request, why: str) -> Invocation:
    payload = error_payload(request.request_id, "Sandbox.Failure", why)
    return Invocation(request.request_id, payload, "Sandbox.Failure", 0.0, 0, 0, "")
