"""A deployment's machines and runs (``siafu status``): their own reports beside the cloud's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.machines import found, runs
from infra.machines.host import Report, Reports
from infra.machines.mailbox import Mailbox
from siafu.address import COORDINATOR, Address
from siafu.config import Config


def examine(config: Config, mailbox: Mailbox) -> dict[str, Any]:
    """``stacks``, ``expires``, ``machines``, ``runs``, and ``disagreements``: where
    machines and cloud do not say the same."""
    cloud, region = config.cloud, config.lambdas.region
    unknown: list[str] = []
    stacks, instances, expires = [], {}, None
    try:
        there = found.stacks_of(cloud.name, region)
        stacks = [{"name": stack["StackName"], "status": stack["StackStatus"]} for stack in there]
        expires = found.expiry_of(there)
        instances = found.instances_of(cloud.name, region)
    except (BotoCoreError, ClientError) as error:
        unknown.append(f"the cloud does not say how its machines are: {error}")
    reports = Reports(mailbox).read()
    machines = [
        _machine(member, reports.get(member), instances.get(member))
        for member in sorted((reports.keys() | instances.keys()) - {COORDINATOR})
    ]
    return {
        "deployment": cloud.name,
        "region": region,
        "bucket": mailbox.bucket,
        "stacks": stacks,
        "machines": machines,
        "expires": expires.strftime(found.TIME) if expires else None,
        "removes_itself": found.until(expires, datetime.now(timezone.utc)) if expires else None,
        "runs": runs.told(mailbox, reports.get(COORDINATOR)),
        "unknown": unknown,
        "disagreements": [text for machine in machines if (text := _disagreement(machine))] if not unknown else [],
    }


def _machine(member: Address, report: Report | None, instance: Mapping[str, str] | None) -> dict[str, Any]:
    said = report.value if report else {}
    return {
        "role": member.role,
        "index": member.index,
        "state": "silent" if report and report.silent else said.get("state"),
        "run": (said.get("run") if said.get("state") != "waiting" else None) or None,
        "heard_s": report.age_s if report else None,
        "machine": said.get("machine"),
        "host": said.get("host"),
        "siafu": said.get("siafu"),
        "notice": said.get("notice") or None,
        "instance": dict(instance) if instance else None,
    }


def _disagreement(machine: Mapping[str, Any]) -> str:
    """The difference between agent and cloud about a machine; empty if there is none."""
    name, instance, state = f"{machine['role']} {machine['index']}", machine["instance"], machine["state"]
    up = instance is not None and instance["state"] == "running"
    if up and state is None:
        return (
            f"{name}: instance {instance['id']} runs, but its agent has never reported: it "
            "boots, or see its console log"
        )
    if up and state == "silent":
        return f"{name}: instance {instance['id']} runs, but its agent has said nothing for {machine['heard_s']:.0f} s"
    if not up and state not in (None, "silent"):
        return f"{name}: its agent reports from {machine['machine']}, but the cloud has no running instance of it"
    if up and machine["machine"] != instance["id"]:
        return f"{name}: its agent reports from {machine['machine']}, but the cloud says {instance['id']}"
    return ""
