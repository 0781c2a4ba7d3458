"""Secrets of a run on deployed machines: encrypted parameters of AWS Systems Manager, kept as long as members start.

    /siafu/<deployment>/<role>/<run id>    the secret from which the members of that role derive their keys
                                           (``siafu.keys``)

The coordinator puts one for each role and attempt and removes them when every member runs; a machine's rights end at
its own role's. Neither the bucket nor a file of a machine ever has them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any, NoReturn

from botocore.config import Config as Settings
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from infra import service
from siafu.errors import ConfigError, PeerLost, RemoteProtocolError
from siafu.keys import SECRET_BYTES

#: A stand-in is in no region, and boto3 insists on one.
_ANY_REGION = "us-east-1"
#: A parameter that was put may not be there at once: the service is eventually consistent.
APPEAR_S, AGAIN_S = 10.0, 0.5
_NAME = re.compile(r"/siafu/[a-z][a-z0-9-]{0,30}/(graph_server|param_server)/[0-9a-f]{16}")


def parameter(deployment: str, role: str, run_id: bytes) -> str:
    return checked_parameter(f"/siafu/{deployment}/{role}/{run_id.hex()}")


def checked_parameter(name: str) -> str:
    """The name. RemoteProtocolError unless it is the name of a secret of ours."""
    if not _NAME.fullmatch(name):
        raise RemoteProtocolError(f"{name[:80]!r} is not the name of a run's secret")
    return name


class Vault:
    """A store of secrets. Any thread may use it. A refusal by the service is a ConfigError, a failure of the service a
    PeerLost."""

    def __init__(self, *, endpoint: str = "", region: str = ""):
        """``endpoint``: URL of a stand-in; empty: from boto3's environment, or AWS."""
        session = service.session()
        region = region or session.region_name or (_ANY_REGION if endpoint else "")
        options: dict[str, Any] = {"region_name": region or None, "endpoint_url": endpoint or None}
        if endpoint and session.get_credentials() is None:  # as for the bucket
            options |= {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        settings = Settings(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=5, read_timeout=20)
        try:
            self._ssm = session.client("ssm", config=settings, **options)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(f"Systems Manager: {error}") from error

    def put(self, name: str, secret: bytes) -> None:
        """Stores a secret, replacing one of the same name: if an answer is lost, boto3 repeats the request and finds
        its own secret."""
        try:
            self._ssm.put_parameter(
                Name=checked_parameter(name), Value=secret.hex(), Type="SecureString", Overwrite=True
            )
        except (BotoCoreError, ClientError) as error:
            _fail(error, name)

    def get(self, name: str) -> bytes:
        """The secret. Waits ``APPEAR_S`` for one that does not exist yet. RemoteProtocolError if it is no secret of
        ours."""
        begun, answer = time.monotonic(), None
        while answer is None:
            try:
                answer = self._ssm.get_parameter(Name=checked_parameter(name), WithDecryption=True)
            except (BotoCoreError, ClientError) as error:
                is_missing = isinstance(error, ClientError) and error.response["Error"]["Code"] == "ParameterNotFound"
                if not is_missing or time.monotonic() - begun > APPEAR_S:
                    _fail(error, name)
                time.sleep(AGAIN_S)
        try:
            secret = bytes.fromhex(answer["Parameter"]["Value"])
        except ValueError:  # its text would be the secret
            secret = b""
        if len(secret) != SECRET_BYTES:
            raise RemoteProtocolError(f"{name}: not a secret of {SECRET_BYTES} bytes")
        return secret

    def remove(self, names: Iterable[str]) -> None:
        """Removes secrets; missing ones are no error."""
        wanted = [checked_parameter(name) for name in names]
        try:
            self._ssm.delete_parameters(Names=wanted)
        except (BotoCoreError, ClientError) as error:
            _fail(error, ", ".join(wanted))


def _fail(error: Exception, name: str) -> NoReturn:
    if isinstance(error, (NoCredentialsError, ClientError)):
        raise ConfigError(f"Systems Manager, {name}: {error}") from None
    raise PeerLost(f"Systems Manager, {name}: {error}") from None
