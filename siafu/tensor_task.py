"""Runs one tensor task from its rows to its result: on Lambda, in a local environment, or in a server's thread.

``TensorWorker.perform`` is a generator without I/O: it yields requests (a message for the parameter server, or the next
part of its rows), is sent the answers, and returns the result. Its caller owns sockets, threads and time; so the Lambda
worker, the cpu backend and the one-thread simulation of the fleet run the same code.

Order matters: gradients are pushed and acknowledged before the result is returned. If a worker dies in between, its
task is relaunched. The second gradient is recognised and ignored, and the result accepted: no gradient is lost or
counted twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from siafu import arithmetic, models
from siafu.models import ModelSpec, Output, TensorOps
from siafu.sparse import Array, EdgeRows, SparseRows, TaskRows
from siafu.tasks import TENSOR_KINDS, Lane
from siafu.wire import FetchWeights, Gradient, GradientAck, Subset, Task, TaskPart, TaskResult, Tensors, Weights

#: The most weight versions of a layer that a worker keeps: the newest. With a large staleness an interval may still use
#: an older one: a worker then asks again (a server does not: ``versions_kept``).
KEPT_VERSIONS = 4
#: The number of parts of a long task's rows: a Lambda computes on the first while the second is on its way. Sums over
#: rows have other bits in other parts, so a server's threads use the same parts.
PARTS = 2
#: The least rows of a part: fewer are not worth another message.
MIN_ROWS_PER_PART = 64


@dataclass(frozen=True)
class NextPart:
    """A request for the rows of part ``part``, which are on their way. ``lost``: they are not; the whole part must be
    asked for."""

    part: int
    lost: bool = False


Question = FetchWeights | Gradient  # to a parameter server
Answer = Weights | GradientAck
Request = Question | NextPart
Reply = Answer | TaskPart | None


class TensorWorker:
    """Performs tensor tasks of one run; keeps weights and constant rows from task to task."""

    def __init__(
        self,
        spec: ModelSpec,
        name: str,
        clock: Callable[[], float],
        keep_bytes: int = 0,
        ops: TensorOps = arithmetic,
        all_layers: bool = False,
        kept_versions: int = KEPT_VERSIONS,
    ):
        """``keep_bytes``: the most bytes of constant rows to keep from task to task; ``all_layers``: ask for the
        weights of all layers at once, because the interval's other tasks will come here too; ``kept_versions``:
        versions of weights to keep."""
        self.model = models.build(spec, ops)
        self.name = name
        self.clock = clock  # seconds, for TaskResult.compute_s
        self._programs = {lane: self.model.program(lane) for lane in Lane}
        self._asked = {
            lane: tuple(sorted({s.layer for s in program.steps if s.kind in TENSOR_KINDS and s.parameters}))
            for lane, program in self._programs.items()
            if all_layers
        }
        self._keep_bytes, self._kept_versions = keep_bytes, kept_versions
        # All mutable state:
        self._weights: dict[int, dict[int, dict[str, Array]]] = {}  # layer -> version -> parameters
        self._versions: dict[tuple[Lane, int], tuple[int, int]] = {}  # interval -> its last epoch here, its version
        # (interval, parts, part, slot, which rows), oldest first
        self._constants: dict[tuple[int, int, int, str, Subset], TaskRows] = {}

    def perform(self, task: Task) -> Generator[Request, Reply, TaskResult]:
        lane = Lane(task.lane)
        step = self._programs[lane][task.pc]
        weights: dict[str, Array] = {}
        if step.parameters:
            known = self._known(lane, task, step.layer)
            weights = (yield from self._fetch(lane, task, step.layer)) if known is None else known
        outputs: list[Output] = []
        compute_s = 0.0
        for part in range(task.num_parts):
            rows = yield from self._rows(task, part)
            start = self.clock()
            outputs.append(self.model.run(step, rows, weights, epoch=task.epoch, lane=lane))
            compute_s += self.clock() - start
        output = outputs[0] if len(outputs) == 1 else _join(outputs)
        if output.gradients:
            gradients: Tensors = dict(output.gradients)
            yield Gradient(task.epoch, task.interval, step.layer, task.attempt, gradients)
        results: Tensors = dict(output.rows)
        return TaskResult(
            task.lane, task.epoch, task.interval, task.pc, task.attempt, self.name, output.loss, compute_s, results
        )

    def _known(self, lane: Lane, task: Task, layer: int) -> dict[str, Array] | None:
        """Returns the weights if their version is known from an earlier task of the interval in this epoch, and they
        are kept here. The first request of an epoch fixes the version for all."""
        epoch, version = self._versions.get((lane, task.interval), (-1, -1))
        return self._weights.get(layer, {}).get(version) if epoch == task.epoch else None

    def _fetch(self, lane: Lane, task: Task, layer: int) -> Generator[Request, Reply, dict[str, Array]]:
        layers = self._asked.get(lane, (layer,))
        held = {n: dict(self._weights.get(n, {})) for n in layers}
        have = tuple(version for version in held[layer] if all(version in versions for versions in held.values()))
        reply = yield FetchWeights(task.lane, task.epoch, task.interval, layers, task.attempt, have)
        assert isinstance(reply, Weights), reply
        self._versions[lane, task.interval] = task.epoch, reply.version
        return held[layer][reply.version] if reply.version in have else self._remember(reply)[layer]

    def _rows(self, task: Task, part: int) -> Generator[Request, Reply, Tensors]:
        """Returns the rows of a part: those received with it, and constants kept from earlier tasks of the interval."""
        received = task.rows
        if part:
            following = yield NextPart(part, lost=task.on_request)
            assert isinstance(following, TaskPart), following
            received = following.rows
        received = {slot: aligned(value) for slot, value in received.items()}
        keys = {slot: (task.interval, task.num_parts, part, slot, task.subset) for slot in task.constants}
        if any(slot not in received and key not in self._constants for slot, key in keys.items()):
            again = yield NextPart(part, lost=True)
            assert isinstance(again, TaskPart), again
            received = {slot: aligned(value) for slot, value in again.rows.items()}
        rows = {**{slot: self._constants[key] for slot, key in keys.items() if slot not in received}, **received}
        for slot, key in keys.items():
            self._constants.pop(key, None)
            self._constants[key] = rows[slot]  # the newest now
        held = sum(value.nbytes for value in self._constants.values())
        while held > self._keep_bytes:
            held -= self._constants.pop(next(iter(self._constants))).nbytes
        return rows

    def _remember(self, reply: Weights) -> dict[int, dict[str, Array]]:
        """Keeps received weights, and returns them by layer. Copies them, so that the network's buffer can be freed.
        The oldest version is dropped first."""
        weights: dict[int, dict[str, Array]] = {layer: {} for layer in reply.layers}
        for name, value in reply.tensors.items():
            W = weights[self.model.stage(name)][name] = np.array(value)
            W.flags.writeable = False  # a device may keep its copy
        for layer, parameters in weights.items():
            versions = {**self._weights.get(layer, {}), reply.version: parameters}
            self._weights[layer] = {v: versions[v] for v in sorted(versions)[-self._kept_versions :]}
        return weights


def aligned(rows: TaskRows) -> TaskRows:
    """Returns the same rows in aligned memory, as BLAS needs. The place of a message in the network's buffer is random,
    and numpy multiplies unaligned arrays by a loop of its own: slower, and to other bits, so a run would not repeat
    itself."""
    if isinstance(rows, SparseRows):
        indptr, indices, data = (
            np.require(array, requirements="A") for array in (rows.indptr, rows.indices, rows.data)
        )
        return SparseRows(indptr, indices, data, rows.width)
    if isinstance(rows, EdgeRows):
        index = None if rows.index is None else np.require(rows.index, requirements="A")
        return EdgeRows(np.require(rows.indptr, requirements="A"), np.require(rows.values, requirements="A"), index)
    return np.require(rows, requirements="A")


def versions_kept(staleness: int) -> int:
    """Returns the number of weight versions that a server keeps for its own threads: all that an interval may use.

    All intervals are in the epoch of the newest version or a later one. They enter an epoch at most ``staleness``
    epochs before its weights are published, and evaluations are no further behind (``graph_server.partition``). One
    more is for the time after training.
    """
    return max(KEPT_VERSIONS, staleness + 2)


def num_parts(rows: Tensors, most: int = PARTS) -> int:
    """Returns the number of parts that a task's rows are cut into, at most ``most``."""
    return max(1, min(most, num_rows(rows) // MIN_ROWS_PER_PART))


def num_rows(rows: Tensors) -> int:
    return min(len(value) for value in rows.values())


def split(rows: Tensors, parts: int) -> list[Tensors]:
    """Cuts rows into ``parts`` consecutive parts of (almost) equal length, without copying dense ones."""
    n = num_rows(rows)
    cuts = [n * part // parts for part in range(parts + 1)]
    return [{slot: value[first:last] for slot, value in rows.items()} for first, last in itertools.pairwise(cuts)]


def _join(outputs: list[Output]) -> Output:
    """Joins the outputs of consecutive parts: rows are concatenated, gradients and losses summed in order."""
    rows = {slot: _stacked([output.rows[slot] for output in outputs]) for slot in outputs[0].rows}
    gradients = dict(outputs[0].gradients)
    for output in outputs[1:]:
        for name, value in output.gradients.items():
            gradients[name] = gradients[name] + value
    return Output(rows, gradients, sum(output.loss for output in outputs))


def _stacked(parts: list[Any]) -> Any:
    if not isinstance(parts[0], EdgeRows):
        return np.concatenate(parts)
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return EdgeRows(indptr, np.concatenate([part.each() for part in parts]))


def conversation(message: Question | Answer) -> tuple[object, ...]:
    """Returns the key that a question to a parameter server and its answer share.

    A late answer to an earlier attempt or task belongs to another conversation.
    """
    if isinstance(message, FetchWeights | Weights):
        return "weights", message.lane, message.epoch, message.interval, message.layers, message.attempt
    return "gradient", message.epoch, message.interval, message.layer, message.attempt
