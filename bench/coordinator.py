"""A run as its coordinator sees it: who has joined, what each epoch gave, when to stop. Pure: the time is an argument.

Rules:
1. Servers say hello; once all have, everybody learns where everybody listens; once all are ready, training starts.
2. An epoch's loss is the sum of its intervals' shares in the order of their numbers, whoever reported first.
3. An evaluation is judged when every graph server has counted. ``siafu.stopping`` says which is the best; without
   validation vertices, it is the last.
4. Training stops after the last epoch, at the target accuracy, or when patience ends (``siafu.stopping``). The final
   weights are those of the epoch that the decision is about, however far the servers have got meanwhile.
5. It also stops at the evaluation after which the next one, a step of the same length later, would come beyond a limit
   (``bench.meter``). If the limit comes first, the run breaks off: the final weights are then the latest whole version.
   Where nobody is ready or answers, they are the best that came, or those that training began with (``fall_back``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.meter import LIMITS, Meter
from bench.reports import error_of, links, of_lambda, splits_of, total, totals_of
from siafu import __version__
from siafu.address import COORDINATOR, Address, Send, graph_server, param_server
from siafu.checkpoint import digest
from siafu.config import Config
from siafu.errors import GnnError, ProtocolError
from siafu.evaluation import evaluated_version, rounds
from siafu.member import answer
from siafu.metrics import METRICS
from siafu.sparse import Array
from siafu.stopping import Stopping
from siafu.wire import (
    EpochReport,
    EvalReport,
    Failed,
    GetModel,
    Heartbeat,
    Hello,
    Judged,
    Message,
    ModelWeights,
    Ready,
    Refused,
    Roster,
    Start,
    Stop,
    Stopped,
    Tensors,
    Usage,
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """An action: a line for metrics.jsonl."""

    values: dict[str, Any]


@dataclass(frozen=True)
class Save:
    """An action: keep these weights, those after ``epoch`` epochs, as a checkpoint."""

    epoch: int
    weights: Tensors


Action = Send | Record | Save


@dataclass
class Status:
    """What a progress line shows."""

    phase: str = "starting"
    epoch: int = 0
    loss: float = float("nan")
    evaluation: dict[str, dict[str, float]] = field(default_factory=dict)
    epoch_s: float = 0.0
    tasks_in_flight: int | None = 0  # None: nothing is cut into tasks
    workers: int = 0
    ghost_bytes: int = 0
    usd: float = 0.0
    budget_usd: float = 0.0


class Coordinator:
    def __init__(self, config: Config, target: str = "classes"):
        """``target``: what is learnt (``ModelSpec.target``)."""
        self.config, self.metric = config, METRICS[target]
        self.meter = Meter(config)
        self.members = [graph_server(p) for p in range(config.data.parts)] + [
            param_server(q) for q in range(config.servers.param_servers)
        ]
        # All mutable state:
        self.status = Status(budget_usd=config.run.budget_usd)
        self.addresses: dict[Address, str] = {}
        self.heard: dict[Address, float] = {}  # member -> when it last spoke
        self.moved_at = 0.0  # when anything last got done
        self.started_at = 0.0
        self.stopped_at = 0.0  # when the decision to stop fell
        self.stopped = ""  # why: "epochs", "target", "patience", "budget" or "time"
        self.losses: list[float] = []
        self.epoch_seconds: list[float] = []
        self.best: dict[str, Any] = {}  # the best evaluation's record
        self.final: dict[str, Any] = {}  # the last one's
        self.models: dict[tuple[str, int], ModelWeights] = {}  # (which, parameter server) -> weights
        self.usage: dict[int, dict[str, float]] = {}  # graph server -> totals of its backend
        self._ready: set[Address] = set()
        self._reports: dict[int, dict[int, EpochReport]] = {}
        self._counts: dict[int, dict[int, Array]] = {}
        self._stopping = Stopping(config.train.stop_on)
        self._last_epoch_at = 0.0
        self._live: dict[int, Usage] = {}
        self._num_tasks: dict[int, float] = {}  # graph server -> tensor tasks that it has done, by its last Usage
        self._left: set[Address] = set()  # members that have said their last word
        self._billed: set[int] = set()  # graph servers whose last word was what everything cost
        self._wanted: set[tuple[str, int]] = set()  # the models that were asked for at the stop
        self._evaluated_at = 0.0

    @property
    def complete(self) -> bool:
        """Whether the weights are here, or nobody is there to have any."""
        return self.stopped != "" and self._wanted.issubset(self.models)

    @property
    def at_limit(self) -> bool:
        """Whether the run was stopped by its budget or its time."""
        return self.stopped in LIMITS

    @property
    def everybody_left(self) -> bool:
        return self._left.issuperset(self.members)

    @property
    def usage_complete(self) -> bool:
        """Whether every graph server has said what its workers cost to the end: none that still ran was given up."""
        return len(self._billed) == self.config.data.parts

    def begin(self, now: float) -> None:
        """The run's roles are being started: from now on it takes time and money."""
        self.meter.begin(now)

    def tick(self, now: float) -> list[Action]:
        """Time passes: rule 5."""
        self.status.usd = self.meter.cost(now).usd
        if self.stopped or not (limit := self.meter.reached(now)):
            return []
        return self._stop(limit, now) + self._break_off()

    def fall_back(self, weights: Tensors) -> list[Action]:
        """Nobody has sent the final weights: the best are taken for them, if they have come, else these, of version 0."""
        self._wanted.clear()
        self.models = {key: model for key, model in self.models.items() if key[0] == "best"}
        best = self.models.get(("best", 0), ModelWeights("best", 0, weights, 0))
        return self._model(param_server(0), ModelWeights("final", best.version, best.tensors, 0))

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        """A member's message. Raises the error of a member that failed."""
        self.heard[sender] = now
        if not isinstance(message, Usage | Heartbeat):
            self.moved_at = now
        match message:
            case Hello():
                return self._hello(sender, message)
            case Ready():
                return self._is_ready(sender, now)
            case EpochReport():
                return self._epoch(message, now)
            case EvalReport():
                return self._evaluation(message, now)
            case Usage():
                self._take_usage(message, now)
            case ModelWeights(which="checkpoint"):
                return [Save(message.version, message.tensors)]
            case ModelWeights():
                return self._model(sender, message)
            case Stopped():
                self._left.add(sender)
                if sender.role == "graph_server":  # a parameter server has none, and may have the same index
                    self.usage[sender.index] = totals_of(message)
                    self.meter.last_word(sender.index, self.usage[sender.index], now)
                    if not self.usage[sender.index].get("cut", 0):
                        self._billed.add(sender.index)
            case Failed():
                self._left.add(sender)
                raise error_of(message)
        return []

    @property
    def patience_s(self) -> float:
        """How long a member may be silent. Before training, servers build what they aggregate with: one long computation
        on the thread that would say that they are alive. One that dies meanwhile is missed as a process."""
        servers = self.config.servers
        return servers.stall_s if self.status.phase in ("starting", "loading") else servers.silence_s

    def silent(self, now: float) -> Address | None:
        """A member that has said nothing for longer than that."""
        late = (m for m in self.members if m not in self._left and now - self.heard.get(m, now) > self.patience_s)
        return next(late, None)

    def missing(self) -> list[Address]:
        """Members that have not said hello yet."""
        return [member for member in self.members if member not in self.addresses]

    # --- the rules --------------------------------------------------------------------------------------------------

    def _hello(self, sender: Address, message: Hello) -> list[Action]:
        if sender not in self.members:
            return [Send(sender, Refused(f"{sender} is not part of this run"))]
        reply = answer(COORDINATOR, message, self.config)
        actions: list[Action] = [Send(sender, reply)]
        if isinstance(reply, Refused):
            return actions
        self.addresses[sender] = message.address
        if len(self.addresses) == len(self.members):
            self.status.phase = "loading"
            roster = Roster(
                tuple(self.addresses[m] for m in self.members if m.role == "graph_server"),
                tuple(self.addresses[m] for m in self.members if m.role == "param_server"),
            )
            actions += [Send(member, roster) for member in self.members]
        return actions

    def _is_ready(self, sender: Address, now: float) -> list[Action]:
        self._ready.add(sender)
        if len(self._ready) < len(self.members) or self.stopped:
            return []
        self.started_at = self._last_epoch_at = now
        self.status.phase = "training" if self.config.train.epochs else "evaluating"
        return [Record({"event": "start", "siafu": __version__}), *(Send(member, Start()) for member in self.members)]

    def _epoch(self, message: EpochReport, now: float) -> list[Action]:
        self.usage[message.server] = totals_of(message)
        self.meter.report(message.server, self.usage[message.server], now)
        reports = self._reports.setdefault(message.epoch, {})
        reports[message.server] = message
        if len(reports) < self.config.data.parts or self.stopped_at:
            return []
        del self._reports[message.epoch]
        ordered = [reports[p] for p in sorted(reports)]
        loss = float(sum(float(share) for report in ordered for share in report.loss))
        staleness = np.zeros(max(len(report.staleness) for report in ordered), np.int64)
        for report in ordered:
            staleness[: len(report.staleness)] += report.staleness
        self.losses.append(loss)
        self.epoch_seconds.append(now - self._last_epoch_at)
        self._last_epoch_at = now
        ghost_bytes = sum(report.ghost_bytes for report in ordered)
        self.status.epoch, self.status.loss = message.epoch + 1, loss
        self.status.epoch_s, self.status.ghost_bytes = self.epoch_seconds[-1], ghost_bytes
        if not np.isfinite(loss):
            raise GnnError(f"epoch {message.epoch}: the loss is {loss}; a smaller learning rate may help")
        record = {
            "event": "epoch", "epoch": message.epoch, "loss": loss, "time_s": now - self.started_at,
            "epoch_s": self.epoch_seconds[-1], "ghost_bytes": ghost_bytes, "staleness": staleness.tolist(),
            "usage": total(self.usage), "usd": self.meter.cost(now).usd,
        }  # fmt: skip
        return [Record(record)]

    def _evaluation(self, message: EvalReport, now: float) -> list[Action]:
        by_server = self._counts.setdefault(message.epoch, {})
        by_server[message.server] = message.counts
        if len(by_server) < self.config.data.parts or self.stopped_at:
            return []
        tallies = self._counts.pop(message.epoch)
        tally = self.metric.merge([tallies[server] for server in sorted(tallies)])
        result = self.metric.scores(tally)
        record = {"event": "evaluation", "epoch": message.epoch, "time_s": now - self.started_at, **result}
        self.status.evaluation, self.final = result, record
        val = result["val"]
        best = not self.metric.occurs(tally, "val") or self._stopping.judge(val["acc"], val["loss"])
        if best:
            self.best = record
        reason = self._reason(message.epoch, val["acc"], now)
        actions: list[Action] = [Record(record)]
        actions += [Send(member, Judged(message.epoch, best, reason != "")) for member in self.members]
        if reason:
            asked = [("final", q) for q in range(self.config.servers.param_servers)] + [("best", 0)]
            actions += self._stop(reason, now) + self._ask(asked)
        return actions

    def _reason(self, epoch: int, accuracy: float, now: float) -> str:
        """Why to stop after this evaluation; "" to go on."""
        train = self.config.train
        step_s = now - self._evaluated_at if self._evaluated_at else 0.0  # the first one also waited for cold starts
        self._evaluated_at = now
        if epoch == rounds(train) - 1:
            return "epochs"
        if train.target_acc > 0 and accuracy >= train.target_acc:
            return "target"
        if train.patience > 0 and self._stopping.waited >= train.patience:
            return "patience"
        return self.meter.reached(now, step_s)

    def _stop(self, reason: str, now: float) -> list[Action]:
        self.stopped, self.stopped_at = reason, now
        self.status.phase = "saving"
        return [Record({"event": "stop", "reason": reason, "usd": self.meter.cost(now).usd})] if self.at_limit else []

    def _break_off(self) -> list[Action]:
        """One parameter server is asked: of the others some may have stepped further."""
        if param_server(0) not in self._ready:
            return []
        return self._ask([("latest", 0)] + ([("best", 0)] if self.best else []))

    def _ask(self, models: list[tuple[str, int]]) -> list[Action]:
        """For the weights that the result needs."""
        self._wanted = {("final" if which == "latest" else which, server) for which, server in models}
        return [Send(param_server(server), GetModel(which)) for which, server in models]

    def _model(self, sender: Address, message: ModelWeights) -> list[Action]:
        """A model of the result. What a limit has cut off is also kept as a checkpoint."""
        which = "final" if message.which == "latest" else message.which
        self.models[which, sender.index] = message
        kept = self.at_limit and (which, sender.index) == ("final", 0)
        return [Save(message.version, message.tensors)] if kept else []

    def farewell(self, reason: str) -> list[Send]:
        """Parameter servers first: they would miss a graph server that has left before them."""
        leaving = sorted(self.addresses, key=lambda member: member.role != "param_server")
        return [Send(member, Stop(reason)) for member in leaving]

    def result(self) -> dict[str, Any]:
        """What ``siafu train --json`` prints, but for the run directory. Needs ``complete`` and a final model. Scores are
        None in a run that a limit has stopped before its first evaluation."""
        finals = [model for (which, _), model in sorted(self.models.items()) if which == "final"]
        digests = {digest(model.tensors) for model in finals}
        if len(digests) != 1:
            raise ProtocolError(f"parameter servers disagree on the final weights: {sorted(digests)}")
        usage = total(self.usage)
        later = self.epoch_seconds[1:] or self.epoch_seconds
        best, epochs = self.best, finals[0].version
        return {
            "test_acc": best["test"]["acc"] if best else None, "val_acc": best["val"]["acc"] if best else None,
            "val_loss": best["val"]["loss"] if best else None,
            "best_epoch": evaluated_version(best["epoch"], self.config.train) if best else None, "scores": splits_of(best), "final_scores": splits_of(self.final),
            "epochs": epochs, "stopped": self.stopped,
            "train_seconds": self.stopped_at - self.started_at if self.started_at else 0.0,
            "epoch_seconds_median": float(np.median(later)) if later else 0.0,
            "loss_history": self.losses[:epochs], "lambda": of_lambda(usage), "usage": usage,
            "usage_complete": self.usage_complete, "cost": self.meter.cost(max(self.heard.values(), default=0.0)).to_dict(),
            "ghost_bytes_per_epoch": self.status.ghost_bytes,
            "bytes_per_link": links(self.usage, self.config.data.parts, epochs),
            "stash_peak_versions": max(model.stash_peak for model in finals), "weights_digest": digests.pop(),
            "metric": self.metric.name,
        }  # fmt: skip

    def _take_usage(self, message: Usage, now: float) -> None:
        totals = totals_of(message)
        self.meter.report(message.server, totals, now, alive=message.workers)
        num_tasks = totals.get("tasks", 0)
        if num_tasks != self._num_tasks.get(message.server, 0):  # an epoch may take long, but it gets on
            self._num_tasks[message.server] = num_tasks
            self.moved_at = now
        self._live[message.server] = message
        self.status.tasks_in_flight = sum(usage.tasks_in_flight for usage in self._live.values())
        self.status.workers = sum(usage.workers for usage in self._live.values())
