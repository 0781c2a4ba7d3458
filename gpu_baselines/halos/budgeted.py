"""Halo rows that are as late and as coarse as an error budget allows: ``gpu_baselines.halos.budget``'s plans, carried out.

All rows are exact in the first epochs. Every ``period`` epochs each rank measures what it sends, all add up what they saw,
and every one of them draws the same plan from it; it holds from the next epoch on.

The budget is on the rows of one epoch before smoothing and error feedback, whose effect no formula foretells.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gpu_baselines import kernels
from gpu_baselines.halos import message_cost
from gpu_baselines.halos.budget import EXACT, Choice, Costs, Plan, Seen, chosen
from gpu_baselines.halos.codec import Stream
from gpu_baselines.halos.halo import Pending
from gpu_baselines.halos.late import Late
from gpu_baselines.halos.quantise import Layout
from gpu_baselines.halos.smoothing import stream_of
from gpu_baselines.run import Run

logger = logging.getLogger(__name__)


class Forced(Protocol):
    """Of a codec: ``gpu_baselines.halos.quantised.Quantised``."""

    def force(self, stream: Stream, bits: int | None) -> None:
        """From the next epoch on."""


class Budgeted:
    """A ``Halo`` around ``Late``, whose depth is that of rows that are late.

    Plans depend on times that are measured once, before the first plan, and kept in checkpoints: a run that goes on from one
    has the bits that it would have had, but two runs may plan differently where choices cost about the same.
    """

    def __init__(self, run: Run, late: Late, codec: Forced, now: Callable[[], float] = time.perf_counter):
        self._run, self._late, self._codec, self._now = run, late, codec, now
        self._epoch = 0
        self._plan: Plan = {}
        self._errors: dict[Stream, float] = {}  # foretold
        self._before: dict[tuple[Stream, int], Tensor] = {}  # rows sent in an epoch that a later one is compared with
        self._seen: dict[Stream, Seen] = {}  # of this rank, in this epoch
        self._costs: Costs | None = None
        self._began: tuple[float, float] = (0.0, 0.0)  # now, and what the clock had counted, when the epoch began
        self._compute_s: list[float] = []

    def begin(self, epoch: int) -> None:
        self._late.begin(epoch)
        self._epoch, self._seen = epoch, {}
        self._began = self._now(), sum(self._run.clock.seconds.values())

    def forward(self, layer: int, H: Tensor) -> Pending:
        stream = self._watched(Stream("forward", layer))
        if self._is_watched():
            self._watch(stream, torch.cat([H.detach()[index] for index in self._late.routes.part.given]))
        return self._late.forward(layer, H)

    def backward(self, layer: int, dHalo: Tensor) -> Pending:
        stream = self._watched(Stream("backward", layer))
        if self._is_watched():
            self._watch(stream, dHalo.detach().clone())
        return self._late.backward(layer, dHalo)

    def end(self) -> None:
        self._late.end()
        if self._epoch and self._costs is None:  # epoch 0 makes what later ones have
            began, counted = self._began
            self._compute_s.append(self._now() - began - (sum(self._run.clock.seconds.values()) - counted))
        if self._plans_in(self._epoch):
            self._draw()

    def state(self) -> dict[str, Tensor]:
        found = self._late.state()
        for stream, choice in self._plan.items():
            values = [choice.late, choice.bits or 0, self._errors.get(stream, 0.0)]
            found[f"budget.plan.{stream.way}.{stream.layer}"] = torch.tensor(values, dtype=torch.float64)
        for (stream, epoch), rows in self._before.items():
            found[f"budget.before.{stream.way}.{stream.layer}.{epoch}"] = rows
        if self._costs:
            found["budget.costs"] = torch.tensor(self._costs, dtype=torch.float64)
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        self._late.restore(state)
        for name, value in state.items():
            if name.startswith("budget.plan."):
                stream, (late, bits, error) = stream_of(name.removeprefix("budget.plan.")), value.tolist()
                self._errors[stream] = error
                self._set(stream, Choice(bool(late), int(bits) or None))
            elif name.startswith("budget.before."):
                stream_name, _, epoch = name.removeprefix("budget.before.").rpartition(".")
                self._before[stream_of(stream_name), int(epoch)] = value.to(self._late.routes.device)
        if "budget.costs" in state:
            self._costs = Costs(*state["budget.costs"].tolist())

    def facts(self) -> dict[str, object]:
        """halo_choices: of the last plan, with the relative error that was foretold of each."""
        choices = {
            f"{stream.way}.{stream.layer}": {**choice._asdict(), "error": self._errors.get(stream, 0.0)}
            for stream, choice in sorted(self._plan.items())
        }
        return {"halo_choices": choices, **self._late.facts()}

    def close(self) -> None:
        self._late.close()

    # --- what is sent -------------------------------------------------------------------------------------------------

    def _plans_in(self, epoch: int) -> bool:
        first = self._late.depth + 1  # by then there are rows to compare with, and epoch 0 is no measure of time
        return epoch >= first and (epoch - first) % self._run.baseline.period == 0

    def _is_watched(self) -> bool:
        return self._plans_in(self._epoch) or self._plans_in(self._epoch + self._late.depth)

    def _watched(self, stream: Stream) -> Stream:
        if stream not in self._plan:
            self._set(stream, EXACT)
        return stream

    def _watch(self, stream: Stream, rows: Tensor) -> None:
        """rows [k, F]: what goes out, with a storage of its own."""
        if self._plans_in(self._epoch):
            self._seen[stream] = seen(rows, self._before.pop((stream, self._epoch - self._late.depth)))
        if self._plans_in(self._epoch + self._late.depth):
            self._before[stream, self._epoch] = rows

    # --- plans --------------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        streams = sorted(self._seen)
        group, budget = self._run.group, self._run.baseline.error_budget
        told = group.share([list(self._seen[stream]) for stream in streams])
        whole = {stream: _summed([Seen(*rank[i]) for rank in told]) for i, stream in enumerate(streams)}
        if self._costs is None:
            self._costs = measured(self._run, min(self._compute_s), self._now)
        plan = chosen(whole, budget, self._costs)
        for stream, choice in plan.items():
            self._errors[stream] = whole[stream].error(choice)
            self._set(stream, choice)
        if not group.rank:
            said = ", ".join(f"{s.way} {s.layer} {_name(c)} ({self._errors[s]:.3f})" for s, c in sorted(plan.items()))
            logger.info("epoch %d: halo rows for an error of %g: %s", self._epoch, budget, said)

    def _set(self, stream: Stream, choice: Choice) -> None:
        self._plan[stream] = choice
        self._late.set_depth(stream, self._late.depth if choice.late else 0)
        self._codec.force(stream, choice.bits)


def measured(run: Run, compute_s: float, now: Callable[[], float]) -> Costs:
    """compute_s: this rank's. While nothing is on its way. Collective, equal on all ranks."""
    links = message_cost.measured(run.group, run.device, now)
    compute, value = zip(*run.group.share([compute_s, _value_s(run, now)]), strict=True)
    rounds = run.group.size - 1
    return Costs(max(compute), 8 * float(links.theta.max()), rounds * float(links.gamma.max()), max(value))


