"""Counts what a run has cost so far, and tells when it reaches a limit. Pure: the time is an argument.

1. Reported bills lag: an invocation is billed when it ends, and a worker may pull tasks for 15 minutes. So environment
   time is also counted here, from the reports in graph servers' heartbeats. An environment that was alive at the last
   report, or was invoked since, counts as running for the whole time between reports.
2. The cost is the larger of billed and counted time: a run may cost less than reported, never more. After a server's
   last report, its bill is complete, unless it gave up ("cut") environments that still ran. The known cost of earlier
   attempts is added.
3. A limit is reached when winding down (``WIND_DOWN_S``) would exceed it, with servers at on-demand prices: savings of
   spot are an average, and a limit must hold on any day. A function that hangs cannot be stopped from here: Lambda
   bills it until ``lambda.timeout_s``.
4. A run's clock starts with its roles. Preparing a graph costs no money, and the next run can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from siafu.config import Config
from siafu.errors import PriceUnknown
from siafu.pricing import cost
from siafu.pricing.cost import Cost

#: Workers finish the task at hand and leave; weights are fetched; servers say goodbye.
WIND_DOWN_S = 5.0
#: What is left of a time limit for that, at most.
WIND_DOWN_SHARE = 0.1

LIMITS = BUDGET, TIME = "budget", "time"


@dataclass
class _Counted:
    """Usage of one graph server's environments."""

    alive: int = 0
    launched: float = 0.0
    before_gb_s: float = 0.0  # of the attempts before
    billed_gb_s: float = 0.0  # with those
    init_ms: float = 0.0  # of what was billed
    sent_bytes: float = 0.0  # from environments to servers
    environment_s: float = 0.0  # rule 1
    at: float = 0.0  # of the last report
    final: bool = False


class Meter:
    def __init__(self, config: Config):
        """Raises PriceUnknown if there is a budget and something has no price. Without a budget, the cost of such a run
        is "nothing", with the reason."""
        self.config = config
        self.budget_usd, self.max_s = config.run.budget_usd, config.run.max_seconds
        self._unpriced: Cost | None = None
        try:
            cost.of_run(config, requests=0, gb_s=0.0, seconds=0.0)
        except PriceUnknown as unknown:
            if self.budget_usd:
                raise PriceUnknown(f"run.budget_usd = {self.budget_usd:g}: {unknown}") from None
            self._unpriced = Cost({}, f"nothing: {unknown}")
        # All mutable state:
        self.begun = 0.0
        self._servers: dict[int, _Counted] = {}

    def begin(self, now: float) -> None:
        """Notes that the run's roles are started."""
        self.begun = now

    def carry(self, server: int, totals: Mapping[str, float], now: float) -> None:
        """Takes in a server's totals of the earlier attempts."""
        self.report(server, totals, now, alive=0)
        self._servers[server].before_gb_s = totals.get("gb_s", 0.0)

    def report(self, server: int, totals: Mapping[str, float], now: float, alive: int | None = None) -> None:
        """Takes in the totals of a graph server's backend. ``alive``: its environments, if the report has them."""
        mine = self._servers.setdefault(server, _Counted(at=now))
        launched = totals.get("invocations", 0.0)  # without refused invocations, once these are known
        since = max(0.0, launched - mine.launched)
        mine.environment_s += (mine.alive + since) * (now - mine.at)
        mine.alive = mine.alive + int(since) if alive is None else alive
        mine.launched, mine.billed_gb_s, mine.at = launched, totals.get("gb_s", 0.0), now
        mine.init_ms, mine.sent_bytes = totals.get("init_ms", 0.0), totals.get("bytes_in", 0.0)

    def last_word(self, server: int, totals: Mapping[str, float], now: float) -> None:
        """Takes in a server's final totals. They cover all its environments but those that were cut (rule 2)."""
        cut = int(totals.get("cut", 0))
        self.report(server, totals, now, alive=cut)
        self._servers[server].final = not cut

    def cost(self, now: float, *, on_demand: bool = False) -> Cost:
        """The cost so far. ``on_demand``: with servers at the on-demand price, even if they are spot machines."""
        if self._unpriced is not None:
            return self._unpriced
        servers = self._servers.values()
        usage = {
            "invocations": sum(server.launched for server in servers),
            "gb_s": sum(self.gb_s(server, now) for server in self._servers),
            "init_ms": sum(server.init_ms for server in servers),
            "bytes_in": sum(server.sent_bytes for server in servers),
        }
        amounts = cost.amounts_of(self.config, usage, now - self.begun if self.begun else 0.0)
        return cost.of_run(self.config, **amounts, on_demand=on_demand)

    def reached(self, now: float, ahead_s: float = 0.0) -> str:
        """The limit that the run will reach within ``ahead_s``: BUDGET, TIME or ""."""
        if self.max_s and now - self.begun + ahead_s + min(WIND_DOWN_S, WIND_DOWN_SHARE * self.max_s) >= self.max_s:
            return TIME
        if self.budget_usd and self.cost(now + ahead_s + WIND_DOWN_S, on_demand=True).usd >= self.budget_usd:
            return BUDGET
        return ""

    def gb_s(self, index: int, now: float) -> float:
        """GB-seconds of one graph server's environments, by rule 2."""
        if (server := self._servers.get(index)) is None:
            return 0.0
        if server.final:
            return server.billed_gb_s
        environment_s = server.environment_s + server.alive * (now - server.at)
        counted_gb_s = cost.memory_gb_s(environment_s, self.config.lambdas.memory_mb)
        return max(server.billed_gb_s, server.before_gb_s + counted_gb_s)
