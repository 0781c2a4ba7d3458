"""Decides whether a failed run starts again. Pure.

1. Transient failures are retried: a member that died, hung or fell silent, a link that lost a message (``PeerLost``).
   Failures that would repeat are not: a wrong setting, broken data, numerical errors of the model.
2. A run restarts after a failure, also after a failure during a restart. But it restarts at most ``run.restarts`` times
   in a row without a new version of the weights in between: such a failure is not transient.
3. An exception that is not ours may be transient (no memory, a full disk). But the same type, text and place twice at
   one version is not: the run ends with it (``UnknownError``).
4. A run whose roles never met has nothing to lose: it ends at once, with the reason.
"""

from __future__ import annotations

from siafu.errors import GnnError, PeerLost, UnknownError


class Supervisor:
    def __init__(self, restarts: int):
        self.restarts = restarts
        # All mutable state:
        self._in_row = 0
        self._version = -1  # that it went on from after the last failure
        self._unknown: tuple[str, int] | None = None  # the last exception that was none of ours, and its version
        self._repeated = False

    def again(self, error: GnnError, version: int, *, joined: bool) -> bool:
        """Whether to restart from ``version`` after this error. ``joined``: whether all roles had joined, in this
        attempt or before."""
        if not isinstance(error, PeerLost) or not joined:
            return False
        if isinstance(error, UnknownError):
            self._repeated, self._unknown = self._unknown == (error.what, version), (error.what, version)
        if self._repeated:
            return False
        self._in_row = 1 if version > self._version else self._in_row + 1
        self._version = max(version, self._version)
        return self._in_row <= self.restarts

    def last_words(self, error: GnnError) -> GnnError:
        """The error of a run that is given up."""
        if self._repeated and isinstance(error, PeerLost):
            epochs = self._unknown[1] if self._unknown else 0
            return PeerLost(f"{error}; it came twice after {epochs} epochs, and would come again")
        if not isinstance(error, PeerLost) or not self.restarts or self._in_row <= self.restarts:
            return error
        return PeerLost(
            f"{error}; that was failure {self._in_row} in a row after {self._version} epochs, "
            f"run.restarts = {self.restarts}"
        )
