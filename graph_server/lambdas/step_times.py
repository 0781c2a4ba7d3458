"""Totals of a graph server's time by kind of step, and of the rows sent to each peer, for metrics.jsonl. Pure.

1. Seconds of computing by kind of step (``GA_s``, ``AV_B_s``, ...), of evaluations all together (``eval_s``). The
   thread that runs a graph step times it; a tensor step's result has its time (``TaskResult.compute_s``). Tensor tasks
   and bytes of rows, of each lane: ``train_tasks``, ``eval_tasks``, ``train_ghost_bytes``, ``eval_ghost_bytes``.
2. Bytes of training's rows by the peer that gathers them (``siafu.wire.BYTES_TO``).
"""

from __future__ import annotations

from siafu.tasks import Kind, Lane
from siafu.wire import BYTES_TO


def name_of(lane: Lane, kind: Kind) -> str:
    """Returns the name of the total that a step's seconds go to."""
    return "eval_s" if lane is Lane.EVAL else f"{kind.name}_s"


class StepTimes:
    """Totals of one graph server, from its start on."""

    def __init__(self) -> None:
        # All mutable state:
        self._totals: dict[str, float] = {}

    @property
    def totals(self) -> dict[str, float]:
        return {**self._totals}

    def worked(self, name: str, seconds: float) -> None:
        self._add(name, seconds)

    def answered(self, lane: Lane, kind: Kind, seconds: float) -> None:
        """Counts a tensor task that is done, and its seconds."""
        self._add(f"{lane.value}_tasks", 1)
        self.worked(name_of(lane, kind), seconds)

    def sent(self, lane: Lane, peer: int, nbytes: int) -> None:
        self._add(f"{lane.value}_ghost_bytes", nbytes)
        if lane is Lane.TRAIN:
            self._add(f"{BYTES_TO}{peer}", nbytes)

    def _add(self, name: str, amount: float) -> None:
        self._totals[name] = self._totals.get(name, 0) + amount
