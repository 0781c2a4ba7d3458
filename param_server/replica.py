"""The decisions of one parameter server, as a state machine: a message in, the messages to send out. Pure.

R1  A training fetch is answered with the version that stash rule S1 fixes for its (epoch, interval), without tensors
    if the sender holds it already. Once the interval is done, a late fetch (of a relaunched duplicate) stashes nothing:
    it gets the latest version, and its result will be ignored.
R2  An evaluation fetch of epoch e gets version e + 1. A late fetch, after that version was judged and dropped, gets the
    latest.
R3  The first gradient of (epoch, interval, layer) counts. A worker's gradient is acknowledged at once, so that it need
    not wait. A graph server's own is not: its later messages on the interval use the same link, and so come after it.
R4  IntervalDone frees the stash. EpochDone of every graph server tells which intervals to wait for (``epoch``, rules
    E1-E4).
R5  Every replica steps epochs by itself, in order, once each, to equal bits. Messages of a later epoch are kept.
    Version v is the weights after v steps.
R6  A version to be evaluated is pinned from its publication until it is judged. The latest version judged best is kept
    as best. The version judged with stop is final; afterwards no other stays pinned. A verdict on a version that is not
    published here yet waits for it.
R7  Parameter server 0 sends the coordinator its state at each version to be saved, when it publishes the version, so
    that none is held for saving. Replicas are equal, so one is enough. Each gives its state when asked.
R8  Duplicates of any message are counted, and otherwise ignored.
R9  A gradient with NaN or infinity ends the run. With ``run.on_nan`` = "skip" every replica leaves out the epoch's step
    instead, and the next version has the same weights. A replica that finds such values tells the coordinator. More
    than ``MAX_SKIPPED`` steps left out in a row end the run too.
R10 A resumed run restores the state of a replica before its first epoch. It does not wait again for evaluations judged
    before; the best one may be of a version that is still to come.
R11 A graph server and its workers send only messages on that graph server's intervals, a server reports only as itself,
    and only the coordinator judges. A gradient of an epoch that is not stepped needs a stash of its (epoch, interval):
    weights were fetched for it, which is at most ``staleness`` epochs ahead. So a worker that lies spoils at most its
    own server's share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from param_server import optimisers
from param_server.epoch import Epoch
from param_server.parameters import Parameters
from param_server.stash import Stash
from param_server.summation import Node
from siafu import schedules, wire
from siafu.address import COORDINATOR, Address, Send, graph_server, param_server
from siafu.config import Config
from siafu.errors import Diverged, RemoteProtocolError, StaleWeights, nan_advice
from siafu.evaluation import evaluated_version, is_checkpoint, is_evaluated, rounds
from siafu.models import Model
from siafu.sparse import Array, TaskRows
from siafu.tasks import Lane

#: The most steps in a row that ``run.on_nan`` = "skip" leaves out.
MAX_SKIPPED = 10


class Replica:
    """The state of parameter server ``index``. ``num_leaves``: the intervals of all graph servers. Only ``handle``
    changes the state."""

    def __init__(
        self,
        index: int,
        config: Config,
        model: Model,
        num_graph_servers: int,
        num_leaves: int,
        first: Mapping[str, Array] | None = None,
    ):
        """``first``: the initial weights; None: the model's own."""
        self.index, self.train, self.run = index, config.train, config.run
        self.num_graph_servers, self.num_leaves = num_graph_servers, num_leaves
        self.peers = [peer for peer in range(config.servers.param_servers) if peer != index]
        weights = model.init() if first is None else first
        self._parameters = Parameters(model, weights)
        self._handlers: dict[type, Callable[[Address, Any], list[Send]]] = {
            wire.FetchWeights: self._fetch,
            wire.Gradient: self._gradient,
            wire.IntervalDone: self._interval_done,
            wire.EpochDone: self._epoch_done,
            wire.PartialSums: self._partial_sums,
            wire.Judged: self._judged,
            wire.GetModel: self._get_model,
            wire.GetState: lambda sender, _: [Send(sender, self.state())],
            wire.ParamState: self._restore,
        }
        # Everything that changes:
        self._stash = Stash(0, weights)
        self._optimiser = optimisers.build(config.train, model.rest)
        self._epochs: dict[int, Epoch] = {}  # epochs not yet stepped, of which something has arrived
        self._final: int | None = None  # the version judged with stop
        self._judged_before = -1  # the last epoch judged before the run was resumed
        self._early: dict[int, wire.Judged] = {}  # version not yet published -> its verdict
        self._skipped = 0  # steps left out in a row
        self._duplicates: Counter[str] = Counter()

    def handle(self, sender: Address, message: wire.Message) -> list[Send]:
        """Handles a message, and returns the messages to send, in order.

        Raises: RemoteProtocolError for a message that its sender may not send, Diverged for gradients that are not
        finite (R9), StaleWeights for weights that are not held.
        """
        handler = self._handlers.get(type(message))
        if handler is None:
            raise RemoteProtocolError(f"{sender}: a parameter server takes no {type(message).__name__}")
        return handler(sender, message)

    # --- what tests and logs may look at ------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The latest version, which is the number of epochs stepped so far."""
        return self._stash.latest

    @property
    def versions_held(self) -> tuple[int, ...]:
        return self._stash.versions

    @property
    def stash_references(self) -> dict[int, int]:
        """The number of stashed keys (epoch, interval) by version."""
        return self._stash.references

    @property
    def stash_peak(self) -> int:
        return self._stash.peak

    @property
    def num_pending(self) -> int:
        """The number of layer-sized values held for epochs that are not stepped."""
        return sum(epoch.num_pending for epoch in self._epochs.values())

    @property
    def duplicates(self) -> dict[str, int]:
        """The number of duplicate messages ignored, by type."""
        return dict(self._duplicates)

    # --- going on -----------------------------------------------------------------------------------------------------

    def state(self) -> wire.ParamState:
        """Returns the state from which a replica can resume. Later steps do not change its arrays."""
        best = -1 if self._stash.best is None else self._stash.best
        kept = sorted({self.version, *self._stash.pinned} | ({best} if best >= 0 else set()))
        weights: dict[str, TaskRows] = {
            f"{version}/{name}": W for version in kept for name, W in self._stash.weights(version).items()
        }
        return wire.ParamState(self.index, self.version, best, -1, weights, dict(self._optimiser.state()))

    def _restore(self, sender: Address, state: wire.ParamState) -> list[Send]:
        where = f"state of version {state.version}"
        if sender != COORDINATOR or self.version or self._epochs:
            raise RemoteProtocolError(f"{where} from {sender}: only the coordinator's, and before the first epoch")
        versions = {
            version: self._parameters.check_all(weights, f"{where}, weights of version {version}")
            for version, weights in wire.by_version(state.weights).items()
        }
        if not versions or state.version != max(versions):
            raise RemoteProtocolError(f"{where}: there are weights of {sorted(versions)}")
        self._optimiser.restore({name: np.asarray(value) for name, value in state.optimiser.items()})
        self._stash = Stash(state.version, versions.pop(state.version))
        self._judged_before = state.judged
        for version, weights in versions.items():
            if version == state.best or self._is_due(version, state.judged):  # others have been judged meanwhile
                self._stash.adopt(version, weights)
        for version in self._stash.versions:
            if self._is_due(version, state.judged):
                self._stash.pin(version)
        if state.best >= 0:
            self._judged(COORDINATOR, wire.Judged(max(state.best - 1, 0), best=True, stop=False))
        return [Send(COORDINATOR, wire.Ready("param_server", self.index))]

    def _is_due(self, version: int, judged: int) -> bool:
        """Whether the version is still to be evaluated, if epoch ``judged`` was the last one evaluated."""
        epoch = version - 1  # the epoch after which the version would be evaluated
        return epoch > judged and is_evaluated(epoch, self.train) and evaluated_version(epoch, self.train) == version

    # --- weights ------------------------------------------------------------------------------------------------------

    def _fetch(self, sender: Address, fetch: wire.FetchWeights) -> list[Send]:
        where = f"fetch of {fetch.lane} epoch {fetch.epoch} interval {fetch.interval}"
        self._check_range(where, fetch.epoch, fetch.interval)
        self._check_owner(where, sender, fetch.interval)
        names = [name for layer in fetch.layers for name in self._parameters.of(layer, where)]
        version = self._evaluated_version(fetch) if fetch.lane == Lane.EVAL else self._train_version(fetch)
        weights = self._stash.weights(version)
        tensors: dict[str, TaskRows] = {} if version in fetch.have else {name: weights[name] for name in names}
        reply = wire.Weights(fetch.lane, fetch.epoch, fetch.interval, fetch.layers, fetch.attempt, version, tensors)
        return [Send(sender, reply)]

    def _train_version(self, fetch: wire.FetchWeights) -> int:
        if fetch.epoch > self.version + self.train.staleness:
            raise RemoteProtocolError(
                f"fetch of epoch {fetch.epoch} at version {self.version}: staleness is at most {self.train.staleness}"
            )
        if self._is_done(fetch.epoch, fetch.interval):
            self._duplicates["FetchWeights"] += 1
            return self.version
        return self._stash.acquire((fetch.epoch, fetch.interval))

    def _evaluated_version(self, fetch: wire.FetchWeights) -> int:
        version = evaluated_version(fetch.epoch, self.train)
        if version < self.version and version not in self.versions_held:
            self._duplicates["FetchWeights"] += 1
            return self.version
        if version > self.version:
            raise RemoteProtocolError(f"fetch of version {version} for evaluation: the newest is {self.version}")
        return version

    def _get_model(self, sender: Address, request: wire.GetModel) -> list[Send]:
        final = self.train.epochs if self._final is None else self._final
        versions = {"best": self._stash.best, "final": final, "latest": self.version}
        if request.which not in versions:
            raise RemoteProtocolError(f"model {request.which!r}: must be one of {', '.join(versions)}")
        version = versions[request.which]
        if version is None:
            raise StaleWeights("best weights: no evaluation was judged best yet")
        tensors: dict[str, TaskRows] = dict(self._stash.weights(version))
        return [Send(sender, wire.ModelWeights(request.which, version, tensors, self.stash_peak))]

    # --- gradients ----------------------------------------------------------------------------------------------------

    def _gradient(self, sender: Address, gradient: wire.Gradient) -> list[Send]:
        server = self._server_of(gradient.interval)
        where = (
            f"gradient of epoch {gradient.epoch} interval {gradient.interval} (graph server "
            f"{server}) layer {gradient.layer}"
        )
        self._check_range(where, gradient.epoch, gradient.interval)
        self._check_owner(where, sender, gradient.interval)
        values = self._parameters.check(gradient.layer, gradient.tensors, where)
        ack = wire.GradientAck(gradient.epoch, gradient.interval, gradient.layer, gradient.attempt)
        sends = [Send(sender, ack)] if sender.role == "worker" else []
        if not values:  # of a stage without parameters
            return sends
        epoch = self._open(gradient.epoch)
        if epoch is None or epoch.sums[gradient.layer].has(gradient.interval):
            self._duplicates["Gradient"] += 1
            return sends
        if not self._stash.holds((gradient.epoch, gradient.interval)) and gradient.interval not in epoch.done:
            raise RemoteProtocolError(f"{where} from {sender}: no worker has fetched weights for it")
        if bad := _not_finite(values):
            sends += self._refuse(gradient.epoch, f"{where}: {bad}")
            values = {name: np.full_like(value, np.nan) for name, value in values.items()}  # so is the sum, silently
        epoch.sums[gradient.layer].add(gradient.interval, values)
        return [*sends, *self._advance(epoch)]

    def _server_of(self, interval: int) -> int:
        """Returns the graph server that an interval belongs to."""
        return interval * self.num_graph_servers // self.num_leaves

    def _refuse(self, epoch: int, what: str) -> list[Send]:
        """Reports values that are not finite to the coordinator (R9). Raises: Diverged if ``run.on_nan`` = "stop"."""
        if self.run.on_nan == "stop":
            raise Diverged(f"{what} holds NaN or infinity; {nan_advice(epoch)}")
        return [Send(COORDINATOR, wire.Skipped(self.index, epoch, what))]

    def _interval_done(self, sender: Address, done: wire.IntervalDone) -> list[Send]:
        where = f"done from {sender}"
        self._check_range(where, done.epoch, done.interval)
        self._check_speaker(where, sender, graph_server(self._server_of(done.interval)))
        epoch = self._open(done.epoch)
        if epoch is None or done.interval in epoch.done:
            self._duplicates["IntervalDone"] += 1
            return []
        self._stash.release((done.epoch, done.interval))
        epoch.done.add(done.interval)
        return self._advance(epoch)

    def _epoch_done(self, sender: Address, report: wire.EpochDone) -> list[Send]:
        self._check_range(f"epoch done from {sender}", report.epoch)
        if not 0 <= report.server < self.num_graph_servers:
            raise RemoteProtocolError(f"graph server {report.server}: there are {self.num_graph_servers}")
        self._check_speaker("epoch done", sender, graph_server(report.server))
        if report.intervals < 0:
            raise RemoteProtocolError(f"{sender}: {report.intervals} intervals")
        epoch = self._open(report.epoch)
        if epoch is None or report.server in epoch.reports:
            self._duplicates["EpochDone"] += 1
            return []
        epoch.reports[report.server] = report
        return self._advance(epoch)

    def _partial_sums(self, sender: Address, sums: wire.PartialSums) -> list[Send]:
        where = f"sums of epoch {sums.epoch} layer {sums.layer} from parameter server {sums.server}"
        self._check_range(where, sums.epoch)
        if sums.server not in self.peers:
            raise RemoteProtocolError(f"{where}: peers are {self.peers}")
        self._check_speaker(where, sender, param_server(sums.server))
        epoch = self._open(sums.epoch)
        if epoch is None or (sums.server, sums.layer) in epoch.peer_sums:
            self._duplicates["PartialSums"] += 1
            return []
        values: dict[str, dict[str, TaskRows]] = {node: {} for node in sums.nodes}
        for key, value in sums.tensors.items():
            node, _, name = key.partition("/")
            if node not in values:
                raise RemoteProtocolError(f"{where}: {key} is not of a node of the message")
            values[node][name] = value
        self._parameters.of(sums.layer, where)
        epoch.peer_sums[sums.server, sums.layer] = {
            _node(node, where): self._parameters.check(sums.layer, tensors, f"{where}, node {node}")
            for node, tensors in values.items()
        }
        return self._advance(epoch)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _advance(self, epoch: Epoch) -> list[Send]:
        """Shares the epoch's sums once they are complete, then steps every epoch whose turn it is (R5)."""
        sends = []
        if epoch.shareable and not epoch.shared:
            epoch.shared = True
            sends = [Send(param_server(peer), sums) for peer in self.peers for sums in self._share(epoch)]
        while (turn := self._epochs.get(self.version)) is not None and turn.complete:
            sends += self._step(turn)
        return sends

    def _share(self, epoch: Epoch) -> list[wire.PartialSums]:
        messages: list[wire.PartialSums] = []
        for layer, total in epoch.sums.items():
            nodes = {f"{level}:{index}": value for (level, index), value in total.nodes().items()}
            tensors: dict[str, TaskRows] = {
                f"{n}/{name}": array for n, value in nodes.items() for name, array in value.items()
            }
            last = len(messages) == len(epoch.sums) - 1
            messages.append(wire.PartialSums(self.index, epoch.epoch, layer, tuple(nodes), tensors, last))
        return messages

    def _step(self, epoch: Epoch) -> list[Send]:
        """WU: takes one optimiser step with the gradient of the whole graph, and announces the new version to all graph
        servers."""
        lr = schedules.learning_rate(epoch.epoch, self.train)
        gradient, weights = epoch.gradient(), self._stash.weights(self.version)
        sends: list[Send] = []
        if bad := _not_finite(gradient):
            sends = self._refuse(epoch.epoch, f"sum of all gradients of epoch {epoch.epoch}: {bad}")
            self._skipped += 1
            if self._skipped > MAX_SKIPPED:
                raise Diverged(f"{MAX_SKIPPED + 1} steps in a row had NaN or infinity, of epoch {epoch.epoch} in {bad}")
        else:
            self._skipped = 0
            if self.train.clip_norm:
                gradient = optimisers.clipped(gradient, self.train.clip_norm)
            weights = self._optimiser.step(weights, gradient, lr)
        self._stash.publish(epoch.epoch + 1, weights)
        del self._epochs[epoch.epoch]
        if is_evaluated(epoch.epoch, self.train) and self._final is None and epoch.epoch > self._judged_before:
            self._stash.pin(self.version)
        if (verdict := self._early.pop(self.version, None)) is not None:
            self._judge(verdict)
        held = Counter(self._server_of(interval) for _, interval in self._stash.keys)
        sends += [
            Send(graph_server(server), wire.WeightsReady(self.index, self.version, held.total() - held[server]))
            for server in range(self.num_graph_servers)
        ]
        if self.index == 0 and is_checkpoint(epoch.epoch, self.run):
            sends.append(Send(COORDINATOR, self.state()))
        return sends

    # --- verdicts -----------------------------------------------------------------------------------------------------

    def _judged(self, sender: Address, verdict: wire.Judged) -> list[Send]:
        self._check_range(f"verdict of {sender}", verdict.epoch)
        self._check_speaker("verdict", sender, COORDINATOR)
        version = evaluated_version(verdict.epoch, self.train)
        if version > self.version:
            self._early[version] = verdict
        else:
            self._judge(verdict)
        return []

    def _judge(self, verdict: wire.Judged) -> None:
        version = evaluated_version(verdict.epoch, self.train)
        if verdict.best and (self._stash.best is None or version > self._stash.best):
            self._stash.keep_best(version)
        if verdict.stop and self._final is None:
            self._stash.pin(version)
            self._final = version
        settled = self._stash.pinned if self._final is not None else (version,)
        for other in settled:
            if other != self._final:
                self._stash.unpin(other)

    # --- epochs -------------------------------------------------------------------------------------------------------

    def _open(self, epoch: int) -> Epoch | None:
        """Returns the epoch's record, new if need be; None if the epoch is stepped already."""
        if epoch < self.version:
            return None
        if epoch not in self._epochs:
            layers = self._parameters.layers
            self._epochs[epoch] = Epoch(epoch, layers, self.num_leaves, self.num_graph_servers, len(self.peers))
        return self._epochs[epoch]

    def _is_done(self, epoch: int, interval: int) -> bool:
        return epoch < self.version or (epoch in self._epochs and interval in self._epochs[epoch].done)

    def _check_range(self, where: str, epoch: int, interval: int = 0) -> None:
        num_epochs = rounds(self.train)
        if not (0 <= epoch < num_epochs and 0 <= interval < self.num_leaves):
            limits = f"epochs are 0 to {num_epochs - 1}, intervals 0 to {self.num_leaves - 1}"
            raise RemoteProtocolError(f"{where}: epoch {epoch}, interval {interval}: {limits}")

    def _check_owner(self, where: str, sender: Address, interval: int) -> None:
        """Raises RemoteProtocolError unless the sender is the graph server of the interval, or one of its workers."""
        owner = graph_server(self._server_of(interval))
        if sender.employer != owner:
            raise RemoteProtocolError(f"{where} from {sender}: interval {interval} is of graph server {owner.name}")

    @staticmethod
    def _check_speaker(where: str, sender: Address, speaker: Address) -> None:
        if sender != speaker:
            raise RemoteProtocolError(f"{where} from {sender}: only {speaker} may say so")


def _node(text: str, where: str) -> Node:
    level, colon, index = text.partition(":")
    if not (colon and level.isdecimal() and index.isdecimal()):
        raise RemoteProtocolError(f"{where}: {text!r} is not level:index")
    return int(level), int(index)


def _not_finite(values: Mapping[str, Array]) -> str:
    """Returns the name of the first array with NaN or infinity; "" if there is none."""
    return next((name for name, value in values.items() if not np.isfinite(value).all()), "")
