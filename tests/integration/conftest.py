"""What integration tests share."""

from __future__ import annotations

import pytest

import siafu.models
import siafu.tensor_task
from run_coordinator.coordinator import Action, Coordinator


@pytest.fixture
def not_before_five_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in this process comes to its limit of time once five epochs are known, however slow the machine."""

    def tick(self: Coordinator, now: float) -> list[Action]:
        self.meter.max_s = self.config.run.max_seconds if len(self.ledger.losses) >= 5 else 0.0
        return real(self, now)

    real = Coordinator.tick
    monkeypatch.setattr(Coordinator, "tick", tick)


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of two rows are sent in halves, so that streaming happens on small graphs."""
    monkeypatch.setattr(siafu.tensor_task, "MIN_ROWS_PER_PART", 1)


@pytest.fixture
def words_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations transform words before they gather them, however few there are."""
    monkeypatch.setattr(siafu.models, "LEAST_WORDS", 0)
