"""What integration tests share."""

from __future__ import annotations

import pytest

from run_coordinator.coordinator import Action, Coordinator


@pytest.fixture
def not_before_five_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in this process comes to its limit of time once five epochs are known, however slow the machine."""

    def tick(self: Coordinator, now: float) -> list[Action]:
        self.meter.max_s = self.config.run.max_seconds if len(self.ledger.losses) >= 5 else 0.0
        return real(self, now)

    real = Coordinator.tick
    monkeypatch.setattr(Coordinator, "tick", tick)
