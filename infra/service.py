"""Makes boto3's clients for every part of infra: AWS's own, or those of an endpoint that stands in for it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from siafu.aws_identity import ACCESS_KEYS
from siafu.errors import ConfigError

LOCAL_REGION = "us-east-1"


def session() -> Any:
    """A session of boto3, with the user's profile. ConfigError for a profile that does not exist, and for unreadable
    files of AWS."""
    try:
        return boto3.session.Session()
    except BotoCoreError as error:
        raise ConfigError(f"{error} (AWS_PROFILE, AWS_CONFIG_FILE)") from None


def check_region(region: str) -> None:
    """Raises ConfigError for a region that the installed boto3 does not know. Makes no request."""
    ours = session()
    known = sorted(
        found
        for partition in ours.get_available_partitions()
        for found in ours.get_available_regions("lambda", partition)
    )
    if region not in known:
        close = difflib.get_close_matches(region, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known[:3])} and {len(known) - 3} others"
        raise ConfigError(f"lambda.region = {region}: boto3 {boto3.__version__} knows no such region; {hint}")


def stand_in_keys(environment: Mapping[str, str]) -> tuple[str, str]:
    """(key, secret) for an endpoint that is not AWS: the user's own, unless they may be keys of AWS; then test keys.
    LocalStack takes an account's number for a key."""
    key = environment.get("AWS_ACCESS_KEY_ID", "")
    if not key or key.startswith(ACCESS_KEYS) or environment.get("AWS_SESSION_TOKEN"):
        return "test", "test"
    return key, environment.get("AWS_SECRET_ACCESS_KEY", "test")


def client(service: str, region: str, endpoint: str = "") -> Any:
    """A client of ``service``; ``endpoint`` empty: AWS's, with the user's credentials."""
    config = Config(s3={"addressing_style": "path"})
    if service != "s3":  # a send may stand still for as long as this: 5 s are too few for files on a laptop's uplink
        config = config.merge(Config(connect_timeout=5))
    settings: dict[str, Any] = {"region_name": region, "config": config}
    if not endpoint:
        return boto3.client(service, **settings)
    key, secret = stand_in_keys(os.environ)
    return boto3.client(service, endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, **settings)
