"""``siafu compare``: runs side by side: settings that differ, scores, curves."""

from __future__ import annotations

import argparse
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from run_coordinator.past_runs import PastRun, money_of, read, time_of
from run_coordinator.repeat import plus_minus, spread
from siafu import run_files
from siafu.baseline import BaselineConfig
from siafu.errors import ConfigError
from siafu.fingerprint import differences
from siafu.metrics import SPLITS, TITLES, mean_of_known
from siafu.progress import sparkline, written

EXAMPLES = """It shows only settings that differ. A folder of seeds (siafu train --runs K) is one column: mean and
standard deviation. All curves in a row share one scale, from the row's lowest to its highest value.

examples:
  siafu compare runs/20261126-101500-cora-gcn-pipe runs/20261126-101700-cora-gat-pipe
  siafu compare runs/cora-gcn-seeds-* --json
"""
#: Settings of a run's place, not of the run itself.
PLACES = ("run.dir", "data.cache_dir")
#: Of a curve, in characters; and of a column, however narrow the terminal is.
WIDTH, LEAST_WIDTH = 20, 8


@dataclass(frozen=True)
class Column:
    """One run, or runs that differ by their seeds alone."""

    name: str
    runs: Sequence[PastRun]  # at least one; of several seeds the finished runs, if there are any
    num_left_out: int = 0

    @property
    def first(self) -> PastRun:
        return self.runs[0]

    @property
    def settings(self) -> dict[str, Any]:
        """``{"section.key": value}``; without seeds where there are several."""
        found, *others = (run.config.flat() for run in self.runs)
        seeds = {key for key in found if any(repr(other[key]) != repr(found[key]) for other in others)}
        return {key: value for key, value in found.items() if key not in seeds and key not in PLACES}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu compare RUN RUN [RUN ...] [--json]"
    parser.description = "Compare runs: settings that differ, scores with their spread, time, cost and curves."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run directory, or folder of seeds (siafu train --runs K)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    columns = columns_of([Path(run) for run in args.runs])
    if len(columns) < 2:
        raise ConfigError(f"{columns[0].name} alone: name another run to compare it with; siafu runs lists them")
    if args.json:
        print(json.dumps(as_json(columns)))
    else:
        show(columns, Console(markup=False))
    return 0


def columns_of(folders: Sequence[Path]) -> list[Column]:
    """One column for each run, for runs that differ by seeds alone, and for each point of a search. Raises: ConfigError
    for a folder without a run, or where none has begun."""
    columns = []
    for folder in folders:
        found = read(folder)
        if isinstance(found, PastRun):
            columns.append(Column(folder.name, [found]))
        elif not found.runs:
            raise ConfigError(f"{folder}: none of its runs has begun")
        elif found.of_seeds:
            finished = [run for run in found.runs if run.state == "finished"] or found.runs
            columns.append(Column(folder.name, finished, len(found.runs) - len(finished)))
        else:
            columns += [Column(run.dir.name, [run]) for run in found.runs]
    return columns


def differing(columns: Sequence[Column]) -> dict[str, list[Any]]:
    """``{"section.key": [value of each column]}`` of the settings that are not all equal; None for a column without the
    setting. Beside a run of siafu, a baseline's settings at their defaults are left out: they say nothing."""
    settings = [column.settings for column in columns]
    keys = dict.fromkeys(key for found in settings for key in found)
    table = {key: [found.get(key) for found in settings] for key in keys}
    defaults = BaselineConfig().flat()

    def tells(key: str, values: Sequence[Any]) -> bool:
        if None in values and key.startswith("baseline.") and key != "baseline.method":
            return any(value not in (None, defaults.get(key)) for value in values)
        return any(value != values[0] for value in values)

    return {key: values for key, values in table.items() if tells(key, values)}


def notes(columns: Sequence[Column]) -> list[str]:
    """Remarks that the scores need: data or metrics that differ, unfinished runs."""
    first, said = columns[0], []
    for column in columns[1:]:
        ours, theirs = (run_files.manifest(one.first.dir).get("data", {}) for one in (first, column))
        differ = differences(ours, theirs)
        if differ and column.first.graph == first.first.graph:  # else the table shows two names
            said.append(f"{column.name}: its {differ} differ from those of {first.name}")
    for column in columns:
        if column.num_left_out:
            num_runs = len(column.runs) + column.num_left_out
            said.append(f"{column.name}: {len(column.runs)} of {num_runs} runs have finished; the others do not count")
    metrics = {column.first.metric for column in columns} - {None}
    if len(metrics) > 1:
        said.append(
            f"scores are not of one kind: {', '.join(TITLES[metric] for metric in sorted(filter(None, metrics)))}"
        )
    digests = [run.result["weights_digest"] for column in columns for run in column.runs if run.result]
    if len(digests) > 1 and len(set(digests)) == 1:
        said.append("all have the same weights, to the last bit")
    return said


