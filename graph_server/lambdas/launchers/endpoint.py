"""The launchers `localstack` and `aws`: a function behind an endpoint that speaks Lambda's API, through boto3.

Invocations are synchronous (RequestResponse): a refusal and its Reason, FunctionError and the bill come back with the
call, and the service never repeats it. Each has a thread that waits, for as long as its worker pulls tasks. Nothing is
sent twice: what is to be done about a failure is the backend's to decide.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config as ClientConfig
from botocore.exceptions import BotoCoreError, ClientError

from graph_server.lambdas.launchers import account, answers
from graph_server.lambdas.launchers.lines import Lines
from lambda_funcs.invocation import Invocation
from lambda_funcs.local_pool import MAX_PAYLOAD_NBYTES
from siafu.aws_identity import ACCESS_KEYS
from siafu.config import Config, Lambda
from siafu.errors import ConfigError, WorkerError

logger = logging.getLogger(__name__)

#: An answer is waited for this much longer than the function may run: a cold start does not count for its timeout.
SLACK_S = 30.0
#: For the threads to end once their connections are cut.
CLOSE_S = 1.5
#: Reading limits may be tried again, invoking may not; 32 graph servers that start at a time meet 15 calls a second.
READING = ClientConfig(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 6, "mode": "standard"})
#: botocore's names for credentials that are read from a file as they are.
STATIC = ("shared-credentials-file", "config-file")


@dataclass(eq=False)
class _Call:
    """An invocation in flight."""

    request_id: str
    payload: bytes
    begun: float = field(default_factory=time.monotonic)

    @property
    def took_s(self) -> float:
        return time.monotonic() - self.begun


class EndpointLauncher:
    """Invokes ``function``. Use with `with`, or call ``close``. ``on_done`` is called
    from threads of the launcher's."""

    def __init__(
        self,
        client: Any,
        function: str,
        *,
        timeout_s: float,
        limit: int,
        max_environments: int,
        on_done: Callable[[Invocation], None],
        log_dir: Path | None = None,
    ):
        """``client``: of boto3. ``timeout_s``: of the function."""
        self.function, self.limit, self.max_environments, self.hangs_up = function, limit, max_environments, True
        self._client, self._timeout_s, self._on_done = client, timeout_s, on_done
        self._lines = Lines(timeout_s + SLACK_S)
        client.meta.events.register("before-send.lambda.Invoke", self._lines.carry)
        # All mutable state:
        self._lock = threading.Lock()
        self._running: dict[_Call, threading.Thread] = {}
        self._closed = False
        self._log = None if log_dir is None else log_dir / "invocations.log"  # None also once it could not be written

    @classmethod
    def make(
        cls, config: Config, index: int, max_environments: int, on_done: Callable[[Invocation], None], log_dir: Path
    ) -> EndpointLauncher:
        """Of graph server ``index``. ConfigError if the function is not what the config says, or may not run."""
        lambdas = config.lambdas
        url = endpoint(lambdas)
        try:
            session = _session(lambdas)
            client = session.client("lambda", endpoint_url=url, config=_invoking())
            limit = account.environments(session.client("lambda", endpoint_url=url, config=READING), config)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(
                f"lambda.endpoint = {lambdas.endpoint!r}, lambda.region = {lambdas.region}: {error}"
            ) from error
        log_dir.mkdir(parents=True, exist_ok=True)
        return cls(
            client,
            lambdas.function,
            timeout_s=lambdas.timeout_s,
            limit=limit,
            max_environments=max_environments,
            on_done=on_done,
            log_dir=log_dir,
        )

    def invoke(self, payload: dict[str, Any], request_id: str) -> None:
        """WorkerError when ``max_environments`` are busy, the payload is beyond the quota, the machine has no more
        threads, or the launcher is closed."""
        body = json.dumps(payload).encode()
        if len(body) > MAX_PAYLOAD_NBYTES:
            raise WorkerError(f"invocation {request_id}: payload of {len(body)} bytes, at most {MAX_PAYLOAD_NBYTES}")
        with self._lock:
            if self._closed:
                raise WorkerError(f"invocation {request_id}: the launcher is closed")
            if len(self._running) >= self.max_environments:
                raise WorkerError(
                    f"invocation {request_id}: throttled, all {self.max_environments} environments (the limit) are busy"
                )
            call = _Call(request_id, body)
            # daemon: it may be looking up a name or connecting, which nothing cuts short, when the process is to end
            thread = self._running[call] = threading.Thread(
                target=self._run, args=(call,), name=f"invoke-{request_id}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no more
                del self._running[call]
                raise WorkerError(f"invocation {request_id}: {error}, {len(self._running)} are in flight") from error

    def close(self) -> None:
        """What is in flight ends as Sandbox.Failure; what the service still says of it is ignored."""
        with self._lock:
            self._closed = True
            running = dict(self._running)
        self._lines.cut()
        for call in running:
            self._end(call, answers.lost(call.request_id, "Sandbox.Failure", "the launcher was closed", call.took_s))
        deadline = time.monotonic() + CLOSE_S
        for thread in running.values():
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> EndpointLauncher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- a call's thread

    def _run(self, call: _Call) -> None:
        try:
            outcome = self._ask(call)
        except Exception as error:  # the edge of the thread: its caller must hear of the invocation
            logger.exception("invocation %s failed", call.request_id)
            outcome = answers.lost(call.request_id, "Sandbox.Failure", repr(error), call.took_s)
        self._end(call, outcome)

    def _ask(self, call: _Call) -> Invocation:
        try:
            found = self._client.invoke(
                FunctionName=self.function, InvocationType="RequestResponse", LogType="Tail", Payload=call.payload
            )
        except ClientError as error:
            code = str(error.response["Error"]["Code"])
            status = int(error.response["ResponseMetadata"]["HTTPStatusCode"])
            reason, message = error.response.get("Reason", ""), error.response["Error"].get("Message", "")
            return answers.refused(call.request_id, code, status, str(reason), str(message))
        except BotoCoreError as error:
            return answers.lost(call.request_id, type(error).__name__, str(error), self._used_s(call, error))
        tail = base64.b64decode(found.get("LogResult", "")).decode(errors="replace")
        return answers.ran(call.request_id, found["Payload"].read(), found.get("FunctionError", ""), tail, call.took_s)

    def _used_s(self, call: _Call, error: BotoCoreError) -> float:
        """What a call without an answer may have cost: nothing if it never reached the service."""
        used = {"ConnectionClosedError": call.took_s, "ReadTimeoutError": self._timeout_s}
        return used.get(type(error).__name__, 0.0)

    def _end(self, call: _Call, outcome: Invocation) -> None:
        """Reports it, unless that was done."""
        with self._lock:
            if call not in self._running:
                return
            del self._running[call]
        self._write(outcome)
        try:
            self._on_done(outcome)
        except Exception:  # the edge of the thread
            logger.exception("on_done failed for invocation %s", outcome.request_id)

    def _write(self, outcome: Invocation) -> None:
        """The tail of its log, beside the run's other logs: all of it is where the function runs."""
        path = self._log  # read once: another call's thread may end the log
        if path is None or not outcome.log_tail:
            return
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"--- {outcome.request_id}\n{outcome.log_tail}")
        except OSError as error:  # a full disk ends the log, not the run
            logger.warning("no more log in %s: %s", path, error)
            self._log = None


