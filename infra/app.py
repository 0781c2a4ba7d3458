"""The CDK app: a deployment's stacks from its config, without an account, a lookup or the network.

python -m infra.app --config FILE -o DIR writes the cloud assembly that
``siafu deploy`` gives to the CDK's command line.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from infra import wheelhouse
from infra.deployment import PARTS, REGION_TAG, TAG, Made
from infra.stacks.data import DataStack
from infra.stacks.expiry import ExpiryStack
from infra.stacks.function import FunctionStack
from infra.stacks.network import NetworkStack
from infra.stacks.servers import ServersStack
from infra.stacks.watch import WatchStack
from infra.wheels import our_runtime
from siafu import config as configs
from siafu.config import Config
from siafu.errors import ConfigError


def build(config: Config, made: Made, outdir: Path | None = None, parts: Collection[str] = PARTS) -> cdk.App:
    """The app, not synthesised yet. ``parts``: its stacks, with every stack that one of them uses."""
    app = cdk.App(
        outdir=None if outdir is None else str(outdir),
        analytics_reporting=False,
        # A template says what it makes, and nothing of the tree that it was made from.
        context={
            "aws:cdk:disable-asset-staging": True,
            "aws:cdk:version-reporting": False,
            # A stack whose outputs another one uses cannot go before it: what teardown does anyway.
            "@aws-cdk/core:defaultCrossStackReferences": "strong",
        },
    )
    name = config.cloud.name

    def options(part: str) -> dict[str, object]:
        return {"description": f"siafu, deployment {name}: {part}", "tags": {TAG: name}}

    if "expiry" in parts:
        ExpiryStack(app, config, made, **options("expiry"))
    data = DataStack(app, config, **options("data"))
    network = NetworkStack(app, config, **options("network"))
    if "function" in parts:
        FunctionStack(app, config, made, data, network, **options("function"))
    if "servers" in parts:
        ServersStack(app, config, made, network, **options("servers"))
    if "watch" in parts:
        WatchStack(app, config, network, **options("watch"))
    cdk.Tags.of(app).add(TAG, name)
    cdk.Tags.of(app).add(REGION_TAG, cdk.Aws.REGION, include_resource_types=["AWS::IAM::Role"])
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app


def unmade(config: Config) -> Made:
    """Placeholder values, to show templates without building anything."""
    now = datetime.now(timezone.utc)
    expires = now + timedelta(hours=config.cloud.ttl_hours)
    return Made(expires, "packages/not-built.zip", our_runtime(), "wheels/not-built", wheelhouse.python())


def synthesize(config: Config, made: Made, outdir: Path, parts: Collection[str] = PARTS) -> dict[str, dict[str, int]]:
    """Writes the cloud assembly; returns stack -> resources of each type. ConfigError with findings of cdk-nag that
    have no stated reason."""
    try:
        assembly = build(config, made, outdir, parts).synth()
    except RuntimeError as error:  # jsii's
        raise ConfigError(f"deployment {config.cloud.name} cannot be made: {_first_line(str(error))}") from error
    return {
        stack.stack_name: dict(Counter(resource["Type"] for resource in stack.template.get("Resources", {}).values()))
        for stack in assembly.stacks
    }


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")[:500]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point for the CDK's own command line: ``npx aws-cdk synth --app "python -m infra.app --config FILE"``."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.app", description="Write a deployment's CloudFormation templates."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file; default: the default config")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="default: where the CDK's command line says")
    args = parser.parse_args(argv)
    config = configs.load(args.config) if args.config else Config()
    build(config, unmade(config), args.output).synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
