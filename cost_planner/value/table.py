"""Prints the table of ``siafu value``: a line for each contender, its spread below it, and the finding in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import Literal

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from cost_planner.value.rows import Printed, Reached, Row, has_reached
from siafu.pricing import prices
from siafu.progress import dollars, written

#: Of the table, and of reports -> parts of a bill that it adds up; --json has each. A column that is empty is left out.
COLUMNS = {"Lambdas": ("lambda",), "servers": ("graph_servers", "param_servers"), "GPU": ("gpu",)}
#: Longer names take several lines.
NAME_WIDTH = 36
REST = "rest"  # disks, endpoints, requests of S3, traffic


def show(found: Printed, console: Console) -> None:
    rows = found["rows"]
    bills = [row["cost"] for row in rows if row["cost"]]
    parts = {part for bill in bills for part, usd in bill["parts"].items() if usd}
    known = {part for column in COLUMNS.values() for part in column}
    columns = {head: column for head, column in {**COLUMNS, REST: tuple(parts - known)}.items() if parts & {*column}}
    heads = ("runs", "seconds", "start-up", "epochs", "test", *columns, "dollars", "value")
    table = Table(
        Column(max_width=NAME_WIDTH),
        *(Column(head, justify="right", no_wrap=True) for head in heads),
        title=_title(found),
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for row in rows:
        table.add_row(row["name"], *_cells(row, list(columns.values())))
    console.print(table)
    for row in rows:
        for error in (*row["errors"], *filter(None, [row["left_out"]])):
            console.print(f"{row['name']}: {error.splitlines()[0]}", highlight=False)
    for line in _legend(found):
        console.print(line, highlight=False)
    if bills:
        as_of = min(bill["as_of"] for bill in bills)
        console.print(f"prices of {bills[0]['region']}, {as_of}{prices.age(as_of, date.today())}", highlight=False)
    if len(rows) > 1:
        console.print(f"\n{found['finding']['text']}", highlight=False)
    if (predicted := found["predicted_widths"]) is not None:
        console.print(predicted["text"], highlight=False)
    for but in found["finding"]["but"]:
        console.print(f"- {but}", highlight=False)


def _legend(found: Printed) -> list[str]:
    rows = found["rows"]
    said = [f"value: 1 / (time x dollars), {found['relative_to']} = 1"]
    if any(row["interval"] for row in rows):
        said[0] += "; below it the 95% interval of the ratio, seeds paired"
    if any(row["setup_s"] is not None for row in rows):
        said.append("seconds: from the start of the processes to the target; start-up: of these, until training began")
    if any(row["runs"] > 1 for row in rows):
        said.append(
            "seconds and dollars: what all runs spent that ended, divided by the runs that reached the target; "
            "below them the least and the most of those that reached it"
        )
    if found["tuned"]:
        said.append("tuned by runs with another seed, which the table leaves out:")
    for name, one in found["tuned"].items():
        rate = "" if one["lr"] is None else f"learning rate {one['lr']:g}; "
        said.append(f"- {name}: {rate}{one['tries']} tries, {_seconds(one['seconds'])} s, {dollars(one['usd'])}")
    if any(one["size"] is not None for one in found["tuned"].values()):
        said.append(
            "numbers of graph servers and ranks were tried on this machine, whose cores they share: on machines of "
            "their own, others may be best (siafu plan predicts it)"
        )
    return said


def _title(found: Printed) -> str:
    target = "no run is finished" if found["target"] is None else f"to {found['target']:.4g} ({found['split']})"
    return f"{found['source']}: {target}"


def _cells(row: Row, columns: Sequence[Sequence[str]]) -> list[str | Text]:
    """The cells of a row. Below time and epochs stand the runs' least and most, below the value its interval; those of
    dollars are in --json."""
    runs = f"{row['reached']}" if row["reached"] == row["runs"] else f"{row['reached']} of {row['runs']}"
    interval = "" if row["interval"] is None else "{:.2f}–{:.2f}".format(*row["interval"])
    if not has_reached(row):
        if row["best"] is None:
            return ["", "left out" if row["left_out"] else "failed" if row["errors"] else ""]
        return [runs, f"best {row['best']:.4g}"]
    parts, relative, test = row["cost"]["parts"], row["relative_value"], row["scores"].get("test")
    usd = [sum(parts.get(part, 0.0) for part in column) for column in columns]
    return [
        runs,
        _spread(row, "seconds", _seconds),
        "" if row["setup_s"] is None else _seconds(row["setup_s"]),
        _spread(row, "epochs", "{:.4g}".format),
        written(test),
        *(dollars(amount) if amount else "" for amount in usd),
        dollars(row["cost"]["usd"]),
        _above(f"{relative:.2f}", interval) if relative else "",
    ]


def _seconds(amount: float) -> str:
    return f"{amount:.1f}" if amount < 100 else f"{amount:.0f}"


def _spread(row: Reached, key: Literal["seconds", "epochs"], shown: Callable[[float], str]) -> Text:
    middle, (least, most) = shown(row[key]), map(shown, row["spread"][key])
    return _above(middle, "" if least == most else f"{least}–{most}")


def _above(middle: str, between: str) -> Text:
    return Text(middle) + Text(f"\n{between}", "dim") if between else Text(middle)
