"""``siafu train``."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
import typing
from collections.abc import Callable, Collection, Iterator, Sequence

from graph_data import source_flags
from graph_data.partitioners import PARTITIONERS
from run_coordinator import api, prepared, presets, repeat, run_config
from run_coordinator.bars import Bars
from run_coordinator.loggers import LOGGERS
from run_coordinator.meter import BUDGET, LIMITS
from run_coordinator.recovery import guard
from run_coordinator.run import Run
from siafu import config as configs
from siafu.config import Config
from siafu.errors import ConfigError, counted
from siafu.models import MODELS
from siafu.parser import mark, offer, show_few
from siafu.progress import Display, dollars, summary, written
from siafu.run_files import CONFIG

#: Config section -> title of its flags.
GROUPS = {
    "data": "graph",
    "model": "model",
    "train": "training",
    "servers": "servers",
    "lambda": "Lambdas",
    "run": "run directory",
}

#: Names that shells complete, of settings whose type lists none.
NAMES = {"model.name": MODELS, "data.partitioner": PARTITIONERS, "run.loggers": LOGGERS}

#: Exit code of a run that its budget or its time has stopped: what it has learnt is saved.
EXIT_AT_LIMIT = 3

EXAMPLES = """sources:
  digits                         1,797 images of handwritten digits, linked by similarity; the default
  FILE.npz                       your own graph; docs/guide.md describes the format
  synthetic:NAME?scale=S&seed=N  a random graph shaped like reddit-small, reddit-large, amazon,
                                 friendster or ogbn-products
  DIR                            shards that siafu prepare wrote
  NAME                           NAME.npz in $SIAFU_DATA or data/; siafu get NAME fetches some
  and every other source of siafu prepare --help-all

examples:
  siafu train
  siafu train digits --parts 2 --hidden 32 --epochs 100
  siafu train follows.csv --features users.csv --labels users.csv#job
  siafu train my_graph.npz --model sage --hidden 64 --lr 0.005 --dropout 0.5 --feature-norm row
  siafu train 'synthetic:reddit-small?scale=0.01' --parts 2 --lambdas 4 --lambda-memory 512 --json
  siafu train my_graph.npz --set train.schedule=cosine --set model.norm=layer --checkpoint-every 10
  siafu train cora --model gat --preset paper --runs 10  the paper's settings, ten seeds: mean and deviation
  siafu train my_graph.npz --budget 0.50 --max-time 30m  stop before either limit, with a checkpoint; exit code 3
"""


#: What --help ends with; --help-all has ``EXAMPLES``.
BRIEF = """examples:
  siafu train                                            1,797 images of digits, in seconds
  siafu train my_graph.npz --hidden 64 --parts 2
  siafu train follows.csv --features users.csv --labels users.csv#job
  siafu train cora --model gat --preset paper --runs 10  the paper's settings, ten seeds
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu train [SOURCE] [--FLAG VALUE ...]"
    parser.description = "Train a model on a graph, through graph servers, parameter servers and Lambdas."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "source",
        nargs="?",
        default="",
        metavar="SOURCE",
        help="a .npz file, edges in a .csv file, shards, a name [digits]",
    )
    again = parser.add_argument_group("many runs")
    again.add_argument(
        "--runs",
        type=int,
        metavar="K",
        help="train K times, with seeds --seed, --seed + 1, ..., and print mean and deviation",
    )
    again.add_argument(
        "--data-seeds",
        action="store_true",
        help="also increase data.seed: new partitions, and a new split if the graph has none of its own",
    )
    add_jobs(again)
    parser.add_argument(
        "--guard",
        action="store_true",
        help="if this process dies or hangs, continue the run with siafu resume",
    )
    add_settings(parser)
    show_few(parser, BRIEF, ["--runs"])


