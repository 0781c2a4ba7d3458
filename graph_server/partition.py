"""One graph server as a state machine: what it knows of its partition, and what follows from each event.

Messages, finished computations and the clock go in; messages to send, computations to run and Lambdas to launch come out
(``Action``). No socket, no thread: ``graph_server.server`` carries the actions out, and tests/fleet.py runs whole fleets of
these on one thread in any order of delivery.

From an interval's point of view (GCN, layer l): the scheduler says that a step may run; **GA** is a computation of the
pool; **AV** goes to the tensor backend with the slots it reads; **SC** puts the rows into our own published buffer and
sends each peer those that it gathers; every arrival of such rows is an event that may let other intervals gather; **WU**
tells the parameter server that the interval is through.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from graph_server.aggregate import Gather, edges_between, stack
from graph_server.backends import Action, Backend, Completed, Compute, Job, Launch, Priority, TensorTask
from graph_server.buffers import PublishedSlot, StalePolicy
from graph_server.exchange import GhostPlaces, bounds_of, needed_rows
from graph_server.scheduler import Crossing, Event, Opened, Published, Scheduler, StepDone
from siafu.address import COORDINATOR, Address, Send, graph_server, param_server
from siafu.config import Config
from siafu.errors import RemoteProtocolError
from siafu.evaluation import is_evaluated
from siafu.metrics import counts
from siafu.models import Model
from siafu.shards import Shard
from siafu.sparse import Array, Rows, SparseRows
from siafu.tasks import Kind, Lane, Step, TaskId
from siafu.wire import (
    ConstantRows,
    EpochDone,
    EpochReport,
    EvalReport,
    GhostMap,
    IntervalDone,
    Judged,
    Message,
    PublishedRows,
    Ready,
    Start,
    TaskResult,
    WeightsReady,
)  # fmt: skip

Work = Callable[[], Any]

__all__ = ["Action", "Completed", "Compute", "Launch", "Partition", "Send"]


class Partition:
    def __init__(self, config: Config, shard: Shard, model: Model, backend: Backend, num_threads: int):
        self.config, self.shard, self.model, self.backend = config, shard, model, backend
        self.index, self.dtype = shard.index, np.dtype(config.model.dtype)
        self.num_threads = num_threads
        per_server = config.train.intervals
        self.bounds = bounds_of(len(shard.vertices), per_server)
        self.intervals = list(range(self.index * per_server, (self.index + 1) * per_server))
        self.peers = [p for p in range(shard.num_partitions) if p != self.index]
        self.programs = {lane: model.program(lane) for lane in Lane}
        self.evaluated = [e for e in range(config.train.epochs) if is_evaluated(e, config.train)]
        self.split = np.asarray(shard.split[:, config.data.split])
        self._needed = {b: needed_rows(shard, self.bounds, backward=b) for b in (False, True)}
        self._places = {b: GhostPlaces(shard, self.intervals[0], self.bounds, backward=b) for b in (False, True)}
        # All mutable state:
        self.schedulers: dict[Lane, Scheduler] = {}  # from the moment the peers' maps are in
        self.published: dict[tuple[Lane, str], PublishedSlot] = {}
        self._constants: list[dict[str, Rows]] = []  # by interval
        self._slots: dict[tuple[Lane, int], dict[str, Rows]] = {(x, i): {} for x in Lane for i in self.intervals}
        self._maps_due = len(self.peers) * per_server * 2
        self._ghost_features: dict[int, Rows] = {}  # interval -> rows, until the base is made
        self._base: Rows | None = None  # features of inner vertices and ghosts, until layer 0 is aggregated
        self._gathers: dict[bool, Gather] = {}
        self._sources: dict[bool, list[list[int]]] = {}  # by interval: the other intervals that it gathers from
        self._jobs: list[tuple[Priority, int, Job]] = []  # the task queue
        self._num_jobs = 0
        self._busy = 0  # pool threads at work
        self._versions = [0] * config.servers.param_servers
        self._rows_due = 0  # messages with rows of peers in one training epoch
        self._rows_in: dict[int, int] = {}  # training epoch -> those that are in
        self._epochs_in = 0  # training epochs whose rows are all in
        self._started = False
        self._stopped = False
        self._judged = -1
        self._param_server: dict[int, int] = {}  # interval -> its parameter server in its current epoch
        self._load = [0] * config.servers.param_servers  # stashes of ours that each holds
        self._epochs: dict[int, _Epoch] = {}
        self._tallies: dict[int, tuple[int, Array]] = {}  # evaluated epoch -> (intervals counted, counts)
        self.now = 0.0
        self.ghost_bytes = 0
        self.trace: list[dict[str, Any]] | None = None  # filled if it is a list; whoever made it empties it

    # --- events -----------------------------------------------------------------------------------------------------

    def greet(self) -> list[Action]:
        """What to tell the peers once links to them stand."""
        vertices = np.asarray(self.shard.vertices)
        actions: list[Action] = []
        for backward, plan in self._needed.items():
            for peer, by_interval in plan.items():
                for interval, (start, _), rows in zip(self.intervals, self.bounds, by_interval, strict=True):
                    ids = vertices[start + rows].astype(np.int64)
                    actions.append(Send(graph_server(peer), GhostMap(self.index, backward, interval, ids)))
        return actions + ([] if self.peers else self._maps_complete())

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        """A message. Raises RemoteProtocolError if it does not fit the run."""
        self.now = now
        match message:
            case PublishedRows():
                return self._do(self._arrived(message))
            case WeightsReady(server=server, version=version):
                self._versions[server] = max(self._versions[server], version)
                return self._do(self._open_epochs())
            case Judged():
                return self._do(self._judge(message))
            case GhostMap(server=server, backward=backward, interval=interval, vertices=vertices):
                self._places[backward].add(server, interval, vertices)
                self._maps_due -= 1
                return self._do(self._maps_complete() if self._maps_due == 0 else [])
            case ConstantRows(interval=interval, rows=rows):
                self._ghost_features[interval] = rows["features"]
                return self._do(self._features_complete() if self._is_ready else [])
            case Start():
                self._started = True
                return self._do(self._open_epochs())
        return self._do(self.backend.handle(sender, message, now))

    def computed(self, done: Compute, value: Any, now: float) -> list[Action]:
        """A pool thread has finished a computation."""
        self.now = now
        self._busy -= 1
        return self._do([] if self._stopped else done.then(value))

    def tick(self, now: float) -> list[Action]:
        self.now = now
        return self._do([] if self._stopped else self.backend.tick(now))

    def perform(self, actions: list[Action]) -> list[Action]:
        """Takes on what the backend wants done outside of the calls above; returns what is left for the shell."""
        return self._do(actions)

    @property
    def finished(self) -> bool:
        return bool(self.schedulers) and all(scheduler.finished for scheduler in self.schedulers.values())

    def _do(self, actions: list[Action]) -> list[Action]:
        """Carries out what concerns ourselves; returns what the shell must do. Computations come out as threads are free."""
        outside: list[Action] = []
        todo = list(reversed(actions))
        while todo:
            action = todo.pop()
            if isinstance(action, Completed):
                todo.extend(reversed(self._tensor_done(action.result)))
            elif isinstance(action, Job):
                self._num_jobs += 1
                heapq.heappush(self._jobs, (action.priority, self._num_jobs, action))
            else:
                outside.append(action)
        while self._jobs and self._busy < self.num_threads and not self._stopped:
            self._busy += 1
            job = heapq.heappop(self._jobs)[2]
            outside.append(Compute(job.begin(), job.then))
        return outside

    # --- before the first epoch -------------------------------------------------------------------------------------

    def _maps_complete(self) -> list[Action]:
        """Every peer has said which rows it will send: buffers and schedulers can be made."""
        crossing = {}
        for backward, places in self._places.items():
            interval_of = places.interval_of_row()
            between = edges_between(self.shard, interval_of, self.bounds, backward=backward)
            crossing[backward], self._sources[backward] = _crossing(between, self.intervals)
            gather = Gather(self.shard, self.model.aggregate, backward=backward, dtype=self.dtype)
            gather.prepare(self.bounds)
            self._gathers[backward] = gather
        train = self.config.train
        pipe = train.mode != "async"
        for lane, epochs in ((Lane.TRAIN, range(train.epochs)), (Lane.EVAL, self.evaluated)):
            self._make_buffers(lane)
            self.schedulers[lane] = Scheduler(
                self.programs[lane], lane, self.intervals, epochs, forward=crossing[False], backward=crossing[True],
                freshness=1.0 if pipe or lane is Lane.EVAL else train.freshness, warmup_epochs=train.warmup_epochs,
                max_ahead=max(1, int(train.ahead * len(self.intervals))), in_step=train.mode == "no-pipe",
            )  # fmt: skip
        features = self.shard.features
        actions: list[Action] = []
        for peer, by_interval in self._needed[False].items():
            for interval, (start, stop), rows in zip(self.intervals, self.bounds, by_interval, strict=True):
                if len(rows):
                    needed = _take(features[start:stop], rows)
                    actions.append(Send(graph_server(peer), ConstantRows(self.index, interval, {"features": needed})))
        return actions + (self._features_complete() if self._is_ready else [])

    def _make_buffers(self, lane: Lane) -> None:
        train = self.config.train
        for slot, pc in self.programs[lane].publisher.items():
            backward = self.programs[lane][pc].backward
            places = self._places[backward]
            kind = "use"
            if lane is Lane.TRAIN and train.mode == "async":
                kind = train.stale_gradients if backward else train.stale_rows
            policy = StalePolicy(kind, train.smoothing, train.freeze_epochs)  # type: ignore[arg-type]
            self.published[lane, slot] = PublishedSlot(
                self.model.width(slot), len(places.interval_of_row()), places.places, self.dtype, policy
            )
            if lane is Lane.TRAIN:
                self._rows_due += len(places.places) - len(self.intervals)

    @property
    def _is_ready(self) -> bool:
        """Whether the features of every ghost are here."""
        return bool(self.schedulers) and len(self._ghost_features) == len(self._places[False].places) - len(
            self.intervals
        )

    def _features_complete(self) -> list[Action]:
        own = self.shard.features[0 : len(self.shard.vertices)]
        parts: list[Rows] = [own.astype(self.dtype)]
        if self._ghost_features:
            ordered = stack([rows.astype(self.dtype) for rows in self._ghost_features.values()])
            position = np.concatenate([np.asarray(self._places[False].places[i]) for i in self._ghost_features])
            parts.append(_take(ordered, np.argsort(position)))
        self._base = stack(parts)
        self._ghost_features = {}
        is_train = self.split == 1
        for start, stop in self.bounds:
            self._constants.append(
                {
                    "H0": self._base[start:stop],
                    "vertex": np.asarray(self.shard.vertices[start:stop], np.int64),
                    "label": np.asarray(self.shard.labels[start:stop]),
                    "train": is_train[start:stop],
                }
            )
        return [Send(COORDINATOR, Ready("graph_server", self.index))]

    # --- epochs -----------------------------------------------------------------------------------------------------

    def _open_epochs(self) -> list[Action]:
        """Rule 2 of the scheduler. ``slowest`` is the number of optimiser steps that every parameter server has taken: a
        step needs the gradients of every interval of every server, so nobody is in an earlier epoch. Rows of an earlier
        one may still be on their way here, on another link: they are waited for, so that none is read that is more than
        1 + s epochs old."""
        if not self._started or self._stopped:
            return []
        slowest = min(self._versions)
        if self._rows_due:
            slowest = min(slowest, self._epochs_in)
        due = next((e for e in self.evaluated if e > self._judged), self.config.train.epochs)
        # Evaluation runs beside training, but no more than 1 + s epochs behind it, so that few versions are kept for it.
        ahead = 0 if self.config.train.mode == "no-pipe" else 1 + self.config.train.staleness
        actions = self._step(Lane.TRAIN, Opened(min(slowest + self.config.train.staleness, due + ahead), slowest))
        if slowest > due:
            actions += self._step(Lane.EVAL, Opened(due, due))
        return actions

    def _judge(self, message: Judged) -> list[Action]:
        self._judged = max(self._judged, message.epoch)
        if message.stop:
            self._stopped = True
            self._jobs.clear()
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
        """A step has finished: slots that nobody reads any more go, and the scheduler says what is next."""
        slots, program = self._slots[task.lane, task.interval], self.programs[task.lane]
        for slot in [slot for slot in slots if program.last_reader[slot] <= task.pc]:
            del slots[slot]
        self._note("done", task)
        return self._step(task.lane, StepDone(task))

    def _note(self, event: str, task: TaskId) -> None:
        if self.trace is not None:
            step = self.programs[task.lane][task.pc]
            self.trace.append(
                {
                    "time_s": self.now,
                    "event": event,
                    "lane": task.lane.value,
                    "epoch": task.epoch,
                    "interval": task.interval,
                    "pc": task.pc,
                    "step": step.name,
                    "slowest": min(self._versions),
                }
            )

    def _priority(self, task: TaskId) -> Priority:
        """The oldest epoch first, training before the evaluation of its last weights, then the shallowest step: what
        runs last has the freshest neighbours."""
        evaluates = task.lane is Lane.EVAL
        return task.epoch + evaluates, int(evaluates), task.pc, task.interval

    # --- the steps --------------------------------------------------------------------------------------------------

    def _gather(self, task: TaskId, step: Step) -> list[Action]:
        local = task.interval - self.intervals[0]
        (target,) = step.writes
        if target in self._constants[local]:
            return self._done(task)
        start, stop = self.bounds[local]
        gather = self._gathers[step.backward]
        slots = self._slots[task.lane, task.interval]
        own = [np.asarray(slots[slot]) for slot in step.reads]
        if self.programs[task.lane].waits_for[task.pc] is None:
            base = self._base

            def constant(rows: Rows) -> list[Action]:
                self._constants[local][target] = rows
                return self._done(task)

            assert base is not None
            return [Job(self._priority(task), lambda: lambda: gather(start, stop, base), constant)]
        slot = self.published[task.lane, str(step.gathers)]

        def begin() -> Work:
            slot.turn(task.epoch)
            scale = self._note_staleness(task, step, slot)

            def work() -> Array:
                rows = np.asarray(gather(start, stop, slot.rows))  # [stop - start, F]
                if scale != 1.0:
                    rows = rows * rows.dtype.type(scale)
                for more in own:
                    rows = rows + more
                return rows

            return work

        def then(rows: Array) -> list[Action]:
            slots[target] = rows
            return self._done(task)

        return [Job(self._priority(task), begin, then)]

    def _note_staleness(self, task: TaskId, step: Step, slot: PublishedSlot) -> float:
        """Counts what the gather reads; returns the factor that makes up for dropped rows."""
        if task.lane is Lane.EVAL:
            return 1.0
        stale, total = self.schedulers[task.lane].stale_edges(task)
        record = self._epochs.setdefault(task.epoch, _Epoch())
        record.stale_edges += stale
        record.crossing_edges += total
        age = slot.oldest(self._sources[step.backward][task.interval - self.intervals[0]], task.epoch)
        record.ages[max(age, 0)] = record.ages.get(max(age, 0), 0) + 1
        if slot.policy.kind != "drop" or not stale:
            return 1.0
        inside = self._inside_edges(step.backward, task.interval)
        return (total + inside) / max(total + inside - stale, 1)

    def _inside_edges(self, backward: bool, interval: int) -> int:
        start, stop = self.bounds[interval - self.intervals[0]]
        edges = self.shard.out_edges if backward else self.shard.in_edges
        crossing = self.schedulers[Lane.TRAIN].crossing_edges(interval, backward=backward)
        return int(edges.indptr[stop] - edges.indptr[start]) - crossing + (stop - start)

    def _scatter(self, task: TaskId, step: Step) -> list[Action]:
        (source,) = step.reads
        values = np.asarray(self._slots[task.lane, task.interval][source])
        slot = self.published[task.lane, str(step.publishes)]
        local = task.interval - self.intervals[0]
        needed = {p: plan[local] for p, plan in self._needed[step.backward].items() if len(plan[local])}

        def work() -> dict[int, Array]:
            slot.write(task.interval, task.epoch, values)
            return {peer: values[rows] for peer, rows in needed.items()}

        def begin() -> Work:
            slot.turn(task.epoch)  # it touches the rows of other intervals: on the server's thread
            return work

        def then(cut: dict[int, Array]) -> list[Action]:
            actions: list[Action] = []
            for peer, rows in cut.items():
                message = PublishedRows(task.lane.value, task.epoch, task.pc, task.interval, rows)
                actions.append(Send(graph_server(peer), message))
                self.ghost_bytes += rows.nbytes
                if task.lane is Lane.TRAIN:
                    self._epochs.setdefault(task.epoch, _Epoch()).ghost_bytes += rows.nbytes
            published = self._step(task.lane, Published(task.epoch, task.pc, task.interval))
            return actions + published + self._done(task)

        return [Job(self._priority(task), begin, then)]

    def _arrived(self, message: PublishedRows) -> list[Action]:
        """Rows of a peer's interval."""
        lane = Lane(message.lane)
        step = self.programs[lane][message.pc] if 0 <= message.pc < len(self.programs[lane]) else None
        slot = self.published.get((lane, str(step.publishes))) if step and step.publishes else None
        if slot is None or message.interval not in slot.places or message.interval in self.intervals:
            raise RemoteProtocolError(
                f"rows of interval {message.interval}, {lane.value} step {message.pc}: nobody gathers them"
            )
        shape = len(slot.places[message.interval]), slot.rows.shape[1]  # type: ignore[arg-type]  # a peer's are an array
        if (message.values.shape, message.values.dtype) != (shape, slot.rows.dtype):
            raise RemoteProtocolError(
                f"rows of interval {message.interval}: {message.values.dtype} {list(message.values.shape)}, "
                f"must be {slot.rows.dtype} {list(shape)}"
            )
        if slot.epoch_of[message.interval] < message.epoch:
            slot.write(message.interval, message.epoch, message.values)
        actions = self._step(lane, Published(message.epoch, message.pc, message.interval))
        if lane is Lane.TRAIN:
            self._rows_in[message.epoch] = self._rows_in.get(message.epoch, 0) + 1
            if self._rows_in.get(self._epochs_in) == self._rows_due:
                while self._rows_in.get(self._epochs_in) == self._rows_due:
                    del self._rows_in[self._epochs_in]
                    self._epochs_in += 1
                actions += self._open_epochs()
        return actions

    def _apply(self, task: TaskId, step: Step) -> list[Action]:
        constants = self._constants[task.interval - self.intervals[0]]
        rows = {**constants, **self._slots[task.lane, task.interval]}
        server = task.interval % len(self._load)
        if task.lane is Lane.TRAIN:
            if task.interval not in self._param_server:
                least = min(range(len(self._load)), key=lambda q: (self._load[q], (q - self.index) % len(self._load)))
                self._param_server[task.interval] = least
                self._load[least] += 1
            server = self._param_server[task.interval]
        wanted = {slot: rows[slot] for slot in step.reads}
        fixed = tuple(slot for slot in step.reads if slot in constants)
        return self.backend.submit(TensorTask(task, step, self._priority(task), server, wanted, fixed), self.now)

    def _tensor_done(self, result: TaskResult) -> list[Action]:
        task = result.id
        if self._stopped or not self.schedulers[task.lane].is_running(task):
            return []
        step = self.programs[task.lane][task.pc]
        if step.has_gradient:
            losses = self._epochs.setdefault(task.epoch, _Epoch()).losses
            losses[task.interval] = losses.get(task.interval, 0.0) + result.loss
        if task.lane is Lane.EVAL and task.pc == len(self.programs[Lane.EVAL]) - 1:
            return [self._count(task, np.asarray(result.rows[step.writes[0]]))]
        self._slots[task.lane, task.interval].update(result.rows)
        return self._done(task)

    def _count(self, task: TaskId, logits: Array) -> Action:
        """The last step of an evaluation: compare with the labels."""
        start, stop = self.bounds[task.interval - self.intervals[0]]
        labels, split = np.asarray(self.shard.labels[start:stop]), self.split[start:stop]

        def then(tally: Array) -> list[Action]:
            number, total = self._tallies.get(task.epoch, (0, np.zeros_like(tally)))
            self._tallies[task.epoch] = (number + 1, total + tally)
            actions = self._done(task)
            if number + 1 == len(self.intervals):
                _, total = self._tallies.pop(task.epoch)
                actions.append(Send(COORDINATOR, EvalReport(self.index, task.epoch, total)))
            return actions

        return Job(self._priority(task), lambda: lambda: counts(logits, labels, split), then)

    def _update(self, task: TaskId) -> list[Action]:
        server = self._param_server.pop(task.interval)
        self._load[server] -= 1
        record = self._epochs[task.epoch]
        record.by_param_server[server] = record.by_param_server.get(server, 0) + 1
        actions: list[Action] = [Send(param_server(server), IntervalDone(task.epoch, task.interval))]
        if sum(record.by_param_server.values()) == len(self.intervals):
            del self._epochs[task.epoch]
            share = record.stale_edges / max(record.crossing_edges, 1)
            for q in range(len(self._load)):
                done = EpochDone(self.index, task.epoch, record.by_param_server.get(q, 0), share)
                actions.append(Send(param_server(q), done))
            actions.append(Send(COORDINATOR, self._report(task.epoch, record)))
        return actions + self._done(task)

    def _report(self, epoch: int, record: _Epoch) -> EpochReport:
        ages = np.zeros(max(record.ages, default=0) + 1, np.int64)
        for age, number in record.ages.items():
            ages[age] = number
        loss = np.array([record.losses[interval] for interval in self.intervals])
        return EpochReport(self.index, epoch, loss, record.ghost_bytes, ages, json.dumps(self.backend.usage))


