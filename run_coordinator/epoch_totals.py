"""Results and cost of a run's epochs: the coordinator's part of a ``TrainingState``. Pure.

A checkpoint holds it as JSON, and a resumed run begins with it: earlier epochs and evaluations stay recorded, and
earlier cost stays spent.
"""

from __future__ import annotations

from collections.abc import Mapping

from siafu.run_files import Evaluation
from siafu.stopping import Stopping
from siafu.training_state import LedgerState, Verdicts


class Ledger:
    def __init__(self, stop_on: str, before: LedgerState | None = None):
        """``stop_on``: ``train.stop_on``; ``before``: what ``dump`` has given."""
        self.stopping = Stopping(stop_on)
        # All mutable state:
        self.losses: list[float] = []
        self.epoch_seconds: list[float] = []
        self.best: Evaluation | None = None  # the best evaluation's record
        self.final: Evaluation | None = None  # the last one's
        self.judged = -1  # the last evaluation that is in
        self.skipped: dict[int, str] = {}  # epoch whose step was left out -> where what was not finite came from
        self.spent: dict[int, dict[str, float]] = {}  # graph server -> totals of the attempts before
        self._verdicts: Verdicts | None = None  # before the evaluation that stopped the run
        self.seconds = 0.0  # of training, before
        self.role_seconds = 0.0  # that roles ran, before
        if before is not None:
            self._recall(before)

    def verdicts(self) -> Verdicts:
        """The results of all evaluations so far, as JSON."""
        return {"best": self.best, "final": self.final, "judged": self.judged, "stopping": self.stopping.state()}

    def stop(self, before: Verdicts) -> None:
        """Keeps ``before``, the ``verdicts`` without the evaluation that ended the run, for all later dumps. A resumed
        run judges that evaluation again and stops by it. A run at a limit does not call this, and continues behind its
        last evaluation."""
        self._verdicts = before

    def dump(
        self, version: int, usage: Mapping[int, Mapping[str, float]], seconds: float, role_seconds: float
    ) -> LedgerState:
        """The ledger of the epochs before ``version``, as JSON. The other arguments are totals since the run began."""
        return {
            "losses": self.losses[:version],
            "epoch_seconds": self.epoch_seconds[:version],
            **(self._verdicts or self.verdicts()),
            "usage": {str(server): dict(totals) for server, totals in usage.items()},
            "seconds": seconds,
            "role_seconds": role_seconds,
            "skipped": {str(epoch): where for epoch, where in self.skipped.items() if epoch < version},
        }

    @staticmethod
    def usage_of(dumped: LedgerState) -> dict[int, dict[str, float]]:
        """Usage totals of each graph server."""
        return {int(server): dict(totals) for server, totals in dumped["usage"].items()}

    def _recall(self, before: LedgerState) -> None:
        self.losses, self.epoch_seconds = list(before["losses"]), list(before["epoch_seconds"])
        self.best, self.final, self.judged = before["best"] or None, before["final"] or None, before["judged"]
        self.stopping.restore(before["stopping"])
        self.skipped = {int(epoch): str(where) for epoch, where in before["skipped"].items()}
        self.spent = self.usage_of(before)
        self.seconds, self.role_seconds = float(before["seconds"]), float(before["role_seconds"])
