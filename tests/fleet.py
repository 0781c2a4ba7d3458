"""A whole fleet on one thread: the real partitions, parameter servers, coordinator and tensor workers, a seeded postman.

Any message in transit may be delivered next, any running computation may finish next, whatever the order they were sent
or started in: stronger than ZeroMQ, which keeps the order of a link. Faults hit what Lambda may do to us: workers die,
hang, answer twice; their messages are lost; tasks time out and are relaunched. Time passes when the postman says so.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.coordinator import Coordinator, Record
from graph_server.backends import Action, Compute, Launch
from graph_server.backends.aws_lambda import LambdaBackend
from graph_server.backends.cpu import CpuBackend
from graph_server.partition import Partition
from param_server.replica import Replica
from siafu import models, wire
from siafu.address import COORDINATOR, Address, Send, graph_server, param_server, worker
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.tasks import Lane
from siafu.tensor_task import NextPart, TensorWorker, conversation


@dataclass(frozen=True)
class Faults:
    """Probabilities, per event."""

    kill: float = 0.0  # a worker dies when something is delivered to it
    hang: float = 0.0  # or never says a word again, until its invocation times out
    twice: float = 0.0  # a message to or from a worker is delivered twice
    lose: float = 0.0  # or not at all


@dataclass(frozen=True)
class Ended:
    request_id: str
    error: str | None
    billed_ms: int = 1
    log_tail: str = ""


@dataclass
class SimulatedWorker:
    """``lambda_funcs.worker.Worker`` without sockets: what it does next depends on what it was sent."""

    name: str
    home: Address
    tensor: TensorWorker
    prefetch: int
    alive: bool = True
    tasks: deque[wire.Task] = field(default_factory=deque)
    parts: dict[Any, wire.TaskPart] = field(default_factory=dict)
    current: wire.Task | None = None
    run: Generator[Any, Any, wire.TaskResult] | None = None
    request: Any = None

    def handle(self, message: Any) -> list[Send]:
        match message:
            case wire.Task():
                self.tasks.append(message)
            case wire.TaskPart():
                self.parts[message.id, message.attempt, message.part] = message
            case _ if self.request is not None and conversation(message) == conversation(self.request) is not None:
                return self._resume(message)
        return self._next()

    def _next(self) -> list[Send]:
        if isinstance(self.request, NextPart):
            assert self.current is not None
            part = self.parts.pop((self.current.id, self.current.attempt, self.request.part), None)
            return self._resume(part) if part is not None else []
        if self.run is not None or not self.tasks:
            return []
        self.current = self.tasks.popleft()
        self.run = self.tensor.perform(self.current)
        return self._resume(None)

    def _resume(self, reply: Any) -> list[Send]:
        assert self.run is not None
        assert self.current is not None
        try:
            self.request = self.run.send(reply)
        except StopIteration as stop:
            self.run = self.request = None
            return [Send(self.home, stop.value), *self._next()]
        if isinstance(self.request, NextPart):
            return self._next()
        return [Send(param_server(self.current.param_server), self.request)]


class Fleet:
    def __init__(self, config: Config, shards: ShardSet, seed: int, faults: Faults | None = None, num_threads: int = 2):
        self.config, self.faults = config, faults or Faults()
        self.rng = random.Random(seed)
        self.spec = ModelSpec.of(config, shards.manifest)
        model = models.build(self.spec)
        parts = config.data.parts
        self.coordinator = Coordinator(config, multilabel=shards.manifest.multilabel)
        self.partitions = [
            Partition(config, shards.partition(p), model, self._backend(p), num_threads) for p in range(parts)
        ]
        for partition in self.partitions:
            partition.trace = []
        self.replicas = [
            Replica(q, config, model, parts, parts * config.train.intervals)
            for q in range(config.servers.param_servers)
        ]
        self.workers: dict[str, SimulatedWorker] = {}
        self.now = 0.0
        self.transit: list[tuple[Address, Address, Any]] = []  # sender, receiver, message
        self.jobs: list[tuple[int, Compute]] = []
        self.records: list[dict[str, Any]] = []
        self.deliveries = 0
        self.injected = dict.fromkeys(("kill", "hang", "twice", "lose"), 0)
        self._doomed: list[str] = []  # hanging workers, whose invocations will time out

    def _backend(self, index: int) -> CpuBackend | LambdaBackend:
        if self.config.servers.backend == "cpu":
            return CpuBackend(self.spec, f"cpu{index}", lambda: 0.0)
        return LambdaBackend(self.config.lambdas, self.config.lambdas.count or 3, f"w{index}")

    # --- running ------------------------------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """Runs until the coordinator has the weights; raises AssertionError on a deadlock."""
        for member in self.coordinator.members:
            hello = wire.Hello(member.role, member.index, self.config.digest, str(member))
            self._post(member, [Send(COORDINATOR, hello)])
        idle = 0
        while not self.coordinator.complete:
            if self._step():
                idle = 0
                continue
            idle += 1
            assert idle < 200, f"deadlock: {[p.schedulers[Lane.TRAIN].slowest for p in self.partitions]}"
            self._pass_time(self.config.lambdas.task_timeout_s / 3)
        return self.coordinator.result()

    def _step(self) -> bool:
        """Lets one thing happen; False if nothing can but the passing of time."""
        if self.faults != Faults() and self.rng.random() < 0.01:
            self._pass_time(self.config.lambdas.task_timeout_s / 3)
        choices = len(self.transit) + len(self.jobs)
        if not choices:
            return False
        pick = self.rng.randrange(choices)
        if pick < len(self.transit):
            self.transit[pick], self.transit[-1] = self.transit[-1], self.transit[pick]
            self._deliver(*self.transit.pop())
        else:
            pick -= len(self.transit)
            self.jobs[pick], self.jobs[-1] = self.jobs[-1], self.jobs[pick]
            index, job = self.jobs.pop()
            self._do(index, self.partitions[index].computed(job, job.work(), self.now))
        return True

    def _pass_time(self, seconds: float) -> None:
        self.now += seconds
        for name in dict.fromkeys(self._doomed):
            if name in self.workers:
                self._end(name, "Sandbox.Timedout")
        self._doomed.clear()
        for index, partition in enumerate(self.partitions):
            self._do(index, partition.tick(self.now))

    def _deliver(self, sender: Address, to: Address, message: Any) -> None:
        self.deliveries += 1
        if to.role == "worker":
            self._to_worker(to, message)
        elif to.role == "graph_server":
            partition = self.partitions[to.index]
            actions = partition.greet() if isinstance(message, wire.Roster) else None
            if actions is None and not isinstance(message, wire.Welcome):
                actions = partition.handle(sender, message, self.now)
            self._do(to.index, actions or [])
        elif to.role == "param_server":
            if isinstance(message, wire.Roster):
                self._post(to, [Send(COORDINATOR, wire.Ready("param_server", to.index))])
            elif not isinstance(message, wire.Welcome | wire.Start):
                self._post(to, self.replicas[to.index].handle(sender, message))
        else:
            for action in self.coordinator.handle(sender, message, self.now):
                if isinstance(action, Record):
                    self.records.append(action.values)
                else:
                    self._post(to, [action])

    def _to_worker(self, to: Address, message: Any) -> None:
        state = self.workers.get(to.name)
        if state is None or not state.alive:
            return
        luck = self.rng.random()
        if luck < self.faults.kill:
            self.injected["kill"] += 1
            self._end(to.name, "Runtime.ExitError")
        elif luck < self.faults.kill + self.faults.hang:
            self.injected["hang"] += 1
            state.alive = False
            self._doomed.append(to.name)
        else:
            self._post(to, state.handle(message))

    def _end(self, name: str, error: str | None) -> None:
        """An invocation is over."""
        state = self.workers.pop(name)
        state.alive = False
        index = state.home.index
        backend = self.partitions[index].backend
        assert isinstance(backend, LambdaBackend)
        self._do(index, self.partitions[index].perform(backend.ended(Ended(name, error), self.now)))

    # --- actions ------------------------------------------------------------------------------------------------------

    def _do(self, index: int, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self._post(graph_server(index), [action])
                case Compute():
                    self.jobs.append((index, action))
                case Launch(worker=name):
                    tensor = TensorWorker(self.spec, name, lambda: 0.0)
                    self.workers[name] = SimulatedWorker(name, graph_server(index), tensor, self.config.lambdas.prefetch)
                    pull = wire.Pull(name, self.config.lambdas.prefetch)
                    self.transit.append((worker(name), graph_server(index), pull))

    def _post(self, sender: Address, sends: list[Send]) -> None:
        for send in sends:
            copies = 1
            # What a parameter server or worker says to the other is lost or doubled only with its worker (it retries
            # nothing and TCP loses nothing), but results may be lost, late and doubled.
            if "worker" in (sender.role, send.to.role) and not isinstance(send.message, wire.Pull):
                luck = self.rng.random()
                if luck < self.faults.lose:
                    self.injected["lose"] += 1
                    copies = 0
                    # Whoever waits for it in vain, or is thought to be at work, leaves in the end: idle, or past its wait.
                    self._doomed.append(sender.name if sender.role == "worker" else send.to.name)
                elif luck < self.faults.lose + self.faults.twice:
                    self.injected["twice"] += 1
                    copies = 2
            self.transit.extend([(sender, send.to, send.message)] * copies)

    # --- what tests ask -----------------------------------------------------------------------------------------------

    @property
    def trace(self) -> list[dict[str, Any]]:
        return [line for partition in self.partitions for line in partition.trace or []]

    def final_weights(self) -> dict[str, np.ndarray[Any, Any]]:
        return {name: np.asarray(value) for name, value in self.coordinator.models["final", 0].tensors.items()}

    def usage(self) -> dict[str, float]:
        return json.loads(json.dumps(self.partitions[0].backend.usage))  # type: ignore[no-any-return]
