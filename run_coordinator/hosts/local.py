"""Servers as processes on this machine."""

from __future__ import annotations

import time
from pathlib import Path

from run_coordinator.hosts import Death
from run_coordinator.hosts.child import Child
from siafu.address import Address
from siafu.config import Config
from siafu.errors import PeerLost
from siafu.keys import Keys


class LocalHost:
    """Processes on this machine. Use in a ``with`` block: it kills what is left."""

    lag_s = 0.0

    def __init__(self, listen: str, run_dir: Path, shards: Path, run_id: bytes):
        self.listen = listen
        self.run_dir, self.shards, self.run_id = run_dir, shards, run_id
        # All mutable state:
        self._children: dict[Address, Child] = {}

    @classmethod
    def make(cls, config: Config, run_dir: Path, shards: Path, run_id: bytes) -> LocalHost:
        return cls(config.listen, run_dir, shards, run_id)

    def start(self, member: Address, coordinator: str, keys: Keys | None = None) -> None:
        try:
            self._children[member] = Child.member(
                member,
                coordinator,
                self.run_id,
                shards=self.shards,
                run_dir=self.run_dir,
                keys=keys.ring(member) if keys else None,
            )
        except OSError as error:
            raise PeerLost(f"{member}: cannot be started: {error}") from None

    def dead(self) -> Death | None:
        """A member whose process has ended: a killed member before one that gave up."""
        codes = {member: code for member, child in self._children.items() if (code := child.poll()) is not None}
        if not codes:
            return None
        member = min(codes, key=codes.__getitem__)
        child = self._children[member]
        return Death(member, codes[member], f"{child.last_line()} ({child.log})")

    @property
    def num_alive(self) -> int:
        return sum(child.poll() is None for child in self._children.values())

    def kill(self, member: Address) -> None:
        if member in self._children:
            self._children[member].kill()

    def wait(self, timeout_s: float) -> bool:
        """Whether every process has ended within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        return all(child.wait(max(0.0, deadline - time.monotonic())) for child in self._children.values())

    def collect(self) -> None:
        """Does nothing: logs are in the run directory already."""
        for child in self._children.values():
            child.kill()

    def __enter__(self) -> LocalHost:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.close()
