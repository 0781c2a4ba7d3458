"""The decisions of an agent for one role of a deployment: orders in, actions out. Pure.

Rules:
1. An order is taken once. A restarted agent learns from its predecessor's report which order that had taken: the
   order's process died with the predecessor, and is reported as lost, not started again.
2. ``fetch`` brings the graph; ``start`` fetches whatever is missing, then starts the role's process; ``stop`` ends it.
3. An order to start another run ends the present process first, and is taken once that is over. An order to stop
   another run is ignored.
4. A process without a coordinator is ended. A coordinator is asked to end and may say goodbye
   to its members; servers are killed.
5. Every order to start ends in exactly one ``ended`` of the report, whatever happens.
"""

from __future__ import annotations

import re
import signal
from dataclasses import asdict, dataclass
from typing import Any, Literal

from infra.machines.mailbox import checked_run, shards_key
from infra.machines.secret_store import checked_parameter
from run_coordinator.hosts import LOST
from siafu.address import Address
from siafu.errors import RemoteProtocolError

#: Exit code of what ended because it was asked to, as Ctrl-C gives it.
STOPPED = 128 + signal.SIGINT

State = Literal["waiting", "fetching", "ready", "running", "ending"]


@dataclass(frozen=True)
class Order:
    """The content of ``orders/<role>-<index>.json``."""

    id: str
    do: Literal["fetch", "start", "stop"]
    run: str
    data: str = ""  # digest of the graph; fetch and start
    run_id: str = ""  # hex; start of a server
    coordinator: str = ""  # tcp://host:port; start of a server
    secret: str = ""  # where its role's secret lies (``infra.machines.secret_store``); empty: the run has no keys
    public: str = ""  # JSON object: everybody's public keys, by name

    @classmethod
    def of(cls, value: dict[str, Any]) -> Order:
        """The order in a JSON object. RemoteProtocolError, naming the fault, unless it is an order."""
        try:
            order = cls(**{key: str(part) for key, part in value.items()})  # type: ignore[arg-type]
        except TypeError:
            raise RemoteProtocolError(f"not an order: {', '.join(map(str, value))[:200]}") from None
        checked_run(order.run)
        patterns = {
            "id": r"[0-9a-f]{8,64}",
            "do": "fetch|start|stop",
            "run_id": "([0-9a-f]{16})?",
            "coordinator": r"(tcp://[A-Za-z0-9.:\[\]-]{1,255}:\d{1,5})?",
        }
        for name, pattern in patterns.items():
            if not re.fullmatch(pattern, getattr(order, name)):
                raise RemoteProtocolError(f"order of run {order.run}: {name} = {getattr(order, name)[:80]!r}")
        if order.do != "stop":
            shards_key(order.data)
        if order.secret:
            checked_parameter(order.secret)
        return order

    @property
    def value(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Fetch:
    """An action: fetch what the order needs."""

    order: Order


@dataclass(frozen=True)
class Start:
    """An action: start the role's process."""

    order: Order


@dataclass(frozen=True)
class Stop:
    """An action: end the process; gently if it may say goodbye."""

    gently: bool


Action = Fetch | Start | Stop


@dataclass(frozen=True)
class End:
    """The end of an order's process."""

    order: str
    run: str
    code: int  # below 0 the signal, or LOST
    last_line: str
    kept: bool = False  # whether all that it wrote is in the bucket


class Duty:
    def __init__(self, member: Address, before: dict[str, Any] | None = None):
        """``before``: the report of the agent that had this duty before."""
        self.member = member
        # All mutable state:
        self.state: State = "waiting"
        self.order: Order | None = None  # the last one taken
        self.end: End | None = None
        self.error = ""  # why the last order could not be carried out
        self._done = ""  # id of an order that a predecessor has taken
        self._foreign = ""  # id of an order that is nobody's
        self._fetched: set[str] = set()  # digests
        if before:
            self._succeed(before)

    def _succeed(self, before: dict[str, Any]) -> None:
        """Takes over from an earlier agent: rule 1."""
        self._done, run = str(before.get("order", "")), str(before.get("run", ""))
        ended = before.get("ended")
        if isinstance(ended, dict) and ended.get("order") == self._done:
            self.end = End(self._done, run, int(ended.get("code", LOST)), str(ended.get("last_line", "")), True)
        elif before.get("state") in ("running", "ending"):
            self.end = End(self._done, run, LOST, "its agent was started anew", True)
        else:
            self._done = ""  # it had fetched at most

    def receive(self, order: Order | None) -> list[Action]:
        """Takes in the bucket's present order; the same order comes again and again."""
        if order is None or order.id in (self._done, self._foreign, self.order.id if self.order is not None else ""):
            return []
        if order.do == "stop" and self.state != "waiting" and self.order is not None and order.run != self.order.run:
            self._foreign = order.id
            return []
        if self.state in ("running", "ending"):
            if self.order is not None and (order.run != self.order.run or order.do == "stop"):
                return self.leave()
            return []
        if self.state == "fetching":
            return []  # taken when that is over
        if order.do == "stop":
            if self.order is None or self.order.do != "start" or self.order.run != order.run:
                self.end = End(order.id, order.run, STOPPED, "stopped before it began")
            self.order, self.state = order, "waiting"
            return []
        self.order, self.error = order, ""
        if order.do == "start" and order.data in self._fetched:
            return self._start()
        self.state = "fetching"
        return [Fetch(order)]

    def fetched(self, error: str = "") -> list[Action]:
        """Notes that the order's data has arrived, or the error that prevented it."""
        assert self.order is not None
        assert self.state == "fetching"
        self.error = error
        if error:
            self.state = "waiting"
            self.end = End(self.order.id, self.order.run, 1, error)
            return []
        self._fetched.add(self.order.data)
        if self.order.do == "start":
            return self._start()
        self.state = "ready"
        return []

    def _start(self) -> list[Action]:
        assert self.order is not None
        self.state, self.end = "running", None
        return [Start(self.order)]

    def exited(self, code: int, last_line: str) -> None:
        """Notes that the process has ended; its files are not in the bucket yet."""
        assert self.order is not None
        if self.state == "ending" and code == -signal.SIGINT:  # it had not come as far as to say so itself
            code = STOPPED
        self.state = "waiting"
        self.end = End(self.order.id, self.order.run, code, last_line)

    @property
    def unkept(self) -> bool:
        """Whether the last order has ended, and its end is not saved yet."""
        return self.end is not None and not self.end.kept

    def refused(self, error: str) -> None:
        """Notes that the bucket's content is no order."""
        self.error = error

    def kept(self) -> None:
        """Notes that the process's files, as far as they can be saved, and its end are in the bucket."""
        if self.end is not None:
            self.end = End(self.end.order, self.end.run, self.end.code, self.end.last_line, True)

    def leave(self) -> list[Action]:
        """Ends the running process, if any: nobody needs it any more (rules 3 and 4)."""
        if self.state != "running":
            return []
        self.state = "ending"
        return [Stop(gently=self.member.role == "coordinator")]

    def report(self) -> dict[str, Any]:
        """The machine's report on this duty."""
        order = self.order
        return {
            "state": self.state,
            "order": order.id if order else self._done,
            "run": order.run if order else self.end.run if self.end else "",
            "ended": asdict(self.end) if self.end else None,
            "error": self.error,
        }
