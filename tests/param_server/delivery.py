"""A run as the parameter servers see it, delivered in a random order with duplicates;
and the same run computed plainly.

Intervals fetch, push their gradients, and say that they are done; graph servers report epochs; a coordinator judges. No
order is kept between any two messages, not even on one link. Nothing here knows of sums, stashes or steps.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from param_server import optimisers
from param_server.replica import Replica
from siafu import models, schedules, wire
from siafu.address import COORDINATOR, Address, Send, graph_server, param_server, worker
from siafu.config import Config, Data, Servers, Train
from siafu.evaluation import is_evaluated
from siafu.models import ModelSpec
from siafu.sparse import Array

MODEL = models.build(ModelSpec("gcn", in_features=5, num_classes=3, num_train=10, widths=(4,)))
LAYERS = range(MODEL.spec.num_layers)
JUDGED_BEST = {0, 2}  # epochs


def make_config(num_replicas: int = 1, graph_servers: int = 2, intervals: int = 3, **train: object) -> Config:
    usual = Train(mode="async", epochs=4, lr=0.1, intervals=intervals, weight_decay=0.01)
    settings = replace(usual, **train)  # type: ignore[arg-type]
    return Config(data=Data(parts=graph_servers), servers=Servers(param_servers=num_replicas), train=settings)


def make_replica(config: Config, index: int = 0) -> Replica:
    return Replica(index, config, MODEL, config.data.parts, config.data.parts * config.train.intervals)


def gradient_of(epoch: int, interval: int, layer: int, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Of many magnitudes, so that another order of additions gives other bits."""
    rng = np.random.default_rng([epoch, interval, layer])
    made = {}
    for name, W in weights.items():
        noise = rng.normal(size=W.shape) * 10.0 ** rng.integers(-3, 3, W.shape)
        made[name] = (noise + W).astype(W.dtype)
    return made


def layer_of(weights: Mapping[str, Array], layer: int) -> dict[str, Array]:
    return {name: W for name, W in weights.items() if MODEL.stage(name) == layer}


def in_order(config: Config, version_used: Mapping[tuple[int, int], int]) -> list[dict[str, Array]]:
    """The weights of every version, given which one each (epoch, interval) computed with: the plain computation."""
    train, num_leaves = config.train, config.data.parts * config.train.intervals
    versions, optimiser = [MODEL.init()], optimisers.build(train)
    for epoch in range(train.epochs):
        total = {}
        for layer in LAYERS:
            used = [layer_of(versions[version_used[epoch, leaf]], layer) for leaf in range(num_leaves)]
            total |= tree_sum([gradient_of(epoch, leaf, layer, W) for leaf, W in enumerate(used)])
        lr = schedules.learning_rate(epoch, train)
        versions.append(optimiser.step(versions[-1], total, lr))
    return versions


