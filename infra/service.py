"""boto3's clients, as every part of infra makes them: AWS's own, or those of an endpoint that stands in for it."""

from __future__ import annotations

import os
from typing import Any

import boto3
from botocore.config import Config

LOCAL_REGION = "us-east-1"
#: What a stand-in takes for credentials where the user has none: it does not look at them.
NOBODY = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


def client(service: str, region: str, endpoint: str = "") -> Any:
    """A client of ``service``; ``endpoint`` empty: AWS's, with the user's credentials."""
    settings: dict[str, Any] = {
        "region_name": region,
        "config": Config(connect_timeout=5, s3={"addressing_style": "path"}),
    }
    if not endpoint:
        return boto3.client(service, **settings)
    return boto3.client(
        service, endpoint_url=endpoint, **settings, **({} if "AWS_ACCESS_KEY_ID" in os.environ else NOBODY)
    )