def add_jobs(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--jobs", type=int, default=1, metavar="J", help="runs to train at the same time [1]")


def add_settings(parser: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    """Adds the flags of a run's settings, shared by ``train``, ``search`` and ``value``. ``without``: names of flags
    that the verb does not have."""
    add_common(parser)
    groups = {section: parser.add_argument_group(title) for section, title in GROUPS.items()}
    for name, key in run_config.SHORT.items():
        if name not in without:
            add_flag(groups[key.partition(".")[0]], name, key)
    source_flags.add_to(parser, (*run_config.SHORT, *without))


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for output and sources of settings, which every training verb has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object with the result")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file of settings to start from, such as a run's config.toml"
    )
    parser.add_argument(
        "--preset",
        default="",
        metavar="paper",
        help="start from the settings that the model's paper published for this graph",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="set any line of a config.toml, also without a flag; may be repeated",
    )


def add_flag(
    group: argparse._ArgumentGroup,
    name: str,
    key: str,
    of: type[Config] = Config,
    told_default: str = "",
    told: str = "",
    values: Collection[str] = (),
) -> None:
    """Adds the flag of a setting: default and help are the field's, and a flag that is not given is None.
    ``told_default``, ``told``: replace the default in the help, or all of it. ``values``: completed by shells, if fewer
    than the field takes."""
    default = of().flat()[key]
    options: dict[str, typing.Any] = {"default": None, "help": told or _help(key, told_default or default, of)}
    if isinstance(default, bool):
        options["action"] = argparse.BooleanOptionalAction if default else "store_true"
    else:
        options["metavar"] = (
            configs.settings(of)[key].metavar
            or "|".join(_choices(key, of))
            or ("N" if isinstance(default, int) else "X")
        )
    action = group.add_argument(f"--{name.replace('_', '-')}", dest=name, **options)
    if configs.settings(of)[key].common:
        mark(action)
    offer(action, values or _choices(key, of) or NAMES.get(key, ()))


def main(args: argparse.Namespace) -> int:
    config = asked(args)
    if args.guard and args.runs is not None:
        raise ConfigError("--guard: is for one run; with --runs, repeat the command to continue")
    if args.guard:
        return guard.run([word for word in args.argv if word != "--guard"], config.run.restarts)
    if args.runs is not None:
        return _many(args, config)
    with Display(title(config), config.train.epochs, quiet=args.quiet) as display:
        run = api.from_source(config, display)
    return told(run, json_wanted=args.json, verb="train")


def told(run: Run, *, json_wanted: bool, verb: str) -> int:
    """Prints a finished run; returns the exit code."""
    print(json.dumps(dict(run.result)) if json_wanted else "\n".join(summary(run.result)))
    if run.stopped not in LIMITS:
        return 0
    limits, bill = configs.load(run.dir / CONFIG).run, run.result["cost"]
    spent = dollars(bill["usd"] if bill else 0.0)
    again = (
        f"; siafu resume {shlex.quote(str(run.dir))} with a higher limit continues it"
        if limits.on != "aws"
        else f" in {run.dir}"
    )
    limit = f"budget of {dollars(limits.budget_usd)}" if run.stopped == BUDGET else f"limit of {limits.max_seconds:g} s"
    print(
        f"siafu {verb}: stopped at its {limit} after {counted(run.result['epochs'], 'epoch')}, {spent}; the "
        f"weights are saved{again}",
        file=sys.stderr,
    )
    return EXIT_AT_LIMIT


def asked(args: argparse.Namespace, *, many: bool = False) -> Config:
    """The config of the command line. ``many``: as in ``run_config.resolve``. Prints a preset's source to stderr."""
    settings = run_config.settings_of(args.set)
    short = {name: getattr(args, name) for name in run_config.SHORT if getattr(args, name) is not None}
    short |= source_flags.given(args, without=(*run_config.SHORT,))
    if args.config:
        run_config.check_code(args.config, settings)
    config = run_config.resolve(args.source, args.config, settings, short, args.preset, many=many)
    if args.preset and not args.quiet:
        preset = presets.find(args.preset, config)
        print(f"preset      {preset.source}\nhere        {preset.differs}", file=sys.stderr)
    return config


def _many(args: argparse.Namespace, config: Config) -> int:
    with going_on(), progress_of_many(args, args.runs) as (watch, on_done):
        found = repeat.repeat(
            runs=args.runs, data_seeds=args.data_seeds, jobs=args.jobs, config=config, watch=watch, on_done=on_done
        )
    print(json.dumps(dict(found.summary)) if args.json else "\n".join(repeat.lines(found.summary)))
    return incomplete(f"siafu train: {len(found.runs)} of {args.runs} runs", len(found.runs) == args.runs)


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """Prints after Ctrl-C that finished runs are kept, and how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        print("finished runs are kept: repeat the command to continue", file=sys.stderr)
        raise


@contextlib.contextmanager
def progress_of_many(
    args: argparse.Namespace, num_runs: int
) -> Iterator[tuple[repeat.Watch, Callable[[repeat.Done], None]]]:
    """Yields the display of a run in training, and the function to call with each finished run. On a terminal, runs one
    after the other have a panel, runs side by side a bar each; a finished run is one line."""
    quiet = args.quiet or not sys.stderr.isatty()
    if args.jobs == 1:
        yield (
            lambda trial: Display(f"{title(trial.config)}, {trial.name}", trial.config.train.epochs, quiet=quiet),
            lambda done: _say(args, done),
        )
        return
    with Bars(num_runs, quiet=quiet) as bars:

        def count(done: repeat.Done) -> None:
            _say(args, done)
            bars.count()

        yield bars.shown, count


def _say(args: argparse.Namespace, done: repeat.Done) -> None:
    """Prints one line for each finished trial."""
    if args.quiet:
        return
    known = " (by an earlier call)" if done.before else ""
    if done.result is None:
        print(f"{done.trial.name}  diverged{known}", file=sys.stderr)
        return
    scores = [f"validation {written(done.result['val_acc'])}", f"test {written(done.result['test_acc'])}"]
    times = f"{counted(done.result['epochs'], 'epoch')} in {done.result['train_seconds']:.1f} s"
    print("  ".join([done.trial.name, *scores, times]) + known, file=sys.stderr)


def incomplete(what: str, complete: bool) -> int:
    """Returns the exit code of many runs, and prints a line if a limit stopped them."""
    if complete:
        return 0
    print(f"{what} finished before the limit; repeat the command with a higher one to continue", file=sys.stderr)
    return EXIT_AT_LIMIT


def title(config: Config) -> str:
    """A run in a few words: "digits, gcn, async, 2 parts"."""
    staleness = f" s={config.train.staleness}" if config.train.mode == "async" else ""
    parts = counted(prepared.num_parts(config), "part")
    return (
        f"{config.data.source}, {config.model.name}, {config.train.mode}{staleness}, {parts}, {config.servers.backend}"
    )


def _help(key: str, default: typing.Any, of: type) -> str:
    text = configs.settings(of)[key].text
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return (text if shown == "" or isinstance(default, bool) else f"{text} [{shown}]").replace("%", "%%")


def _choices(key: str, of: type[Config]) -> tuple[str, ...]:
    """The values of a setting that has a list of them."""
    hint, _ = configs.type_and_default(key, of)
    return tuple(map(str, typing.get_args(hint))) if typing.get_origin(hint) is typing.Literal else ()
