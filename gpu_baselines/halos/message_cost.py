"""Measures the cost of a message: seconds = theta bits + gamma, for each ordered pair of ranks (Sarvotham et al.
2001).

Pairs of one round of the ring are measured while all of them send, as in training.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gpu_baselines.clock import Clock
from gpu_baselines.group import Group
from siafu.sparse import Array

SIZES = tuple(1 << power for power in range(12, 23, 2))  # bytes
REPEATS = 5
ENOUGH_S = 0.04  # an exchange that took as long is the last
#: Pairs whose messages of this size take times within this factor are taken to be alike: what is measured then decides
#: nothing, and runs have equal bits.
TYPICAL_BITS, ALIKE = 8 << 20, 2.0


@dataclass(frozen=True, eq=False)
class LinkCosts:
    theta: Array  # float64 [N, N], seconds per bit from each rank (a row) to each
    gamma: Array  # float64 [N, N], seconds

    def of(self, sender: int, receiver: int) -> tuple[float, float]:
        """Theta and gamma of a pair; 1 and 0 if links are alike."""
        if self.are_alike:
            return 1.0, 0.0
        return float(self.theta[sender, receiver]), float(self.gamma[sender, receiver])

    @property
    def are_alike(self) -> bool:
        others = ~np.eye(len(self.theta), dtype=bool)
        seconds = (self.theta * TYPICAL_BITS + self.gamma)[others]
        return not len(seconds) or bool(seconds.max() <= ALIKE * seconds.min())


def fitted(nbytes: Array, seconds: Array) -> tuple[float, float]:
    """Theta (seconds per bit) and gamma >= 0 of the line through these points, by least squares of relative errors."""
    bits, weight = 8.0 * nbytes, 1 / seconds
    A = np.stack([bits, np.ones_like(bits)], 1)
    theta, gamma = np.linalg.lstsq(A * weight[:, None], seconds * weight, rcond=None)[0]
    if gamma < 0:
        theta, gamma = float((bits * weight) @ (seconds * weight) / ((bits * weight) @ (bits * weight))), 0.0
    return max(float(theta), 1e-15), float(gamma)


def measured(
    group: Group, device: torch.device, clock: Clock, now: Callable[[], float] = time.perf_counter
) -> LinkCosts:
    """Sends messages of several sizes round the ring, and takes the least of several times. Collective, equal on all
    ranks. clock: of the rank."""
    theta, gamma = np.zeros((group.size, group.size)), np.zeros((group.size, group.size))
    for turn in range(1, group.size):
        sizes, times = [], []  # times: of all ranks, by size
        for size in SIZES:
            told = group.share(_least_s(group, turn, size, device, clock, now))
            sizes.append(size)
            times.append(told)
            if max(told) > ENOUGH_S:
                break
        for sender in range(group.size):
            receiver = (sender + turn) % group.size
            own = np.array([told[sender] for told in times])
            theta[sender, receiver], gamma[sender, receiver] = fitted(np.array(sizes), own)
    return LinkCosts(theta, gamma)


def _least_s(group: Group, turn: int, size: int, device: torch.device, clock: Clock, now: Callable[[], float]) -> float:
    empty = torch.empty(0, dtype=torch.uint8, device=device)
    sends, recvs = [empty] * group.size, [empty] * group.size
    sends[(group.rank + turn) % group.size] = torch.zeros(size, dtype=torch.uint8, device=device)
    recvs[(group.rank - turn) % group.size] = torch.empty(size, dtype=torch.uint8, device=device)
    least = float("inf")
    for _ in range(REPEATS):
        clock.synchronise()
        group.barrier()
        begin = now()
        group.exchange(sends, recvs, "setup")
        clock.synchronise()  # over NCCL an exchange returns once it is launched
        least = min(least, now() - begin)
    return max(least, 1e-9)
