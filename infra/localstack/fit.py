"""Chooses what a function is built for: our LocalStack runs it on this machine, others run it in Lambda's images."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra import package, service
from infra.localstack.identity import WHO
from infra.package import Package
from infra.wheels import Target
from siafu.errors import WorkerError

PATIENCE_S = 10.0


def executor_at(endpoint: str) -> dict[str, Any] | None:
    """The answer of our executor; None if the endpoint runs functions elsewhere. WorkerError if it does not answer."""
    try:
        service.client("lambda", service.LOCAL_REGION, endpoint).list_functions(MaxItems=1)  # which loads the executor
    except (BotoCoreError, ClientError) as error:
        raise WorkerError(f"{endpoint}: {error}") from error
    try:
        with urllib.request.urlopen(f"{endpoint}{WHO}", timeout=PATIENCE_S) as answer:  # noqa: S310 (the endpoint that the user gave)
            found = json.loads(answer.read())
    except (OSError, urllib.error.URLError, http.client.HTTPException, ValueError):
        return None
    return found if isinstance(found, dict) and "runtime" in found else None


def package_for(endpoint: str) -> Package:
    """The function's package for an endpoint, for this machine's architecture."""
    ours = executor_at(endpoint)
    if ours is not None:
        return package.build_here(runtime=ours["runtime"])
    return package.build(Target.here().arch)
