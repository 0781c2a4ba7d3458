"""Servers of a run on the machines of a deployment. The host gives orders to their agents (``infra.machines.agent``)
through the bucket.

The coordinator uses it on a machine of the deployment. A thread reads the agents' reports once a second, and writes the
sign of life that they wait for; queries are answered from its last reading.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.machines.address_exchange import Place
from infra.machines.agent_state import Order
from infra.machines.mailbox import REPORTS, Mailbox, member_of, order_key, run_key, silent
from infra.machines.runfiles import Receiver
from infra.machines.secret_store import Vault, parameter
from run_coordinator.hosts import LOST, Death
from siafu.address import Address
from siafu.config import Config
from siafu.errors import ConfigError, GnnError, PeerLost
from siafu.keys import Keys
from siafu.progress import size

logger = logging.getLogger(__name__)

#: Machines of a new deployment take some minutes to boot.
BOOT_S = 300.0
#: How long agents may take to kill and to send what was written, when a run ends.
LAST_FILES_S = 20.0


@dataclass(frozen=True)
class Report:
    """An agent's last report, and its age when the bucket was read."""

    value: dict[str, Any]
    age_s: float

    @property
    def silent(self) -> bool:
        return silent(self.age_s, self.value.get("every_s"))

    @property
    def machine(self) -> str:
        """The machine in words: "machine i-0abc (10.0.0.5)"."""
        return f"machine {self.value.get('machine', '?')} ({self.value.get('host', '?')})"

    def ended(self, orders: Collection[str]) -> dict[str, Any] | None:
        """The end of the process that one of these orders started; None while it runs."""
        ended = self.value.get("ended")
        if isinstance(ended, dict) and ended.get("order") in orders:
            return ended
        if self.value.get("order") in orders and self.value.get("state") == "waiting":
            return {"code": LOST, "last_line": str(self.value.get("error") or "it never began"), "kept": True}
        return None


class Reports:
    """The newest report of every agent."""

    def __init__(self, mailbox: Mailbox):
        self._mailbox = mailbox
        # All mutable state:
        self._known: dict[Address, tuple[str, dict[str, Any]]] = {}  # etag, report

    def read(self) -> dict[Address, Report]:
        """Reads all reports: one listing, and only the new ones."""
        found = {}
        for entry in self._mailbox.entries(REPORTS):
            member = member_of(entry.key)
            if member is None:
                continue
            etag, value = self._known.get(member, ("", {}))
            age_s = entry.age_s
            if etag != entry.etag:
                letter = self._mailbox.read(entry.key)
                if letter is None:
                    continue
                value, age_s = letter.value, letter.age_s
                self._known[member] = letter.etag, value
            found[member] = Report(value, age_s)
        return found


