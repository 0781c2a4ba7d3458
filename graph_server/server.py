"""The main loop of a graph server: ``Partition`` decides; sockets, a pool of threads and Lambdas carry it out.

One thread owns the partition's state. Pool threads and the launcher hand values over a queue and wake the loop.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from graph_server import backends
from graph_server.backends import Action, Compute, Keep, Launch
from graph_server.lambdas import launchers
from graph_server.lambdas.backend import LambdaBackend
from graph_server.lambdas.launchers import Ended, Launcher
from graph_server.layer_zero import Kept
from graph_server.partition import Partition
from graph_server.rows_written import RowsWritten
from siafu import models
from siafu.address import COORDINATOR, Send, graph_server, param_server, worker
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.kernels.checksum import crc32
from siafu.machine import num_threads
from siafu.member import Joined, Presence, answer
from siafu.models import ModelSpec
from siafu.ops import BFLOAT16
from siafu.shards import ROWS_FOLDER, Shard, ShardSet, folder_of
from siafu.sockets import public_key
from siafu.wire import Heartbeat, Hello, Leave, Refused, Stop, Stopped, Usage, Welcome

logger = logging.getLogger(__name__)

TICK_S = 0.1
#: A computation that took less the last time is done on the server's own thread: a pool thread would be told of it, and
#: tell of it, for as long (docs/adr/0041).
SHORT_S = 2e-4
#: After so long of what is here to be done, messages are looked at again.
TURN_S = 2e-3
#: How long workers may take to leave by themselves before their environments are stopped.
LEAVE_S = 2.0
#: Bytes that any message of a worker may have.
_LEAST_LIMIT = 16 << 20


def serve(joined: Joined) -> None:
    """Runs until the coordinator says stop. Raises what the partition, a computation or the launcher raises."""
    with ExitStack() as stack:
        server = Server(joined, stack)
        server.run()


class Server:
    def __init__(self, joined: Joined, stack: ExitStack):
        self.hub, self.config, self.index = joined.hub, joined.config, joined.index
        self.roster = joined.roster
        self.hub.checksum = crc32
        shards = ShardSet.open(joined.shards, (self.index,))
        self.spec = ModelSpec.of(self.config, shards.manifest)
        self.backend = backends.build(self.config, self.spec, self.index, time.perf_counter)
        self.partition = Partition(
            self.config,
            shards.partition(self.index),
            models.build(self.spec),
            self.backend,
            num_threads(self.config),
            _kept(self.config, shards, self.index, self.spec),
            shards.manifest.edge_types,
        )
        self._events: SimpleQueue[tuple[Callable[..., list[Action]], tuple[Any, ...]]] = SimpleQueue()
        self._short: deque[Compute[Any]] = deque()  # to be done on this thread
        self._took: dict[Hashable, float] = {}  # seconds of the last computation of each sort
        self._pool = stack.enter_context(ThreadPoolExecutor(num_threads(self.config), "graph"))
        self._launcher = (
            self._launch(joined.run_dir / "logs", stack) if isinstance(self.backend, LambdaBackend) else None
        )
        rows_file = joined.run_dir / ROWS_FOLDER / f"{folder_of(self.index)}.npy"
        self._rows_written = stack.enter_context(RowsWritten(rows_file, len(self.partition.shard.vertices)))
        self.hub.worker_bytes = largest_result(self.partition.shard, self.spec)
        self._running_invocations = 0
        ring = self.hub.ring
        self._workers_keys = (  # they travel in invocations, and nowhere else
            None
            if ring is None
            else ring.for_workers(self.hub.me, self.config.servers.param_servers, public_key).dump()
        )
        self._trace = stack.enter_context(_trace_file(joined)) if self.config.run.trace else None
        if self._trace is not None:
            self.partition.trace = []

    def run(self) -> None:
        for peer, endpoint in enumerate(self.roster.graph_servers):
            if peer != self.index:
                self.hub.dial(graph_server(peer), endpoint)
        for index, endpoint in enumerate(self.roster.param_servers):
            self.hub.dial(param_server(index), endpoint)
            self.hub.send(param_server(index), Hello("graph_server", self.index, self.config.digest, self.hub.endpoint))
        self._do(self.partition.greet(time.monotonic()))
        presence = Presence(self.hub, self.config, self._usage)
        ticked = time.monotonic()
        while True:
            for sender, message in presence.poll(0 if self._has_work else TICK_S):
                match message:
                    case Stop():
                        return self._leave()
                    case Refused(reason=reason):
                        raise ConfigError(f"refused by {sender}: {reason}")
                    case Hello():
                        self.hub.send(sender, answer(self.hub.me, message, self.config))
                    case Heartbeat() | Welcome():
                        pass
                    case _:
                        with self.hub.forgiving(sender):
                            self._do(self.partition.handle(sender, message, time.monotonic()))
            if time.monotonic() - ticked >= TICK_S:
                ticked = time.monotonic()
                self._do(self.partition.tick(ticked))
                self._flush_trace()
            self._take_events()

    # --- actions ------------------------------------------------------------------------------------------------------

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(to=to, message=message):
                    self.hub.deliver(to, message)
                case Compute():
                    self._compute(action)
                case Launch(worker=name, credits=credits):
                    self._invoke(name, credits)
                case Keep(start=start, rows=rows):
                    self._rows_written.write(start, rows)

    def _compute(self, action: Compute[Any]) -> None:
        if self._took.get(action.like, SHORT_S) < SHORT_S:
            self._short.append(action)
            return

        def hand_over(future: Future[Any]) -> None:
            self._events.put((self._finished, (action, future)))
            self.hub.wake()

        self._pool.submit(_timed, action.work).add_done_callback(hand_over)

    def _finished(self, action: Compute[Any], future: Future[Any]) -> list[Action]:
        return self._computed(action, *future.result())

    def _computed(self, action: Compute[Any], value: Any, seconds: float) -> list[Action]:
        if action.like is not None:
            self._took[action.like] = seconds
        return self.partition.computed(action, value, time.monotonic(), seconds)

    def _take_events(self) -> None:
        """What pool threads and the launcher have handed over, and short computations, in turn and with all that
        follows. For ``TURN_S``: threads may hand over more than is taken in, and messages would wait."""
        until = time.monotonic() + TURN_S
        while self._has_work:
            if not self._events.empty():
                then, arguments = self._events.get_nowait()
                self._do(then(*arguments))
            if self._short:
                action = self._short.popleft()
                self._do(self._computed(action, *_timed(action.work)))
            if time.monotonic() > until:
                return

    @property
    def _has_work(self) -> bool:
        return bool(self._short) or not self._events.empty()

    # --- Lambdas ------------------------------------------------------------------------------------------------------

    def _launch(self, log_dir: Path, stack: ExitStack) -> Launcher:
        def on_done(invocation: Ended) -> None:
            self._events.put((self._ended, (invocation,)))
            self.hub.wake()

        assert isinstance(self.backend, LambdaBackend)
        most, folder = self.backend.max_environments, log_dir / f"lambda-{self.index}"
        launcher = launchers.build(self.config, self.index, most, on_done, folder)
        stack.callback(launcher.close)
        self.backend.limit(launcher.limit)
        return launcher

    def _invoke(self, name: str, credits: int) -> None:
        assert self._launcher is not None
        lambdas = self.config.lambdas
        payload = {
            "worker": name,
            "graph_server": self._as_called_back(self.hub.endpoint),
            "index": self.index,
            "param_servers": [self._as_called_back(endpoint) for endpoint in self.roster.param_servers],
            "run_id": self.hub.run_id.hex(),
            "config_digest": self.config.digest,
            "spec": dataclasses.asdict(self.spec),
            "idle_s": lambdas.idle_s,
            "margin_s": lambdas.margin_s,
            "prefetch": credits,
            "proxy": lambdas.proxy,
            "core": 1.0 if lambdas.place.billed else lambdas.core,
            "keep_bytes": (lambdas.memory_mb << 20) // 4 if lambdas.keep_constants else 0,
            "wait_s": self.config.servers.silence_s,
            "keys": self._workers_keys,
        }
        self._running_invocations += 1
        self._launcher.invoke(payload, name)

    def _as_called_back(self, endpoint: str) -> str:
        """The endpoint as a function can reach it: in a container, this machine has another name."""
        host = self.config.lambdas.callback_host
        return f"tcp://{host}:{endpoint.rpartition(':')[2]}" if host else endpoint

    def _ended(self, invocation: Ended) -> list[Action]:
        self._running_invocations -= 1
        assert isinstance(self.backend, LambdaBackend)
        return self.partition.perform(self.backend.ended(invocation, time.monotonic()))

    # --- coming and going ---------------------------------------------------------------------------------------------

    def _usage(self) -> Usage:
        workers = self.backend.num_workers if isinstance(self.backend, LambdaBackend) else 0
        return Usage(
            self.index, self.backend.in_flight, workers, json.dumps({**self.partition.usage, **self.hub.counts})
        )

    def _leave(self) -> None:
        """Lets workers go by themselves, so that what they cost is known; then says the last word: with "cut", how many
        invocations a service goes on with at a cost that it alone will know."""
        cut = 0
        if isinstance(self.backend, LambdaBackend) and self._launcher is not None:
            self.backend.stop()
            for name in self.backend.workers:
                self.hub.send(worker(name), Leave())
            deadline = time.monotonic() + LEAVE_S
            while self._running_invocations and time.monotonic() < deadline:
                self.hub.poll(0.02)
                self._take_events()
            cut = self._running_invocations if self._launcher.hangs_up else 0
            self._launcher.close()
            while not self._events.empty():
                self._take_events()
        self._flush_trace()
        usage = {**self.partition.usage, **self.hub.counts, **({"cut": cut} if cut else {})}
        self.hub.send(COORDINATOR, Stopped("graph_server", self.index, json.dumps(usage)))

    def _flush_trace(self) -> None:
        if self._trace is not None and self.partition.trace:
            self._trace.writelines(json.dumps(line) + "\n" for line in self.partition.trace)
            self._trace.flush()  # siafu watch reads along
            self.partition.trace.clear()


def largest_result(shard: Shard, spec: ModelSpec) -> int:
    """Bytes that no result of a worker has: 16 numbers for each vertex, edge, column of the widest layer and type would
    be many."""
    rows = len(shard.vertices) + len(shard.in_edges.indices)
    columns = max(spec.in_features, spec.num_classes, *spec.widths)
    return _LEAST_LIMIT + 64 * rows * columns * max(1, spec.num_edge_types)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the seconds that it took."""
    began = time.perf_counter()
    value = work()
    return value, time.perf_counter() - began


def _kept(config: Config, shards: ShardSet, index: int, spec: ModelSpec) -> Kept:
    """Where the partition's layer 0 is kept."""
    shape = shards.manifest.partitions[index].vertices, spec.in_features
    stored = BFLOAT16 if config.model.rows == "bfloat16" else np.dtype(spec.dtype)
    folder = shards.path / folder_of(index) if config.data.keep_aggregate else None
    name = models.build(spec).aggregate
    return Kept.of(folder, shards.manifest.digest, name, shape, stored)


def _trace_file(joined: Joined) -> Any:
    return open(joined.run_dir / f"trace-{joined.index}.jsonl", "a", encoding="utf-8")
