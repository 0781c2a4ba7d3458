"""``python -m benchmarks measure epoch``: whole training epochs (forward, backward, Adam)
in one process, beside DGL and PyG.

All contenders train one model from the same first weights on the same graph, with rows of features in
float32. With ``--servers`` the same training also runs as users run it, through ``siafu train``, to
tell what servers and Lambdas add. They leave out edges that the loss does not need (docs/adr/0038); the
single-process loop and the peers pass along all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import Measurement, graphs
from benchmarks.measure.gather import OWN, PEER_PROGRAM, chosen
from benchmarks.measure.graphs import Measured
from benchmarks.measure.own_process import save_first_weights
from benchmarks.measure.rounds import Contender, Times, available_nbytes, race
from run_coordinator import peers
from siafu import run_files, start
from siafu.errors import ConfigError, GnnError
from siafu.models import MODELS, ModelSpec

MODEL_NAMES = ("gcn", "sage", "gat")
#: contender -> (dtype, whether layer 0's aggregate is cached); of siafu's own loop
LOOPS = {
    "siafu": ("float32", True),
    "siafu, no cache": ("float32", False),
    "siafu, bfloat16": ("bfloat16", True),
}
PEER_NAMES = ("dgl", "dgl_cached", "pyg")
#: ways to run siafu train -> partitions, and its other flags
SERVERS = {
    "cpu, 1 part": (1, ("--backend", "cpu")),
    "cpu, 1 part, bfloat16": (1, ("--backend", "cpu", "--set", "model.rows=bfloat16")),
    "cpu, 2 parts": (2, ("--backend", "cpu")),
    # With room for layer 0's aggregate of its intervals: what a Lambda does not keep is sent in every epoch.
    "lambda, 1 part": (1, ("--backend", "lambda", "--lambda-memory", "1024")),
}
SERVER_WARMUP_EPOCHS = 2  # cold starts, and layer 0's aggregation
COLUMNS = ("contender", "ms/epoch", "times siafu", "peak GiB", "loss", "test acc", "epochs", "note")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    graphs.add_arguments(parser)
    parser.add_argument("--model", default="gcn", choices=MODEL_NAMES, metavar="NAME", help="gcn, sage or gat [gcn]")
    parser.add_argument("--hidden", type=int, default=128, metavar="H", help="width of the hidden layers [128]")
    parser.add_argument("--layers", type=int, default=2, metavar="L", help="graph layers [2]")
    parser.add_argument(
        "--heads", type=int, default=8, metavar="K", help="of gat's hidden layers, of hidden / K each [8]"
    )
    parser.add_argument("--lr", type=float, default=0.01, metavar="X", help="learning rate [0.01]")
    parser.add_argument("--epochs-per-round", type=int, default=3, metavar="E", help="timed together [3]")
    parser.add_argument("--peers", metavar="NAME,...", help=f"of {', '.join(PEER_NAMES)} [all; with --servers none]")
    parser.add_argument("--servers", action="store_true", help="instead: siafu train against the single-process loop")
    parser.add_argument("--profile", action="store_true", help="show where siafu's epochs spend their time")


def measure(args: argparse.Namespace) -> Measurement:
    default = "" if args.servers else ",".join(PEER_NAMES)
    names = chosen(default if args.peers is None else args.peers, PEER_NAMES)
    for name in ("hidden", "layers", "heads", "epochs_per_round"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(args, name)}: must be >= 1")
    graph = graphs.opened(args)
    spec = _spec(args, graph)
    with tempfile.TemporaryDirectory() as folder:
        weights = f"{folder}/weights.npz"
        save_first_weights(spec, args.heads, weights)
        loops = [_loop(args, graph, spec, name) for name in LOOPS if _offered(spec, name)]
        python = peers.interpreter() if names else ""
        rivals = [_peer(args, graph, spec, name, python, weights) for name in names if _offered(spec, name)]
        if args.servers:
            return _servers(args, graph, spec, [loops[0], *rivals], Path(folder))
        fitting, too_large = _fitting([*loops, *rivals])
        times = race(fitting, args.rounds, {"epochs": args.epochs_per_round})
    times.update(too_large)
    return Measurement(
        f"epoch of {_words(args)}, {graph.title}, {args.threads} threads",
        COLUMNS,
        [_row(name, found) for name, found in times.items()],
        _summary(args, times),
    )


def _spec(args: argparse.Namespace, graph: Measured) -> ModelSpec:
    manifest = graph.shards.manifest
    widths = (args.hidden,) * (args.layers - 1)
    return ModelSpec(args.model, manifest.num_features, manifest.num_classes, manifest.splits[0].train, widths)


def _words(args: argparse.Namespace) -> str:
    heads = f", {args.heads} heads" if args.model == "gat" else ""
    return f"{args.model}, {args.layers} layers, hidden {args.hidden}{heads}"


def _offered(spec: ModelSpec, name: str) -> bool:
    """Attention depends on weights: nothing of its layer 0 is constant."""
    return spec.name != "gat" or name in ("siafu", "siafu, bfloat16", "dgl", "pyg")


# --- contenders -------------------------------------------------------------------------------------------------------


def _loop(args: argparse.Namespace, graph: Measured, spec: ModelSpec, name: str) -> Contender:
    dtype, cache = LOOPS[name]
    setup = {
        "subject": "epoch",
        "shards": str(graph.shards.path.resolve()),
        "spec": asdict(spec),
        "threads": args.threads,
        "dtype": dtype,
        "cache": cache,
        "lr": args.lr,
        "heads": args.heads,
    }
    nbytes = 8 * graph.num_edges + 8 * graph.num_vertices * (spec.in_features + 4 * sum(spec.widths))
    return Contender(name, OWN, setup, nbytes, peer=False, blas_threads=1)


def _peer(
    args: argparse.Namespace, graph: Measured, spec: ModelSpec, name: str, python: str, weights: str
) -> Contender:
    setup = {
        "subject": "epoch",
        "contender": name,
        "graph": graph.folder,
        "threads": args.threads,
        "model": spec.name,
        "layers": spec.num_layers,
        "widths": spec.widths,
        "num_classes": spec.num_classes,
        "heads": args.heads,
        "lr": args.lr,
        "weights": weights,
    }
    per_edge = 60 if name == "pyg" else 28
    if spec.name == "gat":  # some tensors [E, heads] of scores, and PyG's messages [E, hidden] too
        per_edge += 32 * args.heads + (16 * args.hidden if name == "pyg" else 0)
    nbytes = per_edge * graph.num_edges + 12 * graph.num_vertices * (spec.in_features + 4 * sum(spec.widths))
    return Contender(name, (python, PEER_PROGRAM), setup, nbytes, peer=True)


def _fitting(contenders: list[Contender]) -> tuple[list[Contender], dict[str, Times]]:
    """Those that this machine can hold, and what is said of the others."""
    available, fitting, too_large = available_nbytes(), [], {}
    for contender in contenders:
        if contender.peer and contender.nbytes > available:
            need, have = contender.nbytes / 2**30, available / 2**30
            too_large[contender.name] = Times(failed=f"needs about {need:.0f} GiB, {have:.0f} are free")
        else:
            fitting.append(contender)
    return fitting, too_large


# --- what is shown ----------------------------------------------------------------------------------------------------


def _row(name: str, found: Times) -> dict[str, Any]:
    row: dict[str, Any] = {"contender": name, "note": found.failed or found.note}
    if found.median_s is None:
        return row
    row |= {"ms/epoch": 1000 * found.median_s, "times siafu": found.ratio_to("siafu"), "seconds": found.seconds}
    if found.check:
        losses = found.check["losses"]
        row |= {"loss": losses[-1], "test acc": found.check["test_acc"], "epochs": len(losses), "losses": losses}
        row["peak GiB"] = found.check["peak_nbytes"] / 2**30
    return row


def _summary(args: argparse.Namespace, times: dict[str, Times]) -> dict[str, Any]:
    def ratio(name: str, to: str = "siafu") -> float | None:
        return times[name].ratio_to(to) if name in times else None

    accuracies = [t.check["test_acc"] for t in times.values() if t.check]
    summary: dict[str, Any] = {
        "ratio_vs_dgl": ratio("dgl"),
        "ratio_vs_dgl_cached": ratio("dgl_cached"),
        "ratio_vs_pyg": ratio("pyg"),
        "bf16_speedup": ratio("siafu", "siafu, bfloat16"),
        "accuracy_spread": max(accuracies) - min(accuracies) if accuracies else None,
        "servers_over_single": None,
        "threads": args.threads,
        "rounds": args.rounds,
    }
    if args.profile:
        summary |= {
            f"ms of {name}": found.check["phases_ms"] for name, found in times.items() if name in LOOPS and found.check
        }
    return summary


# --- servers ----------------------------------------------------------------------------------------------------------


def _servers(
    args: argparse.Namespace, graph: Measured, spec: ModelSpec, beside: list[Contender], folder: Path
) -> Measurement:
    """``siafu train`` in every way of ``SERVERS``, each round beside the
    single-process loop and the peers asked for."""
    if spec.name not in MODELS:
        raise ConfigError(f"--servers: siafu train has {', '.join(MODELS)}, not {spec.name}")
    seconds: dict[str, list[float]] = {name: [] for name in (*(one.name for one in beside), *SERVERS)}
    failed: dict[str, str] = {}
    for number in range(args.rounds):
        for name, times in race(beside, 1, {"epochs": args.epochs_per_round}).items():
            if times.median_s is None:
                raise GnnError(f"{name} failed: {times.failed}")
            seconds[name].append(times.median_s)
        for place, (name, (parts, flags)) in enumerate(SERVERS.items()):
            if name in failed:
                continue
            try:
                seconds[name].append(_train(args, parts, flags, folder / f"run-{number}-{place}"))
            except GnnError as error:
                failed[name] = str(error)
            print(f"  {name}: {failed.get(name) or f'{1000 * seconds[name][-1]:.0f} ms'}", file=sys.stderr, flush=True)
    rows = [
        {
            "contender": name,
            "ms/epoch": 1000 * median(values) if values else None,
            "seconds": values,
            "times siafu": _over(values, seconds["siafu"]),
            "note": failed.get(name, ""),
        }
        for name, values in seconds.items()
    ]
    ratios = {name: _over(values, seconds["siafu"]) for name, values in seconds.items() if name in SERVERS}
    over_peers = {
        f"servers_over_{peer.name}": {name: _over(seconds[name], seconds[peer.name]) for name in SERVERS}
        for peer in beside[1:]
    }
    title = f"siafu train of {_words(args)}, {graph.title}, {args.threads} threads, against one process"
    return Measurement(
        title,
        ("contender", "ms/epoch", "times siafu", "note"),
        rows,
        {"servers_over_single": ratios, **over_peers, "threads": args.threads, "rounds": args.rounds},
    )


def _over(values: list[float], base: list[float]) -> float | None:
    return median(mine / its for mine, its in zip(values, base, strict=False)) if values else None


def _train(args: argparse.Namespace, parts: int, flags: tuple[str, ...], run_dir: Path) -> float:
    model = [f"--model={args.model}", f"--hidden={args.hidden}", f"--layers={args.layers}", f"--lr={args.lr}"]
    if args.model == "gat":
        model.append(f"--set=model.heads={args.heads}")
    shape = [f"--parts={parts}", f"--order={args.order}", f"--set=servers.threads={max(1, args.threads // parts)}"]
    return trained_s([args.graph, *flags, *model, *shape], args.epochs_per_round, run_dir)


def trained_s(words: Sequence[str], num_epochs: int, run_dir: Path, within: Sequence[str] = ()) -> float:
    """Median seconds of an epoch of ``siafu train`` with these words, in ``pipe`` and without evaluations, after its
    first ones. ``within``: words before that command. Raises: GnnError with its last line."""
    epochs = f"--epochs={SERVER_WARMUP_EPOCHS + num_epochs}"
    more = ["--mode=pipe", epochs, "--eval-every=0", f"--run-dir={run_dir}", "--quiet", "--json"]
    command = [*within, *start.command("siafu", "train", *words, *more)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise GnnError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    records = run_files.records(run_dir)
    measured = [record["epoch_s"] for record in records if record["event"] == "epoch"][SERVER_WARMUP_EPOCHS:]
    return float(median(measured))
