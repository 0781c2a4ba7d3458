"""``siafu train``."""

from __future__ import annotations

import argparse
import json
import typing

from bench import api
from siafu import config as configs
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.progress import Display, summary
from siafu.shards import ShardSet

_METAVARS = {"data.parts": "P", "train.intervals": "K", "train.epochs": "E", "model.hidden": "H", "model.layers": "N",
             "servers.param_servers": "Q", "train.staleness": "S", "lambda.count": "N", "lambda.memory_mb": "MB",
             "lambda.on": "WHERE", "run.dir": "DIR", "data.split": "I", "run.checkpoint_every": "K"}  # fmt: skip

EXAMPLES = """examples:
  siafu train                                  the default graph, on this machine alone
  siafu train my_graph.npz --hidden 64 --epochs 100 --parts 2 --mode pipe
  siafu train 'synthetic:reddit-small?scale=0.05' --model sage --backend cpu --json
  siafu train cora --set train.schedule=cosine --set model.norm=layer
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Train a model on a graph, through graph servers, parameter servers and Lambdas."
    parser.epilog = EXAMPLES
    parser.add_argument("source", nargs="?", default="", metavar="SOURCE", help=configs.help_texts()["data.source"])
    parser.add_argument("--config", metavar="FILE", help="TOML file to start from")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="any setting of the config")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the result")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    group = parser.add_argument_group("settings")
    defaults = Config().to_dict()
    for name, key in api.SHORT.items():
        section, _, field = key.partition(".")
        default = defaults[section][field]
        options: dict[str, typing.Any] = {"default": None, "help": _help(key, default)}
        if isinstance(default, bool):
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["metavar"] = _METAVARS.get(key, "|".join(choices) if (choices := _choices(key)) else "X")
        group.add_argument(f"--{name.replace('_', '-')}", dest=name, **options)


def main(args: argparse.Namespace) -> int:
    settings = {}
    for assignment in args.set:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: must be SECTION.KEY=VALUE")
        settings[key] = value
    short = {name: getattr(args, name) for name in api.SHORT if getattr(args, name) is not None}
    config = api.resolve(args.source, args.config, settings, short)
    with Display(config.train.epochs, quiet=args.quiet) as display:
        run = api.train(config=config, on_status=display)
    result = dict(run.result)
    if args.json:
        print(json.dumps(result))
    else:
        multilabel = ShardSet.open(api.shards_of(config)).manifest.multilabel
        print("\n".join(summary(result, multilabel)))
    return 0


def _help(key: str, default: typing.Any) -> str:
    text = configs.help_texts()[key]
    shown = ",".join(map(str, default)) if isinstance(default, tuple | list) else default
    return f"{text} [{shown}]".strip().replace("%", "%%") if shown != "" else text


def _choices(key: str) -> tuple[str, ...]:
    """The values of a setting that has a list of them."""
    section, _, field = key.partition(".")
    attribute = "lambdas" if section == "lambda" else section
    hint = typing.get_type_hints(type(getattr(Config(), attribute)))[field]
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
