"""``siafu value``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from cost_planner.value import contenders, contest, finding, judge, table, trained, tuning, widths
from cost_planner.value.names import names_apart
from cost_planner.value.rows import OnMachines, Printed, TunedTo
from graph_data import source_flags
from run_coordinator import cli as train_cli
from run_coordinator import repeat, run_config
from siafu import allotment
from siafu.baseline import METHODS
from siafu.config import Config, Data
from siafu.errors import ConfigError
from siafu.machine import num_threads
from siafu.parser import show_few
from siafu.pricing import prices
from siafu.progress import Display, from_here, written
from siafu.shards import is_prepared

SUMMARY = "value.json"
WIDTH = 120
#: Flags of siafu train that are a contender's own, or mean something else here.
NOT_FLAGS = ("backend", "mode", "staleness", "target_acc", "split", "target")

EXAMPLES = """examples:
  siafu value cora --contenders 'lambda, cpu, vanilla, pipegcn' --ranks 2 --target 0.75 --runs 5 --as-gpu g4dn.xlarge
  siafu value amazon_computers --contenders all --parts 2 --hidden 64 --target 0.8 --as c7g.xlarge --as-gpu g6.xlarge
  siafu value cora --contenders 'cpu, lambda async s=1, lambda lambda_memory=512, cpu model.rows=bfloat16' --target 0.75
  siafu value runs/cora-gcn-value-1a2b3c4d --as c7g.xlarge         the same runs at another price
  siafu value runs/*cora* --target 0.8 --relative-to 'cpu pipe'    any runs on one graph

contenders:
  lambda [async|pipe|no-pipe]    graph servers with Lambdas [async]
  cpu [pipe|async|no-pipe]       graph servers alone [pipe]
  gpu [pipe|async|no-pipe]       graph servers with a GPU each [pipe]
  METHOD                         a method of siafu baseline --help
  all                            all of these
Add settings KEY=VALUE after a contender: KEY is a flag without --, a section.key, or s for --staleness.

Contenders train one after the other, seed by seed, until the validation score reaches the target. After an
interruption, repeat the command to continue. A contender that fails is listed, and the others continue. Time and
cost are sums over a contender's runs, divided by the number of runs that reached the target. A claim needs 5 seeds of
each contender (--runs 5). Each server on this machine is charged the price of the --as type.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "siafu value SOURCE --contenders LIST [--target SCORE] [--runs K] [--FLAG VALUE ...]\n"
        "       siafu value RUN [RUN ...] [--target SCORE] [--as INSTANCE]"
    )
    parser.description = "Compare runs by value = 1 / (time x cost) to the same score."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "words",
        nargs="*",
        metavar="SOURCE|RUN",
        help="with --contenders, the graph to train on (siafu train --help-all); else directories of runs on one graph",
    )
    group = parser.add_argument_group("contenders")
    group.add_argument(
        "--contenders", default="", metavar="LIST", help="contenders to compare, with commas between; see below"
    )
    group.add_argument(
        "--runs", type=int, default=1, metavar="K", help="train each K times, with seeds --seed, --seed + 1, ... [1]"
    )
    group.add_argument("--ranks", type=int, default=0, metavar="R", help="processes of a baseline [--parts]")
    group.add_argument(
        "--tune",
        type=int,
        default=0,
        metavar="N",
        help="first find each contender's best cluster on this machine (unless --parts or --ranks fixes it) and the "
        "best of N learning rates around --lr, with another seed",
    )
    judge.add_arguments(
        parser,
        target="the runs' --target-acc, else the highest score that all reach",
        as_gpu="a server with a GPU, or for all ranks of a baseline [cloud.gpu_instance]",
    )
    train_cli.add_settings(parser, without=NOT_FLAGS)
    show_few(parser, EXAMPLES, ["--contenders", "--runs", "--ranks", "--tune", "--target", "--as", "--as-gpu"])


def main(args: argparse.Namespace) -> int:
    prices.use(args.prices)
    if not args.contenders:
        _nothing_is_trained(args)
    stand_in = judge.StandIn(args.stand_in, args.as_param, args.as_gpu)
    _check(stand_in)
    if args.contenders:
        return _contest(args, stand_in)
    if not args.words:
        raise ConfigError("nothing to compare: give SOURCE with --contenders, or RUN")
    runs, failed, left_out, tuned = _read([Path(word) for word in args.words], stand_in)
    if all(one.error for one in runs):
        raise ConfigError(f"nothing to compare: none of the runs in {' '.join(args.words)} is finished")
    graphs = trained.graphs(runs)
    if len(graphs) > 1:
        raise ConfigError(
            f"runs of {len(graphs)} graphs ({', '.join(graphs[:3])}): values are of one and the same task"
        )
    _show_runs(args, stand_in, runs, failed, left_out, tuned)
    return 0


def _nothing_is_trained(args: argparse.Namespace) -> None:
    """Raises ConfigError for a flag of training."""
    flags = [name for name in run_config.SHORT if name not in NOT_FLAGS and getattr(args, name) is not None]
    flags += source_flags.given(args, without=(*run_config.SHORT, *NOT_FLAGS))
    flags += [name for name in ("set", "config", "preset", "ranks") if getattr(args, name)]
    flags += ["tune"] * bool(args.tune)
    if args.runs != 1:
        flags.append("runs")
    if flags:
        flag = f"--{flags[0].replace('_', '-')}"
        raise ConfigError(f"{flag}: is for training; add --contenders to train on SOURCE")


def _read(
    folders: Sequence[Path], stand_in: judge.StandIn
) -> tuple[list[trained.Contender], dict[str, list[str]], dict[str, str], dict[str, TunedTo]]:
    """Reads finished runs, of this verb's earlier calls and of others. Also returns contenders that failed, were left
    out (both with reasons), or were tuned."""
    runs: list[trained.Contender] = []
    failed: dict[str, list[str]] = {}
    left_out: dict[str, str] = {}
    tuned: dict[str, TunedTo] = {}
    contests = [folder for folder in folders if (folder / contest.WHOSE).is_file()]
    for held in map(contest.read, contests):
        runs += [*held.finished, *held.broken]
        for name, errors in held.failed.items():
            failed.setdefault(name, []).extend(errors)
        left_out.update(held.left_out)
        tuned.update(_tuned(held, stand_in))
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: not a run directory; to train on it, add --contenders")
    others = [trained.read(run) for folder in folders if folder not in contests for run in trained.runs_in(folder)]
    names = names_apart([one.config for one in others])
    runs += [replace(one, name=name) for one, name in zip(others, names, strict=True)]
    return runs, failed, left_out, tuned


def _tuned(held: contest.Contest, stand_in: judge.StandIn) -> dict[str, TunedTo]:
    found: dict[str, TunedTo] = {}
    for name, one in held.tuned.items():
        tries = held.tries(name)
        found[name] = {
            "asked": one.asked,
            "size": one.size,
            "lr": one.rate,
            "tries": len(tries),
            "seconds": sum((run.setup_s or 0.0) + run.last.seconds + run.last.evaluation_s for run in tries),
            "usd": sum(judge.spent(run, run.last, stand_in).usd for run in tries),
        }
    return found


def _sizes(args: argparse.Namespace, base: Config, stand_in: judge.StandIn) -> tuning.Sizes:
    """Sizes that --tune tries: a core for each server or rank; a GPU for each rank if the machine has any. None if the
    user, prepared shards or a deployment fix the number."""
    said = args.parts is not None or base.data.parts != Data().parts or is_prepared(base.data.source)
    if not args.tune or said or base.run.on != "local":
        return tuning.Sizes()
    cores = allotment.cores()
    ranks = min(cores, stand_in.num_gpus or cores)
    return tuning.Sizes(tuning.powers_of_two(cores), () if args.ranks else tuning.powers_of_two(ranks))


def _contest(args: argparse.Namespace, stand_in: judge.StandIn) -> int:
    if len(args.words) > 1:
        raise ConfigError(f"{' '.join(args.words)}: --contenders are compared on one SOURCE")
    asked = contenders.parse(args.contenders)
    told = {**vars(args), **dict.fromkeys(NOT_FLAGS), "source": "".join(args.words)}
    base = train_cli.asked(argparse.Namespace(**told), many=True)
    if args.target is not None and args.split == "val":
        base = base.replace({"train.target_acc": args.target})
    stand_in = replace(stand_in, gpu=stand_in.gpu or base.cloud.gpu_instance)
    sizes, ranks = _sizes(args, base, stand_in), args.ranks or base.data.parts
    names = contest.names(asked, base, ranks, {one.directory: sizes.of(one, base, ranks) for one in asked}).values()
    if args.relative_to and args.relative_to not in names:
        raise ConfigError(f"--relative-to {args.relative_to}: must be one of {', '.join(names)}")
    needs_gpu = [one.name for one in asked if one.kind == "gpu" or one.kind in METHODS]
    if needs_gpu and not stand_in.gpu:
        raise ConfigError(f"--contenders {needs_gpu[0]}: at the price of which machine? --as-gpu INSTANCE says so")
    _warn_of_cores(args, base, stand_in, asked)
    with train_cli.going_on():
        held = contest.hold(
            asked,
            base,
            runs=args.runs,
            ranks=args.ranks,
            tune=args.tune,
            sizes=sizes,
            stand_in=stand_in,
            watch=_watch(args),
            on_done=lambda done: _say(args, done),
        )
    runs = [*held.finished, *held.broken]
    found = _show_runs(args, stand_in, runs, held.failed, held.left_out, _tuned(held, stand_in), held.dir)
    (held.dir / SUMMARY).write_text(json.dumps(found, indent=1) + "\n")
    done = f"siafu value: {held.num_done} of {held.num_asked} runs"
    return train_cli.incomplete(done, held.complete) or (0 if held.finished else 1)


def _warn_of_cores(
    args: argparse.Namespace, base: Config, stand_in: judge.StandIn, asked: Sequence[contenders.Asked]
) -> None:
    """Warns of shared cores before hours of training; the notes under the table repeat it."""
    threads, has_servers = num_threads(base), any(one.kind in ("cpu", "lambda") for one in asked)
    if has_servers and base.run.on != "aws" and threads != stand_in.vcpus and not args.quiet:
        print(f"siafu value: {finding.other_cores(threads, stand_in.to_dict())}", file=sys.stderr)


def _check(stand_in: judge.StandIn) -> None:
    """Raises PriceUnknown before anything is trained."""
    for name in filter(None, (stand_in.graph, stand_in.param, stand_in.gpu)):
        prices.instance(name)


def _watch(args: argparse.Namespace) -> repeat.Watch:
    """Shows the progress of one run after the other."""

    def display(trial: repeat.Trial) -> Display:
        title = ", ".join([trial.config.data.source, trial.config.model.name, *_whose(trial)])
        return Display(title, trial.config.train.epochs, quiet=args.quiet or not sys.stderr.isatty())

    return display


def _say(args: argparse.Namespace, done: repeat.Done) -> None:
    """Prints one line for each run that has ended."""
    if args.quiet:
        return
    said = done.error.splitlines()[0] if done.error else "failed"
    if done.result is not None:
        score, seconds = done.result["val_acc"], done.result["train_seconds"]
        said = f"validation {written(score)} after {done.result['epochs']} epochs in {seconds:.1f} s"
    known = " (by an earlier call)" if done.before else ""
    print(f"{', '.join(_whose(done.trial))}: {said}{known}", file=sys.stderr)


def _whose(trial: repeat.Trial) -> list[str]:
    return [trial.settings["contender"], f"seed {trial.seed}"]


def _show_runs(
    args: argparse.Namespace,
    stand_in: judge.StandIn,
    runs: Sequence[trained.Contender],
    failed: Mapping[str, Sequence[str]],
    left_out: Mapping[str, str],
    tuned: Mapping[str, TunedTo],
    folder: Path | None = None,
) -> Printed:
    """Prints the table or its JSON, and returns the JSON object."""
    beside = next((name for name, one in tuned.items() if one["asked"] == args.relative_to), args.relative_to)
    asked = {"target": args.target, "split": args.split, "beside": beside}
    judged = judge.judged(runs, stand_in, **asked, failed=failed, left_out=left_out)
    there: OnMachines = {
        "stand_in": stand_in.to_dict(),
        "machines": sorted({one.machine for one in runs} - {""}),
        **judged,
    }
    found: Printed = {
        "source": runs[0].config.data.source if runs else "".join(args.words),
        "run_dir": None if folder is None else str(folder),
        "tuned": tuned,
        "predicted_widths": widths.predicted(runs, judged["rows"], stand_in),
        **there,
        "finding": finding.of(there),
    }
    if args.json:
        print(json.dumps(found))
        return found
    table.show(found, Console(markup=False, width=None if Console().is_terminal else WIDTH))
    if folder is not None:
        print(f"saved in {from_here(folder)}")
    return found
