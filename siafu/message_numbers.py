"""Numbers the messages between servers, so that none is taken twice and no loss goes unnoticed. Pure.

TCP keeps the order of a connection, but connections break: ZeroMQ replaces a broken one silently, and messages on their
way are lost. A missing row of gradients would not stop a run; it would make its result wrong.

1. A link is one direction between two members of one attempt of a run. Its messages carry 1, 2, 3, ... in the order
   they are sent; a message that could not be handed over does not use up its number.
2. A message whose number was seen is dropped and counted.
3. A message that comes after a gap is taken, but the link is broken: ``check`` raises PeerLost, and the run recovers by
   a new attempt. An unreadable message is a gap too, noticed with the next message; heartbeats make that soon.
4. Workers' links are not numbered (0), in both directions: relaunches are their recovery.
"""

from __future__ import annotations

from siafu.address import Address
from siafu.errors import PeerLost

UNNUMBERED = 0


class Links:
    """All links of the member ``me``."""

    def __init__(self, me: Address):
        self.me = me
        # All mutable state:
        self.num_repeated = 0  # messages dropped by rule 2
        self.num_lost = 0  # numbers that never came
        self._sent: dict[Address, int] = {}  # the last number to each
        self._taken: dict[Address, int] = {}  # the last number of each
        self._broken: PeerLost | None = None

    def number(self, to: Address) -> int:
        """Returns the number of the next message to a member."""
        return self._sent.get(to, 0) + 1 if self._is_numbered(to) else UNNUMBERED

    def sent(self, to: Address) -> None:
        """Records that the next message to a member was sent."""
        if self._is_numbered(to):
            self._sent[to] = self._sent.get(to, 0) + 1

    def take(self, sender: Address, number: int) -> bool:
        """Records the number of a message received. Returns whether to read the message: False if it is a repeat."""
        if not self._is_numbered(sender):
            return True
        expected = self._taken.get(sender, 0) + 1
        if number < expected:
            self.num_repeated += 1
            return False
        self._taken[sender] = number
        if (lost := number - expected) > 0:
            self.num_lost += lost
            what = "a message" if lost == 1 else f"{lost} messages"
            self._broken = self._broken or PeerLost(f"the link from {sender} to {self.me} lost {what}")
        return True

    def check(self) -> None:
        """Raises PeerLost, once, if a link has broken since the last call."""
        broken, self._broken = self._broken, None
        if broken is not None:
            raise broken

    @property
    def speakers(self) -> frozenset[Address]:
        """The members that have sent messages over a numbered link."""
        return frozenset(self._taken)

    def _is_numbered(self, peer: Address) -> bool:
        return "worker" not in (self.me.role, peer.role)
