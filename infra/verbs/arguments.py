"""Which deployment a verb is about: the same flags for all of them."""

from __future__ import annotations

import argparse

from bench import api
from siafu.config import Config
from siafu.errors import ConfigError


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings, such as the one that was deployed")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE",
        help="any setting, such as cloud.name or lambda.region; may be repeated",
    )  # fmt: skip
    parser.add_argument("--name", metavar="NAME", help="of the deployment: cloud.name [siafu]")


def config_of(args: argparse.Namespace) -> Config:
    """ConfigError for a setting that cannot be."""
    settings = {}
    for assignment in args.set:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: must be SECTION.KEY=VALUE")
        settings[key] = value
    if args.name:
        settings["cloud.name"] = args.name
    return api.resolve("", args.config, settings, {})
