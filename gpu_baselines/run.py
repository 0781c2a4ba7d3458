"""The inputs that every method of a run gets, and the interface that it implements."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.clock import Clock
from gpu_baselines.group import Group
from gpu_baselines.net import Net
from siafu import allotment
from siafu.baseline import Baseline, BaselineConfig
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import Array


@dataclass(frozen=True, eq=False)
class Run:
    """One rank's view of a run."""

    config: BaselineConfig
    shards: ShardSet
    group: Group
    spec: ModelSpec
    device: torch.device
    clock: Clock = field(default_factory=Clock)

    @property
    def baseline(self) -> Baseline:
        return self.config.baseline

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.spec.dtype == "float64" else torch.float32

    @property
    def threads(self) -> int:
        """Threads of one rank on the CPU. LOCAL_WORLD_SIZE (torchrun's) ranks share its machine; without it, all
        ranks."""
        return max(1, allotment.cores() // int(os.environ.get("LOCAL_WORLD_SIZE", self.baseline.ranks)))


class Method(Protocol):
    """The interface of a method. ``METHODS`` of siafu.baseline names its classes, which are made from a ``Run``, on
    every rank at once.

    Contract tests: tests/gpu_baselines/test_methods.py.
    """

    net: Net  # whose weights are evaluated, saved and exported; equal on all ranks after ``tally`` and ``state``

    def epoch(self, epoch: int) -> float:
        """Trains one epoch; returns the loss of the whole graph, equal on all ranks. Collective."""

    def tally(self) -> Array:
        """Counts of this rank's vertices under the net's weights, by ``siafu.metrics``. Exact: no lateness, full graph.
        Collective."""

    def state(self) -> dict[str, Tensor]:
        """Tensors that this rank needs, beside the net's weights, to continue with the same bits."""

    def restore(self, state: dict[str, Tensor]) -> None: ...

    def facts(self) -> dict[str, object]:
        """Facts for the result that only this method has; JSON."""

    def close(self) -> None: ...


def as_array(X: Tensor) -> Array:
    return np.ascontiguousarray(X.detach().cpu().numpy())
