"""The decisions of a run's coordinator: who has joined, each epoch's totals, when to stop. Pure: time is an argument.

Rules:
1. Servers say hello. Once all have, each learns all addresses; once all are ready, training starts.
2. An epoch's loss is the sum of its intervals' shares in the order of their numbers, whoever reported first.
3. An evaluation is judged when every graph server has counted. ``siafu.stopping`` says which is the best; without
   validation vertices, it is the last.
4. Training stops after the last epoch, at the target accuracy, or when patience ends (``siafu.stopping``). The final
   weights are those of the epoch that the decision is about, even if servers are ahead by then. The training state is
   kept as it was before the decision: a resumed run judges that evaluation again, by its new settings.
5. Training also stops at an evaluation if the next one, a step of the same length later, would pass a limit
   (``run_coordinator.meter``). If the limit comes first, the run breaks off: the final weights are then the latest
   complete version. If no parameter server is ready or answers, they are the best weights that arrived, or those that
   training began with (``fall_back``).
6. A run continues from a ``TrainingState``: the parameter servers get it before training starts. Earlier epochs and
   evaluations stay recorded, and earlier cost stays spent. A state counts once every epoch before it is reported: their
   losses are part of it.
7. A step that parameter servers skip (``run.on_nan``) is recorded and counted once, whichever server reports it.
8. A loss that is no number ends the run. The parameter server that got such a gradient knows more: its message is
   awaited for ``LAST_WORD_S`` at most, and no other message is handled meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from run_coordinator.actions import Action, Record, Save, Status
from run_coordinator.epoch_totals import Ledger
from run_coordinator.meter import LIMITS, Meter
from run_coordinator.reports import (
    arithmetic,
    check,
    error_of,
    lambda_cpu_share,
    lanes,
    links,
    of_lambda,
    outlasts,
    processors,
    total,
)
from run_coordinator.states import States, state_message
from run_coordinator.usage import Usages
from siafu import __version__, run_files
from siafu.address import COORDINATOR, Address, Send, graph_server, param_server
from siafu.config import Config
from siafu.errors import Diverged, ProtocolError, nan_advice
from siafu.evaluation import EvaluatedEpochs, by_split, evaluated_version, outcome, rounds
from siafu.member import answer
from siafu.metrics import METRICS
from siafu.model_file import digest
from siafu.run_files import Evaluation, Trained
from siafu.sparse import Array
from siafu.training_state import LedgerState, TrainingState
from siafu.wire import (
    EpochReport,
    EvalReport,
    Failed,
    GetModel,
    GetState,
    Heartbeat,
    Hello,
    Judged,
    Message,
    ModelWeights,
    ParamState,
    Ready,
    Refused,
    Roster,
    Skipped,
    Start,
    Stop,
    Stopped,
    Tensors,
    Usage,
)

#: How long a run that has come to its limit waits for the reports that make its state a checkpoint.
STATE_S = 2.0
#: And a run whose loss is no number for the word of the parameter server that has seen it.
LAST_WORD_S = 1.0


class Coordinator:
    def __init__(
        self,
        config: Config,
        target: str = "classes",
        before: TrainingState | None = None,
        spent: LedgerState | None = None,
    ):
        """``target``: the task (``ModelSpec.target``). ``before``: the state that the run continues from. ``spent``:
        the ledger of an attempt that failed before its first state."""
        self.config, self.metric, self.before = config, METRICS[target], before
        self.meter = Meter(config)
        self.members = [graph_server(p) for p in range(config.data.parts)] + [
            param_server(q) for q in range(config.servers.param_servers)
        ]
        self.ledger = Ledger(config.train.stop_on, spent if before is None else before.ledger)
        # All mutable state:
        self.status = Status(budget_usd=config.run.budget_usd)
        self.addresses: dict[Address, str] = {}
        self.heard: dict[Address, float] = {}  # member -> when it last spoke
        self.moved_at = 0.0  # when anything last got done
        self.started_at = 0.0
        self.went_on_at = 0.0  # when training began in this attempt
        self.stopped_at = 0.0  # when the decision to stop fell
        self.stopped = ""  # why: "epochs", "target", "patience", "budget" or "time"
        self.models: dict[tuple[str, int], ModelWeights] = {}  # (which, parameter server) -> weights
        self.usages = Usages(self.meter, self.ledger.spent)
        self.states = States(before)
        self._started = False
        self._ready: set[Address] = set()
        self._reports: dict[int, dict[int, EpochReport]] = {}
        self._counts: dict[int, dict[int, Array]] = {}
        self._last_epoch_at = 0.0
        self._left: set[Address] = set()  # members that have said their last word
        self._wanted: set[tuple[str, int]] = set()  # the models that were asked for at the stop
        self._evaluated_at = 0.0
        self._begun_at = 0.0
        self._saved_at = 0.0  # when a checkpoint was last asked for
        self._fed: set[Address] = set()  # parameter servers that were given the state to go on from
        self._state_wanted = False  # the run breaks off, and its state is to be kept
        self._diverged: tuple[float, str] | None = None  # rule 8: since when, and how
        if self.ledger.losses:
            self.status.epoch, self.status.loss = len(self.ledger.losses), self.ledger.losses[-1]
        if self.ledger.final:
            self.status.evaluation = by_split(self.ledger.final)

    @property
    def complete(self) -> bool:
        """Whether all requested weights have arrived and no state is awaited."""
        return self.stopped != "" and self._wanted.issubset(self.models) and not self._state_wanted

    @property
    def at_limit(self) -> bool:
        """Whether the budget or the time limit stopped the run."""
        return self.stopped in LIMITS

    @property
    def everybody_left(self) -> bool:
        return self._left.issuperset(self.members)

    @property
    def usage_complete(self) -> bool:
        """Whether every graph server has reported final usage, with no environment cut off while it ran."""
        return len(self.usages.billed) == self.config.data.parts

    def begin(self, now: float) -> None:
        """Notes that the roles are starting: time and cost count from here."""
        self._begun_at = now - self.ledger.role_seconds
        self.meter.begin(self._begun_at)
        self.usages.begin(now)
        self.status.phase = "starting"

    def tick(self, now: float) -> list[Action]:
        """Applies the clock: rules 5 and 8. Raises Diverged."""
        if self._diverged is not None and now - self._diverged[0] >= LAST_WORD_S:
            raise Diverged(self._diverged[1])
        self.status.usd = self.meter.cost(now).usd
        if self.stopped:  # with a member gone, the last reports may never come
            self._state_wanted = self._state_wanted and now - self.stopped_at < STATE_S
            return []
        if limit := self.meter.reached(now):
            return self._stop(limit, now) + self._break_off()
        every = self.config.run.checkpoint_seconds
        if every and self._started and now - self._saved_at >= every:
            self._saved_at = now
            return [Send(param_server(0), GetState())]
        return []

    def fall_back(self, weights: Tensors) -> list[Action]:
        """Takes the best weights for the missing final weights; without best weights, ``weights``: those of the
        start."""
        self._wanted.clear()
        self._state_wanted = False
        self.models = {key: model for key, model in self.models.items() if key[0] == "best"}
        first = 0 if self.before is None else self.before.version
        best = self.models.get(("best", 0), ModelWeights("best", first, weights, 0))
        return self._model(param_server(0), ModelWeights("final", best.version, best.tensors, 0))

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        """Takes in a member's message. Raises the error of a member that failed, and RemoteProtocolError for an
        impossible report."""
        check(sender, message)
        self.heard[sender] = now
        # A checkpoint is due whether or not anything gets done.
        if not isinstance(message, Usage | Heartbeat | ParamState):
            self.moved_at = now
        if self._diverged is not None and not isinstance(message, Usage | Stopped | Failed):
            return []
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
                if self.usages.live(message, now):  # an epoch may take long, but it gets on
                    self.moved_at = now
                self.usages.show(self.status)
            case Skipped():
                return self._skipped(message)
            case ParamState():
                self.states.take(message)
                return self._settle(now)
            case ModelWeights():
                return self._model(sender, message)
            case Stopped():
                self._left.add(sender)
                if sender.role == "graph_server":  # a parameter server has none, and may have the same index
                    self.usages.last_word(message, now)
            case Failed():
                if not outlasts(message):
                    self._left.add(sender)
                raise error_of(message)
        return []

    @property
    def patience_s(self) -> float:
        """The longest silence that a member may keep. Before training, servers build aggregates in one long
        computation, on the thread that sends heartbeats. A member that dies meanwhile is noticed by its process."""
        servers = self.config.servers
        return servers.stall_s if self.status.phase in ("starting", "loading") else servers.silence_s

    def quiet(self, now: float, seconds: float) -> list[Address]:
        """Members that have joined and then sent nothing for that long."""
        return [member for member in self.addresses if now - self.heard.get(member, now) > seconds]

    def silent(self, now: float) -> Address | None:
        """A member that has sent nothing for longer than its patience."""
        late = (m for m in self.members if m not in self._left and now - self.heard.get(m, now) > self.patience_s)
        return next(late, None)

    def missing(self) -> list[Address]:
        """Members that have not sent Hello yet."""
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
        if self.before is not None and sender.role == "param_server" and sender not in self._fed:
            self._fed.add(sender)
            return [Send(sender, state_message(self.before, sender.index))]  # it says Ready once more
        self._ready.add(sender)
        if len(self._ready) < len(self.members) or self.stopped:
            return []
        self._last_epoch_at = self._saved_at = self.went_on_at = now
        goes_on = self.before is not None or self.ledger.role_seconds > 0
        self.started_at = self._begun_at + self.ledger.role_seconds - self.ledger.seconds if goes_on else now
        self._started = True
        self.status.phase = "training" if self.config.train.epochs else "evaluating"
        first = len(self.ledger.losses)
        setup_s = self.started_at - self._begun_at  # what time_s leaves out of the time that roles ran
        begun: run_files.Began = {
            "event": "start",
            "siafu": __version__,
            "metric": self.metric.name,
            "setup_s": setup_s,
        }
        if self.before is not None:
            begun["epoch"] = first
        return [Record(begun), *(Send(member, Start(first, self.ledger.judged)) for member in self.members)]

    def _epoch(self, message: EpochReport, now: float) -> list[Action]:
        self.usages.epoch(message, now)
        self._reports.setdefault(message.epoch, {})[message.server] = message
        actions: list[Action] = []
        while len(self._reports.get(len(self.ledger.losses), ())) == self.config.data.parts:
            if self._diverged or (self.stopped_at and not self._state_wanted):
                break
            actions += self._whole_epoch(len(self.ledger.losses), now)
        return actions

    def _whole_epoch(self, epoch: int, now: float) -> list[Action]:
        """Records an epoch that every server has reported, with all epochs before it. A report may be lost while
        reports of later epochs arrive."""
        reports = self._reports.pop(epoch)
        ordered = [reports[p] for p in sorted(reports)]
        loss = float(sum(float(share) for report in ordered for share in report.loss))
        staleness = np.zeros(max(len(report.staleness) for report in ordered), np.int64)
        for report in ordered:
            staleness[: len(report.staleness)] += report.staleness
        self.ledger.losses.append(loss)
        self.ledger.epoch_seconds.append(now - self._last_epoch_at)
        self._last_epoch_at = now
        ghost_bytes = sum(report.ghost_bytes for report in ordered)
        self.status.epoch, self.status.loss = epoch + 1, loss
        self.status.epoch_s, self.status.ghost_bytes = self.ledger.epoch_seconds[-1], ghost_bytes
        usage = total(self.usages.totals)
        self.status.eval_ghost_bytes = int(usage.get("eval_ghost_bytes", 0)) // (epoch + 1)
        if not np.isfinite(loss) and self.config.run.on_nan == "stop" and not self.stopped:
            self._diverged = now, f"epoch {epoch + 1}: the loss is {loss}; {nan_advice(epoch)}"
            return []
        record: run_files.Epoch = {
            "event": "epoch",
            "epoch": epoch + 1,
            "loss": loss,
            "time_s": now - self.started_at,
            "epoch_s": self.ledger.epoch_seconds[-1],
            "ghost_bytes": ghost_bytes,
            "staleness": staleness.tolist(),
            "usage": usage,
            "usd": self.meter.cost(now).usd,
        }
        return [Record(record), *self._settle(now)]

    def _skipped(self, message: Skipped) -> list[Action]:
        if message.epoch in self.ledger.skipped:
            return []
        self.ledger.skipped[message.epoch] = message.where
        return [Record({"event": "skipped", "epoch": message.epoch + 1, "where": message.where})]

    def _evaluation(self, message: EvalReport, now: float) -> list[Action]:
        self._counts.setdefault(message.epoch, {})[message.server] = message.counts
        actions: list[Action] = []
        while len(self._counts.get(due := self._due(), ())) == self.config.data.parts and not self.stopped_at:
            actions += self._whole_evaluation(due, now)
        return actions

    def _due(self) -> int:
        """The epoch whose evaluation is judged next; -1: none."""
        due = EvaluatedEpochs(self.config.train).after(self.ledger.judged)
        return -1 if due is None else due

    def _whole_evaluation(self, epoch: int, now: float) -> list[Action]:
        """Judges an evaluation that every server has counted, after all evaluations before it."""
        tallies = self._counts.pop(epoch)
        tally = self.metric.merge([tallies[server] for server in sorted(tallies)])
        scores = self.metric.scores(tally)
        version = evaluated_version(epoch, self.config.train)
        record: Evaluation = {"event": "evaluation", "epoch": version, "time_s": now - self.started_at, **scores}
        verdicts_before = self.ledger.verdicts()
        self.status.evaluation, self.ledger.final = scores, record
        val = scores["val"]
        self.ledger.judged = epoch
        best = val is None or self.ledger.stopping.judge(val["acc"], val["loss"])
        if best:
            self.ledger.best = record
        reason = self._reason(epoch, val["acc"] if val else None, now)
        actions: list[Action] = [Record(record)]
        if reason and reason not in LIMITS and self.config.train.epochs:
            actions.append(Send(param_server(0), GetState()))  # before the verdict, as the ledger says it
            self._state_wanted = reason != "epochs"  # servers may be ahead: their reports are still to come
        actions += [Send(member, Judged(epoch, best, reason != "")) for member in self.members]
        if reason:
            if reason not in LIMITS:
                self.ledger.stop(verdicts_before)
            asked = [("final", q) for q in range(self.config.servers.param_servers)] + [("best", 0)]
            actions += [*self._stop(reason, now), *self._ask(asked), *(self._ask_to_keep() if self.at_limit else [])]
        return actions

    def _reason(self, epoch: int, accuracy: float | None, now: float) -> str:
        """The reason to stop after this evaluation; "" to go on."""
        train = self.config.train
        step_s = now - self._evaluated_at if self._evaluated_at else 0.0  # the first one also waited for cold starts
        self._evaluated_at = now
        if epoch == rounds(train) - 1:
            return "epochs"
        if train.target_acc > 0 and accuracy is not None and accuracy >= train.target_acc:
            return "target"
        if train.patience > 0 and self.ledger.stopping.waited >= train.patience:
            return "patience"
        return self.meter.reached(now, step_s)

    def _stop(self, reason: str, now: float) -> list[Action]:
        self.stopped, self.stopped_at = reason, now
        self.status.phase = "saving"
        return [Record({"event": "stop", "reason": reason, "usd": self.meter.cost(now).usd})] if self.at_limit else []

    def _break_off(self) -> list[Action]:
        """Asks one parameter server for the weights: others may be a step ahead. A run that resumed from before its
        best evaluation does not ask for the best weights until it has trained past that epoch."""
        if param_server(0) not in self._ready:
            return []
        best = self.ledger.best
        is_to_come = best is not None and self.before is not None and best["epoch"] > len(self.ledger.losses)
        asked = [("latest", 0)] if best is None or is_to_come else [("latest", 0), ("best", 0)]
        return [*self._ask(asked), *self._ask_to_keep()]

    def _ask_to_keep(self) -> list[Send]:
        """Asks for the state that a later run can continue from."""
        self._state_wanted = True
        return [Send(param_server(0), GetState())]

    def _ask(self, models: list[tuple[str, int]]) -> list[Action]:
        """Asks for the weights that the result needs."""
        self._wanted = {("final" if which == "latest" else which, server) for which, server in models}
        return [Send(param_server(server), GetModel(which)) for which, server in models]

    def _model(self, sender: Address, message: ModelWeights) -> list[Action]:
        """Takes in a model of the result."""
        which = "final" if message.which == "latest" else message.which
        self.models[which, sender.index] = message
        return []

    # --- going on ---------------------------------------------------------------------------------------------------

    def ask_for_state(self, asked: Iterable[Address]) -> list[Send]:
        """Asks the parameter servers that remain for their state after a failure: it may be newer than the last
        checkpoint."""
        self.states.given.clear()
        there = self._ready - self._left
        return [Send(member, GetState()) for member in asked if member.role == "param_server" and member in there]

    def spent(self, now: float) -> LedgerState:
        """Empty totals that keep the time and cost already spent."""
        known = self._dump(0, now)
        return Ledger(self.config.train.stop_on).dump(
            0, self.ledger.usage_of(known), known["seconds"], known["role_seconds"]
        )

    def gone_on(self, state: TrainingState, now: float) -> TrainingState:
        """The state with the time and cost spent since: failures and restarts count too. Evaluations after the state
        are judged again: in ``async`` the weights will differ."""
        now_known = self._dump(state.version, now)
        spent: LedgerState = {
            **state.ledger,
            "usage": now_known["usage"],
            "seconds": now_known["seconds"],
            "role_seconds": now_known["role_seconds"],
        }
        return replace(state, ledger=spent)

    def _settle(self, now: float) -> list[Action]:
        """Saves parameter servers' states whose epochs are all reported."""
        losses = self.ledger.losses
        if self.config.run.on_nan == "stop" and losses and not np.isfinite(losses[-1]):
            return []  # weights of such a loss are worth less than an older checkpoint
        states = self.states.settle(len(losses), lambda version: self._dump(version, now))
        if states:
            self._state_wanted = False
        return [Save(state) for state in states]

    def _dump(self, version: int, now: float) -> LedgerState:
        """The ledger up to ``version``, with time and cost until now."""
        seconds = now - self.started_at if self.started_at else self.ledger.seconds
        role_seconds = now - self._begun_at if self._begun_at else self.ledger.role_seconds
        return self.ledger.dump(version, self.usages.spent(now), seconds, role_seconds)

    def farewell(self, reason: str) -> list[Send]:
        """Tells members to stop, parameter servers first: they would report a graph server that left before them as
        lost."""
        leaving = sorted(self.addresses, key=lambda member: member.role != "param_server")
        return [Send(member, Stop(reason)) for member in leaving]

    def result(self) -> Trained:
        """The result of the run. Needs ``complete`` and a final model. Scores are None if a limit stopped the run
        before its first evaluation. They are None too if the best weights did not arrive: the weights at hand have
        other scores."""
        finals = [model for (which, _), model in sorted(self.models.items()) if which == "final"]
        digests = {digest(model.tensors) for model in finals}
        if len(digests) != 1:
            raise ProtocolError(f"parameter servers disagree on the final weights: {sorted(digests)}")
        usage, kinds = total(self.usages.totals), processors(self.usages.totals)
        later = self.ledger.epoch_seconds[1:] or self.ledger.epoch_seconds
        epochs, best = finals[0].version, self.ledger.best
        is_here = best is not None and self.models.get(("best", 0), finals[0]).version == best["epoch"]
        return {
            **outcome(best if is_here else None, self.ledger.final, self.config.train),
            "epochs": epochs,
            "stopped": self.stopped,
            "train_seconds": self.stopped_at - self.started_at if self.started_at else 0.0,
            "epoch_seconds_median": float(np.median(later)) if later else 0.0,
            "loss_history": self.ledger.losses[:epochs],
            "lambda": of_lambda(usage),
            "lambda_cpu_share": lambda_cpu_share(self.config),
            "usage": usage,
            "usage_complete": self.usage_complete,
            "cost": self.meter.cost(max(self.heard.values(), default=0.0)).to_dict(),
            "ghost_bytes_per_epoch": self.status.ghost_bytes,
            "lanes": lanes(usage),
            "bytes_per_link": links(self.usages.totals, self.config.data.parts, epochs),
            "resumed_from": None if self.before is None else self.before.version,
            "stash_peak_versions": max(model.stash_peak for model in finals),
            "weights_digest": digests.pop(),
            "metric": self.metric.name,
            "skipped_steps": len(self.ledger.skipped),
            "processors": kinds,
            "arithmetic": arithmetic(self.config, kinds),
        }
