"""Hosts: the places where the servers of a run live. A host starts, watches and stops them, and fetches what they
wrote.

To add a host: write a class that keeps the contract, and add its line to ``HOSTS``. ``tests/contracts/test_hosts.py``
tests every host in the table.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from siafu.address import Address
from siafu.config import Config
from siafu.keys import Keys

#: ``run.on`` -> its ``Host``.
HOSTS = {
    "local": "run_coordinator.hosts.local:LocalHost",
    "ray": "infra.ray.host:RayHost",
    "aws": "infra.machines.host:MachineHost",
}


#: The code of a member that is lost with its machine, or with the agent or actor that ran it.
LOST = -1000


@dataclass(frozen=True)
class Death:
    """The end of a member's process."""

    member: Address
    code: int  # below 0: the signal that killed it, or LOST
    last_line: str  # of its log, or what is known of its machine

    def __str__(self) -> str:
        if self.code == LOST:
            return f"{self.member} is lost: {self.last_line}"
        how = f"killed by {signal.Signals(-self.code).name}" if self.code < 0 else f"exit code {self.code}"
        return f"{self.member} died: {how}; {self.last_line}"


class Host(Protocol):
    """Use in a ``with`` block: it leaves nothing behind. Only the coordinator's thread calls it, and no call but
    ``wait`` takes longer than a second."""

    #: Address that the coordinator binds, so that members can dial it.
    listen: str
    #: How much later than a member's end ``dead`` may hear of it. Others that miss the member may complain before.
    lag_s: float

    @classmethod
    def make(cls, config: Config, run_dir: Path, shards: Path, run_id: bytes) -> Host:
        """``run_dir``: has the run's config.toml, which members get; ``shards``: absolute."""

    def start(self, member: Address, coordinator: str, keys: Keys | None = None) -> None:
        """Starts the member, which dials ``coordinator``, and gives it ``keys``, which no one else sees; None: no keys.
        Returns before the member runs. PeerLost if there is no place for it."""

    def dead(self) -> Death | None:
        """A member that has ended, for whatever reason: a killed member before one that gave up. None if all are
        alive."""

    @property
    def num_alive(self) -> int: ...

    def kill(self, member: Address) -> None:
        """Kills the member at once. No error if it never started or is dead already."""

    def wait(self, timeout_s: float) -> bool:
        """Whether every member has ended within ``timeout_s``."""

    def collect(self) -> None:
        """Brings logs and traces of members into the run directory, ``logs/<role>-<index>.log``. Members that have not
        ended by now are killed first."""

    def __enter__(self) -> Host: ...

    def __exit__(self, *_: object) -> None: ...