class MachineHost:
    """Machines of a deployment. Use in a ``with`` block: it ends all roles of the run, and leaves the machines."""

    def __init__(self, mailbox: Mailbox, place: Place, run_dir: Path, run_id: bytes, deployment: str):
        self.listen = place.listen
        self.lag_s = 3 * place.poll_s  # the agent looks, then we do, and the bucket answers
        self._mailbox, self._place, self._run_dir, self._run_id = mailbox, place, run_dir, run_id
        self._deployment, self._vault = deployment, Vault(endpoint=place.endpoint, region=place.region)
        self._stop, self._watched = threading.Event(), threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="machines", daemon=True)
        # All mutable state:
        self._orders: dict[Address, list[str]] = {}  # ids of what each member was told
        self._reports: dict[Address, Report] = {}  # replaced by the thread, never changed
        self._collected = False
        self._deposited: list[str] = []  # names of secrets that are in the vault

    @classmethod
    def make(cls, config: Config, run_dir: Path, shards: Path, run_id: bytes) -> MachineHost:
        place = Place.read(run_dir)
        mailbox = Mailbox(place.bucket, endpoint=place.endpoint, region=place.region)
        return cls(mailbox, place, run_dir, run_id, config.cloud.name)

    def start(self, member: Address, coordinator: str, keys: Keys | None = None) -> None:
        report = self._reports.get(member)
        if report is None or report.silent:
            raise PeerLost(absent(member, report))
        order = Order(
            _id(),
            "start",
            self._place.run,
            self._place.data,
            self._run_id.hex(),
            coordinator,
            secret="" if keys is None else self._deposit(member.role, keys),
            public=json.dumps(keys.public) if keys else "",
        )
        self._orders[member] = [order.id]
        self._mailbox.write(order_key(member), order.value)

    def _deposit(self, role: str, keys: Keys) -> str:
        """Stores the secret of a role; returns its name for the role's members."""
        name = parameter(self._deployment, role, self._run_id)
        if name not in self._deposited:
            self._vault.put(name, keys.role_secret(role))
            self._deposited.append(name)
        return name

    def _withdraw(self) -> None:
        """Removes the secrets once every member has started, or none will. They open nothing once the run is over."""
        names, self._deposited = self._deposited, []
        try:
            if names:
                self._vault.remove(names)
        except GnnError as error:
            logger.warning("these secrets of the run are left: %s", error)

    def dead(self) -> Death | None:
        if self._deposited and all(map(self._has_begun, self._orders)):
            self._withdraw()
        ends = [death for member in self._orders if (death := self._death(member)) is not None]
        # One that was killed rather than one that gave up, and one whose end is known
        # rather than a machine that is silent.
        return min(ends, key=lambda death: (death.code >= 0, death.code == LOST), default=None)

    def _has_begun(self, member: Address) -> bool:
        """Whether the member's process runs, or has run: then it has its keys."""
        report = self._reports[member]
        taken = report.value.get("order") in self._orders[member] and report.value.get("state") in ("running", "ending")
        return taken or report.ended(self._orders[member]) is not None

    def _death(self, member: Address) -> Death | None:
        report = self._reports[member]
        ended = report.ended(self._orders[member])
        if ended is not None:
            code = ended.get("code")
            line = f"{str(ended.get('last_line'))[:400]} ({report.machine})"
            return Death(member, code if isinstance(code, int) else LOST, line)
        if report.silent:
            return Death(member, LOST, f"{report.machine} has said nothing for {report.age_s:.0f} s")
        if report.value.get("notice"):
            return Death(member, LOST, f"{report.machine}: {str(report.value['notice'])[:200]}")
        return None

    @property
    def num_alive(self) -> int:
        return sum(not self._gone(member) for member in self._orders)

    def _gone(self, member: Address) -> bool:
        report = self._reports[member]
        return report.silent or report.ended(self._orders[member]) is not None

    def kill(self, member: Address) -> None:
        if member in self._orders and not self._gone(member):
            order = Order(_id(), "stop", self._place.run)
            self._orders[member].append(order.id)
            self._mailbox.write(order_key(member), order.value)

    def wait(self, timeout_s: float) -> bool:
        return self._until(lambda: self.num_alive == 0, timeout_s)

    def collect(self) -> None:
        if self._collected:
            return
        self._collected = True
        self._end_all()
        Receiver(self._mailbox, self._place.run, self._run_dir).update(("logs/", "trace-"))

    def _end_all(self) -> None:
        """Ends every process, and waits until its files are in the bucket, as far as its agent lives to send them."""
        for member in self._orders:
            self.kill(member)

        def kept(member: Address) -> bool:
            report = self._reports[member]
            return report.silent or bool((report.ended(self._orders[member]) or {}).get("kept"))

        if not self._until(lambda: all(map(kept, self._orders)), LAST_FILES_S):
            late = ", ".join(str(member) for member in self._orders if not kept(member))
            logger.warning("%s: what it wrote last is not in the bucket after %g s", late, LAST_FILES_S)

    def _until(self, happened: Callable[[], bool], timeout_s: float) -> bool:
        with self._watched:
            return self._watched.wait_for(happened, timeout_s)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        reports, beaten_at = Reports(self._mailbox), -float("inf")
        every_s = 5 * self._place.poll_s
        while not self._stop.wait(self._place.poll_s):
            try:
                if time.monotonic() - beaten_at >= every_s:
                    self._beat()
                    beaten_at = time.monotonic()
                self._read(reports)
            except (
                GnnError
            ) as error:  # the bucket may be out of reach for a while: members talk to each other without it
                logger.warning("%s", error)

    def _read(self, reports: Reports) -> None:
        found = {**self._reports, **reports.read()}
        with self._watched:
            self._reports = found
            self._watched.notify_all()

    def _beat(self) -> None:
        self._mailbox.write(run_key(self._place.run, "coordinator.json"), {"every_s": 5 * self._place.poll_s})

    def __enter__(self) -> MachineHost:
        self._beat()
        self._read(Reports(self._mailbox))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._withdraw()
            if not self._collected:
                with contextlib.suppress(GnnError):
                    self._end_all()
        finally:
            self._stop.set()
            self._thread.join()


def await_agents(
    mailbox: Mailbox,
    place: Place,
    members: Iterable[Address],
    limit_s: float,
    say: Callable[[int, int, list[Address]], None],
) -> None:
    """Waits until the machine of every member is there and has its part of the graph.

    ``say`` gets the bytes that have arrived, their total, and the members whose machines still boot. ConfigError if a
    machine is missing or cannot take its part. PeerLost if nothing has arrived for ``limit_s``; booting machines have
    at least ``BOOT_S``.
    """
    orders = {member: Order(_id(), "fetch", place.run, place.data) for member in members}
    for member, order in orders.items():
        mailbox.write(order_key(member), order.value)
    reports, moved_at, come = Reports(mailbox), time.monotonic(), -1
    while True:
        found = reports.read()
        for member, order in orders.items():
            ended = found[member].ended([order.id]) if member in found else None
            if ended is not None:
                raise PeerLost(f"{member}: {str(ended.get('last_line'))[:400]} ({found[member].machine})")
        there = {
            member: report.value
            for member, report in found.items()
            if member in orders and not report.silent and report.value.get("order") == orders[member].id
        }
        boots = [member for member in orders if member not in found or found[member].silent]
        bytes_here = sum(int(value.get("fetched_bytes", 0)) for value in there.values())
        say(bytes_here, sum(int(value.get("fetch_bytes", 0)) for value in there.values()), boots)
        if sum(value.get("state") == "ready" for value in there.values()) == len(orders):
            return
        if bytes_here + len(there) != come:
            come, moved_at = bytes_here + len(there), time.monotonic()
        waited_s = time.monotonic() - moved_at
        for member in orders:
            if member in boots and waited_s > max(limit_s, BOOT_S):
                raise ConfigError(f"{absent(member, found.get(member))}; waited {waited_s:.0f} s")
            if member not in boots and there.get(member, {}).get("state") != "ready" and waited_s > limit_s:
                raise PeerLost(f"{member}: nothing of its graph has come for {limit_s:g} s ({found[member].machine})")
        time.sleep(place.poll_s)


def share(done: int, total: int) -> str:
    """ "40% of 1.2 GB", in steps of ten: each is a line where there is no terminal."""
    return f"{10 * (10 * done // max(total, 1))}% of {size(total)}"


def absent(member: Address, report: Report | None) -> str:
    """The reason why nobody can serve as this member."""
    if report is None:
        return (
            f"{member}: no machine of the deployment has this role; see siafu status, or siafu deploy with more of them"
        )
    return f"{member}: {report.machine} has said nothing for {report.age_s:.0f} s; see siafu status"


def _id() -> str:
    return secrets.token_hex(8)
