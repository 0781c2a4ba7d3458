"""``siafu train``."""

from __future__ import annotations

import argparse
import json
import sys
import typing

from bench import api
from bench.meter import BUDGET, LIMITS
from siafu import config as configs
from siafu.config import Config
from siafu.progress import Display, dollars, summary

#: Config section -> title of its flags.
GROUPS = {
    "data": "graph", "model": "model", "train": "training", "servers": "servers", "lambda": "Lambdas", "run": "run directory",
}  # fmt: skip
_METAVARS = {
    "data.parts": "P", "model.name": "NAME", "model.hidden": "H", "train.intervals": "K", "train.epochs": "E",
    "train.staleness": "S", "servers.param_servers": "Q", "lambda.memory_mb": "MB", "lambda.on": "WHERE", "run.dir": "DIR",
    "run.checkpoint_every": "K", "run.budget_usd": "USD", "run.max_seconds": "TIME",
}  # fmt: skip

#: Exit code of a run that its budget or its time has stopped: what it has learnt is saved.
EXIT_AT_LIMIT = 3

EXAMPLES = """sources:
  digits                         1,797 images of handwritten digits as a graph of look-alikes; the default
  FILE.npz                       your own graph; README.md describes the format
  synthetic:NAME?scale=S&seed=N  a random graph shaped like reddit-small, reddit-large, amazon, friendster or ogbn-products
  DIR                            shards that siafu prepare wrote
  NAME                           NAME.npz in the folder that $SIAFU_DATA names, or in data/

examples:
  siafu train
  siafu train digits --parts 2 --mode pipe --hidden 32 --epochs 100
  siafu train my_graph.npz --model sage --hidden 64 --lr 0.005 --dropout 0.5 --feature-norm row
  siafu train 'synthetic:reddit-small?scale=0.01' --parts 2 --lambdas 4 --lambda-memory 512 --json
  siafu train my_graph.npz --set train.schedule=cosine --set model.norm=layer --checkpoint-every 10
  siafu train my_graph.npz --budget 0.50 --max-time 30m      stops before either, saves what it has, exit code 3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu train [SOURCE] [--FLAG VALUE ...]"
    parser.description = "Train a model on a graph, through graph servers, parameter servers and Lambdas."
    parser.epilog = EXAMPLES
    parser.add_argument("source", nargs="?", default="", metavar="SOURCE", help="what to train on; see below")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the result")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file of settings to start from, such as a run's config.toml"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE",
        help="any setting of a config.toml, also those without a flag; may be repeated",
    )  # fmt: skip
    groups = {section: parser.add_argument_group(title) for section, title in GROUPS.items()}
    defaults = Config().to_dict()
    for name, key in api.SHORT.items():
        section, _, field = key.partition(".")
        default = defaults[section][field]
        options: dict[str, typing.Any] = {"default": None, "help": _help(key, default)}
        if isinstance(default, bool):
            options["action"] = argparse.BooleanOptionalAction if default else "store_true"
        else:
            options["metavar"] = (
                _METAVARS.get(key) or "|".join(_choices(key)) or ("N" if isinstance(default, int) else "X")
            )
        groups[section].add_argument(f"--{name.replace('_', '-')}", dest=name, **options)


def main(args: argparse.Namespace) -> int:
    settings = api.settings_of(args.set)
    short = {name: getattr(args, name) for name in api.SHORT if getattr(args, name) is not None}
    config = api.resolve(args.source, args.config, settings, short)
    with Display(_title(config), config.train.epochs, quiet=args.quiet) as display:
        run = api.train(config=config, on_status=display)
    print(json.dumps(dict(run.result)) if args.json else "\n".join(summary(run.result)))
    if run.stopped not in LIMITS:
        return 0
    asked, spent = config.run, run.result["cost"]["usd"]
    limit = f"budget of {dollars(asked.budget_usd)}" if run.stopped == BUDGET else f"limit of {asked.max_seconds:g} s"
    print(
        f"siafu train: stopped at its {limit} after {_counted(run.result['epochs'])}, {dollars(spent)}; the weights are saved",
        file=sys.stderr,
    )
    return EXIT_AT_LIMIT


def _counted(epochs: int) -> str:
    return f"{epochs} epoch{'s' if epochs != 1 else ''}"


def _title(config: Config) -> str:
    """What a run is, in a few words: "digits, gcn, async, 2 parts"."""
    staleness = f" s={config.train.staleness}" if config.train.mode == "async" else ""
    parts = f"{config.data.parts} part{'s' if config.data.parts > 1 else ''}"
    return (
        f"{config.data.source}, {config.model.name}, {config.train.mode}{staleness}, {parts}, {config.servers.backend}"
    )


def _help(key: str, default: typing.Any) -> str:
    text = configs.help_texts()[key]
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return (text if shown == "" or isinstance(default, bool) else f"{text} [{shown}]").replace("%", "%%")


def _choices(key: str) -> tuple[str, ...]:
    """The values of a setting that has a list of them."""
    section, _, field = key.partition(".")
    attribute = "lambdas" if section == "lambda" else section
    hint = typing.get_type_hints(type(getattr(Config(), attribute)))[field]
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
