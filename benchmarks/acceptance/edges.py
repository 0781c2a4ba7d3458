"""Link prediction and R-GCN beside PyTorch Geometric: the same graph, split, held-out
pairs, settings and number of seeds.

    python -m benchmarks.acceptance.edges [--only links|relations] [--seeds 10] [--json FILE]

Scores are of the test split (or test edges) at the evaluation with the best validation score, and at the last one.
*noise* is the standard error of the difference of two means; the verdict is about it: within two of those, or better.
PyG's run is ``tests/pyg_reference.py``, started as a process: torch stays out of this room.

    links      cora and coauthor_cs: GCN encoder of 128 and 64, dot decoder, as PyG's examples/link_pred.py, which draws
               false edges anew: of a pool of 8 per edge (the default) each is seen 12
               times, and PyG too loses 0.016 of AUC
    relations  synthetic:typed, whose labels the types of edges tell, and nothing else: R-GCN, with and without bases;
               GCN can but guess
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.acceptance import table
from run_coordinator import api, prepared
from siafu import start
from siafu.config import Config

NOISES = 2.0  # a difference of so many standard errors is still noise


@dataclass(frozen=True)
class Case:
    name: str
    score: str  # the one that is compared
    settings: dict[str, Any]  # of siafu's config

    @property
    def config(self) -> Config:
        return Config().replace({"servers.backend": "cpu", "train.mode": "pipe", **self.settings})


TYPED = {
    "data.source": "synthetic:typed?vertices=4000&relations=8&classes=4&degree=16",
    "model.name": "rgcn",
    "model.hidden": 16,
    "train.epochs": 100,
    "train.weight_decay": 5e-4,
}
LINKS = {
    "data.task": "link",
    "data.feature_norm": "row",
    "model.hidden": 128,
    "model.outputs": 64,
    "train.epochs": 100,
    "train.eval_every": 10,
    "data.negatives": 64,
}
CASES = (
    Case("relations", "acc", TYPED),
    Case("relations, 3 bases", "acc", {**TYPED, "model.bases": 3}),
    Case("links, cora", "auc", {**LINKS, "data.source": "cora"}),
    Case("links, coauthor_cs", "auc", {**LINKS, "data.source": "coauthor_cs"}),
)


def of_siafu(case: Case, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="siafu-edges-") as folder:
        run = api.train(config=case.config.replace({"train.seed": seed, "run.dir": f"{folder}/run"})).result
    best, last = run["scores"], run["final_scores"]
    return {"best": best and best["test"], "last": last and last["test"], "seconds": run["train_seconds"]}


def of_pyg(case: Case, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Raises CalledProcessError if it fails."""
    data, model, train = case.config.data, case.config.model, case.config.train
    settings = {
        "task": data.task,
        "hidden": model.hidden[0],
        "outputs": model.outputs,
        "dropout": model.dropout,
        "bases": model.bases,
        "lr": train.lr,
        "weight_decay": train.weight_decay,
        "epochs": train.epochs,
        "eval_every": train.eval_every,
    }
    command = start.command("tests.pyg_reference", str(prepared.shards_of(case.config)), "--settings")
    done = subprocess.run(
        [*command, json.dumps(settings), "--seeds", *map(str, seeds)], check=True, stdout=subprocess.PIPE, text=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def line(case: Case, seeds: Sequence[int]) -> dict[str, Any]:
    """The figures of a case and what is to be said of them."""
    runs = {"siafu": [of_siafu(case, seed) for seed in seeds], "pyg": of_pyg(case, seeds)}
    found: dict[str, Any] = {"case": case.name, "score": case.score, "seeds": len(seeds)}
    for system, several in runs.items():
        found[system] = {
            when: {name: _mean_std([run[when][name] for run in several]) for name in several[0][when]}
            for when in ("best", "last")
        }
        found[f"{system}_seconds"] = statistics.fmean(run["seconds"] for run in several)
    (mine, my_std), (theirs, their_std) = (found[system]["best"][case.score] for system in runs)
    found["difference"] = mine - theirs
    found["noise"] = math.sqrt((my_std**2 + their_std**2) / len(seeds))
    found["holds"] = found["difference"] >= -NOISES * found["noise"]
    return found


def _mean_std(values: list[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def shown(found: dict[str, Any]) -> dict[str, Any]:
    scores = {
        f"{system}, {when}": "{:.4f} ± {:.4f}".format(*found[system][when][found["score"]])
        for system in ("siafu", "pyg")
        for when in ("best", "last")
    }
    verdict = "ok" if found["holds"] else "BELOW PyG"
    told = {"difference": found["difference"], "noise": found["noise"], "verdict": verdict}
    return {"case": found["case"], "score": found["score"], **scores, **told}


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(__doc__, only=("", "cases whose name contains it"), seeds=10).parse_args(argv)
    lines = []
    for case in CASES:
        if args.only in case.name:
            lines.append(line(case, range(args.seeds)))
            table.show([shown(lines[-1])])
    table.record(args.json, lines)
    return 0 if all(found["holds"] for found in lines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
