"""``siafu plan``."""

from __future__ import annotations

import argparse
import json
import math
import typing
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console

from cost_planner.plan import answer, assumptions, check, cuts, graphs, here, ranking, show
from cost_planner.plan import epochs as needs
from cost_planner.plan.asked import BACKENDS, CONCURRENCY, MEMORIES_MB, Asked, Backend, Mode
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.finding import finding, line_of_lambdas, of_lambdas
from cost_planner.plan.graphs import Graph
from cost_planner.plan.lambdas import Lambdas, lambdas_on
from cost_planner.plan.options import Catalogue
from cost_planner.plan.ranking import Limits, Ranking
from graph_data import source_flags
from run_coordinator import cli, run_config
from siafu import outputs
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.parser import show_few
from siafu.pricing import prices
from siafu.setting import SECONDS, converted

#: Flags of ``siafu train`` that this verb has too.
SHARED = ("model", "layers", "hidden", "heads", "epochs", "eval_every", "partitioner", "target_acc", "inductive")
COUNTS = ("vertices", "edges", "features", "classes")
TOP = 10
#: Flags that the short --help shows, besides those of the model.
COMMON = (
    *(f"--{name}" for name in COUNTS),
    *("--backend", "--instance", "--servers", "--within-time", "--within-usd"),
    *("--why", "--here", "--check", "--calibrate"),
)