class _Epoch:
    """What a training epoch has added up so far."""

    def __init__(self) -> None:
        self.losses: dict[int, float] = {}
        self.by_param_server: dict[int, int] = {}
        self.ghost_bytes = 0
        self.stale_edges = 0
        self.crossing_edges = 0
        self.ages: dict[int, int] = {}


def _crossing(between: Any, intervals: list[int]) -> tuple[Crossing, list[list[int]]]:
    """The scheduler's view of edge counts ``[local intervals, all intervals]``, and each interval's sources."""
    matrix = between.tocoo()
    other = matrix.col != np.asarray(intervals)[matrix.row]
    row, column, count = matrix.row[other].astype(np.int64), matrix.col[other], matrix.data[other]
    order = np.argsort(column, kind="stable")
    sources, first = np.unique(column[order], return_index=True)
    groups = np.split(order, first[1:]) if len(sources) else []
    crossing = Crossing(
        {int(j): row[group] for j, group in zip(sources, groups, strict=True)},
        {int(j): count[group] for j, group in zip(sources, groups, strict=True)},
        np.bincount(row, count, minlength=len(intervals)).astype(np.int64),
    )
    return crossing, [sorted(column[row == i].tolist()) for i in range(len(intervals))]


def _take(rows: Rows, index: Array) -> Rows:
    from siafu.ops import take

    return take(rows if isinstance(rows, SparseRows) else np.asarray(rows), index)
