"""A deployment on one machine: a bucket of moto's and agents as processes, each with a folder of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from moto.moto_server.threaded_moto_server import ThreadedMotoServer

from infra.machines.mailbox import Mailbox, report_key
from siafu.address import Address, graph_server, param_server
from siafu.leash import Leash

BUCKET = "siafu-test"
POLL_S = 0.1


@contextlib.contextmanager
def bucket() -> Iterator[Mailbox]:
    """An empty one, at an endpoint of this process. What moto keeps is the process's: one at a time."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        mailbox = Mailbox(BUCKET, endpoint=f"http://{host}:{port}", region="us-east-1")
        empty(mailbox)
        yield mailbox
    finally:
        server.stop()


def empty(mailbox: Mailbox) -> None:
    """Forgets whatever moto knows, but for an empty bucket."""
    with urllib.request.urlopen(urllib.request.Request(f"{mailbox.endpoint}/moto-api/reset", method="POST")):
        mailbox._s3.create_bucket(Bucket=BUCKET)


class Deployment:
    """Use in a ``with`` block: no agent is left, nor what it started."""

    def __init__(self, mailbox: Mailbox, folder: Path, *, graph_servers: int = 2, param_servers: int = 1):
        self.mailbox, self.folder = mailbox, folder
        self.members = [*map(graph_server, range(graph_servers)), *map(param_server, range(param_servers))]
        self.agents: dict[Address, subprocess.Popen[bytes]] = {}
        self._leashes: list[Leash] = []

    def start_agent(self, member: Address) -> None:
        command = [
            sys.executable,
            "-m",
            "infra.machines.agent",
            "--bucket",
            self.mailbox.bucket,
            "--deployment",
            "siafu",
            "--role",
            member.role,
            "--index",
            member.name,
            "--endpoint",
            self.mailbox.endpoint,
            "--work",
            str(self.folder / f"{member.role}-{member.name}"),
            "--poll",
            str(POLL_S),
        ]
        leash = Leash()
        self._leashes.append(leash)
        with open(self.folder / f"agent-{member.role}-{member.name}.log", "ab") as log:
            agent = self.agents[member] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(leash.fd,)
            )
            leash.tie(agent.pid)

    def children(self, member: Address) -> list[int]:
        """Processes that its agent has started and that live."""
        agent = self.agents[member].pid
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent_of(pid) == agent]

    def child(self, member: Address, module: str) -> int | None:
        """The process of that module that the member's agent has started."""
        return next((pid for pid in self.children(member) if module.encode() in _command_of(pid)), None)

    def until_idle(self, timeout_s: float = 150.0) -> None:
        """Waits until no agent has a child."""
        until(lambda: not any(self.children(member) for member in self.agents), "end of all roles", timeout_s)

    def __enter__(self) -> Deployment:
        self.folder.mkdir(parents=True, exist_ok=True)
        for member in self.members:
            self.start_agent(member)
        until(lambda: all(self.mailbox.read(report_key(member)) for member in self.members), "reports of all agents")
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents.values():
            agent.terminate()
        for agent in self.agents.values():
            try:
                agent.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(agent.pid, signal.SIGKILL)
                agent.wait()
        for leash in self._leashes:
            leash.close()


def until(happened: Callable[[], object], what: str, timeout_s: float = 150.0) -> None:
    """Waits for it. AssertionError if it does not come."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, f"no {what} within {timeout_s:g} s"
        time.sleep(0.02)


def _command_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _parent_of(pid: int) -> int:
    """0 for one that is gone, or a zombie."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return 0
    return 0 if state == "Z" else int(parent)
