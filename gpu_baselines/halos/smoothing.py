"""Averages over epochs in place of late rows: PipeGCN's smoothing (§3.4), per layer and direction."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gpu_baselines.halos.codec import Stream

#: baseline.smooth -> the directions that it smooths: features, gradients.
WAYS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "F": frozenset({"forward"}),
    "G": frozenset({"backward"}),
    "FG": frozenset({"forward", "backward"}),
}


class Smoothing:
    """ŝ(n) = γ ŝ(n-1) + (1 - γ) s(n) over the messages s(1), s(2), ... that came, from ŝ(0) = 0.

    The paper does not say where ŝ begins. Its code begins at 0 without a correction: the first rows, and gradients, are
    nearly zeros (5% of their size with γ = 0.95), and half is still missing after 14 epochs. ``correct`` divides by the
    sum of the messages' weights, 1 - γⁿ: an average from the first message on, as the paper argues for (rows closer to
    today's).
    """

    def __init__(self, ways: frozenset[str], gamma: float, *, correct: bool):
        self._ways, self._gamma, self._correct = ways, gamma, correct
        self._average: dict[Stream, Tensor] = {}
        self._count: dict[Stream, int] = {}

    def __call__(self, stream: Stream, rows: Tensor) -> Tensor:
        """The rows to use in place of newly arrived ones. Valid until the next call."""
        if stream.way not in self._ways:
            return rows
        average = self._average.setdefault(stream, torch.zeros_like(rows))
        average.mul_(self._gamma).add_(rows, alpha=1 - self._gamma)
        count = self._count[stream] = self._count.get(stream, 0) + 1
        return average / (1 - self._gamma**count) if self._correct else average

    def state(self) -> dict[str, Tensor]:
        found = {}
        for stream, average in self._average.items():
            found[f"average.{stream.name}"] = average.clone()
            found[f"averaged.{stream.name}"] = torch.tensor(self._count[stream])
        return found

    def restore(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        for name, value in state.items():
            what, _, rest = name.partition(".")
            if what in ("average", "averaged"):
                stream = Stream.named(rest)
                if what == "average":
                    self._average[stream] = value.to(device, copy=True)
                else:
                    self._count[stream] = int(value)
