"""The watchdog's function: removes a deployment whose time is over, one step at each call of its schedule.

A step deletes the stacks that no other one needs; the last is the watchdog's own. Nothing waits: a function's network
interfaces take 20 minutes to go, Lambda ends after 15. The next call repeats a step that fails. ``siafu destroy`` uses
``due`` as well. This file is all of the function's code, at most 4096 characters: it has no module but boto3.
"""

from __future__ import annotations

import json
import os
from typing import Any

import boto3
from botocore.exceptions import ClientError

#: S3's errors of objects that it would delete another time.
BUSY = ("InternalError", "ServiceUnavailable", "SlowDown")


def due(levels: list[list[str]], states: dict[str, str]) -> list[str]:
    """Stacks to delete now. ``levels``: groups to delete together; ``states``: of existing stacks."""
    for level in levels:
        left = [name for name in level if name in states]
        if left:
            return [name for name in left if states[name] != "DELETE_IN_PROGRESS"]
    return []


def stacks_of(cloudformation: Any, names: list[str]) -> list[dict[str, Any]]:
    """The stacks that exist. Asks by name: a list of all needs one more right, ListStacks."""
    found = []
    for name in names:
        try:
            found += cloudformation.describe_stacks(StackName=name)["Stacks"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationError":  # there is none
                raise
    return [stack for stack in found if stack["StackStatus"] != "DELETE_COMPLETE"]


def states_of(cloudformation: Any, names: list[str]) -> dict[str, str]:
    """Status of each existing stack."""
    return {stack["StackName"]: stack["StackStatus"] for stack in stacks_of(cloudformation, names)}


def empty(s3: Any, bucket: str) -> int:
    """Deletes all versions of all objects; returns how many. If S3 is too busy for some, the bucket stays."""
    count = 0
    try:
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            for kind in ("Versions", "DeleteMarkers"):
                keys = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in page.get(kind, ())]
                if keys:
                    asked = {"Objects": keys, "Quiet": True}
                    errors = s3.delete_objects(Bucket=bucket, Delete=asked).get("Errors", ())
                    for error in errors:
                        if error["Code"] not in BUSY:
                            raise ClientError({"Error": error}, f"DeleteObjects {error['Key']}")
                    count += len(keys) - len(errors)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
    return count


def delete(cloudformation: Any, name: str) -> str:
    """Requests deletion. Returns "", or why not: the stack is changing, protected, or its role is gone."""
    try:
        cloudformation.delete_stack(StackName=name)
        return ""
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        return str(error.response["Error"]["Message"])


def handler(event: object, context: object) -> list[str]:
    """Returns the stacks it asked to delete. RuntimeError, for the alarm, if an idle one may not."""
    levels, data, bucket = json.loads(os.environ["LEVELS"]), os.environ["DATA"], os.environ["BUCKET"]
    cloudformation = boto3.client("cloudformation")
    states = states_of(cloudformation, [name for level in levels for name in level])
    asked = due(levels, states)
    if data in asked:
        empty(boto3.client("s3"), bucket)
    refused = {name: why for name in asked if (why := delete(cloudformation, name))}
    done = [name for name in asked if name not in refused]
    print(json.dumps({"deleting": done, "refused": refused}))
    if any(not states[name].endswith("_IN_PROGRESS") for name in refused):
        raise RuntimeError(f"not deleted: {refused}")
    return done
