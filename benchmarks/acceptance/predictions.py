"""``siafu plan --check`` on runs that the planner has never seen: graphs, models, widths and partitions differ.

    siafu plan --calibrate
    SIAFU_DATA=... python -m benchmarks.acceptance.predictions [--task node | inductive | link | all] [--rounds 3]
        [--calibrate] [--only WORDS] [--json FILE]

Every run is trained once in each round, in an order of the round's own. Measured is the median of rounds. With
``--calibrate`` calibration's own runs are among them, and a calibration is fitted to these: a virtual machine beside
others is a quarter faster or slower from one half hour to the next. The machine's own calibration stays as it is. Exit
code 1 if fewer than ``CLOSE_RUNS`` of them, which are 16 of 20, have an epoch that was predicted to within ``CLOSE``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.acceptance import table
from cost_planner.plan import check, machine_rates
from cost_planner.plan.calibrate import GRAPHS, SETTINGS, Measured, Setting, fitted, measured, middle
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.machine_rates import Rates
from run_coordinator import api
from siafu.errors import counted

CLOSE, CLOSE_RUNS = 0.15, 0.8
EPOCHS = 25
PRODUCTS = "synthetic:ogbn-products?scale="
REDDIT = "synthetic:reddit-small?scale="
AMAZON = "synthetic:amazon?scale="


@dataclass(frozen=True)
class Run:
    graph: str
    model: str
    hidden: int
    parts: int = 1
    backend: str = "cpu"
    layers: int = 2
    decoder: str = ""  # link prediction
    inductive: bool = False

    @property
    def words(self) -> str:
        shape = f"{self.model} {self.layers} x {self.hidden}"
        more = [self.decoder] * bool(self.decoder) + ["inductive"] * self.inductive
        return ", ".join([self.graph, shape, *more, self.backend, counted(self.parts, "part")])

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "model.name": self.model,
            "model.hidden": self.hidden,
            "model.layers": self.layers,
            **({"data.task": "link", "model.decoder": self.decoder} if self.decoder else {}),
            "data.inductive": self.inductive,
            "data.parts": self.parts,
            "servers.backend": self.backend,
            "train.epochs": EPOCHS,
            "train.mode": "pipe",
        }


RUNS = {
    "node": (
        Run("cora", "gcn", 16),
        Run("amazon_computers", "gcn", 128),
        Run("amazon_computers", "gat", 64),
        Run("amazon_computers", "gcn", 64, backend="lambda"),
        Run("blogcatalog", "gcn", 64),
        Run("blogcatalog", "sage", 32, backend="lambda"),
        Run("coauthor_cs", "gcn", 64, parts=2),
        Run("coauthor_physics", "gcn", 64, parts=2),
        Run("coauthor_physics", "gin", 32),
        Run("dblp", "gcn", 32, backend="lambda"),
        Run("dblp", "appnp", 64),
        Run("tolokers", "gcn", 64),
        Run("tolokers", "gat", 32, parts=2),
        Run(f"{REDDIT}0.05", "gcn", 256),
        Run(f"{REDDIT}0.1", "sage", 64, layers=3),
        Run(f"{REDDIT}0.1", "gcn", 128, parts=2, backend="lambda"),
        Run(f"{PRODUCTS}0.05", "gcn", 64),
        Run(f"{PRODUCTS}0.05", "gcnii", 64, layers=4),
        Run(f"{PRODUCTS}0.1", "gcn", 96, parts=4),
        Run(f"{AMAZON}0.02", "gcn", 128, layers=3),
    ),
    "inductive": tuple(
        Run(graph, "gcn", 64, parts=parts, inductive=True)
        for graph in ("amazon_computers", "coauthor_cs", "coauthor_physics", f"{PRODUCTS}0.05")
        for parts in (1, 2)
    ),
    "link": (
        Run("cora", "gcn", 64, decoder="dot"),
        Run("cora", "gcn", 64, parts=2, decoder="mlp"),
        Run("coauthor_cs", "gcn", 64, decoder="dot"),
        Run("amazon_computers", "gcn", 64, decoder="mlp"),
        Run("amazon_computers", "gcn", 64, parts=2, decoder="dot"),
        Run("amazon_computers", "gcn", 64, decoder="dot", backend="lambda"),
        Run(f"{PRODUCTS}0.005", "gcn", 64, decoder="dot"),
        Run(f"{PRODUCTS}0.005", "gcn", 64, parts=2, decoder="mlp"),
    ),
}
TASKS = (*RUNS, "all")


def main(argv: Sequence[str] | None = None) -> int:
    parser = table.parser(__doc__, rounds=3, only=("", "runs whose words have it"), task=("node", ", ".join(TASKS)))
    parser.add_argument("--calibrate", action="store_true", help="measure the machine in every round, among the runs")
    args = parser.parse_args(argv)
    if args.task not in TASKS:
        parser.error(f"--task {args.task}: must be one of {', '.join(TASKS)}")
    asked = [run for task in RUNS for run in RUNS[task] if args.task in (task, "all") and args.only in run.words]
    calibration = Calibration() if args.calibrate else Calibration.load()
    places: dict[Run, list[Path]] = {run: [] for run in asked}
    seen: dict[Setting, list[Measured]] = {setting: [] for setting in SETTINGS if args.calibrate}
    rates: list[Rates] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            every: list[Run | Setting] = [*asked, *seen]
            Random(number).shuffle(every)
            for position, one in enumerate(every):
                table.say(f"{number + 1}/{args.rounds} {one.words}")
                if isinstance(one, Setting):
                    seen[one].append(measured(GRAPHS[one.graph], one, one.epochs))
                    continue
                places[one].append(Path(folder, f"{number}-{position}"))
                api.train(one.graph, settings=one.settings, run_dir=places[one][-1])
            if args.calibrate:
                rates.append(machine_rates.measured())
        if args.calibrate:
            rate = Rates(**{one.name: median(getattr(each, one.name) for each in rates) for one in fields(Rates)})
            calibration = fitted([middle(several) for several in seen.values()], rate)
        found = {run: [check.of_run(place, calibration) for place in each] for run, each in places.items()}
    rows = [row(run, checks) for run, checks in found.items()]
    table.show(rows)
    table.markdown(rows)
    table.record(args.json, {"calibration": calibration.machine, "measured": calibration.measured, "rows": rows})
    close = sum(is_close(checks) for checks in found.values())
    print(f"epochs within {CLOSE:.0%}: {close} of {len(rows)}, must be {CLOSE_RUNS:.0%}")
    return 0 if close >= CLOSE_RUNS * len(rows) else 1


def is_close(checks: Sequence[check.Check]) -> bool:
    ratio = _middle(checks, "epoch_s").ratio
    return ratio is not None and abs(ratio - 1) <= CLOSE


def row(run: Run, checks: Sequence[check.Check]) -> dict[str, Any]:
    epoch, memory, ghosts = (_middle(checks, name) for name in ("epoch_s", "memory_bytes", "ghost_bytes"))
    return {
        "run": run.words,
        "predicted epoch, ms": _ms(epoch.predicted),
        "measured, ms": _ms(epoch.measured),
        "predicted / measured": _ratio(epoch),
        "memory, predicted / measured": _ratio(memory),
        "ghost bytes, predicted / measured": _ratio(ghosts),
    }


def _middle(checks: Sequence[check.Check], name: str) -> check.Quantity:
    """All rounds are predicted alike."""
    measured = [one for each in checks if (one := each.quantities[name].measured) is not None]
    return check.Quantity(checks[0].quantities[name].predicted, median(measured) if measured else None)


def _ratio(quantity: check.Quantity) -> Any:
    return "" if quantity.ratio is None else round(quantity.ratio, 2)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.0f}"


if __name__ == "__main__":
    sys.exit(main())
