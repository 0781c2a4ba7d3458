"""Runs tensor tasks on Lambda functions. Workers connect to the graph server, pull many tasks in one invocation, and
report each task when it is done.

This is the pure half, the controller. It combines the decisions of other modules: how many workers there should be
(``graph_server.lambdas.workforce``), which worker gets which task (``graph_server.lambdas.dispatch``), how rows are cut
into messages (``graph_server.lambdas.shipping``), what an error means (``graph_server.lambdas.invoke_errors``), and the
totals (``graph_server.lambdas.lambda_usage``). ``graph_server.lambdas.invoker`` invokes the function.

Rules:
1. While more tasks wait than workers are idle or starting, up to ``wanted`` workers are kept at work: an invocation is
   asked for whenever there are fewer. A silent or retired worker (rules 3 and 7 of the dispatcher) is not at work, nor
   is one that has said Bye or does not start (``graph_server.lambdas.workforce``). At most ``2 * wanted`` are ever
   alive. An expected task also counts as waiting, so that a worker's cold start overlaps with graph work.
2. A worker whose invocation ended, for whatever reason, is lost: its tasks go to others. Messages that it sent before
   are still handled, but it is given nothing.
3. A cohort of workers of which none came up ends the run (``graph_server.lambdas.workforce``): the function itself is
   broken, and invoking it again only costs money. An invocation that the service or this machine refused is no failed
   start: by its verdict nothing is invoked for a while, fewer are wanted, or the run ends.
4. A task that raises, or whose result has the wrong shape, is tried once more, on another worker if there is one. A
   second failure is the task's own fault and ends the run.
5. When fewer workers are wanted than are at work, the newest are retired: told to leave as soon as they have nothing
   to do.
6. ``graph_server.lambdas.out_of_memory`` decides what follows when an environment runs out of memory.
7. After ``stop`` no worker is given or sent anything, and only the bills of invocations still count.
8. A worker's message must carry the worker's own name, attempts that it was given, and possible times. Anything else
   is a RemoteProtocolError, which the server counts and drops (``Hub.forgiving``).
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from graph_server.backends import Action, Completed, Launch, TensorTask
from graph_server.lambdas.autotune import Autotuner
from graph_server.lambdas.dispatch import Assign, Dispatcher
from graph_server.lambdas.invoke_errors import Next, Verdict, judge
from graph_server.lambdas.lambda_usage import LambdaUsage
from graph_server.lambdas.out_of_memory import OUT_OF_MEMORY, MemoryShortage, Step
from graph_server.lambdas.prefetch import MOST_PREFETCH, PREFETCH, Prefetch
from graph_server.lambdas.shipping import Shipping, rows_of
from graph_server.lambdas.task_timeouts import Timing
from graph_server.lambdas.throttle import Uniform
from graph_server.lambdas.workforce import Workforce
from lambda_funcs.invocation import Invocation
from siafu.address import Address, Send
from siafu.address import worker as worker_address
from siafu.config import Config, Lambda
from siafu.errors import RemoteProtocolError, WorkerError
from siafu.machine import num_environments, num_threads
from siafu.metrics import LEAST_LOSS
from siafu.models import Model, ModelSpec
from siafu.models import build as build_model
from siafu.models.staged import among_all
from siafu.processor import MOST_KINDS, PROCESSOR, told
from siafu.sparse import EdgeRows, SparseRows, TaskRows
from siafu.tasks import TENSOR_KINDS, Lane, TaskId, is_of_edges
from siafu.tensor_task import PARTS, num_rows
from siafu.wire import Bye, Leave, Message, Pull, RowsMissing, TaskFailed, TaskResult, Tensors

logger = logging.getLogger(__name__)

#: The longest time to compute one task: an invocation may not last longer.
MOST_COMPUTE_S = 900.0


@dataclass
class _Open:
    """A task without a result."""

    task: TensorTask
    failed: set[int] = field(default_factory=set)  # attempts


class LambdaBackend:
    invoker = "graph_server.lambdas.invoker:Invoker"

    def __init__(
        self,
        config: Lambda,
        model: Model,
        count: int,
        name: str,
        tuner: Autotuner | None = None,
        rng: Uniform | None = None,
        *,
        intervals: int = 0,
    ):
        """``count``: the most environments wanted; ``tuner``: chooses the number, without one it is always ``count``;
        ``name``: prefix of its workers' names."""
        self.config, self.model, self.intervals = config, model, intervals
        # All mutable state:
        self._workforce = Workforce(name, count, tuner, rng or random.Random(0))  # noqa: S311 (of pauses)
        timing = Timing(config.task_timeout_s, config.relaunch_factor, config.relaunch_quantile)
        self._dispatcher = Dispatcher(timing, config.relaunches, affinity=config.keep_constants)
        self._shipping = Shipping(keep_bytes=config.keep_bytes, num_parts=PARTS if config.stream else 1)
        self._prefetch = Prefetch(config.memory_mb)
        if not config.prefetch:
            self._dispatcher.hold_at_most(PREFETCH, 0.0)
        self._shortage = MemoryShortage(config.memory_mb, intervals)
        self._lambda_usage = LambdaUsage(config.memory_mb)
        self._open: dict[TaskId, _Open] = {}
        self._expected: set[TaskId] = set()
        self._said: set[str] = set()  # verdicts that were logged as a warning: each only once
        self._processors: set[str] = set()  # kinds that workers have reported
        self._stopped = False

    @classmethod
    def make(cls, config: Config, spec: ModelSpec, index: int, clock: Callable[[], float]) -> LambdaBackend:
        lambdas = config.lambdas
        if not config.overlaps:
            lambdas = replace(lambdas, stream=False, prefetch=1)
        model, most = build_model(spec), num_environments(config)
        tuner = None
        if not lambdas.count:
            intervals = config.train.intervals
            per_interval = sum(step.kind in TENSOR_KINDS for step in model.program(Lane.TRAIN).steps)
            in_layers = config.train.mode != "async"
            tuner = Autotuner(intervals, most, num_threads(config), intervals * per_interval, in_layers=in_layers)
        rng = random.Random(f"{config.train.seed} {index}")  # noqa: S311 (of pauses)
        return cls(lambdas, model, most, f"w{index}", tuner, rng, intervals=config.train.intervals)

    # --- the contract of backends -----------------------------------------------------------------------------------

    def expect(self, task: TaskId, now: float) -> list[Action]:
        if self._stopped or task in self._open:
            return []
        self._expected.add(task)
        return self._launches(now, early=True)

    def submit(self, task: TensorTask, now: float) -> list[Action]:
        if self._stopped:
            return []
        self._expected.discard(task.id)
        self._open[task.id] = _Open(task)
        return self._send(self._dispatcher.submit(task.id, task.priority, now, num_rows(task.rows)), now)

    def watch(self, graph_tasks: int, now: float) -> None:
        self._prefetch.watch(now, self._dispatcher.num_queued, self._dispatcher.num_busy)
        tuner = self._workforce.tuner
        if tuner is not None:
            tuner.watch(now, graph_tasks, self._dispatcher.num_open, self._dispatcher.num_busy)

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        if self._stopped:
            return []
        self._check(sender, message)
        match message:
            case Pull() if message.worker in self._workforce:
                return self._pulled(message, now)
            case Pull():  # we lost its invocation, perhaps with a connection: it need not wait for its idle timeout
                return [Send(sender, Leave())]
            case TaskResult() if (fault := self._fault(message)) is not None:
                logger.warning("%s of worker %s: %s", message.id, message.worker, fault)
                return self._failed(message, fault, now)
            case TaskResult():
                return self._result(message, now)
            case TaskFailed():
                return self._failed(message, message.trace, now)
            case RowsMissing():
                return self._resend(sender, message)
            case Bye():
                self._workforce.left(message.worker, now)
                return self._send(self._dispatcher.lost(message.worker, now), now)
        return []

    def _check(self, sender: Address, message: Message) -> None:
        """Checks a message by rule 8. A loss may be NaN or infinity: training diverged, and ``run.on_nan`` decides."""
        if not isinstance(message, Pull | TaskResult | TaskFailed | RowsMissing | Bye):
            return
        what = f"{type(message).__name__} of {sender}"
        if sender != worker_address(message.worker):
            raise RemoteProtocolError(f"{what}: it names worker {message.worker[:40]!r}")
        if isinstance(message, Pull) and not 0 <= message.credits <= self._credits:
            raise RemoteProtocolError(f"{what}: {message.credits} credits, must be 0 to {self._credits}")
        if isinstance(message, TaskResult | TaskFailed | RowsMissing) and not self._dispatcher.gave(
            message.id, message.worker, message.attempt
        ):
            raise RemoteProtocolError(f"{what}: it was not given attempt {message.attempt} of {message.id}")
        if isinstance(message, TaskResult):
            if not 0 <= message.compute_s <= MOST_COMPUTE_S:
                raise RemoteProtocolError(f"{what}: compute_s = {message.compute_s}, must be 0 to {MOST_COMPUTE_S:g}")
            if message.loss < LEAST_LOSS:
                raise RemoteProtocolError(f"{what}: loss = {message.loss}, must not be negative")

    def tick(self, now: float) -> list[Action]:
        self._workforce.tick(now)
        if self._workforce.tune(now):
            logger.debug("%s: %d environments are wanted", self._workforce.name, self._workforce.best)
        actions = self._send(self._dispatcher.tick(now) + self._hold(now), now)
        return actions + self._retire(now)

    def _hold(self, now: float) -> list[Assign]:
        """Updates the number of tasks that a worker holds at once, and returns the tasks to give out because of it."""
        if self.config.prefetch or self._shortage.on:
            return []
        share = -(-self.intervals // self._workforce.best)
        number = self._prefetch.decide(share)
        return self._dispatcher.hold_at_most(number, now) if number != self._dispatcher.max_held else []

    def stop(self) -> None:
        self._stopped = True
        self._open.clear()
        self._expected.clear()
        self._dispatcher.forget()

    @property
    def in_flight(self) -> int:
        return self._dispatcher.num_open

    @property
    def usage(self) -> dict[str, float]:
        workforce = self._workforce
        return {
            **self._lambda_usage.totals,
            "bytes_out": self._shipping.nbytes,
            "relaunches": self._dispatcher.num_relaunches,
            "duplicates": self._dispatcher.num_duplicates,
            "environments_wanted": workforce.best,
            "environments_wanted_peak": max(workforce.peak, workforce.best),
            "autotuner_decisions": workforce.tuner.num_decisions if workforce.tuner is not None else 0,
            "split_in": self._shipping.split_in,
            **dict.fromkeys((f"{PROCESSOR}{kind}" for kind in sorted(self._processors)), 1),
        }

    # --- what else happens to Lambdas -------------------------------------------------------------------------------

    @property
    def num_workers(self) -> int:
        return len(self._workforce)

    @property
    def workers(self) -> list[str]:
        return self._workforce.names

    @property
    def max_environments(self) -> int:
        """The most environments that may be alive at a time."""
        return self._workforce.most_alive

    def limit(self, environments: int) -> None:
        """Limits the environments alive at a time to what the launcher can have."""
        self._workforce.limit(environments)

    def ended(self, invocation: Invocation, now: float) -> list[Action]:
        """Handles the end of an invocation: counts its bill, and gives its worker's tasks to others."""
        worker, verdict = invocation.request_id, judge(invocation.error, invocation.reason)
        state = self._workforce.ended(worker, now, ran=verdict.next is Next.GO_ON)
        self._shipping.gone(worker)
        had_pulled = state is None or state.pulled
        refused = verdict.next is not Next.GO_ON and not had_pulled and not invocation.billed_ms
        self._lambda_usage.ended(invocation, refused=refused)
        if self._stopped:
            return []
        if verdict.next is Next.FAIL:
            raise WorkerError(f"{self.config.function}: {verdict.why}")
        self._lambda_usage.lost(invocation.error is not None and not refused)
        if verdict.next is Next.GO_ON:
            if invocation.error is not None:
                logger.warning("lambda %s: %s", worker, verdict.why)
            self._check_starts(invocation)
        else:
            self._pause(verdict, now if state is None else state.asked_at, now)
        if invocation.error != OUT_OF_MEMORY:
            return self._send(self._dispatcher.lost(worker, now), now)
        actions = self._ran_out(worker, is_new=state is not None and not state.retired, now=now)
        return actions + self._send(self._dispatcher.lost(worker, now, excused=True), now)

    def _ran_out(self, worker: str, *, is_new: bool, now: float) -> list[Action]:
        """Handles a worker's death from lack of memory. ``is_new``: the worker was not retired, in particular not by
        rule 1 of ``graph_server.lambdas.out_of_memory``."""
        attempts = {
            task: attempt for task, attempt in self._dispatcher.attempts_of(worker).items() if task in self._open
        }
        if not attempts or (self._shortage.on and not is_new):
            return []
        held = [self._open[task].task for task in attempts]
        nbytes = sum(rows.nbytes for task in held for part in rows_of(task, 1) for rows in part.values())
        num_parts, at_most = self._shipping.parts_of(held[0].id, attempts[held[0].id]), max(1, num_rows(held[0].rows))
        match self._shortage.ran_out([task.id for task in held], nbytes, num_parts, at_most=at_most):
            case Step.ALONE:
                logger.warning("%s: from now on workers hold one task at a time and keep no rows", self._workforce.name)
                self._shipping.keep_bytes = 0
                self._dispatcher.restrain(1)
                return [action for name in self._workforce.names for action in self._retired(name, now) or []]
            case Step.SPLIT:
                parts = self._shortage.num_parts
                logger.warning(
                    "%s: %d MB are too little for %s: tasks are split into %d parts; gradients may have other last "
                    "bits than with more memory",
                    self._workforce.name,
                    self.config.memory_mb,
                    held[0].id,
                    parts,
                )
                self._shipping.split_in = parts
        return []

    def _check_starts(self, invocation: Invocation) -> None:
        """Raises WorkerError by rule 3 if a whole cohort failed to start."""
        if failed := self._workforce.hopeless():
            raise WorkerError(
                f"{failed} invocations of {self.config.handler} in a row ended before they took a task: "
                f"{_outcome(invocation)}"
            )

    def _pause(self, verdict: Verdict, asked_at: float, now: float) -> None:
        """Pauses invocations after a refusal, by rule 3. Raises: WorkerError once all were refused for
        ``lambda.refused_s``."""
        pause_s = self._workforce.refused(asked_at, now, shrink=verdict.next is Next.SHRINK)
        if pause_s is not None:
            level = logging.DEBUG if verdict.why in self._said else logging.WARNING
            logger.log(level, "%s; for %.1f s no more are invoked", verdict.why, pause_s)
            self._said.add(verdict.why)
        in_vain_s = self._workforce.in_vain_for(now)
        if in_vain_s > self.config.refused_s:
            limit_s = self.config.refused_s
            raise WorkerError(
                f"{self.config.function}: every invocation refused for {in_vain_s:.0f} s, lambda.refused_s allows "
                f"{limit_s:g}: {verdict.why}"
            )

    # --- tasks ------------------------------------------------------------------------------------------------------

    def _pulled(self, message: Pull, now: float) -> list[Action]:
        if len(self._processors) < MOST_KINDS:
            self._processors.add(told(message.processor))
        if not self._workforce.pulled(message.worker):
            return []
        return self._send(self._dispatcher.pull(message.worker, message.credits, now), now)

    def _result(self, message: TaskResult, now: float) -> list[Action]:
        first, assigned = self._dispatcher.result(message.id, message.worker, message.attempt, now)
        actions = self._send(assigned, now)
        if first:
            made = _of_all(self._open[message.id].task, message)
            nbytes = self._shipping.done(message.id) + self._lambda_usage.nbytes(message)
            self._prefetch.answered(message.compute_s, nbytes)
            del self._open[message.id]
            self._shortage.done(message.id)
            self._lambda_usage.done(message)
            if self._workforce.tuner is not None:
                self._workforce.tuner.answered()
            actions.insert(0, Completed(made))
        return actions + self._dismiss(message.worker, now)

    def _fault(self, result: TaskResult) -> str | None:
        """Returns what is wrong with the rows of an open task's result; None if nothing is, or the task is not open."""
        if (opened := self._open.get(result.id)) is None:
            return None
        task = opened.task
        dtype, length = self.model.spec.dtype, num_rows(task.rows)
        if task.of_training:
            length = int(np.count_nonzero(np.asarray(task.rows["train"])))
        edges = next((rows.num_edges for rows in task.rows.values() if isinstance(rows, EdgeRows)), 0)
        expected = {
            slot: f"{dtype} {f'{edges} edges ' * is_of_edges(slot)}[{length}, {self.model.width(slot)}]"
            for slot in task.step.writes
        }
        found = {slot: _kind(rows) for slot, rows in result.rows.items()}
        return None if found == expected else f"the result is {found}, must be {expected}"

    def _failed(self, message: TaskFailed | TaskResult, why: str, now: float) -> list[Action]:
        """Handles a failed attempt by rule 4."""
        task_id = message.id
        if (opened := self._open.get(task_id)) is not None:
            self._lambda_usage.failed(message.attempt not in opened.failed)
            opened.failed.add(message.attempt)
            if len(opened.failed) > 1:
                raise WorkerError(f"{task_id} failed on {message.worker}:\n{why}")
        actions = self._send(self._dispatcher.failed(task_id, message.worker, message.attempt, now), now)
        return actions + self._dismiss(message.worker, now)

    def _send(self, assigned: list[Assign], now: float) -> list[Action]:
        actions: list[Action] = []
        for assign in assigned:
            actions += self._shipping.ship(self._open[assign.task].task, assign)
        return actions + self._launches(now)

    def _resend(self, sender: Address, message: RowsMissing) -> list[Action]:
        """Sends a part again, whole, to a worker that had to drop rows kept from earlier. If the task is done
        meanwhile, the worker would wait in vain, and is told to leave."""
        task = opened.task if (opened := self._open.get(message.id)) is not None else None
        again = self._shipping.again(task, message) if task is not None and message.worker in self._workforce else None
        self._lambda_usage.ignored(again is None)
        if again is not None:
            return [again]
        waits = self._dispatcher.attempts_of(message.worker).get(message.id) == message.attempt
        return [Send(sender, Leave())] if task is None and waits else []

    # --- workers ----------------------------------------------------------------------------------------------------

    def _launches(self, now: float, *, early: bool = False) -> list[Action]:
        """Returns the invocations to ask for by rule 1. ``early``: counts expected tasks too. If they always counted,
        workers invoked during a long wait would idle, leave, and be replaced again and again."""
        dispatcher, queued = self._dispatcher, self._dispatcher.num_queued
        demand = queued + len(self._expected) - dispatcher.num_idle - self._workforce.num_starting
        names = self._workforce.ask(demand if early else min(demand, queued), dispatcher.num_silent, now)
        self._lambda_usage.invoked(len(names))
        return [Launch(name, self._credits) for name in names]

    @property
    def _credits(self) -> int:
        """The number of tasks that a worker asks for when it starts."""
        return self.config.prefetch or MOST_PREFETCH

    def _retire(self, now: float) -> list[Action]:
        """Retires surplus workers by rule 5."""
        surplus = self._workforce.surplus(self._dispatcher.num_silent, now)
        actions: list[Action] = []
        for name in self._workforce.newest() if surplus else []:
            if surplus and (dismissed := self._retired(name, now)) is not None:
                surplus -= 1
                actions += dismissed
        return actions

    def _retired(self, name: str, now: float) -> list[Action] | None:
        """Retires a worker: it gets no new tasks, and leaves once it has none. None if it is silent, retired or unknown
        already."""
        if not self._dispatcher.retire(name):
            return None
        self._workforce.retire(name)
        return self._dismiss(name, now)

    def _dismiss(self, worker: str, now: float) -> list[Action]:
        if not self._workforce.is_retired(worker) or self._dispatcher.has_tasks(worker):
            return []
        return [Send(worker_address(worker), Leave()), *self._send(self._dispatcher.lost(worker, now), now)]


def _of_all(task: TensorTask, result: TaskResult) -> TaskResult:
    """Returns the result for all rows of the interval, if only those of training vertices were sent."""
    if not task.of_training:
        return result
    rows: Tensors = {**among_all(result.rows, np.asarray(task.rows["train"]))}
    return replace(result, rows=rows)


def _kind(rows: TaskRows) -> str:
    if isinstance(rows, EdgeRows):
        shared = "" if rows.index is None else "shared "  # a valid result has a value for each edge
        return f"{shared}{rows.dtype} {rows.num_edges} edges {list(rows.shape)}"
    return f"{'sparse ' if isinstance(rows, SparseRows) else ''}{rows.dtype} {list(rows.shape)}"


def _outcome(invocation: Invocation) -> str:
    """Returns one line on how an invocation ended."""
    if invocation.error is None:
        return "the handler returned without an error"
    try:
        message = str(json.loads(invocation.payload)["errorMessage"])
    except (ValueError, KeyError, TypeError):
        message = (invocation.log_tail.strip().splitlines() or ["its log is empty"])[-1]
    return f"{invocation.error}: {' '.join(message.split())[:500]}"
