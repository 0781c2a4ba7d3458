"""The watchdog's function: removes a deployment whose time is over, one step at each call; its schedule calls it again.

A step asks which stacks there are and deletes those that no other one needs; the last is the watchdog's own. Nothing
waits, so nothing runs into Lambda's 15 minutes: network interfaces of a function alone can take 20 to go. A step that
fails is taken anew by the next call. ``siafu destroy`` decides by ``due`` as well. This file is the function's whole
code, at most 4096 characters of it: it knows the standard library and boto3 alone.
"""

from __future__ import annotations

import json
import os
from typing import Any

import boto3
from botocore.exceptions import ClientError


def due(levels: list[list[str]], states: dict[str, str]) -> list[str]:
    """Names of the stacks to delete now. ``levels``: those at a time that may go together;
    ``states``: of those that exist."""
    for level in levels:
        left = [name for name in level if name in states]
        if left:
            return [name for name in left if states[name] != "DELETE_IN_PROGRESS"]
    return []


def states_of(cloudformation: Any, names: list[str]) -> dict[str, str]:
    """Stack -> its status, of those that exist."""
    found = {}
    for name in names:
        try:
            found[name] = cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationError":  # there is none
                raise
    return {name: state for name, state in found.items() if state != "DELETE_COMPLETE"}


def empty(s3: Any, bucket: str) -> int:
    """Deletes all objects, all versions of them. How many; 0 without such a bucket."""
    count = 0
    try:
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            for kind in ("Versions", "DeleteMarkers"):
                keys = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in page.get(kind, ())]
                if keys:
                    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
                    for error in answer.get("Errors", ()):
                        raise RuntimeError(f"{bucket}/{error['Key']}: {error['Code']}")
                    count += len(keys)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
    return count


def delete(cloudformation: Any, name: str) -> bool:
    """Asks for it. False if that must wait: the stack is in the middle of something."""
    try:
        cloudformation.delete_stack(StackName=name)
        return True
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        return False


def handler(event: object, context: object) -> list[str]:
    """``event``: nothing. Returns what was asked to go."""
    levels, data, bucket = json.loads(os.environ["LEVELS"]), os.environ["DATA"], os.environ["BUCKET"]
    cloudformation = boto3.client("cloudformation")
    asked = due(levels, states_of(cloudformation, [name for level in levels for name in level]))
    if data in asked:
        empty(boto3.client("s3"), bucket)
    done = [name for name in asked if delete(cloudformation, name)]
    print(json.dumps({"deleting": done}))
    return done
