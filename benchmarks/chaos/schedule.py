"""What goes wrong in one run, and when: a function of a seed.

The first fault comes with the end of an epoch, however fast the machine is; the others seconds after it, so that they
meet the recovery of the first, or training. A run with the same seed and the same settings meets the same faults; what
they hit depends on how far the run has got by then.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

#: Kind -> how often it is drawn, compared with the others.
KINDS = {
    "kill graph server": 3,
    "kill parameter server": 3,
    "kill Lambda": 3,
    "kill launcher": 2,
    "stop graph server": 1,
    "stop parameter server": 1,
    "stop Lambda": 1,
    "pause server": 2,
    "cut connections": 2,
    "one-way partition": 1,
    "slow link": 2,
    "corrupt bytes": 1,
    "disk full": 1,
    "clock jump": 1,
}


#: What a run may take until its first epoch.
START_S = 5.0


@dataclass(frozen=True)
class Fault:
    """``at_s``: after the first. ``seconds``: how long it lasts, of those that end; ``luck``: which of several
    members or links it hits, in [0, 1)."""

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
    truncate: float = 0.0  # its last frame is cut
    swap: float = 0.0  # sent after the next one
    late: float = 0.0  # a copy of it comes as if from an earlier attempt
    until_s: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Schedule:
    seed: int
    mode: str
    faults: tuple[Fault, ...] = ()
    messages: MessageFaults = MessageFaults()
    epochs: int = 1  # that are in when the first fault comes
    keys: bool = False  # servers.security = curve


def draw(seed: int, window_s: float, epochs: int, kinds: Sequence[str] = tuple(KINDS)) -> Schedule:
    """One to three faults of members and links within ``window_s``, the first in the first half of so many epochs, and,
    in every second run, faults of messages. Every third run has keys."""
    rng = random.Random(seed)
    weights = [KINDS[kind] for kind in kinds]
    faults = [
        Fault(
            rng.uniform(0, window_s) if i else 0.0, rng.choices(kinds, weights)[0], rng.uniform(0.2, 1.0), rng.random()
        )
        for i in range(rng.choice((1, 1, 2, 3)))
    ]
    messages = MessageFaults()
    if rng.random() < 0.5:
        messages = MessageFaults(
            lose=0.0002,
            twice=0.01,
            corrupt=0.0002,
            truncate=0.0002,
            swap=0.0002,
            late=0.01,
            until_s=START_S + 3 * window_s,
            seed=rng.getrandbits(32),
        )
    mode = ("pipe", "async")[seed % 2]
    after, keys = rng.randint(1, max(1, epochs // 2)), rng.random() < 1 / 3
    return Schedule(seed, mode, tuple(sorted(faults, key=lambda fault: fault.at_s)), messages, after, keys)
