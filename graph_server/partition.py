"""The decisions of one graph server, as a state machine: events go in, actions come out.

Messages, finished computations and the clock go in; messages to send, computations to run and Lambdas to launch come
out (``Action``). No socket, no thread: ``graph_server.server`` carries the actions out, and tests/fleet.py runs whole
fleets of these on one thread in any order of delivery.

From an interval's point of view (GCN, layer l): the scheduler says that a step may run. **GA** is a computation of the
pool. **AV** goes to the tensor backend with the slots it reads. **SC** puts the rows into our own published buffer and
sends each peer the rows that it gathers; their arrival is an event that may let other intervals gather. **WU** tells
the parameter server that the interval is through.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from graph_server.arrivals import Arrivals
from graph_server.backends import Action, Backend, Completed, Compute, Job, Keep, Priority, TensorTask, on_device
from graph_server.buffers import PublishedSlot
from graph_server.evaluation import Evaluation
from graph_server.exchange import bounds_of
from graph_server.ghosts import Ghosts, counts
from graph_server.interval_rows import IntervalRows, constants_of
from graph_server.lambdas.step_times import StepTimes, name_of
from graph_server.layer_zero import Kept, aggregates
from graph_server.ledger import Ledger
from graph_server.operators.pairs import Pairs
from graph_server.operators.table import OfLoss, OperatorTable
from graph_server.param_servers import ParamServers
from graph_server.pool import Pool
from graph_server.scheduler import Begin, Event, Opened, Published, Scheduler, StepDone
from siafu import kernels, peak_memory, processor
from siafu.address import COORDINATOR, Address, Send, graph_server, param_server
from siafu.config import Config
from siafu.errors import RemoteProtocolError
from siafu.evaluation import EvaluatedEpochs, rounds
from siafu.models import Model
from siafu.models.staged import FEATURES
from siafu.ops import BFLOAT16
from siafu.processor import PROCESSOR
from siafu.shards import EdgeTypes, Shard
from siafu.sparse import Array, Rows, SparseRows, TaskRows
from siafu.tasks import TENSOR_KINDS, Kind, Lane, Program, Step, TaskId
from siafu.wire import (
    ConstantRows,
    GhostMap,
    IntervalDone,
    Judged,
    Message,
    PublishedRows,
    Ready,
    Start,
    TaskResult,
    WeightsReady,
)

Work = Callable[[], Any]
_T = TypeVar("_T")


class Partition:
    def __init__(
        self,
        config: Config,
        shard: Shard,
        model: Model,
        backend: Backend,
        num_threads: int,
        kept: Kept | None = None,
        edge_types: EdgeTypes = "none",
    ):
        """``kept``: the file of layer 0's aggregate from run to run; ``edge_types``: the meaning of the shard's edge
        types."""
        self.config, self.shard, self.model, self.backend = config, shard, model, backend
        self.index, self.dtype = shard.index, np.dtype(config.model.dtype)
        self.num_threads = num_threads
        per_server = config.train.intervals
        self.bounds = bounds_of(len(shard.vertices), per_server)
        self.intervals = list(range(self.index * per_server, (self.index + 1) * per_server))
        self.programs = {lane: model.program(lane) for lane in Lane}
        self.evaluated = EvaluatedEpochs(config.train)
        self.lanes = tuple(Lane) if config.train.epochs else (Lane.EVAL,)
        self.split = np.asarray(shard.split[:, config.data.split])
        self.storage = "bfloat16" if config.model.rows == "bfloat16" else self.dtype.name
        self.stored = BFLOAT16 if self.storage == "bfloat16" else self.dtype
        self.kept = kept or Kept.of(None, "", "", shard.features.shape, self.stored)
        self.of_features = _gathers_of_features({lane: self.programs[lane] for lane in self.lanes})
        # All mutable state:
        self._operators = OperatorTable(
            config, model, shard, self.bounds, edge_types, self.programs, self.lanes, num_threads
        )
        self._aggregate: Rows | None = None  # layer 0's of an earlier run, until it is cut up
        if self.of_features and self._operators.one_view and not isinstance(shard.features, SparseRows):
            self._aggregate = self.kept.load()
        wants_features = bool(self.of_features) and self._aggregate is None
        self.ghosts = Ghosts(shard, self.intervals, self.bounds, self.split, wants_features=wants_features)
        self.ledger = Ledger(self.index, self.intervals, config.servers.param_servers)
        self.step_times = StepTimes()
        self.schedulers: dict[Lane, Scheduler] = {}  # from the moment the peers' maps are in
        self.published: dict[tuple[Lane, str], PublishedSlot] = {}
        self.rows = IntervalRows(self.intervals)
        self._sources: dict[bool, list[Array]] = {}  # by interval: the other intervals that it gathers from
        self.pool = Pool(num_threads)
        self._held: list[tuple[Address, PublishedRows]] = []  # rows that came while a gather read the older ones
        self.arrivals = Arrivals()
        self.param_servers = ParamServers(self.index, config.servers.param_servers, per_server)
        self._started = False
        self._first = 0  # epoch: beyond 0 in a run that goes on
        self._stopped = False
        self._judged = -1
        self.evaluation = Evaluation(shard, self.split, model.spec.target, self.intervals)
        self.now = 0.0
        self.trace: list[dict[str, Any]] | None = None  # filled if it is a list; whoever made it empties it

    # --- events -----------------------------------------------------------------------------------------------------

    def greet(self, now: float) -> list[Action]:
        """Returns the first actions once the peers are dialled: messages with our ghost maps."""
        self.now = now  # a server that is alone computes before any message comes
        alone = self.shard.num_partitions == 1  # else the last peer's map completes ours, maybe before we greet
        return self._do([*self.ghosts.greet(), *(self._map() if alone else [])])

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        """Handles a message. Raises: RemoteProtocolError if it does not fit the run."""
        self.now = now
        match message:
            case PublishedRows():
                return self._do(self._arrived(sender, message))
            case WeightsReady(server=server, version=version, load=load):
                self.param_servers.told(server, version, load)
                return self._do(self._open_epochs())
            case Judged():
                return self._do(self._judge(message))
            case GhostMap():
                self.ghosts.add_map(message)
                return self._do(self._map() if self.ghosts.mapped else [])
            case ConstantRows():
                self.ghosts.add_features(message)
                return self._do(self._ready() if self.ghosts.complete else [])
            case Start():
                return self._do(self._start(message))
        return self._do(self.backend.handle(sender, message, now))

    def computed(self, done: Compute[_T], value: _T, now: float, seconds: float = 0.0) -> list[Action]:
        """Handles the end of a computation, which took ``seconds`` and gave ``value``."""
        self.now = now
        self.pool.finished()
        if done.counted_as:
            self.step_times.worked(done.counted_as, seconds)
        return self._do([] if self._stopped else [*done.then(value), *self._take_held()])

    def tick(self, now: float) -> list[Action]:
        self.now = now
        return self._do([] if self._stopped else self.backend.tick(now))

    def perform(self, actions: list[Action]) -> list[Action]:
        """Carries out actions of the backend that come outside of the calls above. Returns those left for the shell."""
        return self._do(actions)

    @property
    def usage(self) -> dict[str, float]:
        """Totals so far, by name."""
        held = peak_memory.peak_bytes()
        return {
            **self.backend.usage,
            **self.step_times.totals,
            **({} if held is None else {peak_memory.NAME: held}),
            f"{PROCESSOR}{processor.kind(kernels.ISA)}": 1,
        }

    def _do(self, actions: list[Action]) -> list[Action]:
        """Carries out the partition's own actions; returns those that the shell must carry out. A computation is
        returned only when a thread is free for it."""
        outside: list[Action] = []
        todo = list(reversed(actions))
        while todo:
            action = todo.pop()
            if isinstance(action, Completed):
                todo.extend(reversed(self._tensor_done(action.result)))
            elif isinstance(action, Job):
                self.pool.add(action)
            else:
                outside.append(action)
        for compute, following in self.pool.begin():
            outside.append(compute)
            if following is not None:
                outside += self.backend.expect(following, self.now)
        self.backend.watch(len(self.pool), self.now)
        return outside

    # --- before the first epoch -------------------------------------------------------------------------------------

    def _map(self) -> list[Action]:
        """Makes the schedulers, once every peer has said which rows it will send."""
        crossing = {}
        for backward in (False, True):
            crossing[backward], self._sources[backward] = self.ghosts.crossing(backward=backward)
        train = self.config.train
        pipe = train.mode != "async"
        for lane in self.lanes:
            epochs = range(train.epochs) if lane is Lane.TRAIN else self.evaluated
            self.schedulers[lane] = Scheduler(
                self.programs[lane],
                lane,
                self.intervals,
                epochs,
                forward=crossing[False],
                backward=crossing[True],
                freshness=1.0 if pipe or lane is Lane.EVAL else train.freshness,
                warmup_epochs=train.warmup_epochs,
                max_ahead=max(train.ahead > 0, int(train.ahead * len(self.intervals))),
                in_step=not self.config.overlaps,
            )
        return [*self.ghosts.features_for_peers(), *(self._ready() if self.ghosts.complete else [])]

    def _make_buffers(self, lane: Lane) -> None:
        seen = self._operators.seen[lane]
        for slot, pc in self.programs[lane].publisher.items():
            step = self.programs[lane][pc]
            places = self.ghosts.map_reads(lane, step, self._operators.read_along(lane, step.operator), seen)
            ghosts = self.shard.ghosts_out if step.backward else self.shard.ghosts_in
            num_rows = len(seen.shard.vertices) + len(ghosts)
            operator = self._operators.made[lane, step.operator, False]  # those of the loss have the same rows
            self.published[lane, slot] = PublishedSlot(operator.store(step, num_rows), places, operator.scale(step))
            if lane is Lane.TRAIN:
                self.arrivals.due += len(places) - len(self.intervals)

    def _ready(self) -> list[Action]:
        """Queues the aggregation of layer 0, once all wanted features of ghosts are here."""
        operators, counts_of = self._operators, self.ghosts.counts

        def prepared() -> tuple[dict[Lane, list[dict[str, Rows]]], dict[Lane, OfLoss]]:
            found = {lane: operators.of_loss(lane, counts_of(lane)) for lane in self.lanes}
            of_loss = {lane: of for lane, of in found.items() if of is not None}
            seen = {**operators.seen, **{lane: of.seen for lane, of in of_loss.items()}}
            ghosts, features = self.ghosts.take_features(), self.shard.features
            made = aggregates(
                operators, self.of_features, seen, features, ghosts, self.kept, self.dtype, self._aggregate
            )
            split, programs = self.split, self.programs
            return constants_of(self.shard, split, seen, programs, made, self.of_features, self.storage), of_loss

        return [Job((-1,), lambda: prepared, self._prepared)]

    def _prepared(self, made: tuple[dict[Lane, list[dict[str, Rows]]], dict[Lane, OfLoss]]) -> list[Action]:
        """Takes the constant rows and the edges of the loss, and makes the buffers: the last preparation before the
        first epoch."""
        self.rows.constants, of_loss = made
        self._aggregate = None
        for lane, found in of_loss.items():
            self._operators.add(lane, found)
        seen = self._operators.seen
        self.rows.narrow = frozenset(lane for lane, view in seen.items() if view.rows is not None)
        for lane in self.lanes:
            self._make_buffers(lane)
            bounds, program = seen[lane].bounds, self.programs[lane]
            if lane in of_loss:
                self.rows.choose(lane, "feeds_loss", of_loss[lane].feeding, bounds, program)
            if not on_device(self.config):
                counted = np.asarray(seen[lane].take(counts(lane, self.split)))
                self.rows.choose(lane, "judged", counted, bounds, program)
        self.evaluation.judge(seen[Lane.EVAL])
        return [Send(COORDINATOR, Ready("graph_server", self.index))]

    # --- epochs -----------------------------------------------------------------------------------------------------

    def _start(self, message: Start) -> list[Action]:
        """Starts the run's first epoch, or resumes the run."""
        for lane, first in (Lane.TRAIN, message.epoch), (Lane.EVAL, message.judged + 1):
            if lane in self.schedulers and first:
                self.schedulers[lane].handle(Begin(first))
        self._started, self._first = True, message.epoch
        self._judged = max(self._judged, message.judged)
        self.param_servers.begin(message.epoch)
        self.arrivals.begin(message.epoch)
        return self._open_epochs()

    def _open_epochs(self) -> list[Action]:
        """Opens epochs by rule 2 of the scheduler.

        ``slowest`` is the number of optimiser steps that every parameter server has taken. A step needs the gradients
        of every interval of every server, so no interval is in an earlier epoch. Rows of an earlier epoch may still be
        on their way, on another link; the server waits for them, so that no row read is more than 1 + s epochs old.
        """
        if not self._started or self._stopped:
            return []
        if Lane.TRAIN not in self.lanes:
            return self._step(Lane.EVAL, Opened(0, 0))
        slowest = self.param_servers.slowest
        if self.arrivals.due:
            slowest = min(slowest, self.arrivals.epochs)
        due = self.evaluated.after(self._judged)
        due = self.config.train.epochs if due is None else due
        # Evaluation runs beside training, but at most 1 + s epochs behind it, so that few versions are kept for it.
        ahead = 1 + self.config.train.staleness if self.config.overlaps else 0
        actions = self._step(Lane.TRAIN, Opened(min(slowest + self.config.train.staleness, due + ahead), slowest))
        if slowest > due:
            actions += self._step(Lane.EVAL, Opened(due, due))
        return actions

    def _judge(self, message: Judged) -> list[Action]:
        self._judged = max(self._judged, message.epoch)
        if message.stop:
            self._stopped = True
            self.pool.stop()
            self.backend.stop()
            return []
        return self._open_epochs()

    def _step(self, lane: Lane, event: Event) -> list[Action]:
        return [action for task in self.schedulers[lane].handle(event) for action in self._run(task)]

    def _run(self, task: TaskId) -> list[Action]:
        """Starts a step of an interval."""
        step = self.programs[task.lane][task.pc]
        self._note("start", task)
        match step.kind:
            case Kind.GA | Kind.GA_B:
                return self._gather(task, step)
            case Kind.SC | Kind.SC_B:
                return self._scatter(task, step)
            case Kind.WU:
                return self._update(task)
        return self._apply(task, step)

    def _done(self, task: TaskId) -> list[Action]:
        """Ends a step: drops slots that no later step reads, and asks the scheduler for the next tasks."""
        program, write = self.programs[task.lane], self.config.run.write
        kept: list[Action] = []
        if task.lane is Lane.EVAL and write in program[task.pc].writes:
            start, _ = self._bounds(task)
            kept = [Keep(start, self.rows.written(task, write))]
        self.rows.drop_read(task, program)
        self._note("done", task)
        return [*kept, *self._step(task.lane, StepDone(task))]

    def _note(self, event: str, task: TaskId, **more: float) -> None:
        """Adds an event to the trace, if there is one. start: the step may run; begin: a thread has taken it; answered:
        a tensor task's result is in; done: the step has finished."""
        if self.trace is not None:
            step = self.programs[task.lane][task.pc]
            self.trace.append(
                {
                    "time_s": self.now,
                    "event": event,
                    "lane": task.lane.value,
                    "epoch": task.epoch + 1,
                    "interval": task.interval,
                    "pc": task.pc,
                    "step": step.name,
                    "slowest": self.param_servers.slowest,
                    **more,
                }
            )

    def _bounds(self, task: TaskId) -> tuple[int, int]:
        """Returns the range of the interval's rows in its lane's view."""
        return self._operators.seen[task.lane].bounds[task.interval - self.intervals[0]]

    def _priority(self, task: TaskId) -> Priority:
        """Returns the task's priority: the oldest epoch first, training before the evaluation of its last weights, then
        the shallowest step, because later tasks read fresher rows of neighbours."""
        evaluates = task.lane is Lane.EVAL
        return task.epoch + evaluates, int(evaluates), task.pc, task.interval

    def _job(
        self,
        task: TaskId,
        begin: Callable[[], Callable[[], _T]],
        then: Callable[[_T], list[Action]],
        leads_to: TaskId | None = None,
        may_begin: Callable[[], bool] | None = None,
    ) -> Job[_T]:
        """Makes the computation of a graph task, with its priority and the total that its seconds go to."""
        counted_as = name_of(task.lane, self.programs[task.lane][task.pc].kind)
        like = task.lane, task.pc, task.interval
        return Job(self._priority(task), begin, then, leads_to, counted_as, may_begin, like)

    # --- the steps --------------------------------------------------------------------------------------------------

    def _gather(self, task: TaskId, step: Step) -> list[Action]:
        if step.gathers == FEATURES:
            return self._done(task)
        start, stop = self._bounds(task)
        operator = self._operators.of(task.lane, step)
        rows = self.rows.of(task)
        slot = self.published[task.lane, str(step.gathers)]
        reads = self._intervals_read(task, step)

        def begin() -> Work:
            self._begin_read(task, step, slot, reads)
            return lambda: operator.gather(step, slot, start, stop, task.epoch, rows)

        def then(made: dict[str, Array]) -> list[Action]:
            slot.hold_read(reads, -1)
            self.rows.put(task, step, made)
            return self._done(task)

        return [self._job(task, begin, then, self._tensor_task_after(task), lambda: slot.may_read(reads))]

    def _intervals_read(self, task: TaskId, step: Step) -> Array:
        """Returns the intervals whose rows the task gathers, its own included."""
        return np.append(self._sources[step.backward][task.interval - self.intervals[0]], task.interval)

    def _begin_read(self, task: TaskId, step: Step, slot: PublishedSlot, reads: Array) -> None:
        """Records that the task's computation begins to read rows of these intervals."""
        self._note("begin", task)
        slot.hold_read(reads, 1)
        self._note_staleness(task, step, slot)

    def _tensor_task_after(self, task: TaskId) -> TaskId | None:
        """Returns the interval's next step if it is a tensor task, else None."""
        program, pc = self.programs[task.lane], task.pc + 1
        if pc == len(program) or program[pc].kind not in TENSOR_KINDS:
            return None
        return TaskId(task.lane, task.epoch, task.interval, pc)

    def _note_staleness(self, task: TaskId, step: Step, slot: PublishedSlot) -> None:
        """Counts the age of the oldest rows that a gather in training reads."""
        if task.lane is Lane.TRAIN:
            sources = self._sources[step.backward][task.interval - self.intervals[0]]
            self.ledger[task.epoch].ages[slot.oldest(sources, task.epoch, self._first)] += 1

    def _scatter(self, task: TaskId, step: Step) -> list[Action]:
        operator, rows = self._operators.of(task.lane, step), self.rows.of(task)
        slot = self.published[task.lane, str(step.publishes)]
        local = task.interval - self.intervals[0]
        plans = {peer: self.ghosts.rows_for(peer, local, task.lane, step) for peer in self.ghosts.needed[step.backward]}
        needed = {peer: rows for peer, rows in plans.items() if rows is not None}

        def work() -> tuple[dict[str, Array], dict[int, Array]]:
            made = operator.scatter(step, slot, task.interval, task.epoch, rows)
            return made, {peer: slot.store.cut(places) for peer, places in needed.items()}

        def begin() -> Work:
            self._note("begin", task)
            slot.hold_write(task.interval, 1)
            return work

        def then(done: tuple[dict[str, Array], dict[int, Array]]) -> list[Action]:
            made, cut = done
            slot.hold_write(task.interval, -1)
            self.rows.put(task, step, made)
            actions: list[Action] = []
            for peer, values in cut.items():
                message = PublishedRows(task.lane.value, task.epoch, task.pc, task.interval, values)
                actions.append(Send(graph_server(peer), message))
                self.step_times.sent(task.lane, peer, values.nbytes)
                if task.lane is Lane.TRAIN:
                    self.ledger[task.epoch].ghost_bytes += values.nbytes
            published = self._step(task.lane, Published(task.epoch, task.pc, task.interval))
            return actions + published + self._done(task)

        return [self._job(task, begin, then, may_begin=lambda: slot.may_write(task.interval))]

    def _arrived(self, sender: Address, message: PublishedRows) -> list[Action]:
        """Takes the rows of a peer's interval. Raises: RemoteProtocolError if they are not valid. Rows that would
        replace rows that a gather is reading are held until it ends."""
        lane = Lane(message.lane)
        step = self.programs[lane][message.pc] if 0 <= message.pc < len(self.programs[lane]) else None
        slot = self.published.get((lane, str(step.publishes))) if step and step.publishes else None
        what = f"rows of interval {message.interval}, {lane.value} epoch {message.epoch} step {message.pc}"
        if slot is None or message.interval not in slot.places or not 0 <= message.epoch < rounds(self.config.train):
            raise RemoteProtocolError(f"{sender}: {what}: no step gathers them")
        if message.interval // len(self.intervals) != sender.index or sender.role != "graph_server":
            raise RemoteProtocolError(f"{sender}: {what}: the interval is not its own")
        columns, dtype = slot.store.travelling
        shape = len(slot.places[message.interval]), columns  # type: ignore[arg-type]  # a peer's are an array
        if (message.values.shape, message.values.dtype) != (shape, dtype):
            raise RemoteProtocolError(
                f"{sender}: {what}: {message.values.dtype} {list(message.values.shape)}, must be {dtype} {list(shape)}"
            )
        if not slot.may_write(message.interval):
            self._held.append((sender, message))
            return []
        return self._take_rows(slot, message)

    def _take_held(self) -> list[Action]:
        """Takes the held rows that no gather blocks any more, in the order in which they came."""
        held, self._held = self._held, []
        return [action for sender, message in held for action in self._arrived(sender, message)]

    def _take_rows(self, slot: PublishedSlot, message: PublishedRows) -> list[Action]:
        lane = Lane(message.lane)
        if slot.epoch_of[message.interval] < message.epoch:
            slot.paste(message.interval, message.epoch, message.values)
        actions = self._step(lane, Published(message.epoch, message.pc, message.interval))
        if lane is Lane.TRAIN and self.arrivals.add(message.epoch, message.pc, message.interval):
            actions += self._open_epochs()  # the next ones may be entered
        return actions

    def _apply(self, task: TaskId, step: Step) -> list[Action]:
        if step.gathers:
            return self._cut_edges(task, step, self.rows.of(task))
        return self._submit(task, step, self.rows.read_by(task, step))

    def _cut_edges(self, task: TaskId, step: Step, rows: dict[str, TaskRows]) -> list[Action]:
        """AE, AE': cuts out the published rows that the task's edges need, then submits the task."""
        start, stop = self._bounds(task)
        operator, slot = self._operators.of(task.lane, step), self.published[task.lane, str(step.gathers)]
        reads = self._intervals_read(task, step)

        def begin() -> Work:
            self._begin_read(task, step, slot, reads)
            return lambda: operator.edge_rows(step, slot, start, stop, task.epoch, rows)

        def then(cut: dict[str, TaskRows]) -> list[Action]:
            slot.hold_read(reads, -1)
            return self._submit(task, step, {**{slot: rows[slot] for slot in step.reads}, **cut})

        return [self._job(task, begin, then, task, lambda: slot.may_read(reads))]

    def _submit(self, task: TaskId, step: Step, wanted: dict[str, TaskRows]) -> list[Action]:
        constants = self.rows.fixed(task)
        servers = self.param_servers
        server = servers.use(task.interval) if task.lane is Lane.TRAIN else servers.first(task.interval)
        # If both lanes hold all rows, a constant has the same name on a worker in both. An aggregate along other edges
        # would clash, so the evaluation's is sent each time.
        clashes = not self._operators.one_view and Lane.TRAIN not in self.rows.narrow
        differs = self.of_features.get(task.lane) if task.lane is Lane.EVAL and clashes else None
        fixed = tuple(slot for slot in step.reads if slot in constants and slot != differs)
        subset = self.rows.subset(task.lane, step)
        tensor_task = TensorTask(task, step, self._priority(task), server, wanted, fixed, subset)
        following = self._tensor_task_after(task)
        expected = self.backend.expect(following, self.now) if following is not None else []
        return self.backend.submit(tensor_task, self.now) + expected

    def _tensor_done(self, result: TaskResult) -> list[Action]:
        task = result.id
        if self._stopped or not self.schedulers[task.lane].is_running(task):
            return []
        step = self.programs[task.lane][task.pc]
        self.step_times.answered(task.lane, step.kind, result.compute_s)
        self._note("answered", task, compute_s=result.compute_s)
        if step.has_gradient:
            self.ledger[task.epoch].losses[task.interval] += result.loss
        self.rows.put(task, step, result.rows)
        if task.lane is Lane.EVAL and task.pc == len(self.programs[Lane.EVAL]) - 1:
            return [self._count(task, self.rows.of(task)[step.writes[0]])]
        return self._done(task)

    def _count(self, task: TaskId, outputs: TaskRows) -> Action:
        """Makes the last step of an evaluation: compares outputs with the labels, or with the types of the pairs."""
        start, stop = self._bounds(task)
        pairs = self._operators.made.get((Lane.EVAL, "pairs", False))
        pairs = pairs if isinstance(pairs, Pairs) else None

        def then(tally: Array) -> list[Action]:
            report = self.evaluation.add(task.epoch, task.interval, tally)
            return [*self._done(task), *([Send(COORDINATOR, report)] if report is not None else [])]

        return self._job(task, lambda: lambda: self.evaluation.tally(outputs, start, stop, pairs), then)

    def _update(self, task: TaskId) -> list[Action]:
        server = self.param_servers.release(task.interval)
        self.ledger[task.epoch].by_param_server[server] += 1
        return [
            Send(param_server(server), IntervalDone(task.epoch, task.interval)),
            *self.ledger.close(task.epoch, lambda: json.dumps(self.usage)),
            *self._done(task),
        ]


def _gathers_of_features(programs: Mapping[Lane, Program]) -> dict[Lane, str]:
    """Returns lane -> the slot of layer 0's aggregate, for lanes that have one: some models, and evaluations of bags of
    words, transform features before they gather."""
    return {
        lane: step.writes[0]
        for lane, program in programs.items()
        for step in program.steps
        if step.kind is Kind.GA and step.gathers == FEATURES
    }
