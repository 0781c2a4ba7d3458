"""A Lambda endpoint that runs real workers, and gives the trouble that Lambda may give, by a script.

It speaks what the endpoint launcher asks of Lambda's API: Invoke, and what says how the function was
deployed and how often it may run. Behind it is a local pool, so that a worker is a process that dials back,
with its cold start, bill and log.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from graph_server.lambdas.invoke_errors import THROTTLED
from lambda_funcs.invocation import Invocation
from lambda_funcs.local_pool import LocalPool
from siafu.errors import WorkerError

MAX_ENVIRONMENTS = 64
COLD_S = 120.0  # for a cold start, however busy the machine
#: Lambda gives ten invocations a second for each environment that a function may have.
CALLS_PER_ENVIRONMENT_S = 10


@dataclass(frozen=True)
class Trouble:
    """What happens to a call instead of the usual, or besides it."""

    kind: str  # refuse, fail, delay, twice, crash, lose call, lose answer, no answer, hang up
    code: str = ""  # refuse: the error's code; fail: its errorType
    status: int = 429  # refuse
    reason: str = ""  # refuse: a throttle's
    seconds: float = 0.0  # delay: before it runs; crash: of life


def throttle(reason: str) -> Trouble:
    return Trouble("refuse", THROTTLED, 429, reason)


Script = Callable[[int], Trouble | None]  # number of the call -> its trouble


def quiet(number: int) -> None:
    """The script of a day without trouble."""


def seeded(seed: int, shares: Mapping[Trouble, float]) -> Script:
    """Each trouble befalls its share of the calls; the same ones for the same seed."""

    def script(number: int) -> Trouble | None:
        luck = random.Random(f"{seed}-{number}").random()
        for trouble, share in shares.items():
            luck -= share
            if luck < 0:
                return trouble
        return None

    return script


@dataclass
class Call:
    """An Invoke call, as it came and as it went."""

    at: float  # time.monotonic()
    worker: str
    trouble: Trouble | None
    answer: str = "none"  # "ran", a function's error, or the code (and reason) of a refusal


@dataclass
class FakeLambda:
    """Use in a ``with`` block. ``url`` is its endpoint."""

    handler: str = "lambda_funcs.handler.handler"
    memory_mb: int = 192
    timeout_s: float = 900.0
    name: str = "siafu"
    script: Script = quiet
    reserved: int | None = None  # environments that the function may have at a time
    account: int = 1000  # environments that the account may have at a time
    allowed: int | None = None  # what is really left of them: others use the rest, which nobody can ask for
    log_dir: Path | None = None
    calls: list[Call] = field(default_factory=list)  # of Invoke
    most_running: int = 0  # functions at a time

    def __enter__(self) -> FakeLambda:
        self._lock = threading.Lock()
        self._running = 0
        self._over = threading.Event()
        self._outcomes: dict[str, queue.SimpleQueue[Invocation]] = {}
        self._pool = LocalPool(
            handler=self.handler,
            memory_mb=self.memory_mb,
            timeout_s=self.timeout_s,
            max_environments=MAX_ENVIRONMENTS,
            on_done=self._done,
            log_dir=self.log_dir,
            init_timeout_s=COLD_S,
        )
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="fake-lambda")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def most_calls(self, window_s: float) -> int:
        """The most Invoke calls in any ``window_s``."""
        times = sorted(call.at for call in self.calls)
        return max((sum(at <= other < at + window_s for other in times) for at in times), default=0)

    # --- what is asked ------------------------------------------------------------------------------------------------

    def settings(self, path: str) -> tuple[int, dict[str, Any]]:
        """The answer to a GET: status and JSON."""
        if path == "/2016-08-19/account-settings":
            left = self.account - (self.reserved or 0)
            return 200, {"AccountLimit": {"ConcurrentExecutions": self.account, "UnreservedConcurrentExecutions": left}}
        if path == f"/2019-09-30/functions/{self.name}/concurrency":
            return 200, {} if self.reserved is None else {"ReservedConcurrentExecutions": self.reserved}
        if path == f"/2015-03-31/functions/{self.name}/configuration":
            return 200, {
                "FunctionName": self.name,
                "MemorySize": self.memory_mb,
                "Timeout": round(self.timeout_s),
                "State": "Active",
            }
        return 404, {"__type": "ResourceNotFoundException", "Message": f"not found: {path}"}

    def invoke(self, payload: bytes) -> Invocation | Trouble:
        """Runs the function, or says why not: what a refusal is, or that the caller is left without an answer."""
        event = json.loads(payload)
        with self._lock:
            number = len(self.calls)
            trouble = self.script(number) or self._limit()
            call = Call(time.monotonic(), str(event.get("worker", "")), trouble)
            self.calls.append(call)
            runs = trouble is None or trouble.kind not in ("refuse", "fail", "lose call")
            self._running += runs
            self.most_running = max(self.most_running, self._running)
        if not runs:
            assert trouble is not None
            call.answer = " ".join(filter(None, (trouble.code, trouble.reason))) or trouble.kind
            return trouble
        try:
            outcome = self._run(event, f"{call.worker or 'call'}.{number}", trouble)
        finally:
            with self._lock:
                self._running -= 1
        if trouble and trouble.kind == "no answer":  # the function has ended, and its caller waits
            self._over.wait()
            return trouble
        if isinstance(outcome, Invocation):
            call.answer = outcome.error or "ran"
        return outcome

    def _limit(self) -> Trouble | None:
        """What Lambda itself says when there are too many."""
        limit = self.account if self.reserved is None else self.reserved
        if self._running >= min(limit, limit if self.allowed is None else self.allowed):
            return throttle(f"{'' if self.reserved is None else 'ReservedFunction'}ConcurrentInvocationLimitExceeded")
        second = [call for call in self.calls if call.at > time.monotonic() - 1]
        if len(second) >= CALLS_PER_ENVIRONMENT_S * limit:
            return throttle(f"{'' if self.reserved is None else 'Reserved'}FunctionInvocationRateLimitExceeded")
        return None

    def _run(self, event: dict[str, Any], name: str, trouble: Trouble | None) -> Invocation | Trouble:
        kind = trouble.kind if trouble else ""
        if trouble and kind == "delay":
            self._over.wait(trouble.seconds)
        outcomes = self._outcomes[name] = queue.SimpleQueue()
        try:
            for copy in range(2 if kind == "twice" else 1):
                self._pool.invoke(event, f"{name}.{copy}")
        except WorkerError:  # the service is going away
            return Trouble("lose call")
        if trouble and kind == "hang up":
            return trouble  # and the worker goes on
        outcome = self._outcome(outcomes, name, trouble.seconds if trouble and kind == "crash" else None)
        return trouble if trouble and kind == "lose answer" else outcome

    def _outcome(self, outcomes: queue.SimpleQueue[Invocation], name: str, life_s: float | None) -> Invocation:
        """How it ended: of two the first. One with a ``life_s`` is killed after it."""
        with contextlib.suppress(queue.Empty):
            return outcomes.get(timeout=life_s)
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.kill(self._pool.pids[f"{name}.0"], signal.SIGKILL)
        return outcomes.get()

    def _done(self, outcome: Invocation) -> None:
        self._outcomes[outcome.request_id.rpartition(".")[0]].put(outcome)


def _handler_of(fake: FakeLambda) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = fake.settings(self.path)
            self._answer(status, json.dumps(body).encode(), {"x-amzn-ErrorType": body.get("__type", "")})

        def do_POST(self) -> None:
            payload = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != f"/2015-03-31/functions/{fake.name}/invocations":
                return self._refuse(Trouble("refuse", "ResourceNotFoundException", 404))
            outcome = fake.invoke(payload)
            match outcome:
                case Trouble(kind="refuse"):
                    self._refuse(outcome)
                case Trouble(kind="fail"):
                    error = {"errorType": outcome.code, "errorMessage": "as the script says"}
                    self._answer(200, json.dumps(error).encode(), {"X-Amz-Function-Error": "Unhandled"})
                case Trouble():
                    self.close_connection = True  # without an answer
                case Invocation():
                    failed = {"X-Amz-Function-Error": "Unhandled"} if outcome.error else {}
                    tail = base64.b64encode(outcome.log_tail.encode()[-4096:]).decode()
                    self._answer(200, outcome.payload, {"X-Amz-Log-Result": tail, **failed})

        def _refuse(self, trouble: Trouble) -> None:
            body = {"Type": "User", "message": "as the script says"}
            if trouble.reason:
                body["Reason"] = trouble.reason
            self._answer(trouble.status, json.dumps(body).encode(), {"x-amzn-ErrorType": trouble.code})

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            with contextlib.suppress(OSError):  # the caller has gone
                self.send_response(status)
                for name, value in {
                    "Content-Type": "application/json",
                    "Content-Length": str(len(body)),
                    **headers,
                }.items():
                    if value:
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing: the calls are noted."""

    return Handler
