"""What runs on every deployed machine, all the time: looks for orders in the bucket, carries them out, says how it went.

python -m infra.agent --bucket BUCKET --deployment NAME [--role ROLE --index I] [--endpoint URL] [--once]

systemd starts it and starts it again. One machine has one role, by its instance tags siafu:role and siafu:index; that of
parameter server 0 also runs the coordinator, which needs little. A role's process is a child on a leash: it cannot outlive
the agent. ``Post`` carries out what ``infra.duty`` decides.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from bench.hosts.child import Child
from infra import depot
from infra.duty import Duty, Fetch, Order, Start, Stop
from infra.imds import Metadata
from infra.mailbox import Mailbox, order_key, report_key, run_key
from infra.place import Place, read_status
from infra.runfiles import Sender
from siafu import __version__
from siafu import config as configs
from siafu.address import COORDINATOR, Address, param_server
from siafu.errors import ConfigError, GnnError

logger = logging.getLogger("agent")

#: Between two looks into the bucket. At one a second an agent costs 4 cents a day, all in all.
POLL_S = 1.0
#: Looks between two reports, and between two looks for the coordinator; and between reports that somebody watches.
BEAT, SHOWN = 5, 2
#: A coordinator that was asked to end may take so long: its members say goodbye first.
GENTLE_S = 20.0
MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class Setting:
    """Where an agent is and how often it looks."""

    mailbox: Mailbox
    work: Path  # graphs and runs
    machine: str  # its name
    host: str  # address that others dial
    poll_s: float = POLL_S

    @property
    def every_s(self) -> float:
        """Between two reports."""
        return BEAT * self.poll_s


class Post:
    """One role's duty and its process. Use in a ``with`` block: nothing of it is left."""

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
        """Looks at everything once. ``notice``: what the cloud has said about the machine."""
        letter = self.mailbox.read(order_key(self.member))
        self._do(self.duty.receive(Order.of(letter.value) if letter else None))
        if self._fetch is not None and self._fetch.done():
            self._take_graph(self._fetch)
        self._watch_child(now)
        if self._child is not None and now - self._sought_at >= self.setting.every_s:
            self._sought_at = now
            self._seek_coordinator()
        self._report(now, notice)

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
        """Runs in the pool."""

        def say(come: int, total: int) -> None:
            self._come = (come, total)

        folder = self.setting.work / "shards"
        folder.mkdir(parents=True, exist_ok=True)
        partitions = (self.member.index,) if self.member.role == "graph_server" else ()
        return depot.fetch(self.mailbox, order.data, folder, partitions, say)

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
        """The process that the order is for; an error is its end."""
        folder = self.setting.work / "runs" / f"{order.run}-{self.member.role}-{self.member.name}"
        try:
            shutil.rmtree(folder, ignore_errors=True)
            files = folder / "files"
            files.mkdir(parents=True)
            config_file = folder / "config.toml"
            data = self.mailbox.get(run_key(order.run, "config.toml"), MAX_CONFIG_BYTES)
            if data is None:
                raise ConfigError(f"run {order.run}: no config in bucket {self.mailbox.bucket}")
            config_file.write_bytes(data)
            configs.load(config_file)
            self._child = self._process(order, folder, config_file)
        except (GnnError, OSError) as error:
            self.duty.exited(1, str(error))
            self._ended()
            return
        logger.info("%s of run %s: started, process %d", self.member, order.run, self._child.pid)
        self._sender = Sender(self.mailbox, order.run, folder / "files", self.setting.poll_s)
        self._sender.__enter__()

    def _process(self, order: Order, folder: Path, config_file: Path) -> Child:
        files = folder / "files"
        if self.member == COORDINATOR:
            place = Place(
                bucket=self.mailbox.bucket, endpoint=self.mailbox.endpoint, region=self.mailbox.region, run=order.run,
                data=order.data, listen=self.setting.host, poll_s=self.setting.poll_s,
            )  # fmt: skip
            place.write(files)
            command = [
                sys.executable, "-m", "infra.coordinate", "--config", str(config_file), "--shards", str(self._graph),
                "--run-dir", str(files),
            ]  # fmt: skip
            return Child(command, files / "logs" / "coordinator.log")
        return Child.member(
            self.member, order.coordinator, bytes.fromhex(order.run_id), config_file=config_file, shards=self._graph,
            run_dir=files, listen=self.setting.host,
        )  # fmt: skip

    def _stop(self, gently: bool) -> None:
        if self._child is None:
            return
        if gently:
            self._child.interrupt()
            self._killed_at = time.monotonic() + GENTLE_S
        else:
            self._child.kill()

    # --- what happens by itself -----------------------------------------------------------------------------------------

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
            self._sender = None
            self._ended()

    def _ended(self) -> None:
        """The process has ended, and what it wrote is in the bucket."""
        self._keep_end()
        self.duty.kept()

    def _keep_end(self) -> None:
        """A run's end outlives the report, which is the next run's."""
        end = self.duty.end
        if self.member == COORDINATOR and end is not None and end.run:
            self.mailbox.replace(run_key(end.run, "end.json"), {"code": end.code, "last_line": end.last_line}, None)

    @property
    def idle(self) -> bool:
        """Whether an order was carried out to its end, and there is no other."""
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
        """Every few seconds, and at once if there is something new."""
        said = {**self.duty.report(), "notice": notice}
        shown = self.member == COORDINATOR and self._child is not None  # somebody watches a run
        every_s = SHOWN * self.setting.poll_s if shown or self.duty.state == "fetching" else self.setting.every_s
        if said == self._reported and now - self._reported_at < every_s:
            return
        come, total = self._come
        report: dict[str, Any] = {
            **said, "every_s": self.setting.every_s, "machine": self.setting.machine, "host": self.setting.host,
            "siafu": __version__, "pid": os.getpid(), "fetched_bytes": come, "fetch_bytes": total,
        }  # fmt: skip
        if self._sender is not None:
            report["status"] = read_status(self._sender.folder)
        self.mailbox.write(report_key(self.member), report)
        self._reported, self._reported_at = said, now

    def __enter__(self) -> Post:
        return self

    def __exit__(self, *_: object) -> None:
        """What runs is killed, and what it wrote is kept."""
        if self._child is not None:
            self._child.kill()
            self._child.close()
            self.duty.exited(self._child.poll() or 0, "its agent was stopped")
            self._child = None
        if self._sender is not None:
            self._sender.__exit__(None, None, None)
            self._sender = None
            self._ended()
            self._report(float("inf"), "")
        self._pool.shutdown(wait=True, cancel_futures=True)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when told to stop; 2 for what cannot be."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        args = _parse(argv)
        metadata = None if args.role else Metadata()
        member, setting = _place(args, metadata)
        serve(member, setting, stop, metadata, once=args.once)
    except GnnError as error:
        logger.error("%s", error)
        return error.exit_code
    return 0


