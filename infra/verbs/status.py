"""``siafu status``: a deployment's machines and runs; what they say of themselves
beside what the cloud says of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.machines import found, runs
from infra.machines.host import Report, Reports
from infra.machines.mailbox import Mailbox
from infra.verbs.arguments import add_config, config_of
from siafu.address import COORDINATOR, Address
from siafu.config import Config
from siafu.progress import dollars

EXAMPLES = """examples:
  siafu status
  siafu status --name siafu --set lambda.region=eu-central-1
  siafu status --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show the stacks, machines and runs of a deployment."
    parser.epilog = EXAMPLES
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_config(parser)


def main(args: argparse.Namespace) -> int:
    config = config_of(args)
    report = examine(config, found.mailbox_of(config))
    print(json.dumps(report) if args.json else "\n".join(_lines(report)))
    return 0


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


def _name(machine: Mapping[str, Any]) -> str:
    return f"{machine['role']} {machine['index']}"


def _disagreement(machine: Mapping[str, Any]) -> str:
    """Empty if agent and cloud say the same of a machine."""
    name, instance, state = _name(machine), machine["instance"], machine["state"]
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


def _lines(report: Mapping[str, Any]) -> list[str]:
    lines = [f"deployment {report['deployment']} in {report['region']}, bucket {report['bucket']}"]
    lines += [f"  {stack['name']:28}{stack['status']}" for stack in report["stacks"]]
    if report["removes_itself"]:
        lines.append(f"  removes itself {report['removes_itself']}; siafu deploy sets the clock anew")
    rows: list[tuple[str, ...]] = [("machine", "says", "heard", "instance", "cloud says", "run")]
    for machine in report["machines"]:
        heard = "never" if machine["heard_s"] is None else f"{machine['heard_s']:.0f} s ago"
        instance = machine["instance"] or {}
        name = instance.get("id") or machine["machine"] or "-"
        state = instance.get("state", "-")
        rows.append((_name(machine), machine["state"] or "-", heard, name, state, machine["run"] or ""))
    lines += ["", *_table(rows)] if len(rows) > 1 else ["", "no machine has reported yet"]
    if report["runs"]:
        lines += ["", *_table([("run", "state", "", ""), *map(_run_row, report["runs"])])]
    notices = [f"{_name(m)}: {m['notice']}" for m in report["machines"] if m["notice"]]
    return [*lines, *(f"! {text}" for text in (*notices, *report["disagreements"], *report["unknown"]))]


def _run_row(run: Mapping[str, Any]) -> tuple[str, ...]:
    if run["state"] == "running":
        loss = "" if run["loss"] is None else f"loss {run['loss']:.4f}  "
        return run["run"], run["phase"], f"epoch {run['epoch']}/{run['epochs']}", f"{loss}{dollars(run['usd'])}"
    return (
        run["run"],
        run["state"],
        str(run["asked"] or ""),
        "" if run["state"] == "done" else str(run.get("last_line") or "")[:60],
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
