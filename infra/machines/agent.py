"""The agent of a deployed machine. It always runs: it reads orders from the bucket, carries them out, and reports.

python -m infra.machines.agent --bucket BUCKET --deployment NAME [--role ROLE --index I] [--endpoint URL] [--once]

systemd starts it and starts it again. One machine has one role, by its instance tags siafu:role and
siafu:index; that of parameter server 0 also runs the coordinator, which needs little. A role's process is a
child on a leash: it cannot outlive the agent.
"""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from infra.machines.agent_loop import BEAT, POLL_S, Post, Setting
from infra.machines.imds import Metadata
from infra.machines.mailbox import Mailbox
from siafu.address import COORDINATOR, Address, param_server
from siafu.errors import ConfigError, GnnError

logger = logging.getLogger("agent")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the agent; returns 0 when told to stop, 2 for a configuration error."""
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
    """Serves until ``stop``, or with ``once`` until the first order to start is finished."""
    members = [member, COORDINATOR] if member == param_server(0) else [member]
    logger.info(
        "%s on %s (%s): waiting for orders in bucket %s", member, setting.machine, setting.host, setting.mailbox.bucket
    )
    notice, noticed_at, warned = "", -float("inf"), ""
    with ExitStack() as stack:
        posts = [stack.enter_context(Post(member, setting)) for member in members]
        while not stop.is_set() and not (once and posts[-1].idle):
            now = time.monotonic()
            if metadata is not None and now - noticed_at >= BEAT * setting.poll_s:
                notice, noticed_at = metadata.notice(), now
            for post in posts:
                try:
                    post.turn(now, notice)
                except GnnError as error:  # an order that is none, a service that does not answer: we must go on
                    if str(error) != warned:
                        logger.warning("%s: %s", post.member, error)
                    warned = str(error)
            stop.wait(setting.poll_s)


def _place(args: argparse.Namespace, metadata: Metadata | None) -> tuple[Address, Setting]:
    """Our role and its setting. ConfigError if they are unknown."""
    if metadata is None:
        role, index, machine, host = args.role, args.index, socket.gethostname(), args.listen
        region = args.region
    else:
        role, index, found = metadata.tag("siafu:role"), metadata.tag("siafu:index"), metadata.machine()
        machine, host, region = found.name, found.host, args.region or metadata.region()
    if role not in ("graph_server", "param_server") or not str(index).isdecimal():
        raise ConfigError(f"role {role!r}, index {index!r}: must be graph_server or param_server and a number")
    work = Path(args.work)
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--work {work}: {error.strerror}") from error
    mailbox = Mailbox(args.bucket, endpoint=args.endpoint, region=region)
    return Address(role, str(int(index))), Setting(mailbox, work, machine, host, args.poll)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m infra.machines.agent", description="One machine of a deployment.")
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
