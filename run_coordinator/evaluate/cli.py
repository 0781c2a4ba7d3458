"""``siafu evaluate``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from run_coordinator import run_config
from run_coordinator.evaluate import Evaluation, evaluate, picture
from run_coordinator.evaluate.scores import Scored
from run_coordinator.predict.plan import check_run
from siafu import outputs
from siafu.progress import Display

EXAMPLES = """examples:
  siafu evaluate runs/mine
  siafu evaluate runs/mine --split val --json
  siafu evaluate runs/mine --plot confusion.png     needs matplotlib
  siafu evaluate runs/mine --graph tomorrow.npz --split all
"""
#: Classes of which a confusion matrix is shown on a terminal; of more, what is confused most often.
MOST_CLASSES = 10
TITLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "all_labels_right": "all labels right",
    "f1_micro": "F1, micro",
    "f1_macro": "F1, macro",
    "f1_weighted": "F1, weighted",
    "auc_macro": "AUC, macro",
    "log_loss": "log loss",
    "calibration_error": "calibration error",
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "MAE",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu evaluate RUN [--split SPLIT] [--plot FILE] [--graph NEW] [--json]"
    parser.description = "Compare a run's predictions with the labels: each class, what is confused, calibration."
    parser.epilog = EXAMPLES
    parser.add_argument("run", metavar="RUN", help="directory of a run: finished, or with a checkpoint")
    parser.add_argument("--split", default="test", metavar="SPLIT", help="train, val, test or all [test]")
    parser.add_argument("--graph", default="", metavar="NEW", help="another graph with labels, as for siafu predict")
    parser.add_argument(
        "--plot", default="", metavar="FILE", help="also draw confusion, F1 and calibration: .png, .svg or .pdf"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="any other setting; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with all results")
    parser.add_argument("--quiet", action="store_true", help="print no progress")


def main(args: argparse.Namespace) -> int:
    check_run(Path(args.run))
    if args.plot:
        outputs.check_picture(args.plot)
    with Display(f"{args.graph or args.run}, evaluated", 0, quiet=args.quiet) as display:
        settings = run_config.settings_of(args.set)
        found = evaluate(args.run, split=args.split, graph=args.graph or ..., settings=settings, on_status=display)
    if args.plot:
        picture.save(found.plot(), args.plot)
    if args.json:
        print(json.dumps(found.to_dict()))
    else:
        show(found, Console(markup=False))
    return 0


def show(found: Evaluation, console: Console) -> None:
    scored = found.found
    if scored.columns:
        console.print(_of_numbers(scored))
    elif scored.classes:
        console.print(_of_classes(scored))
        if scored.confusion is not None and len(scored.classes) <= MOST_CLASSES:
            console.print(_confusion(scored))
        else:
            for true, said, count in found.confused(5):
                console.print(f"confused    {true} taken for {said}: {count}")
    for key, value in found.scores.items():
        console.print(f"{TITLES[key]:<20}{'–' if value is None else f'{value:.4f}'}")
    console.print(f"{found.count:,} vertices of split {found.split}, {found.name}")


def _of_classes(found: Scored) -> Table:
    table = _table("class", "precision", "recall", "F1", "AUC", "vertices")
    for one in found.classes:
        auc = "–" if one["auc"] is None else f"{one['auc']:.4f}"
        shares = [f"{value:.4f}" for value in (one["precision"], one["recall"], one["f1"])]
        table.add_row(one["name"], *shares, auc, f"{one['support']:,}")
    return table


def _of_numbers(found: Scored) -> Table:
    table = _table("column", "R²", "RMSE", "MAE")
    for one in found.columns:
        table.add_row(one["name"], *(f"{value:.4g}" for value in (one["r2"], one["rmse"], one["mae"])))
    return table


def _confusion(found: Scored) -> Table:
    assert found.confusion is not None
    names = [one["name"] for one in found.classes]
    table = _table("is / taken for", *names)
    for i, (name, row) in enumerate(zip(names, found.confusion.tolist(), strict=True)):
        cells = [Text(str(count), "bold") if i == j else str(count or "·") for j, count in enumerate(row)]
        table.add_row(name, *cells)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table