def tree_sum(values: list[dict[str, Array]]) -> dict[str, Array]:
    """Neighbours added level by level; the last of an odd number goes up alone."""
    while len(values) > 1:
        pairs = [{name: a[name] + b[name] for name in a} for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[2 * len(pairs) :]
    return values[0]


def same_bits(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


@dataclass
class Interval:
    """One interval's way through the epochs; ``replies`` and ``acks`` are of its current epoch."""

    number: int
    server: int
    epoch: int = 0
    running: bool = False
    param_server: int = 0
    replies: dict[int, wire.Weights] = field(default_factory=dict)
    acks: set[int] = field(default_factory=set)

    @property
    def address(self) -> Address:
        return worker(f"w{self.server}-{self.number}")


class Delivery:
    """``run`` delivers until nothing is in flight; what tests look at is below "Everything that changes"."""

    def __init__(self, config: Config, seed: int, duplicated: float = 0.3):
        self.config, self.rng, self.duplicated = config, random.Random(seed), duplicated
        per_server = config.train.intervals
        # Everything that changes:
        self.replicas = [make_replica(config, index) for index in range(config.servers.param_servers)]
        self.intervals = [Interval(i, i // per_server) for i in range(config.data.parts * per_server)]
        self.in_flight: list[tuple[Address, Send]] = []
        self.ready = [[0] * len(self.replicas) for _ in range(config.data.parts)]  # [graph server][replica] -> version
        self.done: dict[tuple[int, int], list[int]] = {}  # (epoch, graph server) -> parameter servers of its intervals
        self.evaluated: set[int] = set()
        self.judged: set[int] = set()
        self.version_used: dict[tuple[int, int], int] = {}
        self.replies: list[wire.Weights] = []
        self.peak_pending = 0

    def run(self) -> None:
        self._begin()
        while self.in_flight:
            chosen = self.rng.randrange(len(self.in_flight))
            self.in_flight[chosen], self.in_flight[-1] = self.in_flight[-1], self.in_flight[chosen]
            sender, send = self.in_flight.pop()
            self._deliver(sender, send)
            self._begin()
            self.peak_pending = max(self.peak_pending, *(replica.num_pending for replica in self.replicas))

    def _post(self, sender: Address, to: Address, message: wire.Message) -> None:
        copies = 2 if self.rng.random() < self.duplicated else 1
        self.in_flight += [(sender, Send(to, message))] * copies

    def _deliver(self, sender: Address, send: Send) -> None:
        to, message = send.to, send.message
        if to.role == "param_server":
            for answer in self.replicas[to.index].handle(sender, message):
                self._post(to, answer.to, answer.message)
        elif isinstance(message, wire.WeightsReady):
            self._weights_ready(to.index, message)
        elif isinstance(message, wire.Weights) and message.lane == "eval":
            self._judge(message)
        else:
            interval = self.intervals[int(to.name.partition("-")[2])]
            if message.epoch == interval.epoch:  # others are answers to duplicates
                {wire.Weights: self._weights, wire.GradientAck: self._ack}[type(message)](interval, message)

    def _begin(self) -> None:
        """Starts every interval that waits and may run: at most ``staleness`` epochs ahead of the slowest one."""
        slowest = min(interval.epoch for interval in self.intervals)
        for interval in self.intervals:
            needed = interval.epoch - self.config.train.staleness
            if interval.running or interval.epoch == self.config.train.epochs:
                continue
            if slowest >= needed and min(self.ready[interval.server]) >= needed:
                interval.running, interval.replies, interval.acks = True, {}, set()
                interval.param_server = self.rng.randrange(len(self.replicas))
                for layer in LAYERS:
                    fetch = wire.FetchWeights("train", interval.epoch, interval.number, (layer,), 0, ())
                    self._post(interval.address, param_server(interval.param_server), fetch)

    def _weights(self, interval: Interval, reply: wire.Weights) -> None:
        if interval.replies.setdefault(reply.layers[0], reply) is reply and len(interval.replies) == len(LAYERS):
            self.replies += interval.replies.values()
            (version,) = {answer.version for answer in interval.replies.values()}
            self.version_used[interval.epoch, interval.number] = version
            for layer, answer in interval.replies.items():
                values = gradient_of(interval.epoch, interval.number, layer, answer.tensors)  # type: ignore[arg-type]
                gradient = wire.Gradient(interval.epoch, interval.number, layer, 0, dict(values))
                self._post(interval.address, param_server(interval.param_server), gradient)

    def _ack(self, interval: Interval, ack: wire.GradientAck) -> None:
        if ack.layer in interval.acks:
            return
        interval.acks.add(ack.layer)
        if len(interval.acks) < len(LAYERS):
            return
        epoch, server = interval.epoch, interval.server
        mine = graph_server(server)
        self._post(mine, param_server(interval.param_server), wire.IntervalDone(epoch, interval.number))
        done = self.done.setdefault((epoch, server), [])
        done.append(interval.param_server)
        interval.running, interval.epoch = False, epoch + 1
        if len(done) == self.config.train.intervals:
            for q in range(len(self.replicas)):
                report = wire.EpochDone(server, epoch, done.count(q))
                self._post(mine, param_server(q), report)

    def _weights_ready(self, server: int, ready: wire.WeightsReady) -> None:
        versions, epoch = self.ready[server], ready.version - 1
        versions[ready.server] = max(versions[ready.server], ready.version)
        if is_evaluated(epoch, self.config.train) and epoch not in self.evaluated:
            self.evaluated.add(epoch)
            for layer in LAYERS:
                fetch = wire.FetchWeights("eval", epoch, 0, (layer,), 0, ())
                self._post(self.intervals[0].address, param_server(ready.server), fetch)

    def _judge(self, reply: wire.Weights) -> None:
        if reply.epoch in self.judged or reply.layers[0] != LAYERS[-1]:
            return
        self.judged.add(reply.epoch)
        assert reply.version == reply.epoch + 1
        self.replies.append(reply)
        for q in range(len(self.replicas)):
            verdict = wire.Judged(reply.epoch, best=reply.epoch in JUDGED_BEST, stop=False)
            self._post(COORDINATOR, param_server(q), verdict)
