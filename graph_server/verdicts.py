"""What an ended invocation means for those to come: the errors of Lambda's Invoke call and of the function, by class. Pure.

Sources: Lambda API reference, Invoke (errors and TooManyRequestsException.Reason); Lambda developer guide, "Lambda quotas"
and "Understanding retry behavior".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Next(Enum):
    """What to do now."""

    GO_ON = "go on"  # it ended well, or its worker died: its tasks are given to others, a new one is invoked as needed
    BACK_OFF = "back off"  # the service is busy or not ready: invoke nothing for a while, longer each time
    SHRINK = "shrink"  # we have as many as we may have: want fewer, and back off
    FAIL = "fail"  # it will be so again: end the run


@dataclass(frozen=True)
class Verdict:
    next: Next
    why: str  # for the log, or the run's error: one line that says what to do about it


def judge(error: str | None, reason: str = "") -> Verdict:
    """Of ``Ended.error`` and ``Ended.reason``."""
    return Verdict(Next.GO_ON, error or "done")  # TODO(lead's skeleton): the table
