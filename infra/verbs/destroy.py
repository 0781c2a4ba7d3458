"""``siafu destroy``: removes a deployment in any state, and checks that nothing is left."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys

from infra.verbs import arguments, consent
from run_coordinator.past_runs.deployments import forget
from siafu import extras
from siafu.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu destroy [--name NAME] [--yes] [--json]"
    parser.description = "Remove a deployment from AWS with its data, whatever its state, and list what is left."
    parser.epilog = "examples:\n  siafu destroy\n  siafu destroy --name my-run --yes --json\n"
    arguments.add_config(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object: stacks that were there, what is left"
    )


def main(args: argparse.Namespace) -> int:
    """Returns 0 when nothing is left, 1 if something is."""
    config = arguments.config_of(args)
    with extras.needed("aws"):
        from infra import teardown
        from infra.cloud import Cloud
    cloud = Cloud.of(config)
    where = f"deployment {cloud.name} in account {cloud.account}, {cloud.region}"
    if not args.yes:
        consent.ask(f"Remove {where}, with all its runs and graphs?")
    gone = teardown.destroy(cloud, say=lambda text: print(text, file=sys.stderr, flush=True))
    with contextlib.suppress(OSError, ConfigError):  # only a listing would ask for it
        forget(cloud.name, cloud.region)
    if args.json:
        print(json.dumps({"name": cloud.name, "stacks": gone.stacks, "left": [str(one) for one in gone.left]}))
    elif gone.left:
        print(f"left of {where}:", *(f"  {one}" for one in gone.left), sep="\n")
    else:
        print(f"{where}: nothing is left" if gone.stacks else f"{where}: there was nothing")
    return 1 if gone.left else 0
