"""Adds up what graph servers have used since the run began, attempts before a restart included. Pure.

``totals`` serve the metrics and the result: they come with reports of epochs, and with final reports. Reports in
between serve the bill (``run_coordinator.meter``), the progress line, and the check that work goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

from run_coordinator.actions import Status
from run_coordinator.meter import Meter
from run_coordinator.reports import added, totals_of
from siafu.wire import EpochReport, Stopped, Usage

Totals = dict[str, float]


class Usages:
    """Usage totals of graph servers. ``before``: graph server -> totals of earlier attempts."""

    def __init__(self, meter: Meter, before: Mapping[int, Totals]):
        self._meter, self._before = meter, before
        # All mutable state:
        self.totals: dict[int, Totals] = dict(before)
        self.billed: set[int] = set()  # graph servers whose last word was what everything cost
        self._latest: dict[int, Totals] = {}  # what each last said
        self._live: dict[int, Usage] = {}
        self._num_tasks: dict[int, float] = {}  # tensor tasks that each has done

    def begin(self, now: float) -> None:
        for server, totals in self._before.items():
            self._meter.carry(server, totals, now)

    def epoch(self, message: EpochReport, now: float) -> None:
        totals = self.totals[message.server] = self._take(message.server, message)
        self._meter.report(message.server, totals, now)

    def last_word(self, message: Stopped, now: float) -> None:
        totals = self.totals[message.index] = self._take(message.index, message)
        self._meter.last_word(message.index, totals, now)
        if not totals.get("cut", 0):
            self.billed.add(message.index)

    def live(self, message: Usage, now: float) -> bool:
        """Takes in a server's usage; whether it has done tasks since its last message."""
        totals = self._take(message.server, message)
        self._meter.report(message.server, totals, now, alive=message.workers)
        self._live[message.server] = message
        before, self._num_tasks[message.server] = self._num_tasks.get(message.server, 0), totals.get("tasks", 0)
        return before != self._num_tasks[message.server]

    def show(self, status: Status) -> None:
        status.tasks_in_flight = sum(usage.tasks_in_flight for usage in self._live.values())
        status.workers = sum(usage.workers for usage in self._live.values())

    def spent(self, now: float) -> dict[int, Totals]:
        """The latest totals of each server, with the cost of running workers since then."""
        return {
            server: {**totals, "gb_s": self._meter.gb_s(server, now)} if "gb_s" in totals else totals
            for server, totals in {**self.totals, **self._latest}.items()
        }

    def _take(self, server: int, message: EpochReport | Usage | Stopped) -> Totals:
        totals = self._latest[server] = added(self._before.get(server, {}), totals_of(message))
        return totals
