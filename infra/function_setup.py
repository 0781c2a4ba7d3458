"""The Lambda function by API calls alone, for LocalStack with Docker or without; on AWS the CDK's stack makes it.

``deploy`` makes the function and its role, or changes them to what is asked;
``collect_logs`` brings home what it wrote.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra import service
from siafu.errors import WorkerError
from siafu.variables import of_worker

ACTIVE_S = 60.0  # until the function can be invoked
POLL_S = 0.05
LOGS_S = 15.0  # for the last lines to arrive
ASSUME = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


@dataclass(frozen=True)
class Definition:
    """The function to deploy."""

    name: str
    package: Path  # zip
    handler: str
    runtime: str
    arch: str
    memory_mb: int
    timeout_s: float
    reserved: int | None = None  # environments that it may have at a time; None: the account's limit
    variables: Mapping[str, str] = field(default_factory=of_worker)  # how it computes


def deploy(function: Definition, endpoint: str, region: str = service.LOCAL_REGION) -> None:
    """Deploys the function; returns once it can be invoked. WorkerError with the service's words if it cannot."""
    try:
        role = _role(service.client("iam", region, endpoint), f"{function.name}-role")
        api = service.client("lambda", region, endpoint)
        settings = {
            "FunctionName": function.name,
            "Role": role,
            "Runtime": function.runtime,
            "Handler": function.handler,
            "MemorySize": function.memory_mb,
            "Timeout": math.ceil(function.timeout_s),
            "Environment": {"Variables": dict(function.variables)},
        }
        code = {"ZipFile": function.package.read_bytes()}
        try:
            api.create_function(**settings, Code=code, Architectures=[function.arch])
        except api.exceptions.ResourceConflictException:  # it is there: from an earlier run on an endpoint that stays
            api.update_function_code(FunctionName=function.name, Architectures=[function.arch], **code)
            _until_active(api, function.name)
            api.update_function_configuration(**settings)
        # The service must not repeat what the dispatcher repeats by itself.
        api.put_function_event_invoke_config(
            FunctionName=function.name, MaximumRetryAttempts=0, MaximumEventAgeInSeconds=60
        )
        if function.reserved is not None:
            api.put_function_concurrency(FunctionName=function.name, ReservedConcurrentExecutions=function.reserved)
        _until_active(api, function.name)
    except (BotoCoreError, ClientError) as error:
        raise WorkerError(f"function {function.name} at {endpoint or region}: {error}") from error


def remove(name: str, endpoint: str, region: str = service.LOCAL_REGION) -> None:
    """Removes the function and its role, if they exist."""
    api, iam = service.client("lambda", region, endpoint), service.client("iam", region, endpoint)
    for call, arguments in (
        (api.delete_function, {"FunctionName": name}),
        (iam.delete_role, {"RoleName": f"{name}-role"}),
    ):
        try:
            call(**arguments)
        except (api.exceptions.ResourceNotFoundException, iam.exceptions.NoSuchEntityException):
            continue
        except (BotoCoreError, ClientError) as error:
            raise WorkerError(f"function {name} at {endpoint or region}: {error}") from error


def collect_logs(
    name: str, folder: Path, endpoint: str, region: str = service.LOCAL_REGION, invocations: int = 0
) -> list[Path]:
    """Writes each of the function's log streams, one per environment, into ``folder``; returns the files.

    Lines reach the service a moment after the invocation has ended, on a busy machine seconds after it: the service is
    asked until it has the reports of ``invocations`` and two answers are equal, for ``LOGS_S`` at most.
    """
    logs = service.client("logs", region, endpoint)
    deadline = time.monotonic() + LOGS_S
    found, before = _streams(logs, f"/aws/lambda/{name}"), None
    while (found != before or _reports(found) < invocations) and time.monotonic() < deadline:
        time.sleep(4 * POLL_S)
        found, before = _streams(logs, f"/aws/lambda/{name}"), found
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for stream, text in sorted(found.items()):
        files.append(folder / f"{re.sub(r'[^0-9A-Za-z.-]+', '-', stream).strip('-')}.log")
        files[-1].write_text(text, encoding="utf-8")
    return files


def _role(iam: Any, name: str) -> str:
    """Makes the function's role; returns its ARN. The role allows nothing: a worker dials servers, and calls no
    service."""
    try:
        return str(iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(ASSUME))["Role"]["Arn"])
    except iam.exceptions.EntityAlreadyExistsException:
        return str(iam.get_role(RoleName=name)["Role"]["Arn"])


def _until_active(api: Any, name: str) -> None:
    deadline = time.monotonic() + ACTIVE_S
    while True:
        found = api.get_function_configuration(FunctionName=name)
        if "Failed" in (found["State"], found.get("LastUpdateStatus")):
            raise WorkerError(f"function {name} failed to deploy: {found.get('StateReason')}")
        if found["State"] == "Active" and found.get("LastUpdateStatus") != "InProgress":
            return
        if time.monotonic() > deadline:
            raise WorkerError(f"function {name} is {found['State']} for more than {ACTIVE_S:g} s")
        time.sleep(POLL_S)


def _streams(logs: Any, group: str) -> dict[str, str]:
    """Text of each log stream. A function that was never invoked has none."""
    try:
        pages = list(logs.get_paginator("describe_log_streams").paginate(logGroupName=group))
    except logs.exceptions.ResourceNotFoundException:
        return {}
    names = [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
    return {name: "".join(_lines(logs, group, name)) for name in names}


def _reports(streams: dict[str, str]) -> int:
    """Number of finished invocations, by Lambda's report line at the end of each."""
    return sum(text.count("REPORT RequestId") for text in streams.values())


def _lines(logs: Any, group: str, stream: str) -> Iterator[str]:
    asked: dict[str, str] = {}
    while True:
        page = logs.get_log_events(logGroupName=group, logStreamName=stream, startFromHead=True, **asked)
        yield from (f"{event['message'].rstrip()}\n" for event in page["events"])
        if page["nextForwardToken"] == asked.get("nextToken"):  # the end gives itself as what comes next
            return
        asked = {"nextToken": page["nextForwardToken"]}
