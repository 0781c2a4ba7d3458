"""Addresses of members, as senders and receivers of messages. No sockets, so that pure state machines can use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from siafu.errors import RemoteProtocolError
from siafu.wire import Message

Role = Literal["coordinator", "graph_server", "param_server", "worker"]
ROLES: tuple[Role, ...] = ("coordinator", "graph_server", "param_server", "worker")


class Address(NamedTuple):
    """A member of a run. ``name`` is the index of a server as text, or the name of a worker. A tuple because it is a
    key of many tables, and Python code would hash a dataclass."""

    role: Role
    name: str = "0"

    def __str__(self) -> str:
        return self.role if self.role == "coordinator" else f"{self.role} {self.name}"

    @property
    def index(self) -> int:  # type: ignore[override]  # nobody looks for a place in it
        return int(self.name)

    @property
    def identity(self) -> bytes:
        """The member's ZeroMQ identity."""
        return f"{self.role}/{self.name}".encode()

    @property
    def employer(self) -> Address:
        """The graph server of a worker, by the worker's name (``w1-7`` is of graph server 1); other members are their
        own.

        With keys, a worker's name is bound to its graph server's key: ``siafu.keys.speaker``.
        """
        index = self.name.partition("-")[0][1:]
        return Address("graph_server", index) if self.role == "worker" and self.name[:1] == "w" else self

    @classmethod
    def from_identity(cls, identity: bytes) -> Address:
        role, _, name = identity.decode("ascii", "replace").partition("/")
        if role not in ROLES or not name or (role != "worker" and not name.isdecimal()):
            raise RemoteProtocolError(f"{identity[:40]!r} is not the identity of a member")
        return cls(role, name)


COORDINATOR = Address("coordinator")


def graph_server(index: int) -> Address:
    return Address("graph_server", str(index))


def param_server(index: int) -> Address:
    return Address("param_server", str(index))


def worker(name: str) -> Address:
    return Address("worker", name)


@dataclass(frozen=True, eq=False)
class Send:
    """An action: this message goes to that member."""

    to: Address
    message: Message
