"""Lambdas as actors of a Ray cluster. Each actor has one environment of ``LocalPool`` on its node, so its results, bill
and errors are those of the launcher `local`.

One thread owns the actors. Calls and Ray's answers reach it by a queue; nothing is polled.
"""

from __future__ import annotations

import json
import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graph_server.lambdas.invoke_errors import THROTTLED
from lambda_funcs.invocation import Function, Invocation, error_payload
from lambda_funcs.local_pool import MAX_PAYLOAD_NBYTES, LocalPool
from siafu import ray_cluster
from siafu.config import Config
from siafu.errors import ConfigError, WorkerError
from siafu.places import CORE_MB

logger = logging.getLogger(__name__)

#: The limit of a cold start. It includes the start of a Ray process, which takes long on a busy node.
COLD_S = 60.0
#: The wait for the functions to end: one that ignores SIGTERM takes half a second. The thread ends soon after.
END_S = 1.2
CLOSE_S = 5.0


class Environment:
    """The actor: a pool of one."""

    def __init__(self, function: Function):
        self._outcomes: queue.SimpleQueue[Invocation] = queue.SimpleQueue()
        self._pool = LocalPool(
            handler=function.handler,
            memory_mb=function.memory_mb,
            timeout_s=function.timeout_s,
            init_timeout_s=function.init_timeout_s,
            max_environments=1,
            on_done=self._outcomes.put,
            variables=function.variables,
        )

    def ready(self) -> None:
        """Returns as soon as the actor has a place."""

    def invoke(self, payload: dict[str, Any], request_id: str) -> Invocation:
        """Runs one invocation to its end, and returns the outcome."""
        self._pool.invoke(payload, request_id)
        return self._outcomes.get()

    def close(self) -> None:
        """Ends the function's whole process group. Ray would end its leader alone."""
        self._pool.close()


@dataclass(eq=False)
class _Place:
    """An actor and what it is doing."""

    name: str
    actor: Any
    born: float
    ready: bool = False
    request: _Request | None = None


@dataclass(frozen=True, eq=False)
class _Request:
    request_id: str
    payload: dict[str, Any]
    begun: float = field(default_factory=time.monotonic)


_Event = Callable[[], None] | None  # called by the thread; None: close


