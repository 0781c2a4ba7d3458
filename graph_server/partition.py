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

from graph_server.aggregate import Gather
from graph_server.backends import Action, Backend, Completed, Compute, Job, Priority, TensorTask
from graph_server.buffers import PublishedSlot, StalePolicy
from graph_server.exchange import bounds_of
from graph_server.ghosts import Ghosts
from graph_server.layer_zero import Kept, aggregate
from graph_server.ledger import Ledger
from graph_server.scheduler import Event, Opened, Published, Scheduler, StepDone
from siafu import kernels, ops
from siafu.address import COORDINATOR, Address, Send, graph_server, param_server
from siafu.config import Config
from siafu.errors import RemoteProtocolError
from siafu.evaluation import is_evaluated
from siafu.graph import TRAIN
from siafu.metrics import counts
from siafu.models import Model
from siafu.ops import BFLOAT16
from siafu.shards import Shard
from siafu.sparse import Array, Rows, SparseRows
from siafu.tasks import TENSOR_KINDS, Kind, Lane, Step, TaskId
from siafu.wire import (
    ConstantRows,
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


class Partition:
    def __init__(
        self, config: Config, shard: Shard, model: Model, backend: Backend, num_threads: int, kept: Kept | None = None
    ):
        """``kept``: where layer 0's aggregate is kept from run to run."""
        self.config, self.shard, self.model, self.backend = config, shard, model, backend
        self.index, self.dtype = shard.index, np.dtype(config.model.dtype)
        self.num_threads = num_threads
        per_server = config.train.intervals
        self.bounds = bounds_of(len(shard.vertices), per_server)
        self.intervals = list(range(self.index * per_server, (self.index + 1) * per_server))
        self.programs = {lane: model.program(lane) for lane in Lane}
        self.evaluated = [e for e in range(config.train.epochs) if is_evaluated(e, config.train)]
        self.split = np.asarray(shard.split[:, config.data.split])
        self.storage = "bfloat16" if config.model.rows == "bfloat16" else self.dtype.name
        self.stored = BFLOAT16 if self.storage == "bfloat16" else self.dtype
        self.kept = kept or Kept(None, shard.features.shape, self.stored)
        # All mutable state:
        self._aggregate: Rows | None = None if isinstance(shard.features, SparseRows) else self.kept.load()
        self.ghosts = Ghosts(shard, self.intervals, self.bounds, wants_features=self._aggregate is None)
        self.ledger = Ledger(self.index, self.intervals, config.servers.param_servers)
        self.schedulers: dict[Lane, Scheduler] = {}  # from the moment the peers' maps are in
        self.published: dict[tuple[Lane, str], PublishedSlot] = {}
        self._constants: list[dict[str, Rows]] = []  # by interval
        self._slots: dict[tuple[Lane, int], dict[str, Rows]] = {(x, i): {} for x in Lane for i in self.intervals}
        self._gathers: dict[bool, Gather] = {}
        self._sources: dict[bool, list[Array]] = {}  # by interval: the other intervals that it gathers from
        self._jobs: list[tuple[Priority, int, Job]] = []  # the task queue
        self._num_jobs = 0
        self._busy = 0  # pool threads at work
        self._versions = [0] * config.servers.param_servers
        self._rows_due = 0  # messages with rows of peers in one training epoch
        self._rows_in: dict[int, set[tuple[int, int]]] = {}  # training epoch -> (step, interval) of those that are in
        self._epochs_in = 0  # training epochs whose rows are all in
        self._started = False
        self._stopped = False
        self._judged = -1
        self._param_server: dict[int, int] = {}  # interval -> its parameter server in its current epoch
        self._load = [0] * config.servers.param_servers  # stashes of ours that each holds
        self._tallies: dict[int, tuple[int, Array]] = {}  # evaluated epoch -> (intervals counted, counts)
        self.now = 0.0
        self.trace: list[dict[str, Any]] | None = None  # filled if it is a list; whoever made it empties it

    # --- events -----------------------------------------------------------------------------------------------------

    def greet(self) -> list[Action]:
        """What to tell the peers once links to them stand."""
        alone = self.shard.num_partitions == 1  # else the last peer's map completes ours, maybe before we greet
        return self._do([*self.ghosts.greet(), *(self._map() if alone else [])])

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        """A message. Raises RemoteProtocolError if it does not fit the run."""
        self.now = now
        match message:
            case PublishedRows():
                return self._do(self._arrived(sender, message))
            case WeightsReady(server=server, version=version):
                self._versions[server] = max(self._versions[server], version)
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
        """Whether every interval is through its last epoch and evaluation."""
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
            if job.leads_to is not None:
                outside += self.backend.expect(job.leads_to, self.now)
        self.backend.watch(len(self._jobs) + self._busy, self.now)
        return outside

    # --- before the first epoch -------------------------------------------------------------------------------------

    def _map(self) -> list[Action]:
        """Every peer has said which rows it will send: buffers and schedulers can be made."""
        crossing = {}
        for backward in (False, True):
            crossing[backward], self._sources[backward] = self.ghosts.crossing(backward=backward)
            if backward and self.shard.undirected and self.model.aggregate != "mean":  # a symmetric matrix
                self._gathers[True] = self._gathers[False]
                continue
            self._gathers[backward] = Gather(
                self.shard, self.model.aggregate, backward=backward, dtype=self.dtype, threads=self.num_threads
            )
        train = self.config.train
        pipe = train.mode != "async"
        for lane, epochs in ((Lane.TRAIN, range(train.epochs)), (Lane.EVAL, self.evaluated)):
            self._make_buffers(lane)
            self.schedulers[lane] = Scheduler(
                self.programs[lane], lane, self.intervals, epochs, forward=crossing[False], backward=crossing[True],
                freshness=1.0 if pipe or lane is Lane.EVAL else train.freshness, warmup_epochs=train.warmup_epochs,
                max_ahead=max(1, int(train.ahead * len(self.intervals))), in_step=not self.config.overlaps,
            )  # fmt: skip
        return [*self.ghosts.features_for_peers(), *(self._ready() if self.ghosts.complete else [])]

    def _make_buffers(self, lane: Lane) -> None:
        train = self.config.train
        for slot, pc in self.programs[lane].publisher.items():
            backward = self.programs[lane][pc].backward
            places = self.ghosts.places(backward=backward)
            kind = "use"
            if lane is Lane.TRAIN and train.mode == "async":
                kind = train.stale_gradients if backward else train.stale_rows
            policy = StalePolicy(kind, train.smoothing, train.freeze_epochs)  # type: ignore[arg-type]
            num_rows = self.ghosts.num_rows(backward=backward)
            scale = self._gathers[backward].source_scale
            self.published[lane, slot] = PublishedSlot(
                self.model.width(slot), num_rows, places, self.storage, policy, scale
            )
            if lane is Lane.TRAIN:
                self._rows_due += len(places) - len(self.intervals)

    def _ready(self) -> list[Action]:
        """The features of every ghost that are wanted are here: layer 0 can be aggregated."""
        features, gather = self.shard.features, self._gathers[False]

        def work() -> Rows:
            if self._aggregate is not None:
                return self._aggregate
            return aggregate(gather, features, self.ghosts.take_features(), self.kept, self.dtype)

        return [Job((-1,), lambda: work, self._set_constants)]

    def _set_constants(self, Z: Rows) -> list[Action]:
        """``Z``: layer 0's aggregate ``[n, F]``. What never changes is cut into intervals, and that was all."""
        self._aggregate = None
        read = {slot for program in self.programs.values() for step in program.steps for slot in step.reads}
        is_train = self.split == TRAIN
        H: Rows | None = self.shard.features if "H0" in read else None
        if isinstance(H, np.ndarray) and H.dtype == np.float32 and self.storage == "bfloat16":
            H = kernels.to_bfloat16(H)
        for start, stop in self.bounds:
            constants: dict[str, Rows] = {
                "Z0": Z[start:stop],
                "vertex": np.asarray(self.shard.vertices[start:stop], np.int64),
                "label": np.asarray(self.shard.labels[start:stop]),
                "train": is_train[start:stop],
            }
            if H is not None:
                constants["H0"] = H[start:stop]
            self._constants.append({slot: rows for slot, rows in constants.items() if slot in read})
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
        ahead = 1 + self.config.train.staleness if self.config.overlaps else 0
        actions = self._step(Lane.TRAIN, Opened(min(slowest + self.config.train.staleness, due + ahead), slowest))
        if slowest > due:
            actions += self._step(Lane.EVAL, Opened(due, due))
        return actions

    def _judge(self, message: Judged) -> list[Action]:
        self._judged = max(self._judged, message.epoch)
        if message.stop:
            self._stopped = True
            self._jobs.clear()
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
        own = np.asarray(slots[step.reads[0]]) if step.reads else None  # [stop - start, F]
        slot = self.published[task.lane, str(step.gathers)]

        def begin() -> Work:
            slot.turn(task.epoch)
            factor = self._note_staleness(task, step, slot)
            return lambda: gather(start, stop, slot.table, add=own, factor=factor)

        def then(rows: Array) -> list[Action]:
            slots[target] = rows
            return self._done(task)

        return [Job(self._priority(task), begin, then, self._tensor_task_after(task))]

    def _tensor_task_after(self, task: TaskId) -> TaskId | None:
        """The next step of the interval, if it is one."""
        program, pc = self.programs[task.lane], task.pc + 1
        if pc == len(program) or program[pc].kind not in TENSOR_KINDS:
            return None
        return TaskId(task.lane, task.epoch, task.interval, pc)

    def _note_staleness(self, task: TaskId, step: Step, slot: PublishedSlot) -> float:
        """Counts what the gather reads; returns the factor that makes up for dropped rows."""
        if task.lane is Lane.EVAL:
            return 1.0
        stale, total = self.schedulers[task.lane].stale_edges(task)
        entry = self.ledger[task.epoch]
        entry.stale_edges += stale
        entry.crossing_edges += total
        entry.ages[slot.oldest(self._sources[step.backward][task.interval - self.intervals[0]], task.epoch)] += 1
        if slot.policy.kind != "drop" or not stale:
            return 1.0
        inside = self._inside_edges(step.backward, task.interval)
        return (total + inside) / max(total + inside - stale, 1)

    def _inside_edges(self, backward: bool, interval: int) -> int:
        start, stop = self.bounds[interval - self.intervals[0]]
        edges = self.shard.out_edges if backward else self.shard.in_edges
        crossing = self.schedulers[Lane.TRAIN].crossing_edges(interval, backward=backward)
        loops = stop - start if self.model.aggregate == "gcn" else 0
        return int(edges.indptr[stop] - edges.indptr[start]) - crossing + loops

    def _scatter(self, task: TaskId, step: Step) -> list[Action]:
        (source,) = step.reads
        values = np.asarray(self._slots[task.lane, task.interval][source])
        slot = self.published[task.lane, str(step.publishes)]
        local = task.interval - self.intervals[0]
        start, _ = self.bounds[local]
        needed = {p: start + plan[local] for p, plan in self.ghosts.needed[step.backward].items() if len(plan[local])}

        def work() -> dict[int, Array]:
            slot.write(task.interval, task.epoch, values)
            return {peer: self._as_stored(slot.table.read(rows)) for peer, rows in needed.items()}

        def begin() -> Work:
            slot.turn(task.epoch)  # it touches the rows of other intervals: on the server's thread
            return work

        def then(cut: dict[int, Array]) -> list[Action]:
            actions: list[Action] = []
            for peer, rows in cut.items():
                message = PublishedRows(task.lane.value, task.epoch, task.pc, task.interval, rows)
                actions.append(Send(graph_server(peer), message))
                if task.lane is Lane.TRAIN:
                    self.ledger[task.epoch].ghost_bytes += rows.nbytes
            published = self._step(task.lane, Published(task.epoch, task.pc, task.interval))
            return actions + published + self._done(task)

        return [Job(self._priority(task), begin, then)]

    def _as_stored(self, rows: Array) -> Array:
        """How rows that were read from a table travel: as they are stored, so that a peer reads the very same."""
        return kernels.to_bfloat16(rows) if self.storage == "bfloat16" else rows

    def _arrived(self, sender: Address, message: PublishedRows) -> list[Action]:
        """Rows of a peer's interval. Raises RemoteProtocolError if they cannot be."""
        lane = Lane(message.lane)
        step = self.programs[lane][message.pc] if 0 <= message.pc < len(self.programs[lane]) else None
        slot = self.published.get((lane, str(step.publishes))) if step and step.publishes else None
        what = f"rows of interval {message.interval}, {lane.value} epoch {message.epoch} step {message.pc}"
        if slot is None or message.interval not in slot.places or not 0 <= message.epoch < self.config.train.epochs:
            raise RemoteProtocolError(f"{sender}: {what}: nobody gathers them")
        if message.interval // len(self.intervals) != sender.index or sender.role != "graph_server":
            raise RemoteProtocolError(f"{sender}: {what}: the interval is not its own")
        shape = len(slot.places[message.interval]), slot.table.width  # type: ignore[arg-type]  # a peer's are an array
        if (message.values.shape, message.values.dtype) != (shape, self.stored):
            raise RemoteProtocolError(
                f"{sender}: {what}: {message.values.dtype} {list(message.values.shape)}, "
                f"must be {self.stored} {list(shape)}"
            )
        if slot.epoch_of[message.interval] < message.epoch:
            values = ops.real(message.values, self.dtype)
            slot.write(message.interval, message.epoch, values, scaled=True)
        actions = self._step(lane, Published(message.epoch, message.pc, message.interval))
        if lane is Lane.TRAIN and message.epoch >= self._epochs_in:
            self._rows_in.setdefault(message.epoch, set()).add((message.pc, message.interval))
            actions += self._count_epochs_in()
        return actions

    def _count_epochs_in(self) -> list[Action]:
        """Training epochs whose rows are all here, in order, may let the next ones be entered."""
        before = self._epochs_in
        while len(self._rows_in.get(self._epochs_in, ())) == self._rows_due:
            del self._rows_in[self._epochs_in]
            self._epochs_in += 1
        return self._open_epochs() if self._epochs_in > before else []

    def _apply(self, task: TaskId, step: Step) -> list[Action]:
        constants = self._constants[task.interval - self.intervals[0]]
        rows = {**constants, **self._slots[task.lane, task.interval]}
        server = task.interval % len(self._load)
        if task.lane is Lane.TRAIN:
            if task.interval not in self._param_server:
                self._param_server[task.interval] = self._least_loaded()
                self._load[self._param_server[task.interval]] += 1
            server = self._param_server[task.interval]
        wanted = {slot: rows[slot] for slot in step.reads}
        fixed = tuple(slot for slot in step.reads if slot in constants)
        tensor_task = TensorTask(task, step, self._priority(task), server, wanted, fixed)
        following = self._tensor_task_after(task)
        expected = self.backend.expect(following, self.now) if following is not None else []
        return self.backend.submit(tensor_task, self.now) + expected

    def _least_loaded(self) -> int:
        """The first parameter server without its equal share of our stashes: a server then gets runs of intervals, whose
        gradients it can sum further before it must send them to its peers."""
        num_servers = len(self._load)
        share = -(-len(self.intervals) // num_servers)
        order = [(self.index + q) % num_servers for q in range(num_servers)]
        return next((q for q in order if self._load[q] < share), min(order, key=lambda q: self._load[q]))

    def _tensor_done(self, result: TaskResult) -> list[Action]:
        task = result.id
        if self._stopped or not self.schedulers[task.lane].is_running(task):
            return []
        step = self.programs[task.lane][task.pc]
        if step.has_gradient:
            self.ledger[task.epoch].losses[task.interval] += result.loss
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
        self.ledger[task.epoch].by_param_server[server] += 1
        return [
            Send(param_server(server), IntervalDone(task.epoch, task.interval)),
            *self.ledger.close(task.epoch, lambda: json.dumps(self.backend.usage)),
            *self._done(task),
        ]
