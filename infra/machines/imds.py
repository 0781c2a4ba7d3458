"""The metadata of an EC2 instance: its role and index (tags), its private address, and notice of its interruption.

Uses version 2 of the instance metadata service, which needs a token first. Tags are there because the launch template
allows it.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass

from siafu.errors import ConfigError

ENDPOINT = "http://169.254.169.254"
TIMEOUT_S = 2.0
TOKEN_S = 6 * 3600


@dataclass(frozen=True)
class Machine:
    """The machine of an agent."""

    name: str  # the instance's id
    host: str  # address that others dial


class Metadata:
    def __init__(self, endpoint: str = ""):
        """``endpoint``: of a stand-in; empty: botocore's own."""
        given = endpoint or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "") or ENDPOINT
        self._endpoint = given.rstrip("/")
        self._token = ""

    def machine(self) -> Machine:
        """This machine. ConfigError if it is no EC2 instance."""
        return Machine(self._must("instance-id"), self._must("local-ipv4"))

    def region(self) -> str:
        return self._must("placement/region")

    def tag(self, name: str) -> str:
        """An instance tag's value. ConfigError without it."""
        return self._must(f"tags/instance/{name}")

    def notice(self) -> str:
        """EC2's notice to take this spot instance back, with time and action, in words; empty without one."""
        try:
            raw = self._ask("spot/instance-action")
        except (OSError, ValueError):
            return ""  # asked again soon
        if not raw:
            return ""
        try:
            said = json.loads(raw)
            return f"EC2 will {said['action']} it at {said['time']} (spot)"
        except (ValueError, KeyError, TypeError):
            return "EC2 takes it back (spot)"

    def _must(self, what: str) -> str:
        try:
            found = self._ask(what)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._endpoint}: no EC2 instance metadata ({what}: {error})") from None
        if not found:
            raise ConfigError(f"{self._endpoint}: this instance has no {what}")
        return found

    def _ask(self, what: str) -> str:
        """A value of the metadata; empty if it does not exist."""
        for _ in range(2):
            if not self._token:
                self._token = self._send("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)})
            try:
                return self._send("GET", f"meta-data/{what}", {"X-aws-ec2-metadata-token": self._token})
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 404:
                    return ""
                if error.code != 401:
                    raise
                self._token = ""  # too old
        return ""

    def _send(self, method: str, path: str, headers: dict[str, str]) -> str:
        # The machine's own address of AWS, by which no file is meant.
        request = urllib.request.Request(f"{self._endpoint}/latest/{path}", method=method, headers=headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return str(answer.read(65536).decode("utf-8", "replace")).strip()
