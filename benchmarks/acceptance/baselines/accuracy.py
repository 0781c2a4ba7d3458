"""Issue 6, acceptance 3: what lateness, bits and a pipeline cost in accuracy, beside vanilla after as many epochs.

    python -m benchmarks.acceptance.baselines.accuracy                            all: several hours on two cores
    python -m benchmarks.acceptance.baselines.accuracy --only cora citeseer --seeds 5
    python -m benchmarks.acceptance.baselines.accuracy --only deep --results FILE   GCNII-32 under gnnpipe, and on
                                                                                    graph-parallel ranks
    python -m benchmarks.acceptance.baselines.accuracy --report                   the table of what has been run already

Every finished run is a line of the results file, so that a second call goes on where the first was interrupted. A
score is the test accuracy of the epoch that is best by validation, the last one where there is no validation
(nell). A difference is the mean over seeds of method minus vanilla of the same seed: same split, same first
weights; ± is its standard error. Bytes are those of rows and their gradients in a mean epoch, as a share of vanilla's.
The bars: no more than 0.3 points below vanilla for smoothed PipeGCN and AdaQP, 1 point for gnnpipe; a mean beyond its
bar that is within two standard errors of it is marked ~, as noise, and is no failure. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.acceptance import table
from run_coordinator.baseline import train_baseline
from siafu.errors import GnnError

NOISES = 2.0
BYTES = "ghost_bytes_per_epoch"
MINUS = "minus vanilla, points"
GCN = {
    "model.name": "gcn",
    "model.layers": 2,
    "model.hidden": 64,
    "model.dropout": 0.5,
    "train.lr": 0.01,
    "train.weight_decay": 5e-4,
    "train.epochs": 200,
    "data.feature_norm": "row",
}
DEEP = {
    "model.name": "gcnii",
    "model.layers": 32,
    "model.hidden": 64,
    "model.dropout": 0.5,
    "train.lr": 0.01,
    "train.weight_decay": 0.01,
    "train.weight_decay_rest": 5e-4,
    "train.epochs": 300,
    "data.feature_norm": "row",
}
#: Graph -> what differs from GCN. Its splits are the graph's own, or drawn with the seed.
GRAPHS: Mapping[str, Mapping[str, Any]] = {
    "cora": {},
    "citeseer": {},
    "amazon_computers": {"train.weight_decay": 0.0, "data.feature_norm": "none"},
    "coauthor_physics": {},
    "squirrel": {"train.weight_decay": 5e-5},
    "nell": {"train.weight_decay": 1e-5, "model.dropout": 0.1, "data.feature_norm": "none"},  # Kipf & Welling's
}
#: Variant -> method, its settings, and how many points it may be below vanilla; None: no bar.
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any], float | None]] = {
    "vanilla": ("vanilla", {}, None),
    "pipegcn-none": ("pipegcn", {}, None),
    "pipegcn-F": ("pipegcn", {"baseline.smooth": "F"}, 0.3),
    "pipegcn-G": ("pipegcn", {"baseline.smooth": "G"}, 0.3),
    "pipegcn-FG": ("pipegcn", {"baseline.smooth": "FG"}, 0.3),
    "pipegcn-F correct": ("pipegcn", {"baseline.smooth": "F", "baseline.correct": True}, 0.3),
    "pipegcn-G correct": ("pipegcn", {"baseline.smooth": "G", "baseline.correct": True}, 0.3),
    "pipegcn-FG correct": ("pipegcn", {"baseline.smooth": "FG", "baseline.correct": True}, 0.3),
    "adaqp": ("adaqp", {}, 0.3),
    "adaqp early": ("adaqp", {"baseline.warmup": 1}, 0.3),
    "sancus": ("sancus", {}, None),
    "sancus by change": ("sancus", {"baseline.skip": 0.05}, None),
    "cagnet": ("cagnet", {}, None),
}
PIPELINE: Mapping[str, tuple[str, Mapping[str, Any], float | None]] = {
    "vanilla": ("vanilla", {}, None),
    "gnnpipe": ("gnnpipe", {}, None),
    "gnnpipe recover": ("gnnpipe", {"baseline.recover": True}, 1.0),
}


@dataclass(frozen=True)
class Case:
    """One cell of the table but for its seed."""

    table: str  # a graph's name, or "deep"
    graph: str
    variant: str
    method: str
    settings: Mapping[str, Any] = field(hash=False)
    bar: float | None

    def key(self, seed: int) -> str:
        text = json.dumps([self.graph, self.method, dict(self.settings), seed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def cases(ranks: int, epochs: int | None, lr: float | None) -> Iterator[Case]:
    instead = {"train.epochs": epochs, "train.lr": lr}
    more = {"baseline.ranks": ranks, **{name: value for name, value in instead.items() if value is not None}}
    for graph, settings in GRAPHS.items():
        for variant, (method, own, bar) in VARIANTS.items():
            yield Case(graph, graph, variant, method, {**GCN, **settings, **more, **own}, bar)
    for graph in ("coauthor_physics", "squirrel"):
        for variant, (method, own, bar) in PIPELINE.items():
            yield Case("deep", graph, variant, method, {**DEEP, **GRAPHS[graph], **more, **own}, bar)


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    wanted = [
        case
        for case in cases(args.ranks, args.epochs, args.lr)
        if case.table in args.only and case.variant in ("vanilla", *args.variants)
    ]
    known = table.Results(args.results)
    for seed in range(args.seeds):
        for case in wanted:
            if not args.report and case.key(seed) not in known:
                known.add(case.key(seed), _run(case, seed))
    return _show(wanted, known, args.seeds)


def _run(case: Case, seed: int) -> dict[str, Any]:
    """A run that diverges is an answer, too."""
    folder = Path(tempfile.mkdtemp(prefix="siafu-baselines-"))
    own = {"train.seed": seed} | ({"data.split": seed} if case.graph == "squirrel" else {"data.seed": seed})
    said = {"graph": case.graph, "variant": case.variant, "seed": seed}
    try:
        run = train_baseline(case.method, case.graph, run_dir=str(folder / "run"), settings={**case.settings, **own})
    except GnnError as error:
        if error.exit_code == 2:
            raise
        return {**said, "error": str(error)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    kept = ("test_acc", "val_acc", "best_epoch", "epochs", "train_seconds", "recoveries", BYTES)
    return {**said, **{name: value for name, value in run.result.items() if name in kept}}


def _show(wanted: Sequence[Case], known: Mapping[str, Mapping[str, Any]], seeds: int) -> int:
    """The table; 1 if a bar is missed."""
    rows, red = list[dict[str, Any]](), list[bool]()
    for case in wanted:
        base = next(c for c in wanted if (c.table, c.graph, c.variant) == (case.table, case.graph, "vanilla"))
        both = [(known.get(case.key(seed)), known.get(base.key(seed))) for seed in range(seeds)]
        pairs = [(mine, its) for mine, its in both if mine is not None and its is not None]
        if not pairs:
            continue
        rows.append({"graph": case.graph, "layers": case.settings["model.layers"], "variant": case.variant})
        if any("error" in one for pair in pairs for one in pair):
            rows[-1] |= {"test accuracy": "diverged", MINUS: "", "bytes": "", "bar": "", "seeds": len(pairs)}
            red.append(case.bar is not None)
            continue
        scores = [float(mine["test_acc"]) for mine, _ in pairs]
        points = [100 * (float(mine["test_acc"]) - float(its["test_acc"])) for mine, its in pairs]
        mean = statistics.mean(points)
        noise = statistics.stdev(points) / len(points) ** 0.5 if len(points) > 1 else 0.0
        short = case.bar is not None and mean < -case.bar
        fails = short and case.bar is not None and mean + NOISES * noise < -case.bar
        red.append(fails)
        spread = f" ± {statistics.stdev(scores):.4f}" if len(scores) > 1 else ""
        difference = "" if case is base else f"{mean:+.2f} ± {noise:.2f}{' ~' if short and not fails else ''}"
        bar = "" if case.bar is None else f"-{case.bar:g}"
        accuracy = f"{statistics.mean(scores):.4f}{spread}"
        sent = [one for one in pairs if all(BYTES in each for each in one)]  # lines of before have none
        share = statistics.mean(mine[BYTES] / its[BYTES] for mine, its in sent) if sent else None
        rows[-1] |= {"test accuracy": accuracy, MINUS: difference, "bytes": share, "bar": bar, "seeds": len(pairs)}
    table.show(rows, red=red)
    return 1 if any(red) else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = table.parser(
        __doc__,
        only=([*GRAPHS, "deep"], "graphs, of $SIAFU_DATA; deep: GCNII-32"),
        variants=sorted({*VARIANTS, *PIPELINE}),
        seeds=5,
        ranks=2,
        results=Path("accuracy-baselines.jsonl"),
        report=(False, "run nothing"),
    )
    parser.add_argument("--epochs", type=int, help="of every run, instead of its own")
    parser.add_argument("--lr", type=float, help="of every run, instead of its own")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
