"""Finds what ``siafu deploy`` has made, as far as runs need it, by the deployment's name (``infra.deployment``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra import deployment, reaper, service
from infra.cloud import advice_on
from infra.machines.mailbox import Mailbox
from siafu.address import Address
from siafu.config import Config
from siafu.errors import ConfigError

#: Outputs of the deployment's stacks: the data bucket, the function, the ports that its servers may
#: bind, and when it removes itself.
BUCKET, FUNCTION, PORTS, EXPIRES = "BucketName", "FunctionName", "Ports", "Expires"
#: How that is written, in UTC.
TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Found:
    bucket: str
    function: str = ""  # empty: it has none
    ports: str = ""  # that its servers may bind; empty: any
    expires: datetime | None = None  # UTC; None: nobody has said


def find(config: Config) -> Found:
    """The deployment of this name. ConfigError if it does not exist, or may not be listed."""
    cloud, region = config.cloud, config.lambdas.region
    if cloud.bucket:
        return Found(cloud.bucket)
    try:
        stacks = stacks_of(cloud.name, region)
    except (BotoCoreError, ClientError) as error:
        advice = advice_on(error)
        raise ConfigError(f"deployment {cloud.name} in {region}: {error}{advice and f'; {advice}'}") from None
    outputs = _outputs(stacks)
    if BUCKET not in outputs:
        raise ConfigError(f"there is no deployment {cloud.name} in {region}: siafu deploy makes it")
    return Found(outputs[BUCKET], outputs.get(FUNCTION, ""), outputs.get(PORTS, deployment.PORTS), expiry_of(stacks))


def _outputs(stacks: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {item["OutputKey"]: item["OutputValue"] for stack in stacks for item in stack.get("Outputs", ())}


def expiry_of(stacks: Iterable[Mapping[str, Any]]) -> datetime | None:
    """The time at which the deployment of these stacks removes itself; None if no stack has it."""
    said = _outputs(stacks).get(EXPIRES)
    return datetime.strptime(said, TIME).replace(tzinfo=timezone.utc) if said else None


def until(expires: datetime, now: datetime) -> str:
    """The time in words: "at 2026-11-22T18:30:00Z, in 3.5 h"."""
    left_h = (expires - now).total_seconds() / 3600
    return f"at {expires.strftime(TIME)}, {f'in {left_h:.1f} h' if left_h > 0 else 'which is over'}"


def stacks_of(name: str, region: str) -> list[dict[str, Any]]:
    """The deployment's stacks as CloudFormation describes them, in the order in which they are
    made. Raises what botocore raises."""
    return reaper.stacks_of(service.client("cloudformation", region), deployment.stacks(name))


def instances_of(name: str, region: str) -> dict[Address, dict[str, str]]:
    """Each role's EC2 instance, by tags; of several the running one. Raises what botocore raises."""
    pages = (
        service.client("ec2", region)
        .get_paginator("describe_instances")
        .paginate(Filters=[{"Name": "tag:siafu:deployment", "Values": [name]}])
    )
    result: dict[Address, dict[str, str]] = {}
    for instance in (i for page in pages for reservation in page["Reservations"] for i in reservation["Instances"]):
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
        role, index = tags.get("siafu:role", ""), tags.get("siafu:index", "")
        if role not in ("graph_server", "param_server") or not index.isdecimal():
            continue
        member = Address(role, str(int(index)))
        seen = {
            "id": instance["InstanceId"],
            "state": instance["State"]["Name"],
            "type": instance["InstanceType"],
            "address": instance.get("PrivateIpAddress", ""),
        }
        if member not in result or seen["state"] in ("running", "pending"):
            result[member] = seen
    return result


def refusal(name: str, region: str, member: Address) -> str:
    """The reason why the last attempt to launch the member's machine failed; empty if it did not fail. Raises what
    botocore raises."""
    api, group = service.client("autoscaling", region), deployment.group(name, member.role, member.index)
    newest = api.describe_scaling_activities(AutoScalingGroupName=group, MaxRecords=10)["Activities"]
    last = next((one for one in newest if one["StatusCode"] in ("Failed", "Cancelled", "Successful")), None)
    return str(last.get("StatusMessage", "no reason was given")) if last and last["StatusCode"] == "Failed" else ""


def mailbox_of(config: Config) -> Mailbox:
    return Mailbox(find(config).bucket, region=config.lambdas.region)
