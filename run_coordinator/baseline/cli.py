"""``siafu baseline``."""

from __future__ import annotations

import argparse
import json
import shlex

from graph_data import source_flags
from run_coordinator import baseline, run_config
from run_coordinator import cli as train_cli
from run_coordinator.baseline import settings
from siafu.baseline import BASELINE_MODELS, METHODS, BaselineConfig
from siafu.errors import ConfigError, counted
from siafu.parser import offer, show_few
from siafu.progress import Display, size, summary
from siafu.run_files import Result

EXAMPLES = """SOURCE is any source of siafu train. siafu cuts it into the number of partitions that the method needs;
shards must already have this number: siafu prepare SOURCE --parts R. --set baseline.KEY=VALUE sets
settings without a flag.

examples:
  siafu baseline vanilla cora --ranks 2 --epochs 100 --json
  siafu baseline pipegcn cora --ranks 4 --smooth FG --gamma 0.95
  siafu baseline adaqp synthetic:reddit-small?scale=0.02 --link-rate 25MB --link-delay 1ms
  siafu baseline pipegcn cora --scheme fixed --bits 4 --feedback     pipelined and quantised
  siafu baseline gnnpipe cora --model gcnii --layers 32 --hidden 64 --ranks 4 --chunks 4
  siafu baseline gossip cora --ranks 4 --gossip v2 --slow-rank 1
  siafu baseline --resume runs/20261121-060000-cora-gcn-vanilla
  siafu baseline vanilla cora --ranks 16 --run-dir /shared/run --torchrun     several machines
"""


#: Where less is possible than siafu train can do.
TOLD = {
    "model.name": f"{', '.join(BASELINE_MODELS)} [gcn]",
    "run.checkpoint_every": "epochs between checkpoints; 0: none [0]",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu baseline METHOD [SOURCE] [--FLAG VALUE ...]\n       siafu baseline --resume RUN"
    parser.description = (
        "Train with the algorithm of another system, on GPUs or on this machine's cores. A rank is a process that\n"
        "holds a part of the graph; halo rows are the rows of other ranks' vertices that it needs.\n\nmethods:\n"
    )
    parser.description += "\n".join(f"  {name:10}{method.what}" for name, method in METHODS.items())
    parser.epilog = EXAMPLES
    offer(parser.add_argument("method", nargs="?", default="", metavar="METHOD", help="one of the above"), METHODS)
    parser.add_argument("source", nargs="?", default="", metavar="SOURCE", help="graph to train on [digits]")
    parser.add_argument("--resume", default="", metavar="RUN", help="continue from the newest checkpoint of a run")
    parser.add_argument(
        "--torchrun",
        action="store_true",
        help="prepare shards and the run directory, and print the command for every machine; start nothing",
    )
    train_cli.add_common(parser)
    own = parser.add_argument_group("baseline")
    for name, key in settings.OWN.items():
        train_cli.add_flag(own, name, key, BaselineConfig)
    sections = dict.fromkeys(run_config.SHORT[name].partition(".")[0] for name in settings.SHARED)
    groups = {section: parser.add_argument_group(train_cli.GROUPS[section]) for section in sections}
    for name in settings.SHARED:
        key = run_config.SHORT[name]
        values = BASELINE_MODELS if key == "model.name" else ()
        section = key.partition(".")[0]
        train_cli.add_flag(groups[section], name, key, BaselineConfig, told=TOLD.get(key, ""), values=values)
    source_flags.add_to(parser, names())
    show_few(parser, EXAMPLES, ["--ranks", "--device", "--resume"])


def names() -> tuple[str, ...]:
    """Names of the settings that have a flag."""
    return (*settings.SHARED, *settings.OWN)


def main(args: argparse.Namespace) -> int:
    short = {name: getattr(args, name) for name in names() if getattr(args, name) is not None}
    short |= source_flags.given(args, without=names())
    if args.resume:
        given = [*(["METHOD"] if args.method else []), *(f"--{name.replace('_', '-')}" for name in short), *args.set]
        given += ["--torchrun"] if args.torchrun else []
        if given or args.config or args.preset:
            raise ConfigError(
                f"--resume {args.resume}: continues with its own settings; leave out {(given or ['settings'])[0]}"
            )
        config = baseline.begun(args.resume)
    elif args.method:
        if args.source.lower() in METHODS and args.method.lower() not in METHODS:
            raise ConfigError(f"METHOD comes first: siafu baseline {args.source.lower()} {args.method}")
        changes = run_config.settings_of(args.set)
        config = settings.resolve(args.method, args.source, args.config, changes, short, args.preset)
    else:
        raise ConfigError(f"no METHOD: must be one of {', '.join(METHODS)}")
    if args.torchrun:
        with Display(_title(config), config.train.epochs, quiet=args.quiet) as display:
            words = baseline.for_torchrun(config, display)
        ranks = f"--nproc-per-node {config.baseline.ranks}"
        print(json.dumps({"torchrun": words}) if args.json else f"torchrun {ranks} {shlex.join(words)}")
        return 0
    with Display(_title(config), config.train.epochs, quiet=args.quiet) as display:
        if args.resume:
            run = baseline.resume(args.resume, on_status=display)
        else:
            run = baseline.train_baseline(args.method, config=config, on_status=display)
    print(json.dumps(dict(run.result)) if args.json else "\n".join(lines(run.result)))
    return 0


def _title(config: BaselineConfig) -> str:
    """A run in a few words: "cora, gcn, pipegcn, 2 ranks"."""
    ranks = counted(config.baseline.ranks, "rank")
    return f"{config.data.source}, {config.model.name}, {config.baseline.method}, {ranks}"


def lines(result: Result) -> list[str]:
    """The last lines of a run."""
    first, *others = summary(result)
    seconds, sent = result["seconds_per_epoch"], result["bytes_per_epoch"]
    whole = sum(seconds.values())
    shares = [f"{phase} {value / whole:.0%}" for phase, value in seconds.items() if whole and value / whole >= 0.005]
    found = [first, f"an epoch    {', '.join(shares)}"] if shares else [first]
    if any(sent.values()):
        found.append(
            "traffic     "
            + ", ".join(f"{size(nbytes)} {kind}" for kind, nbytes in sent.items() if nbytes)
            + " an epoch"
        )
    return [*found, *(f"warning     {text}" for text in result.get("warnings", ())), *others]
