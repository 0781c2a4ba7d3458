"""The launchers `localstack` and `aws`: a function behind an endpoint that speaks Lambda's API, through boto3.

Invocations are synchronous (RequestResponse): a refusal and its Reason, FunctionError and the bill come back with the
call, and the service never repeats it. A thread per invocation waits while its worker pulls tasks. No call is sent
twice: the backend decides what follows a failure.
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

#: The wait for an answer beyond the function's timeout: a cold start does not count towards the timeout.
SLACK_S = 30.0
#: The wait for the threads to end once their connections are cut.
CLOSE_S = 1.5
#: Reads of limits may be retried, invocations may not. 32 graph servers that start together meet a limit of 15 calls a
#: second.
READING = ClientConfig(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 6, "mode": "standard"})
#: botocore's names for credentials that stand in a file.
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
        """``client``: boto3's client for Lambda. ``timeout_s``: of the function."""
        self.function, self.limit, self.max_environments, self.hangs_up = function, limit, max_environments, True
        self._client, self._timeout_s, self._on_done = client, timeout_s, on_done
        self._lines = Lines(timeout_s + SLACK_S)
        client.meta.events.register("before-send.lambda.Invoke", self._lines.carry)
        # All mutable state:
        self._lock = threading.Lock()
        self._running: dict[_Call, threading.Thread] = {}
        self._closed = False
        self._log = None if log_dir is None else log_dir / "invocations.log"  # None also after a write has failed

    @classmethod
    def make(
        cls, config: Config, index: int, max_environments: int, on_done: Callable[[Invocation], None], log_dir: Path
    ) -> EndpointLauncher:
        """Makes the launcher of graph server ``index``. Raises: ConfigError if the function differs from the config or
        may not run; WorkerError if the service does not answer."""
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
        """Starts an invocation on a thread of its own. Raises: WorkerError if ``max_environments`` are busy, the
        payload is above the quota, the machine has no more threads, or the launcher is closed."""
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
            # daemon: it may be looking up a name or connecting, which cannot be interrupted, when the process ends
            thread = self._running[call] = threading.Thread(
                target=self._run, args=(call,), name=f"invoke-{request_id}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no more
                del self._running[call]
                raise WorkerError(f"invocation {request_id}: {error}, {len(self._running)} are in flight") from error

    def close(self) -> None:
        """Ends invocations in flight as Sandbox.Failure; later answers of the service to them are ignored."""
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
        """Returns the seconds that a call without an answer may be billed for: 0 if it never reached the service."""
        used = {"ConnectionClosedError": call.took_s, "ReadTimeoutError": self._timeout_s}
        return used.get(type(error).__name__, 0.0)

    def _end(self, call: _Call, outcome: Invocation) -> None:
        """Reports the outcome of the call, unless it was reported before."""
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
        """Writes the tail of the invocation's log beside the run's other logs. The whole log stays where the function
        runs."""
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
    """Returns the endpoint's URL; None: AWS's own."""
    url = lambdas.endpoint
    if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        raise ConfigError(f"lambda.endpoint = {url!r}: must be an http:// or https:// URL")
    if not url and lambdas.on != "aws":
        raise ConfigError(f"lambda.endpoint is empty: lambda.on = {lambdas.on} needs the URL that it answers at")
    return url or None


def _invoking() -> ClientConfig:
    """Returns boto3's config for Invoke, without retries: a call sent again after a throttle or timeout would run the
    function twice."""
    return ClientConfig(retries={"total_max_attempts": 1})


def _session(lambdas: Lambda) -> Any:
    """Returns a session with the user's credentials for AWS. LocalStack ignores credentials: it gets dummy ones, or
    those of the profile in AWS_PROFILE if they are not AWS's; those of the environment are never sent to it."""
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
    """Whether the credentials stand in a file and are not AWS's. The keys of others are not even read, because reading
    them may ask a token service."""
    if credentials is None or credentials.method not in STATIC:
        return False
    found = credentials.get_frozen_credentials()
    return not found.token and not found.access_key.startswith(ACCESS_KEYS)