def serve(
    member: Address, setting: Setting, stop: threading.Event, metadata: Metadata | None = None, *, once: bool = False
) -> None:
    """Until ``stop``, or with ``once`` until the first order to start is carried out to its end."""
    members = [member, COORDINATOR] if member == param_server(0) else [member]
    logger.info(
        "%s on %s (%s): waiting for orders in bucket %s", member, setting.machine, setting.host, setting.mailbox.bucket
    )
    notice, noticed_at = "", -float("inf")
    with ExitStack() as stack:
        posts = [stack.enter_context(Post(member, setting)) for member in members]
        while not stop.is_set() and not (once and posts[-1].idle):
            now = time.monotonic()
            if metadata is not None and now - noticed_at >= setting.every_s:
                notice, noticed_at = metadata.notice(), now
            for post in posts:
                try:
                    post.turn(now, notice)
                except GnnError as error:  # an order that is none, a service that does not answer: we must go on
                    logger.warning("%s: %s", post.member, error)
            stop.wait(setting.poll_s)


def _place(args: argparse.Namespace, metadata: Metadata | None) -> tuple[Address, Setting]:
    """Which role we have, and where. ConfigError if that is unknown."""
    if metadata is None:
        role, index, machine, host = args.role, args.index, socket.gethostname(), args.listen
    else:
        role, index, found = metadata.tag("siafu:role"), metadata.tag("siafu:index"), metadata.machine()
        machine, host = found.name, found.host
    if role not in ("graph_server", "param_server") or not str(index).isdecimal():
        raise ConfigError(f"role {role!r}, index {index!r}: must be graph_server or param_server and a number")
    work = Path(args.work)
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--work {work}: {error.strerror}") from error
    mailbox = Mailbox(args.bucket, endpoint=args.endpoint, region=args.region)
    return Address(role, str(int(index))), Setting(mailbox, work, machine, host, args.poll)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m infra.agent", description="One machine of a deployment.")
    parser.add_argument("--bucket", required=True, help="the deployment's data bucket")
    parser.add_argument("--deployment", default="", help="its name; only for who reads the process list")
    parser.add_argument("--role", default="", help="graph_server or param_server; without it, the instance's tags say")
    parser.add_argument("--index", default="0")
    parser.add_argument("--listen", default="127.0.0.1", metavar="HOST", help="with --role: address that others dial")
    parser.add_argument("--endpoint", default="", metavar="URL", help="of a stand-in for S3")
    parser.add_argument("--region", default="", help="of the bucket")
    parser.add_argument("--work", default="/var/lib/siafu", metavar="DIR", help="for graphs and runs")
    parser.add_argument("--poll", type=float, default=POLL_S, metavar="SECONDS", help="between two looks for orders")
    parser.add_argument("--once", action="store_true", help="end after one run")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
