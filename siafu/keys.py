"""The keys of each member in one attempt of a run: CURVE key pairs, all derived from one secret of 32 bytes. Pure.

1. The coordinator draws a secret for each attempt. A role's secret is derived from it, a server's secret key from its
   role's, and the key that a graph server's workers share from that server's (HKDF-SHA256, RFC 5869). A derived secret
   does not reveal the one before.
2. A member knows its own secret key and all public keys. Public keys come with the secret: a member that binds must
   know from the beginning whom to accept, because ZeroMQ never tries again after a refusal.
3. A key's name is its holder's identity on the wire: "graph_server/1". "worker/1" is the name for all workers of graph
   server 1, whose own names begin with w1-.
4. Secrets are in no ``repr``: they are sent only as ``Ring.dump``.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from siafu.address import COORDINATOR, Address, graph_server, param_server, worker
from siafu.errors import ConfigError, RemoteProtocolError
from siafu.places import UNIX

SECRET_BYTES = 32
#: Secret key -> public key, 40 characters of Z85: ``siafu.sockets.public_key``.
PublicOf = Callable[[bytes], str]
#: Role -> the roles that may dial its mailbox. The coordinator answers over the links of its members.
DIALLED_BY = {
    "coordinator": ("graph_server", "param_server"),
    "graph_server": ("graph_server", "worker"),
    "param_server": ("graph_server", "param_server", "worker"),
    "worker": (),
}
_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


def derive(secret: bytes, info: str) -> bytes:
    """Derives another secret: HKDF-SHA256 without salt, one block."""
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), secret, "sha256")
    return hmac.digest(extracted, info.encode() + b"\x01", "sha256")


def name_of(member: Address) -> str:
    return member.identity.decode()


@dataclass(frozen=True)
class Ring:
    """The keys that one member holds: its secret key, and public keys of others."""

    secret: bytes = field(repr=False)
    public: Mapping[str, str]  # name -> public key

    def for_workers(self, of: Address, num_param_servers: int, public_of: PublicOf) -> Ring:
        """Returns the keys that a graph server gives to its workers: their secret key, and the public keys of the
        members that they dial."""
        secret = workers_secret(self.secret, of)
        names = (name_of(of), *(name_of(param_server(q)) for q in range(num_param_servers)))
        return Ring(secret, {name: self.public[name] for name in names} | {_workers(of): public_of(secret)})

    def guests(self, host: Address) -> dict[str, str]:
        """Returns public key -> name of all members that may dial ``host``. Workers dial only their own graph
        server."""
        roles = DIALLED_BY[host.role]
        return {
            key: name
            for name, key in self.public.items()
            if name.partition("/")[0] in roles
            and name != name_of(host)
            and (host.role != "graph_server" or not name.startswith("worker/") or name == _workers(host))
        }

    def dump(self) -> dict[str, Any]:
        """Returns the keys in JSON's types."""
        return {"secret": self.secret.hex(), "public": dict(self.public)}

    @classmethod
    def load(cls, value: Any) -> Ring:
        """Parses dumped keys. Raises: ConfigError, which quotes no secret, if ``value`` is not valid."""
        try:
            return cls(_secret(value["secret"]), _checked(value["public"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ConfigError("not the keys of a member") from None


class Keys:
    """All keys of an attempt, as its coordinator holds them."""

    def __init__(self, secret: bytes, parts: int, param_servers: int, public_of: PublicOf):
        self._secret = secret
        servers = [graph_server(p) for p in range(parts)] + [param_server(q) for q in range(param_servers)]
        secrets = {member: self._secret_of(member) for member in (COORDINATOR, *servers)}
        #: Name -> public key, of all members.
        self.public = {name_of(member): public_of(own) for member, own in secrets.items()} | {
            _workers(member): public_of(workers_secret(own, member))
            for member, own in secrets.items()
            if member.role == "graph_server"
        }

    def role_secret(self, role: str) -> bytes:
        """Returns the secret from which the members of a role derive theirs."""
        return derive(self._secret, f"siafu/{role}")

    def ring(self, member: Address) -> Ring:
        return of_member(self.role_secret(member.role), member, self.public)

    def _secret_of(self, member: Address) -> bytes:
        return derive(self.role_secret(member.role), f"siafu/{name_of(member)}")


def of_member(role_secret: bytes, member: Address, public: Mapping[str, str]) -> Ring:
    """Returns the keys of a member, derived from its role's secret."""
    return Ring(derive(role_secret, f"siafu/{name_of(member)}"), public)


def public_of(text: str) -> dict[str, str]:
    """Parses a JSON object of public keys by name. Raises: RemoteProtocolError if it is not valid."""
    try:
        return _checked(json.loads(text))
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RemoteProtocolError(f"not public keys: {error}") from None


def workers_secret(secret: bytes, of: Address) -> bytes:
    """Returns the secret key of the workers of graph server ``of``, which has the secret key ``secret``."""
    return derive(secret, f"siafu/{_workers(of)}")


def speaker(holder: str, identity: bytes) -> Address:
    """Returns the sender of a message whose connection was authenticated with the key of ``holder``. ``identity``: the
    connection's ZeroMQ identity; one that ZeroMQ has chosen begins with a zero byte.

    Raises: RemoteProtocolError if the identity does not fit the key.
    """
    holding = Address.from_identity(holder.encode())
    if holding.role != "worker":
        if identity[:1] != b"\0" and identity != holding.identity:
            raise RemoteProtocolError(f"{identity[:40]!r} came with the key of {holding}")
        return holding
    claimed = Address.from_identity(identity)
    if claimed.role != "worker" or not claimed.name.startswith(f"w{holding.name}-"):
        raise RemoteProtocolError(f"{claimed} came with the key of the workers of graph server {holding.name}")
    return claimed


def wanted(security: str, listen: str) -> bool:
    """Whether a run has keys. ``security``: ``servers.security``; ``listen``: the address that the coordinator binds,
    which all members dial. An address that only this machine can dial needs no keys, because only this machine could
    attack it."""
    return security == "curve" or (security == "auto" and not is_loopback(listen))


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can dial it."""
    if host in ("localhost", "lo", UNIX):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _workers(of: Address) -> str:
    return name_of(worker(of.name))


def _secret(text: str) -> bytes:
    secret = bytes.fromhex(text)
    if len(secret) != SECRET_BYTES:
        raise ValueError
    return secret


def _checked(public: Mapping[str, str]) -> dict[str, str]:
    if not all(_Z85.fullmatch(key) for key in public.values()):
        raise ValueError
    return {str(name): key for name, key in public.items()}
