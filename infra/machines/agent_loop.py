"""One role on a machine: carries out the decisions of ``infra.machines.agent_state``, with a child on a leash and a
thread for files.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.machines import graph_store
from infra.machines.address_exchange import Place
from infra.machines.agent_state import Duty, Fetch, Order, Start, Stop
from infra.machines.mailbox import Mailbox, order_key, report_key, run_key
from infra.machines.runfiles import Sender
from infra.machines.secret_store import Vault
from run_coordinator import live_status
from run_coordinator.hosts.child import Child
from siafu import __version__, start
from siafu import config as configs
from siafu.address import COORDINATOR, Address
from siafu.errors import ConfigError, GnnError, RemoteProtocolError
from siafu.keys import Ring, of_member, public_of
from siafu.run_files import CONFIG

logger = logging.getLogger("agent")

#: Between two looks into the bucket. At S3's prices an agent that waits costs 6 cents a day,
#: one at work half a cent an hour.
POLL_S = 1.0
#: Looks between two reports: of one that waits, of one at work, and while somebody watches.
IDLE, BEAT, SHOWN = 15, 5, 2
#: A coordinator that was asked to end may take so long: its members say goodbye first.
GENTLE_S = 20.0
MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class Setting:
    """Where an agent runs, and how often it looks for orders."""

    mailbox: Mailbox
    work: Path  # graphs and runs
    machine: str  # its name
    host: str  # address that others dial
    poll_s: float = POLL_S


class Post:
    """One role's duty and its process. Use in a ``with`` block, which ends both."""

    def __init__(self, member: Address, setting: Setting):
        self.member, self.setting, self.mailbox = member, setting, setting.mailbox
        before = self.mailbox.read(report_key(member))
        # All mutable state:
        self.duty = Duty(member, before.value if before else None)
        self._child: Child | None = None
        self._sender: Sender | None = None
        self._pool = ThreadPoolExecutor(1, f"fetch {member}")
        self._fetch: Future[Path] | None = None
        self._come = (0, 0)  # bytes of the graph that are here, of how many had to come
        self._graph = Path()
        self._killed_at = float("inf")
        self._reported: dict[str, Any] = {}
        self._reported_at = self._sought_at = -float("inf")
        self._keep_end()

    def turn(self, now: float, notice: str) -> None:
        """Handles everything once. ``notice``: the cloud's notice about the machine."""
        if self._child is not None or (self._sender is None and not self.duty.unkept):  # else the last run is not over
            self._do(self.duty.receive(self._order()))
        if self._fetch is not None and self._fetch.done():
            self._take_graph(self._fetch)
        self._watch_child(now)
        if self._child is None and self._sender is None and self.duty.unkept:
            self._ended()  # may fail: then again in the next turn
        if self._child is not None and now - self._sought_at >= BEAT * self.setting.poll_s:
            self._sought_at = now
            self._seek_coordinator()
        self._report(now, notice)

    def _order(self) -> Order | None:
        """The order in the bucket. None without one, and for an invalid order, which is reported."""
        try:
            letter = self.mailbox.read(order_key(self.member))
            return Order.of(letter.value) if letter else None
        except RemoteProtocolError as error:
            if str(error) != self.duty.error:
                logger.warning("%s: %s", self.member, error)
            self.duty.refused(str(error))
            return None

    # --- actions ------------------------------------------------------------------------------------------------------

    def _do(self, actions: Sequence[Fetch | Start | Stop]) -> None:
        for action in actions:
            match action:
                case Fetch(order=order):
                    self._come = (0, 0)
                    self._fetch = self._pool.submit(self._bring, order)
                case Start(order=order):
                    self._start(order)
                case Stop(gently=gently):
                    self._stop(gently)

    def _bring(self, order: Order) -> Path:
        """Fetches the graph; runs in the pool."""

        def say(come: int, total: int) -> None:
            self._come = (come, total)

        folder = self.setting.work / "shards"
        folder.mkdir(parents=True, exist_ok=True)
        partitions = (self.member.index,) if self.member.role == "graph_server" else ()
        return graph_store.fetch(self.mailbox, order.data, folder, partitions, say)

    def _take_graph(self, fetch: Future[Path]) -> None:
        self._fetch = None
        try:
            self._graph = fetch.result()
            error = ""
        except (GnnError, OSError) as found:
            error = str(found)
            logger.warning("%s: %s", self.member, error)
        self._do(self.duty.fetched(error))

    def _start(self, order: Order) -> None:
        """Starts the order's process; an error counts as its end."""
        folder = self.setting.work / "runs" / f"{order.run}-{self.member.role}-{self.member.name}"
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, mode=0o700)
            data = self.mailbox.get(run_key(order.run, CONFIG), MAX_CONFIG_BYTES)
            if data is None:
                raise ConfigError(f"run {order.run}: no config in bucket {self.mailbox.bucket}")
            (folder / CONFIG).write_bytes(data)
            configs.load(folder / CONFIG)
            self._child = self._process(order, folder)
        except (GnnError, OSError) as error:
            self.duty.exited(1, str(error))
            return
        logger.info("%s of run %s: started, process %d", self.member, order.run, self._child.pid)
        self._sender = Sender(self.mailbox, order.run, folder, self.setting.poll_s)
        self._sender.__enter__()

    def _process(self, order: Order, run_dir: Path) -> Child:
        if self.member == COORDINATOR:
            place = Place(
                bucket=self.mailbox.bucket,
                endpoint=self.mailbox.endpoint,
                region=self.mailbox.region,
                run=order.run,
                data=order.data,
                listen=self.setting.host,
                poll_s=self.setting.poll_s,
            )
            place.write(run_dir)
            command = start.command(
                "infra.machines.coordinate", "--shards", str(self._graph), "--run-dir", str(run_dir)
            )
            return Child(command, run_dir / "logs" / "coordinator.log")
        return Child.member(
            self.member,
            order.coordinator,
            bytes.fromhex(order.run_id),
            shards=self._graph,
            run_dir=run_dir,
            listen=self.setting.host,
            keys=self._keys(order),
        )

    def _keys(self, order: Order) -> Ring | None:
        """Keys of the role that the order starts. They leave this process only by the child's stdin."""
        if not order.secret:
            return None
        vault = Vault(endpoint=self.mailbox.endpoint, region=self.mailbox.region)
        return of_member(vault.get(order.secret), self.member, public_of(order.public))

    def _stop(self, gently: bool) -> None:
        if self._child is None:
            return
        if gently:
            self._child.interrupt()
            self._killed_at = time.monotonic() + GENTLE_S
        else:
            self._child.kill()

    # --- what happens by itself ---------------------------------------------------------------------------------------

    def _watch_child(self, now: float) -> None:
        if self._child is not None and now >= self._killed_at:
            self._child.kill()
        if self._child is not None and (code := self._child.poll()) is not None:
            line = self._child.last_line()
            logger.info("%s: ended, code %d: %s", self.member, code, line)
            self.duty.exited(code, line)
            self._child.close()  # what is left of its group
            self._child, self._killed_at = None, float("inf")
            assert self._sender is not None
            self._sender.finish()
        if self._sender is not None and self._child is None and self._sender.done:
            self._sender.__exit__(None, None, None)
            shutil.rmtree(self._sender.folder, ignore_errors=True)
            self._sender = None

    def _ended(self) -> None:
        """Records that the order has ended, and that its process's files, if any, are in the bucket."""
        self._keep_end()
        self.duty.kept()

    def _keep_end(self) -> None:
        """Writes a run's end beside its files: it outlives the report, which the next run replaces."""
        end = self.duty.end
        if self.member == COORDINATOR and end is not None and end.run:
            self.mailbox.replace(run_key(end.run, "end.json"), {"code": end.code, "last_line": end.last_line}, None)

    @property
    def idle(self) -> bool:
        """Whether an order was finished, and there is no other."""
        duty = self.duty
        return duty.order is not None and duty.state == "waiting" and duty.end is not None and duty.end.kept

    def _seek_coordinator(self) -> None:
        if self.member == COORDINATOR or self.duty.order is None:
            return
        letter = self.mailbox.read(run_key(self.duty.order.run, "coordinator.json"))
        if letter is None or letter.silent:
            logger.warning("%s: the coordinator of run %s is gone", self.member, self.duty.order.run)
            self._do(self.duty.leave())

    def _report(self, now: float, notice: str) -> None:
        """Writes a report every few seconds, and at once if something is new."""
        said = {**self.duty.report(), "notice": notice}
        at_work = self.duty.state != "waiting"
        shown = self.duty.state == "fetching" or (self.member == COORDINATOR and at_work)
        every_s = self.setting.poll_s * (BEAT if at_work else IDLE)
        due_s = self.setting.poll_s * SHOWN if shown else every_s
        if said == self._reported and now - self._reported_at < due_s:
            return
        come, total = self._come
        report: dict[str, Any] = {
            **said,
            "every_s": every_s,
            "machine": self.setting.machine,
            "host": self.setting.host,
            "siafu": __version__,
            "pid": os.getpid(),
            "fetched_bytes": come,
            "fetch_bytes": total,
        }
        if self._sender is not None:
            report["status"] = live_status.read(self._sender.folder)
        self.mailbox.write(report_key(self.member), report)
        self._reported, self._reported_at = said, now

    def __enter__(self) -> Post:
        return self

    def __exit__(self, *_: object) -> None:
        """Kills the process, and keeps its files."""
        if self._child is not None:
            self._child.kill()
            self._child.close()
            self.duty.exited(self._child.poll() or 0, "its agent was stopped")
            self._child = None
        if self._sender is not None:
            self._sender.__exit__(None, None, None)
            self._sender = None
        if self.duty.unkept:
            self._ended()
            self._report(float("inf"), "")
        self._pool.shutdown(wait=True, cancel_futures=True)
