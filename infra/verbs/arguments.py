"""The flags that name a deployment, the same for all its verbs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator

from run_coordinator import run_config
from siafu.config import Config
from siafu.errors import ConfigError


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings, such as the deployed one")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="any setting, such as cloud.name or lambda.region; may be repeated",
    )
    parser.add_argument("--name", metavar="NAME", help="name of the deployment (cloud.name) [siafu]")


@contextlib.contextmanager
def on_deployment(run: str) -> Iterator[None]:
    """Wraps the search for a run on a deployment, after no directory of that name was found: an error then says so."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            f"{run}: no such directory; as a run of a deployment: {error}" if run else f"{error}"
        ) from None


def config_of(args: argparse.Namespace) -> Config:
    """The config of the arguments. ConfigError for an invalid setting."""
    settings = run_config.settings_of(args.set)
    if args.name:
        settings["cloud.name"] = args.name
    return run_config.resolve("", args.config, settings, {})