def as_json(columns: Sequence[Column]) -> dict[str, object]:
    return {
        "runs": [
            {
                "name": column.name,
                **({"dir": str(column.first.dir)} if len(column.runs) == 1 else {}),
                "runs": [run.to_dict() for run in column.runs],
                **{f"{split}_acc": spread([run.score(split) for run in column.runs]) for split in SPLITS},
            }
            for column in columns
        ],
        "settings": differing(columns),
        "notes": notes(columns),
    }


# --- on a terminal ----------------------------------------------------------------------------------------------------


def show(columns: Sequence[Column], console: Console) -> None:
    names = list(rows(columns))
    left = console.width - max(map(len, names)) - 2 * len(columns)  # two characters between columns
    width = max(LEAST_WIDTH, left // len(columns))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for column in columns:
        table.add_column("\n".join(textwrap.wrap(column.name, width)), overflow="fold")
    for name, cells in rows(columns, min(width, WIDTH)).items():
        table.add_row(name, *cells)
    console.print(table)
    for note in notes(columns):
        console.print(note)


def rows(columns: Sequence[Column], width: int = WIDTH) -> dict[str, list[str]]:
    """Name -> a cell of each column; rows without any value are left out. ``width``: characters of a curve."""
    graphs = _unless_equal([column.first.graph for column in columns])
    settings = {key: values for key, values in differing(columns).items() if not (graphs and key == "data.source")}
    title = next((TITLES[metric] for column in columns if (metric := column.first.metric)), "score")
    told = {
        "runs": [str(len(column.runs)) for column in columns] if any(len(one.runs) > 1 for one in columns) else [],
        "graph": graphs,
        "state": _unless_equal([", ".join({run.state: 0 for run in column.runs}) for column in columns], "finished"),
        **{key: [_shown(value) for value in values] for key, values in settings.items()},
    }
    for split, name in zip(SPLITS, ("train", "validation", "test"), strict=True):
        told[f"{name} {title}"] = [_mean([run.score(split) for run in column.runs], 4) for column in columns]
    told |= {
        "epochs": [_mean([float(run.epochs) for run in column.runs], 0) for column in columns],
        "ms per epoch": [_mean([_ms(run.epoch_s) for run in column.runs], 1) for column in columns],
        "time": [time_of(mean_of_known(run.seconds for run in column.runs)) for column in columns],
        "cost": [money_of(mean_of_known(run.usd for run in column.runs)) for column in columns],
        "validation curve": _curves([_scores(column.first) for column in columns], width),
        "loss curve": _curves([_losses(column.first) for column in columns], width),
    }
    return {name: cells for name, cells in told.items() if any(cell not in ("", "–") for cell in cells)}


def _unless_equal(cells: list[str], usual: str | None = None) -> list[str]:
    """The cells; [] if all are equal, or, with ``usual``, if all have this value."""
    is_plain = len(set(cells)) == 1 if usual is None else set(cells) == {usual}
    return [] if is_plain else cells


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _mean(values: Sequence[float | None], digits: int) -> str:
    found = spread(values)
    if found is None:
        return "–"
    return plus_minus(found, digits) if len(values) > 1 else written(found["mean"], digits)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _scores(run: PastRun) -> list[float]:
    found = (record["val"] for record in run.records if record["event"] == "evaluation")
    return [scores["acc"] for scores in found if scores]


def _losses(run: PastRun) -> list[float]:
    return [record["loss"] for record in run.records if record["event"] == "epoch"]


def _curves(curves: Sequence[Sequence[float]], width: int) -> list[str]:
    """Sparklines on one scale, from the lowest to the highest value of all."""
    finite = [value for curve in curves for value in curve if math.isfinite(value)]
    if not finite:
        return []
    return [sparkline(curve, min(finite), max(finite), width) for curve in curves]
