"""A deployment's place: account, region, endpoint, and clients of its services."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from infra import service
from siafu import aws_identity
from siafu.config import Config
from siafu.errors import ConfigError, GnnError

#: botocore's own variable.
ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL"
_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "AuthorizationError",
    "AuthorizationErrorException",
}


@dataclass(frozen=True)
class Cloud:
    name: str  # of the deployment
    account: str
    region: str
    endpoint: str = ""  # of a stand-in for AWS
    _clients: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # making one takes 50 ms

    @classmethod
    def of(cls, config: Config) -> Cloud:
        """The caller's account and region. ConfigError without credentials, and for a region that does not exist."""
        region, endpoint = config.lambdas.region, os.environ.get(ENDPOINT_VARIABLE, "")
        service.check_region(region)
        with speaking_plainly(f"region {region}"):
            account = service.client("sts", region, endpoint).get_caller_identity()["Account"]
        return cls(config.cloud.name, account, region, endpoint)

    def client(self, name: str) -> Any:
        """A client of a service, made once."""
        if name not in self._clients:
            self._clients[name] = service.client(name, self.region, self.endpoint)
        return self._clients[name]


def is_denied(error: ClientError) -> bool:
    """Whether the service knows the caller, but denies this call."""
    return error.response["Error"]["Code"] in _DENIED


@contextmanager
def speaking_plainly(what: str) -> Iterator[None]:
    """Turns botocore's and boto3's errors into ours: ConfigError if the user must fix credentials."""
    try:
        yield
    except (ClientError, BotoCoreError, Boto3Error) as error:  # the last: of an upload, which hides what it came from
        advice = advice_on(error.__context__ if isinstance(error, Boto3Error) else error)
        raise (ConfigError if advice else GnnError)(f"{what}: {error}{advice and f'; {advice}'}") from error


def advice_on(error: BaseException | None) -> str:
    """Advice on credentials for an error; empty if it is not about them."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    names = [error.response["Error"]["Code"]] if isinstance(error, ClientError) else kinds
    return next((aws_identity.ADVICE[name] for name in names if name in aws_identity.ADVICE), "")
