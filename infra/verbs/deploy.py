"""``siafu deploy``: shows what a deployment will be and cost, asks, and has ``infra.creation`` make it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from cost_planner.plan import cores
from infra import deployment
from infra.deployment import PARTS
from infra.verbs import arguments, consent
from run_coordinator.past_runs.deployments import Deployment, note
from siafu import extras
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.pricing import cost, prices

if TYPE_CHECKING:
    from infra.creation import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "siafu deploy [--config FILE] [--set SECTION.KEY=VALUE ...] [--yes] [--dry-run] [--prices FILE]\n"
        "       [--json]"
    )
    parser.description = (
        "Create servers, a Lambda function and their network on AWS. They remove themselves after cloud.ttl_hours."
    )
    parser.epilog = (
        "examples:\n"
        "  siafu deploy --dry-run\n"
        "  siafu deploy --set data.parts=4 --set cloud.spot=true --set cloud.ttl_hours=3\n"
        "  siafu deploy --config run.toml --yes\n"
    )
    arguments.add_config(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--dry-run", action="store_true", help="only show what would be created, and its price; needs no account"
    )
    prices.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    config = arguments.config_of(args)
    with extras.needed("infra"):
        from infra import cdk, creation, service
        from infra.cloud import ENDPOINT_VARIABLE, Cloud
        from infra.machines import found
    service.check_region(config.lambdas.region)
    prices.use(args.prices)
    cdk.check()
    from infra import app

    parts = PARTS if args.dry_run or not os.environ.get(ENDPOINT_VARIABLE) else creation.LOCAL_PARTS
    with tempfile.TemporaryDirectory() as folder:
        planned = creation.plan(config, app.unmade(config), Path(folder), parts)
    if args.dry_run:
        print(json.dumps(_as_json(config, planned)) if args.json else _table(config, planned))
        return 0
    cloud = Cloud.of(config)
    print(_table(config, planned), file=sys.stderr)
    if not args.yes:
        consent.ask(f"Make this in account {cloud.account}, {cloud.region}?")
    begun = time.monotonic()
    try:
        made = creation.deploy(config, cloud, parts, lambda text: print(text, file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        print(
            f"siafu deploy: stopped; there is: {creation.there(config, cloud)}. CloudFormation ends what it has "
            "begun.\n"
            "siafu deploy goes on from here; siafu destroy removes it.",
            file=sys.stderr,
        )
        raise
    expires, bucket = made.expires.strftime(found.TIME), deployment.bucket(cloud.name, cloud.account, cloud.region)
    if not cloud.endpoint:  # else siafu runs would ask AWS of it
        with contextlib.suppress(OSError, ConfigError):  # only a listing misses it
            note(Deployment(cloud.name, cloud.region, bucket, made.expires.isoformat()))
    if args.json:
        print(json.dumps({**_as_json(config, planned), "account": cloud.account, "bucket": bucket, "expires": expires}))
    else:
        print(
            f"deployment {cloud.name} is there after {time.monotonic() - begun:.0f} s, and removes itself at "
            f"{expires}\n"
            "siafu train --on aws trains on it, siafu status shows it, siafu destroy removes it"
        )
        if config.cloud.email and not cloud.endpoint:  # (Amazon SNS developer guide, "Email notifications")
            print(
                f"alarms reach {config.cloud.email} only after a click on the link in the mail from AWS Notifications"
            )
    return 0


def _as_json(config: Config, planned: Plan) -> dict[str, object]:
    resources: dict[str, int] = {}
    for counts in planned.stacks.values():
        for kind, count in counts.items():
            resources[kind] = resources.get(kind, 0) + count
    return {
        "name": config.cloud.name,
        "region": config.lambdas.region,
        "stacks": list(planned.stacks),
        "resources": dict(sorted(resources.items())),
        "usd_per_hour": planned.total,
        "parts": planned.usd_per_hour,
        "lambda_usd_per_hour": planned.lambda_usd_per_hour,
        "unknown": planned.unknown,
        "ttl_hours": config.cloud.ttl_hours,
        "as_of": planned.as_of,
    }


def _table(config: Config, planned: Plan) -> str:
    cloud, count = config.cloud, sum(sum(kinds.values()) for kinds in planned.stacks.values())
    lines = [f"deployment {cloud.name} in {config.lambdas.region}: {len(planned.stacks)} stacks, {count} resources"]
    what = {
        "graph_servers": f"{config.data.parts} x {cloud.graph_instance}{cost.bought(config, cloud.graph_instance)}",
        "param_servers": (
            f"{config.servers.param_servers} x {cloud.param_instance}{cost.bought(config, cloud.param_instance)}"
        ),
        "volumes": f"{cloud.volume_gib} GiB each",
    }
    lines += [
        f"  {part.replace('_', ' '):16}{usd:9.4f} $/h  {what.get(part, '')}"
        for part, usd in planned.usd_per_hour.items()
    ]
    if planned.total is None:
        lines.append(f"  price unknown: {planned.unknown}")
    else:
        hours = cloud.ttl_hours
        lines.append(
            f"  {'in all':16}{planned.total:9.4f} $/h  at most {planned.total * hours:.2f} $ in its {hours:g} hours"
        )
    # They launch as "unlimited" (EC2 user guide, "Unlimited mode for burstable performance instances").
    types = dict.fromkeys((cloud.graph_instance, cloud.param_instance))
    if burstable := [name for name in types if name.partition(".")[0] in cores.BURSTABLE]:
        lines.append(
            f"  {', '.join(burstable)}: paid for in CPU credits, EC2 charges up to $0.05 more for each hour of a busy "
            "vCPU; not counted here"
        )
    if planned.lambda_usd_per_hour:
        lines.append(
            f"  {'Lambda on top':16}{planned.lambda_usd_per_hour:9.4f} $/h  while {cloud.reserved} environments work"
        )
    if planned.as_of:
        lines.append(f"prices of {config.lambdas.region}, {planned.as_of}{prices.age(planned.as_of, date.today())}")
    return "\n".join(lines)
