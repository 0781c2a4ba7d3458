"""The main loop of a graph server: ``Partition`` decides; sockets, a pool of threads and Lambdas carry it out.

One thread owns the partition's state. Pool threads and the launcher hand values over a queue and wake the loop.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import numpy as np

from graph_server import backends
from graph_server.backends import Action, Compute, Invoker, Keep, Launch
from graph_server.layer_zero import Kept
from graph_server.partition import Partition
from graph_server.rows_written import RowsWritten
from siafu import allotment, models
from siafu.address import COORDINATOR, Send, graph_server, param_server
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.kernels.checksum import crc32
from siafu.machine import num_threads
from siafu.member import Joined, Presence, answer
from siafu.models import ModelSpec
from siafu.ops import BFLOAT16
from siafu.shards import ROWS_FOLDER, Shard, ShardSet, folder_of
from siafu.table import loaded
from siafu.wire import Heartbeat, Hello, Refused, Stop, Stopped, Usage, Welcome

logger = logging.getLogger(__name__)

TICK_S = 0.1
#: A computation that took less the last time runs on the server's own thread: handing it to a pool thread and back
#: takes as long (docs/adr/0041).
SHORT_S = 2e-4
#: The longest time spent on events before messages are polled again.
TURN_S = 2e-3
#: The least size limit of a worker's message, in bytes.
_LEAST_LIMIT = 16 << 20


def serve(joined: Joined) -> None:
    """Runs until the coordinator sends Stop. Raises the errors of the partition, a computation or the launcher."""
    allotment.keep_freed_memory()
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
        self._short: deque[Compute[Any]] = deque()  # to run on this thread
        self._took: dict[Hashable, float] = {}  # ``Compute.like`` -> seconds of the last such computation
        self._pool = stack.enter_context(ThreadPoolExecutor(num_threads(self.config), "graph"))
        self._invoker = self._made_invoker(joined, stack)
        rows_file = joined.run_dir / ROWS_FOLDER / f"{folder_of(self.index)}.npy"
        self._rows_written = stack.enter_context(RowsWritten(rows_file, len(self.partition.shard.vertices)))
        self.hub.worker_bytes = largest_result(self.partition.shard, self.spec)
        self._trace = stack.enter_context(_trace_file(joined)) if self.config.run.trace else None
        if self._trace is not None:
            self.partition.trace = []

    def _made_invoker(self, joined: Joined, stack: ExitStack) -> Invoker | None:
        if not self.backend.invoker:
            return None
        invoker: Invoker = loaded(self.backend.invoker)(self.backend, joined, self.spec, self._hand_over, stack)
        return invoker

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
                    assert self._invoker is not None
                    self._invoker.invoke(name, credits)
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

    def _hand_over(self, then: Callable[[], list[Action]]) -> None:
        """Called from another thread: has the server's thread call ``then`` and carry out the actions it returns."""
        self._events.put((self._performed, (then,)))
        self.hub.wake()

    def _performed(self, then: Callable[[], list[Action]]) -> list[Action]:
        return self.partition.perform(then())

    def _take_events(self) -> None:
        """Handles events of pool threads and the launcher, and short computations, in turn. Stops after ``TURN_S``:
        events may come faster than they are handled, and messages would wait."""
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

    # --- coming and going ---------------------------------------------------------------------------------------------

    def _usage(self) -> Usage:
        usage = json.dumps({**self.partition.usage, **self.hub.counts})
        return Usage(self.index, self.backend.in_flight, self.backend.num_workers, usage)

    def _leave(self) -> None:
        """Lets workers leave, then sends ``Stopped`` with the final usage. Its "cut" is the number of invocations that
        still run at the service, which alone will know their cost."""
        cut = 0
        if self._invoker is not None:
            cut = self._invoker.leave(self._poll)
            while not self._events.empty():
                self._take_events()
        self._flush_trace()
        usage = {**self.partition.usage, **self.hub.counts, **({"cut": cut} if cut else {})}
        self.hub.send(COORDINATOR, Stopped("graph_server", self.index, json.dumps(usage)))

    def _poll(self) -> None:
        self.hub.poll(0.02)
        self._take_events()

    def _flush_trace(self) -> None:
        if self._trace is not None and self.partition.trace:
            self._trace.writelines(json.dumps(line) + "\n" for line in self.partition.trace)
            self._trace.flush()  # siafu watch reads along
            self.partition.trace.clear()


def largest_result(shard: Shard, spec: ModelSpec) -> int:
    """Returns a size in bytes that no worker's result exceeds: 64 bytes (16 float32) for each vertex or edge, column of
    the widest layer and edge type, which is generous."""
    rows = len(shard.vertices) + len(shard.in_edges.indices)
    columns = max(spec.in_features, spec.num_classes, *spec.widths)
    return _LEAST_LIMIT + 64 * rows * columns * max(1, spec.num_edge_types)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Runs ``work``; returns its value and the seconds that it took."""
    began = time.perf_counter()
    value = work()
    return value, time.perf_counter() - began


def _kept(config: Config, shards: ShardSet, index: int, spec: ModelSpec) -> Kept:
    """Returns the file in which the partition's layer 0 is kept."""
    shape = shards.manifest.partitions[index].vertices, spec.in_features
    stored = BFLOAT16 if config.model.rows == "bfloat16" else np.dtype(spec.dtype)
    folder = shards.path / folder_of(index) if config.data.keep_aggregate else None
    name = models.build(spec).aggregate
    return Kept.of(folder, shards.manifest.digest, name, shape, stored)


def _trace_file(joined: Joined) -> Any:
    return open(joined.run_dir / f"trace-{joined.index}.jsonl", "a", encoding="utf-8")
