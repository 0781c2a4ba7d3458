"""The addresses on which a process listens, as the kernel reports them. Linux only: elsewhere none is known."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

LISTEN = "0A"  # state in /proc/net/tcp


@dataclass(frozen=True)
class Listening:
    address: IPv4Address | IPv6Address
    port: int

    @property
    def is_loopback(self) -> bool:
        mapped = getattr(self.address, "ipv4_mapped", None)
        return bool((mapped or self.address).is_loopback)

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


def listening(pid: int) -> list[Listening]:
    """TCP sockets on which the process takes connections."""
    inodes = set()
    with contextlib.suppress(OSError):  # it has ended, or there is no /proc
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    found = []
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/{pid}/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == LISTEN and f"socket:[{fields[9]}]" in inodes:
                found.append(_parse(fields[1]))
    return found


def _parse(text: str) -> Listening:
    """``0100007F:1F90`` is 127.0.0.1:8080: words of four bytes, each in the machine's order (little-endian)."""
    address, _, port = text.partition(":")
    raw = bytes.fromhex(address)
    return Listening(ip_address(b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))), int(port, 16))
