"""Turns states of parameter servers into training states, from which a run can go on (``TrainingState``). Pure.

A state counts once every epoch before its version is in: their losses are part of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from siafu.address import Address, param_server
from siafu.training_state import LedgerState, TrainingState
from siafu.wire import ParamState, Tensors, by_version


class States:
    """Collects states of parameter servers. ``before``: the state that the run continues from."""

    def __init__(self, before: TrainingState | None):
        # All mutable state:
        self.latest = before  # the newest: with it, the next attempt loses nothing that came before
        self.given: set[Address] = set()  # parameter servers whose state is in, since they were asked
        self._waiting: list[ParamState] = []

    def take(self, message: ParamState) -> None:
        self._waiting.append(message)

    def settle(self, epochs: int, ledger: Callable[[int], LedgerState]) -> list[TrainingState]:
        """Training states of at most ``epochs`` epochs, none older than the latest: training continues from the last
        one saved. ``ledger``: gives the ledger up to a version, as JSON."""
        ripe = [message for message in self._waiting if message.version <= epochs]
        self._waiting = [message for message in self._waiting if message.version > epochs]
        states = []
        for message in ripe:
            state = _state_of(message, ledger(message.version))
            if not all(np.isfinite(W).all() for W in state.weights[state.version].values()):
                continue  # nothing goes on from it
            self.given.add(param_server(message.server))
            if self.latest is None or state.version >= self.latest.version:
                self.latest = state
                states.append(state)
        return states


def _state_of(message: ParamState, ledger: LedgerState) -> TrainingState:
    weights = {
        version: {name: np.asarray(W) for name, W in values.items()}
        for version, values in by_version(message.weights).items()
    }
    optimiser = {name: np.asarray(value) for name, value in message.optimiser.items()}
    return TrainingState(message.version, weights, optimiser, ledger)


def state_message(state: TrainingState, server: int) -> ParamState:
    """The message from which a parameter server continues."""
    weights: Tensors = {f"{v}/{name}": W for v, values in state.weights.items() for name, W in values.items()}
    best = state.ledger["best"]
    version = best["epoch"] if best else -1
    if version <= state.version and version not in state.weights:
        version = -1  # an evaluation that stopped the run was better, and is judged once more
    return ParamState(server, state.version, version, state.ledger["judged"], weights, dict(state.optimiser))
