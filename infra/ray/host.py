"""Servers as actors of a Ray cluster that this machine is part of: one graph server per node, where there are enough.

Every wait is short: an actor answers a call (``Member.pulse``) once its member has ended, or after a second, and is
called again. So a member's end, its log so far and a lost node all arrive the same way. A silent node is lost after
``servers.silence_s``, whatever Ray's own health checks are set to.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.ray import nodes as ray_nodes
from infra.ray.member import PIECE_BYTES, Member, Order, Pulse
from infra.ray.nodes import Node, Reserved
from run_coordinator.hosts import Death
from siafu import ray_cluster
from siafu.address import Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import PeerLost
from siafu.keys import Keys
from siafu.ray_cluster import Connection, text_of
from siafu.run_files import CONFIG, draft_of
from siafu.shards import MANIFEST

logger = logging.getLogger(__name__)

PULSE_S = 1.0
#: A broken connection to an actor may come back; a dead node's never does, and Ray takes a while to say so.
UNREACHABLE_S = 5.0
#: For all that members wrote to come home, and for actors to clean up.
COLLECT_S, CLOSE_S = 60.0, 5.0


class RayHost:
    """Actors in a placement group. Use in a ``with`` block, which kills the rest."""

    lag_s = UNREACHABLE_S + PULSE_S

    def __init__(
        self,
        config: Config,
        run_dir: Path,
        shards: Path,
        run_id: bytes,
        cluster: Connection,
        reserved: Reserved,
    ):
        self._ray = ray_cluster.load()
        self.listen = str(self._ray.util.get_node_ip_address())
        self.run_dir, self._cluster, self._reserved = run_dir, cluster, reserved
        self._silence_s = config.servers.silence_s
        self._facts: dict[str, Any] = {
            "run_id": run_id,
            "config": (run_dir / CONFIG).read_text(),
            "shards": str(shards),
            "manifest": (shards / MANIFEST).read_text(),
            "cluster": cluster.address,
            "driver_node": self._ray.get_runtime_context().get_node_id(),
        }
        # All mutable state:
        self._watches: dict[Address, _Watch] = {}

    @classmethod
    def make(cls, config: Config, run_dir: Path, shards: Path, run_id: bytes) -> RayHost:
        """Joins the cluster and reserves nodes. ConfigError without a cluster, or without room."""
        cluster = ray_cluster.connect(config.cloud.ray_address)
        try:
            graph_servers = [graph_server(p) for p in range(config.data.parts)]
            members = [*graph_servers, *(param_server(q) for q in range(config.servers.param_servers))]
            reserved = ray_nodes.reserve(members, len(graph_servers))
            return cls(config, run_dir, shards, run_id, cluster, reserved)
        except BaseException:
            cluster.close()
            raise

    def start(self, member: Address, coordinator: str, keys: Keys | None = None) -> None:
        node = self._reserved.nodes.get(member)
        if node is None:
            raise PeerLost(f"{member}: no node was set aside for it")
        there = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            self._reserved.group, placement_group_bundle_index=self._reserved.bundles[member]
        )
        ring = None if keys is None else keys.ring(member)
        order = Order(member=member, coordinator=coordinator, listen=node.host, keys=ring, **self._facts)
        # No restarts: a server that starts anew has forgotten where the others are. Four at
        # a time: run, pulse, kill, close.
        actor = (
            self._ray.remote(Member)
            .options(num_cpus=1, max_restarts=0, max_concurrency=4, scheduling_strategy=there)
            .remote(order)
        )
        log = self.run_dir / "logs" / f"{member.role}-{member.name}.log"
        self._watches[member] = _Watch(self._ray, member, node, actor, log, self._silence_s)

    def dead(self) -> Death | None:
        """A member whose process has ended, or whose node is gone; a killed member before one that gave up."""
        ends = [watch.end for watch in self._look() if watch.end is not None]
        return min(ends, key=lambda end: end.code, default=None)

    @property
    def num_alive(self) -> int:
        return sum(watch.end is None for watch in self._look())

    def kill(self, member: Address) -> None:
        if member in self._watches:
            self._watches[member].actor.kill.remote()

    def wait(self, timeout_s: float) -> bool:
        """Whether every member has ended within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while True:
            waiting = [watch.asked for watch in self._look() if watch.end is None]
            left_s = deadline - time.monotonic()
            if not waiting or left_s <= 0:
                return not waiting
            self._ray.wait(waiting, timeout=min(left_s, PULSE_S))

    def collect(self) -> None:
        """Fetches the members' files from nodes that still exist."""
        deadline = time.monotonic() + COLLECT_S
        for watch in self._look():
            if watch.end is None:
                watch.actor.kill.remote()
        self.wait(CLOSE_S)
        for watch in self._watches.values():
            if watch.lost or watch.end is None:  # nobody would answer
                logger.warning("%s on %s: only its log until then has come", watch.member, watch.node)
                continue
            try:
                self._bring(watch.actor, deadline)
            except (self._ray.exceptions.RayError, OSError) as error:
                logger.warning("%s on %s: not all it wrote has come: %s", watch.member, watch.node, text_of(error))

    def _look(self) -> Iterator[_Watch]:
        now = time.monotonic()
        for watch in self._watches.values():
            watch.look(now)
            yield watch

    def _bring(self, actor: Any, deadline: float) -> None:
        """Copies every output of one member to its place in the run directory."""

        def ask(answer: Any) -> Any:
            return self._ray.get(answer, timeout=max(0.1, deadline - time.monotonic()))

        for name, nbytes in ask(actor.outputs.remote()).items():
            file = (self.run_dir / name).resolve()
            if not file.is_relative_to(self.run_dir.resolve()):
                raise OSError(f"{name} leads out of the run directory")
            file.parent.mkdir(parents=True, exist_ok=True)
            # What came of the log so far stays until all of it is here.
            with draft_of(file) as draft, draft.open("wb") as out:
                for offset in range(0, nbytes, PIECE_BYTES):
                    out.write(ask(actor.piece.remote(name, offset)))

    def __enter__(self) -> RayHost:
        return self

    def __exit__(self, *_: object) -> None:
        closing = [watch.actor.close.remote() for watch in self._watches.values() if not watch.lost]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        for watch in self._watches.values():
            self._ray.kill(watch.actor)
        self._ray.util.remove_placement_group(self._reserved.group)
        self._cluster.close()


