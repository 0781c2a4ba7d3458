"""What goes wrong in one run, and when: a function of a seed.

Times are seconds after the run's first epoch, shares those of messages. A run with the same seed and the same settings meets the
same faults; what they hit depends on how far the run has got by then.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

#: Kind -> how often it is drawn, compared with the others.
KINDS = {
    "kill graph server": 3, "kill parameter server": 3, "kill Lambda": 3, "kill launcher": 2, "stop graph server": 1, "stop parameter server": 1,
    "stop Lambda": 1, "pause server": 2, "cut connections": 2, "one-way partition": 1, "slow link": 2, "corrupt bytes": 1, "disk full": 1,
}  # fmt: skip


#: What a run may take until its first epoch.
START_S = 15.0


@dataclass(frozen=True)
class Fault:
    """``seconds``: how long it lasts, of those that end; ``luck``: which of several members or links it hits, in [0, 1)."""

    at_s: float
    kind: str
    seconds: float
    luck: float


@dataclass(frozen=True)
class MessageFaults:
    """Shares of messages that a member sends or gets, until ``until_s`` seconds after the run began."""

    lose: float = 0.0  # between servers; workers' messages, tenfold
    twice: float = 0.0
    corrupt: float = 0.0
    swap: float = 0.0  # sent after the next one
    late: float = 0.0  # a copy of it comes as if from an earlier attempt
    until_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Schedule:
    seed: int
    mode: str
    faults: tuple[Fault, ...]
    messages: MessageFaults


def draw(seed: int, window_s: float, kinds: Sequence[str] = tuple(KINDS)) -> Schedule:
    """One to three faults of members and links within ``window_s``, and, in every second run, faults of messages."""
    rng = random.Random(seed)
    weights = [KINDS[kind] for kind in kinds]
    faults = [
        Fault(rng.uniform(0, window_s), rng.choices(kinds, weights)[0], rng.uniform(0.2, 1.0), rng.random())
        for _ in range(rng.choice((1, 1, 2, 3)))
    ]
    messages = MessageFaults()
    if rng.random() < 0.5:
        messages = MessageFaults(
            lose=0.0002,
            twice=0.01,
            corrupt=0.0002,
            swap=0.0002,
            late=0.01,
            until_s=START_S + 3 * window_s,
            seed=rng.getrandbits(32),
        )
    mode = ("pipe", "async")[seed % 2]
    return Schedule(seed, mode, tuple(sorted(faults, key=lambda fault: fault.at_s)), messages)