def endpoint(lambdas: Lambda) -> str | None:
    """None stands for AWS's own."""
    url = lambdas.endpoint
    if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        raise ConfigError(f"lambda.endpoint = {url!r}: must be an http:// or https:// URL")
    if not url and lambdas.on != "aws":
        raise ConfigError(f"lambda.endpoint is empty: lambda.on = {lambdas.on} needs the URL that it answers at")
    return url or None


def _invoking() -> ClientConfig:
    """boto3 would send again what was throttled or timed out, and the function would run twice."""
    return ClientConfig(retries={"total_max_attempts": 1})


def _session(lambdas: Lambda) -> Any:
    """AWS gets the user's credentials. LocalStack looks at none: it gets some that mean nothing, whatever the
    environment holds, or those of the profile that the user names, if they are none of AWS's."""
    profile = os.environ.get("AWS_PROFILE", "")
    if lambdas.on != "aws" and not profile:
        return _stand_in(lambdas)
    # By name: else the environment's keys would go before the profile's.
    session = boto3.Session(region_name=lambdas.region, profile_name=profile if lambdas.on != "aws" else None)
    if lambdas.on == "aws":
        is_fit = not lambdas.endpoint or session.get_credentials() is not None
    else:
        is_fit = _means_nothing(session.get_credentials())
    return session if is_fit else _stand_in(lambdas)


def _stand_in(lambdas: Lambda) -> Any:
    return boto3.Session("test", "test", region_name=lambdas.region)


def _means_nothing(credentials: Any) -> bool:
    """Whether they stand in a file, and are none that AWS gives. Of others not even the key is read: a
    token service would be asked for it."""
    if credentials is None or credentials.method not in STATIC:
        return False
    found = credentials.get_frozen_credentials()
    return not found.token and not found.access_key.startswith(ACCESS_KEYS)