class _Watch:
    """The driver's view of a member's actor."""

    def __init__(self, ray: Any, member: Address, node: Node, actor: Any, log: Path, silence_s: float):
        self._ray, self.member, self.node, self.actor = ray, member, node, actor
        self._log, self._silence_s = log, silence_s
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        # All mutable state:
        self.end: Death | None = None
        self.lost = False  # the actor is gone, and with it what its member wrote
        self._started: Any = actor.run.remote()  # until it is done
        self._offset = 0  # of the log: what has come
        self._answered_at: float | None = None  # None: the node is still on its way with worker and graph
        self._broken_at: float | None = None  # since when the connection is
        self.asked: Any = self._ask()

    def look(self, now: float) -> None:
        """Takes in the actor's answers."""
        if self.end is not None:
            return
        self._take_start(now)
        if self.end is None and self._ray.wait([self.asked], timeout=0)[0]:
            self._take_pulse(now)
        elif self.end is None and self._answered_at is not None and now - self._answered_at > self._silence_s:
            self._lose(f"has not answered for {now - self._answered_at:.0f} s")
        if self.end is None and self._broken_at is not None and now - self._broken_at > UNREACHABLE_S:
            self._lose(f"cannot be reached for {now - self._broken_at:.0f} s")

    def _ask(self) -> Any:
        return self.actor.pulse.remote(self._offset, PULSE_S)

    def _take_start(self, now: float) -> None:
        """Takes in the first answer. An error is the member's end: it never ran."""
        if self._started is None or not self._ray.wait([self._started], timeout=0)[0]:
            return
        started, self._started = self._started, None
        try:
            self._ray.get(started)
            self._answered_at = now
        except self._ray.exceptions.RayTaskError as error:
            self.end = Death(self.member, 1, f"on {self.node}: {text_of(error)}")
        except self._ray.exceptions.RayError:
            return  # the next pulse says what became of the actor

    def _take_pulse(self, now: float) -> None:
        errors = self._ray.exceptions
        try:
            pulse: Pulse = self._ray.get(self.asked)
        except errors.ActorUnavailableError:
            if not self.node.answers:
                self._lose("is down, or cannot be reached")
                return
            self._broken_at = self._broken_at or now
            self.asked = self._ask()
            return
        except errors.RayTaskError as error:
            self.end = Death(self.member, 1, f"on {self.node}: {text_of(error)}")
            return
        except errors.RayError as error:  # the actor or its node has died
            self._lose(f"has lost its actor: {text_of(error)}")
            return
        self._answered_at, self._broken_at = now, None
        with self._log.open("ab") as log:
            log.write(pulse.log)
        self._offset += len(pulse.log)
        if pulse.code is None:
            self.asked = self._ask()
        else:
            self.end = Death(self.member, pulse.code, f"{pulse.last_line} ({self._log}, {self.node})")

    def _lose(self, why: str) -> None:
        """Notes that the member is lost: its leash has killed it, or its machine has lost power."""
        gone = all(node.id != self.node.id for node in ray_nodes.alive())
        self.lost = True
        self.end = Death(self.member, -signal.SIGKILL, f"{self.node} {'has left the cluster' if gone else why}")