def _value_s(run: Run, now: Callable[[], float]) -> float:
    """To pack and to unpack, of messages of some size."""
    k, width = 4096, 64
    packing = kernels.packing(Layout(np.full(k, 4, np.uint8)), run.device, run.threads)
    rows = torch.linspace(-1, 1, k * width, device=run.device).view(k, width)
    least = math.inf
    for _ in range(3):
        begin = now()
        packing.unpack(packing.pack(rows, 0), rows)
        float(rows[0, 0])  # a GPU is through
        least = min(least, now() - begin)
    return least / (k * width)


def seen(rows: Tensor, before: Tensor) -> Seen:
    """Of rows [k, F] and the same ones some epochs ago.

    Least value and step of a row travel as bfloat16, rounded away from it: the range is taken as wide as that can make it.
    """
    least, most = rows.amin(1), rows.amax(1)
    span = (most - least + least.abs() / 128) * (1 + 1 / 128)
    return Seen(
        square=_square(rows), change=_square(rows - before), spread=rows.shape[1] * _square(span) / 6, rows=len(rows),
        width=rows.shape[1], itemsize=rows.element_size(),
    )  # fmt: skip


def _square(X: Tensor) -> float:
    return float(X.square().sum(dtype=torch.float64))


def _summed(of_ranks: list[Seen]) -> Seen:
    first = of_ranks[0]
    square, change, spread = (sum(values) for values in list(zip(*of_ranks, strict=True))[:3])
    return Seen(square, change, spread, max(one.rows for one in of_ranks), first.width, first.itemsize)


def _name(choice: Choice) -> str:
    rows = "as they are" if choice.bits is None else f"in {choice.bits} bits"
    return f"{'late, ' if choice.late else ''}{rows}"
