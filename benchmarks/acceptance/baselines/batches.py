"""What methods on batches of subgraphs learn from raw features, beside vanilla.

    python -m benchmarks.acceptance.baselines.batches --only amazon_computers --seeds 5 --results FILE
    python -m benchmarks.acceptance.baselines.batches --report --results FILE             the table, as Markdown

GCN 2 x 64, Adam, learning rate .01, dropout .5, 40 subgraphs, features as they are. METIS cuts them: "one" is one
subgraph a batch, "mixed" as many as a batch has by default; or chance does: "random", with as many as by default. Ranks
are threads of this process: accuracies are those of processes, times are not. A score is the test accuracy where
validation is best, judged every fifth epoch. Epochs are enough for each to converge: vanilla steps once in an epoch,
batches of one subgraph 40 times. Every run is a line of the results file, and is not run again.
Exit code 1 if a default is more than 3 points below vanilla.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.acceptance import table
from run_coordinator import prepared
from run_coordinator.baseline import settings as baseline_settings
from siafu.shards import ShardSet
from tests.gpu_baselines import training

GRAPHS = ("amazon_computers", "coauthor_cs", "blogcatalog", "dblp")
MODEL = {"model.hidden": 64, "baseline.device": "cpu"}
ONE, TWO = {"baseline.ranks": 1}, {"baseline.ranks": 2}
#: Row of the table -> method and its settings.
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "vanilla": ("vanilla", ONE),
    "cluster": ("cluster", ONE),
    "allreduce": ("allreduce", TWO),
    "gossip v1": ("gossip", {"baseline.gossip": "v1", **TWO}),
    "gossip v2": ("gossip", {"baseline.gossip": "v2", **TWO}),
}
BATCHES: Mapping[str, Mapping[str, Any]] = {
    "mixed": {"data.partitioner": "metis"},
    "one": {"data.partitioner": "metis", "baseline.per_batch": 1},
    "random": {"data.partitioner": "random"},
}
EPOCHS = {"": 150, "mixed": 100, "one": 30, "random": 100}
EVERY, BAR, SEEDS = 5, 3.0, 5

Key = tuple[str, str, str, int]  # graph, row, of BATCHES ("": vanilla), seed


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(
        __doc__,
        only=(GRAPHS, "graphs, of $SIAFU_DATA"),
        seeds=SEEDS,
        results=Path("batches.jsonl"),
        report=(False, "run nothing"),
    ).parse_args(argv)
    known = table.Results(args.results)
    for key in () if args.report else _wanted(args.only, args.seeds):
        text = f"{_text(*key[:3])}{key[3]}"
        if text not in known:
            known.add(text, {"epochs": EPOCHS[key[2]], **trained(*key, EPOCHS[key[2]])})
    return _show(known, args.only)


def _wanted(graphs: Sequence[str], seeds: int) -> Iterator[Key]:
    """Defaults of all seeds first: a run that is interrupted has a table."""
    for kind in ("", *BATCHES):
        for seed in range(seeds):
            for graph in graphs:
                for name in METHODS:
                    if (name == "vanilla") == (kind == ""):
                        yield graph, name, kind, seed


def trained(graph: str, name: str, kind: str, seed: int, epochs: int) -> dict[str, Any]:
    method, own = METHODS[name]
    changes = {**MODEL, **own, **BATCHES.get(kind, {}), "train.seed": seed, "data.seed": seed, "train.epochs": epochs}
    config = baseline_settings.resolve(method, graph, None, changes, {})
    config = config.replace({"data.parts": config.partitions})
    shards = ShardSet.open(prepared.shards_of(config))
    config = baseline_settings.fitted(config, shards)
    found = training.judged(config, shards, epochs, EVERY)
    facts: dict[str, Any] = {
        what: found.facts[what] for what in ("per_batch", "mixture", "edges_kept") if what in found.facts
    }
    return {"test_acc": found.test_acc, **facts}


def _text(graph: str, name: str, kind: str) -> str:
    """What keys in the results file begin with, before their seed."""
    return f"{graph} / {name} / {kind} / "


def _of(known: table.Results, *words: str) -> dict[int, dict[str, Any]]:
    """By seed."""
    begins = _text(*words)
    return {int(key.removeprefix(begins)): one for key, one in known.items() if key.startswith(begins)}


def _show(known: table.Results, graphs: Sequence[str]) -> int:
    """Mean test accuracies ± their deviation over seeds; 1 if a default misses the bar."""
    missed, rows = 0, list[dict[str, str]]()
    for graph in graphs:
        vanilla = {seed: one["test_acc"] for seed, one in _of(known, graph, "vanilla", "").items()}
        for name in list(METHODS)[1:]:
            of = {kind: _of(known, graph, name, kind) for kind in BATCHES}
            default = of["mixed" if name == "cluster" else "random"]
            seeds = sorted(default.keys() & vanilla.keys())
            if not seeds:
                continue
            points = statistics.mean(100 * (default[seed]["test_acc"] - vanilla[seed]) for seed in seeds)
            missed += points < -BAR
            rows.append(
                {
                    "graph": graph,
                    "method": name,
                    "vanilla": _cell({seed: {"test_acc": score} for seed, score in vanilla.items()}),
                    "METIS, one subgraph": _cell(of["one"]),
                    "METIS, mixed": _cell(of["mixed"]),
                    "random, mixed": _cell(of["random"]),
                    "default minus vanilla, points": f"{points:+.1f}",
                }
            )
    table.markdown(rows)
    return 1 if missed else 0


def _cell(runs: Mapping[int, Mapping[str, Any]]) -> str:
    """By seed. In brackets: subgraphs in a batch."""
    if not runs:
        return ""
    scores = [float(one["test_acc"]) for one in runs.values()]
    sizes = sorted({one["per_batch"] for one in runs.values() if one.get("per_batch", 1) > 1})
    few = "" if len(scores) == SEEDS else f", {len(scores)} seed{'s' * (len(scores) > 1)}"
    told = f" ({', '.join(map(str, sizes))})" * bool(sizes)
    return f"{statistics.mean(scores):.3f} ± {statistics.pstdev(scores):.3f}{told}{few}"


if __name__ == "__main__":
    sys.exit(main())