class RayLauncher:
    """Runs ``function`` in at most ``limit`` actors at a time. Use with `with`, or call ``close``. ``on_done`` is
    called from the launcher's thread; it may call ``invoke``."""

    def __init__(
        self,
        function: Function,
        *,
        limit: int,
        on_done: Callable[[Invocation], None],
        log_dir: Path | None = None,
        cluster: ray_cluster.Connection,
    ):
        """``cluster``: ``close`` disconnects from it."""
        self.function, self.limit, self.hangs_up = function, limit, False
        self._on_done, self._log_dir, self._cluster = on_done, log_dir, cluster
        self._ray = ray_cluster.load()
        # The death of an actor ends its invocation: Ray must neither restart the actor nor run a call twice.
        self._new = self._ray.remote(Environment).options(
            num_cpus=function.memory_mb / CORE_MB,
            memory=function.memory_mb << 20,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=2,  # ``close`` comes in the middle of ``invoke``
        )
        # Between the callers and the thread:
        self._free = threading.Semaphore(limit)
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._door = threading.Lock()  # so that no request comes after the None
        self._closed = False
        self._open: set[_Request] = set()  # requests not reported yet
        # The thread's own:
        self._places: list[_Place] = []
        self._num_started = 0
        self._thread = threading.Thread(target=self._run, name="ray-lambdas", daemon=True)
        self._thread.start()

    @classmethod
    def make(
        cls, config: Config, index: int, max_environments: int, on_done: Callable[[Invocation], None], log_dir: Path
    ) -> RayLauncher:
        """Makes the launcher of graph server ``index``. Raises: ConfigError if there is no cluster, or no room for one
        environment per graph server."""
        # A server on the cluster gets the cluster's address from the process that started it: "auto" and 127.0.0.1
        # mean the driver's machine.
        told = os.environ.get("RAY_ADDRESS", "") if config.run.on == "ray" else ""
        cluster = ray_cluster.connect(told or config.cloud.ray_address)
        lambdas = config.lambdas
        try:
            limit = share_of(ray_cluster.load().available_resources(), lambdas.memory_mb, config.data.parts)
        except ConfigError:
            cluster.close()
            raise
        function = Function(lambdas.handler, lambdas.memory_mb, lambdas.timeout_s, init_timeout_s=COLD_S)
        return cls(function, limit=min(limit, max_environments), on_done=on_done, log_dir=log_dir, cluster=cluster)

    def __enter__(self) -> RayLauncher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def invoke(self, payload: dict[str, Any], request_id: str) -> None:
        """Queues an invocation. Raises: WorkerError if ``limit`` are busy, the payload is above Lambda's quota, or the
        launcher is closed."""
        nbytes = len(json.dumps(payload).encode())
        if nbytes > MAX_PAYLOAD_NBYTES:
            raise WorkerError(f"invocation {request_id}: payload of {nbytes} bytes, at most {MAX_PAYLOAD_NBYTES}")
        with self._door:
            if self._closed:
                raise WorkerError(f"invocation {request_id}: the launcher is closed")
            if not self._free.acquire(blocking=False):
                limit = self.limit
                raise WorkerError(f"invocation {request_id}: throttled, all {limit} environments (the limit) are busy")
            request = _Request(request_id, payload)
            self._open.add(request)
            self._events.put(lambda: self._serve(request))

    def close(self) -> None:
        with self._door:
            if not self._closed:
                self._closed = True
                self._events.put(None)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            raise WorkerError(f"the launcher did not close within {CLOSE_S} s: on_done does not return")
        self._cluster.close()

    # -- the thread

    def _run(self) -> None:
        try:
            while True:
                try:
                    event = self._events.get(timeout=self._patience())
                except queue.Empty:
                    self._give_up()
                    continue
                if event is None:
                    break
                event()
        except Exception:  # the edge of the thread: its callers must hear of their invocations
            logger.exception("the launcher failed and closes")
        with self._door:
            self._closed = True
        for request in list(self._open):
            self._fail(request, "the launcher was closed")
        ending = [place.actor.close.remote() for place in self._places if place.ready]
        if ending:
            self._ray.wait(ending, num_returns=len(ending), timeout=END_S)
        for place in self._places:
            self._ray.kill(place.actor)

    def _patience(self) -> float | None:
        """Returns the seconds until the next actor has waited too long for a place; None if none waits."""
        waiting = [place.born for place in self._places if not place.ready]
        return max(0.0, min(waiting) + self.function.init_timeout_s - time.monotonic()) if waiting else None

    def _give_up(self) -> None:
        """Drops actors that got no place in time, and reports their invocations as throttled: the cluster has less room
        than when it was counted."""
        limit_s, now = self.function.init_timeout_s, time.monotonic()
        late = [place for place in self._places if not place.ready and now >= place.born + limit_s]
        for place in late:
            self._drop(place)
            if place.request is not None:
                name, why = place.request.request_id, f"no room for an actor within {limit_s:g} s"
                payload, reason = error_payload(name, THROTTLED, why), "ConcurrentInvocationLimitExceeded"
                self._settle(place.request, Invocation(name, payload, THROTTLED, 0.0, 0, 0, "", reason))

    def _serve(self, request: _Request) -> None:
        """Gives the request to an actor that is idle, or to a new one."""
        place = next((place for place in self._places if place.request is None), None) or self._start()
        place.request = request
        self._after(place.actor.invoke.remote(request.payload, request.request_id), self._ended, place, request)

    def _start(self) -> _Place:
        self._num_started += 1
        place = _Place(f"env-{self._num_started:04d}", self._new.remote(self.function), time.monotonic())
        self._places.append(place)
        self._after(place.actor.ready.remote(), self._is_ready, place)
        return place

    def _after(self, answer: Any, then: Callable[..., None], *arguments: Any) -> None:
        """Has the launcher's thread call ``then`` with Ray's answer. Ray itself calls back from a thread of its own."""
        answer.future().add_done_callback(lambda found: self._events.put(lambda: then(found, *arguments)))

    def _is_ready(self, found: Any, place: _Place) -> None:
        place.ready = True

    def _ended(self, found: Any, place: _Place, request: _Request) -> None:
        if place not in self._places:
            return  # given up
        error = found.exception()
        if error is not None:
            self._drop(place)
            self._fail(request, f"its actor is gone: {ray_cluster.text_of(error)}")
            return
        place.request, outcome = None, found.result()
        self._write(place.name, outcome.log_tail)
        self._settle(request, outcome)

    def _drop(self, place: _Place) -> None:
        self._places.remove(place)
        self._ray.kill(place.actor)

    def _fail(self, request: _Request, why: str) -> None:
        """Reports a request that has no other outcome as Sandbox.Failure, billed for its time in flight."""
        name, error = request.request_id, "Sandbox.Failure"
        billed_ms = math.ceil(1e3 * (time.monotonic() - request.begun))
        self._settle(request, Invocation(name, error_payload(name, error, why), error, 0.0, billed_ms, 0, ""))

    def _settle(self, request: _Request, outcome: Invocation) -> None:
        self._open.remove(request)
        self._free.release()  # first, so that on_done may invoke again
        try:
            self._on_done(outcome)
        except Exception:  # the edge of the thread: the other invocations go on
            logger.exception("on_done failed for invocation %s", outcome.request_id)

    def _write(self, name: str, tail: str) -> None:
        if self._log_dir is None or not tail:
            return
        try:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            with (self._log_dir / f"{name}.log").open("a", encoding="utf-8") as log:
                log.write(tail)
        except OSError as error:  # a full disk ends the log, not the run
            logger.warning("no more log in %s: %s", self._log_dir, error)


def share_of(free: dict[str, float], memory_mb: int, parts: int) -> int:
    """Returns how many environments each of ``parts`` graph servers may have on a cluster with these ``free``
    resources. Raises: ConfigError if none."""
    room = min(free.get("CPU", 0.0) * CORE_MB / memory_mb, free.get("memory", 0.0) / (memory_mb << 20))
    share = int(room + 1e-6) // parts
    if share < 1:
        raise ConfigError(
            f"lambda.on = ray: the cluster has {free.get('CPU', 0.0):g} processors and "
            f"{int(free.get('memory', 0)) >> 20} MiB free, room for {int(room)} environments of {memory_mb} MB; "
            f"{parts} graph servers need one each"
        )
    return share