EXAMPLES = """examples:
  siafu plan cora --epochs 100                        plan for a source of siafu train, or for shards
  siafu plan follows.csv --features users.csv --labels users.csv#job
  siafu plan shards/mine --within-time 2h --within-usd 20
  siafu plan --vertices 65.6M --edges 3.6B --features 32 --classes 50 --model gcn --hidden 32
  siafu plan cora --like runs/20261122-cora-gcn-pipe  with the number of epochs that this run needed
  siafu plan shards/mine --backend cpu --instance c7gn.2xlarge,c8gn.2xlarge --servers 4,8
  siafu plan shards/mine --backend cpu,vanilla        CPUs, or one machine with GPUs; GPU speeds are from data sheets
  siafu plan --calibrate                              measure this machine: minutes
  siafu plan cora --here                              also predict runs on this machine
  siafu plan --check runs/20261122-cora-gcn-pipe      a finished run: predicted beside measured

Nothing is rented. --edges counts an undirected edge twice.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "siafu plan SOURCE [--FLAG VALUE ...]\n       siafu plan --vertices N --edges M --features F --classes C [...]"
    )
    parser.description = "Predict time, cost, memory and quotas of training a graph on AWS, best value first."
    parser.epilog = EXAMPLES
    parser.add_argument("source", nargs="?", default="", metavar="SOURCE", help="a source of siafu train, or shards")
    cli.add_common(parser)
    group = parser.add_argument_group("a graph given by its counts, such as 65.6M, 3.6B or 32")
    for name in COUNTS:
        of_source = "; with SOURCE: a FILE of them, or random:F" if name == "features" else ""
        group.add_argument(f"--{name}", metavar="N", help=f"number of {name}{of_source}")
    group.add_argument(
        "--cut",
        type=float,
        metavar="X",
        help=f"share of edges between servers, for many servers [{graphs.CUT:g}]",
    )
    source_flags.add_to(parser, COUNTS)
    group = parser.add_argument_group("training")
    for name in SHARED:
        cli.add_flag(group, name, run_config.SHORT[name])
    group.add_argument(
        "--like",
        nargs="+",
        action="extend",
        type=Path,
        default=[],
        metavar="RUN",
        help="take the number of epochs to --target-acc from finished runs of this graph",
    )
    group = parser.add_argument_group("options to compare; lists with commas")
    group.add_argument(
        "--backend",
        metavar="BACKEND[,…]",
        help="cpu, lambda, gpu (a GPU in each graph server), vanilla (siafu baseline vanilla on "
        "one machine's GPUs) [all]",
    )
    group.add_argument("--mode", metavar="MODE[,…]", help="pipe, async, no-pipe [all]")
    group.add_argument("--staleness", metavar="S[,…]", help="staleness bounds of async [0,1]")
    group.add_argument(
        "--instance", metavar="TYPE[,…]", help="EC2 types of graph servers, or of vanilla's machine [all with a price]"
    )
    group.add_argument(
        "--servers", "--parts", metavar="P[,…]", help="number of graph servers, or of vanilla's GPUs [1 to 64]"
    )
    group.add_argument(
        "--lambda-memory", metavar="MB[,…]", help=f"memory of an environment [{','.join(map(str, MEMORIES_MB))}]"
    )
    group.add_argument(
        "--lambdas",
        metavar="N",
        help="environments per server; 0: the autotuner decides [half to twice the number that keeps up]",
    )
    group.add_argument("--intervals", metavar="K", help="intervals per server [as siafu train chooses, at most 16]")
    group.add_argument(
        "--concurrency",
        metavar="N",
        default=str(CONCURRENCY),
        help=f"environments that the account may have [{CONCURRENCY}]",
    )
    group.add_argument("--max-vcpus", metavar="N", help="vCPUs of EC2 that the account may have [no limit]")
    group = parser.add_argument_group("answers")
    group.add_argument("--within-time", metavar="TIME", help="show the cheapest option within this time: 90, 30m, 2h")
    group.add_argument("--within-usd", type=float, metavar="USD", help="show the fastest option within this cost")
    group.add_argument(
        "--top",
        type=int,
        metavar="N",
        help=f"options to show, besides the Pareto front [{answer.FEW}; {TOP} with --why or --json]",
    )
    group.add_argument(
        "--why",
        action="store_true",
        help="also show memory, quotas, Lambdas, GPUs, and all assumptions with their sources",
    )
    group.add_argument(
        "--plot",
        metavar="FILE",
        help="draw time against dollars of the options, as .png, .svg or .pdf (needs the extra plot)",
    )
    group = parser.add_argument_group("this machine")
    group.add_argument(
        "--here", action="store_true", help="predict runs on this machine too: its cores and memory, without money"
    )
    group.add_argument(
        "--check",
        nargs="+",
        action="extend",
        type=Path,
        default=[],
        metavar="RUN",
        help="only compare finished runs with their predictions",
    )
    group = parser.add_argument_group("prices and speeds")
    prices.add_argument(group)
    group.add_argument(
        "--calibrate", action="store_true", help="measure this machine first, and keep the result for later plans"
    )
    group.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="use another machine's calibration [the last one here, or the built-in one]",
    )
    show_few(parser, EXAMPLES, COMMON)


def main(args: argparse.Namespace) -> int:
    prices.use(args.prices)
    if args.within_usd is not None and not args.within_usd >= 0:
        raise ConfigError(f"--within-usd {args.within_usd:g}: must be >= 0")
    within_s = float("inf")
    if args.within_time is not None:
        within_s = converted("--within-time", args.within_time, float, SECONDS)
    if within_s < 0:
        raise ConfigError(f"--within-time {args.within_time}: must be >= 0")
    calibration = _calibration(args)
    if args.calibrate and not args.source and not any(getattr(args, name) for name in COUNTS):
        return _say_calibration(args, calibration)
    if args.check:
        return _say_checks(args, calibration)
    if args.plot:
        outputs.check_picture(args.plot)
    asked = _asked(args, calibration)
    limits = Limits(
        within_s,
        float("inf") if args.within_usd is None else args.within_usd,
    )
    with Console(stderr=True, quiet=args.quiet, markup=False).status("comparing options, simulating the best"):
        catalogue = Catalogue(asked)
        if not catalogue.options:
            raise ConfigError(f"nothing fits: {catalogue.why_nothing_fits}")
        found = Ranking(catalogue.options, calibration.error, limits, max(1, args.top or TOP), ranking.BUDGET)
        lambdas = lambdas_on(asked, found.predicted)
        if_cut = [*cuts.of(asked, found.predicted[0]), *cuts.waiting(asked, catalogue.options)]
        on_this = here.of(asked, calibration.memory) if args.here else []
    if args.plot:
        from cost_planner.plan import figure  # matplotlib is not everybody's

        figure.draw(found, answer.title(asked.graph, asked.config), Path(args.plot))
    gpus = assumptions.of_gpus(asked, found.predicted[0], catalogue.card_of_one())
    taken = assumptions.of(asked, calibration, found.shown, date.today())
    told = [*taken, *if_cut, assumptions.quota_note()]
    if args.json:
        print(json.dumps({**_found(asked, catalogue, found, lambdas, gpus, told), "here": show.here_json(on_this)}))
    else:
        console = Console(markup=False, width=None if Console().is_terminal else 80)
        rows = found.shown if args.why or args.top else found.rows(answer.FEW)
        caveats = [*assumptions.caveats(asked, calibration, rows, date.today()), *if_cut]
        planned = answer.Planned(
            asked.graph,
            asked.config,
            found,
            rows,
            catalogue.dropped,
            len(catalogue.options),
            lambdas,
            gpus,
            caveats,
            told,
        )
        if on_this:
            answer.here(console, on_this, calibration)
        answer.brief(console, planned)
        if args.why:
            answer.why(console, planned)
        answer.ending(console, planned, why=args.why)
    return 0


def _calibration(args: argparse.Namespace) -> Calibration:
    if not args.calibrate:
        return Calibration.load(args.calibration)
    from cost_planner.plan.calibrate import calibrate  # it trains: who only plans does not wait for what that imports

    return calibrate(Console(stderr=True, quiet=args.quiet, markup=False))


def _say_calibration(args: argparse.Namespace, found: Calibration) -> int:
    told = {"machine": found.machine, "measured": found.measured, "error": found.error, "speeds": vars(found.speeds)}
    print(json.dumps(told) if args.json else f"{found.machine}: epochs to within {found.error:.0%}")
    return 0


def _say_checks(args: argparse.Namespace, calibration: Calibration) -> int:
    found = [check.of_run(run, calibration) for run in args.check]
    if args.json:
        print(json.dumps({"checks": [one.to_dict() for one in found]}))
    else:
        check.show(Console(markup=False), found)
    return 0


def _asked(args: argparse.Namespace, calibration: Calibration) -> Asked:
    short = {name: getattr(args, name) for name in SHARED if getattr(args, name) is not None}
    tables = _tables(args)
    config = run_config.resolve(
        args.source, args.config, run_config.settings_of(args.set), short | tables, args.preset, many=True
    )
    for name in filter(None, (config.cloud.graph_instance, config.cloud.param_instance, config.cloud.gpu_instance)):
        prices.instance(name, config.lambdas.region, retired=True)  # it compares others, but says how to run with this
    graph = _graph(args, config, tables)
    if graph.shards and graph.shards.inductive_split >= 0:
        config = config.replace({"data.split": graph.shards.inductive_split})
    if not args.source:
        config = replace(config, data=replace(config.data, source=""))
    if args.like:
        epochs = needs.of_runs(args.like, config.train.target_acc or None)
    else:
        target = f", whether they reach {config.train.target_acc:g} or not" if config.train.target_acc else ""
        epochs = Epochs(config.train.epochs, source=f"as told (--epochs){target}")
    modes = _words("mode", args.mode, typing.get_args(Mode)) or ["pipe", "async", "no-pipe"]
    staleness = _numbers("staleness", args.staleness, least=0) or [0, 1]
    backends = _words("backend", args.backend, BACKENDS) or list(BACKENDS)
    lambdas = _numbers("lambdas", args.lambdas, least=0)
    intervals = _numbers("intervals", args.intervals)
    return Asked(
        config,
        graph,
        epochs,
        calibration.speeds,
        instances=args.instance.split(",") if args.instance else None,
        servers=_numbers("servers", args.servers),
        backends=typing.cast(list[Backend], backends),
        modes=[(typing.cast(Mode, mode), s) for mode in modes for s in (staleness if mode == "async" else [0])],
        memories_mb=_numbers("lambda-memory", args.lambda_memory, least=128) or MEMORIES_MB,
        lambdas=lambdas[0] if lambdas else None,
        intervals=intervals[0] if intervals else None,
        concurrency=graphs.count(args.concurrency, "concurrency"),
        max_vcpus=math.inf if args.max_vcpus is None else graphs.count(args.max_vcpus, "max-vcpus"),
        random_share=calibration.memory.random_share,
    )


def _tables(args: argparse.Namespace) -> dict[str, str]:
    """The options of the source. ConfigError if there is no source."""
    found = source_flags.given(args)
    if not args.source or (args.features or "0")[0].isdecimal():
        found.pop("features", None)  # a count
    if found and not args.source:
        raise ConfigError(f"--{next(iter(found)).replace('_', '-')} is for SOURCE, and there is none")
    return found


def _graph(args: argparse.Namespace, config: Config, tables: Collection[str]) -> Graph:
    told = {name: getattr(args, name) for name in COUNTS if getattr(args, name) is not None and name not in tables}
    if args.source and told:
        raise ConfigError(f"--{next(iter(told))}: {args.source} already has counts; leave the flag out")
    if told:
        if missing := [f"--{name}" for name in COUNTS if name not in told]:
            raise ConfigError(f"{', '.join(missing)} missing: without SOURCE, give all four counts")
        vertices, edges, features, classes = (graphs.count(told[name], name) for name in COUNTS)
        return graphs.of_counts(vertices, edges, features, classes, args.cut, inductive=config.data.inductive)
    if not args.source:
        raise ConfigError("no graph: give SOURCE, or --vertices, --edges, --features and --classes")
    return graphs.of_source(config, args.cut)


def _words(flag: str, text: str | None, known: Sequence[str]) -> list[str]:
    found = text.split(",") if text else []
    for word in found:
        if word not in known:
            raise ConfigError(f"--{flag} {word}: must be of {', '.join(known)}")
    return found


def _numbers(flag: str, text: str | None, least: int = 1) -> list[int] | None:
    if text is None:
        return None
    found = [int(word) if word.isdecimal() else -1 for word in text.split(",")]
    if min(found) < least:
        raise ConfigError(f"--{flag} {text}: must be whole numbers of at least {least}, with commas between")
    return found


def _found(
    asked: Asked,
    catalogue: Catalogue,
    ranking: Ranking,
    lambdas: Lambdas | None,
    gpus: list[dict[str, Any]],
    told: list[str],
) -> dict[str, Any]:
    best, shown = ranking.predicted[0], ranking.shown
    place = {id(one): index for index, one in enumerate(shown)}
    within = {"seconds": ranking.cheapest_within, "usd": ranking.fastest_within}
    return {
        "graph": asked.graph.to_dict(),
        "model": {
            "name": asked.config.model.name,
            "layers": asked.config.model.layers,
            "hidden": list(asked.config.model.hidden),
        },
        "epochs_of_pipe": asked.epochs.of_pipe,
        "options": [show.option_json(one, ranking, best) for one in shown],
        "pareto": [place[id(one)] for one in ranking.front],
        "cheapest_within_time": place[id(within["seconds"])]
        if _limited(ranking.limits.seconds, within["seconds"])
        else None,
        "fastest_within_usd": place[id(within["usd"])] if _limited(ranking.limits.usd, within["usd"]) else None,
        "finding": [*finding(ranking.predicted), *line_of_lambdas(lambdas), *of_lambdas(lambdas)],
        "lambdas": show.lambdas_json(lambdas),
        "gpus": gpus,
        "considered": len(catalogue.options),
        "simulated": len(ranking.predicted),
        "left_out": dict(catalogue.dropped),
        "assumptions": told,
    }


def _limited(limit: float, answer: Any) -> bool:
    return limit < float("inf") and answer is not None
