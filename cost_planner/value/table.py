"""The table of ``siafu value``: a line for each contender, its spread below it, and the finding in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from siafu.pricing import prices
from siafu.progress import dollars, written

#: Of the table -> parts of a bill that it adds up; --json has each. A column that is empty is left out.
COLUMNS = {"Lambdas": ("lambda",), "servers": ("graph_servers", "param_servers"), "GPU": ("gpu",)}
#: Longer names take several lines.
NAME_WIDTH = 36
REST = "rest"  # disks, endpoints, requests of S3, traffic


def show(found: Mapping[str, Any], console: Console) -> None:
    rows = found["rows"]
    bills = [row["cost"] for row in rows if row["cost"]]
    parts = {part for bill in bills for part, usd in bill["parts"].items() if usd}
    known = {part for column in COLUMNS.values() for part in column}
    columns = {head: column for head, column in {**COLUMNS, REST: tuple(parts - known)}.items() if parts & {*column}}
    heads = ("runs", "seconds", "epochs", "test", *columns, "dollars", "value")
    table = Table(
        Column(max_width=NAME_WIDTH),
        *(Column(head, justify="right", no_wrap=True) for head in heads),
        title=_title(found),
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for row in rows:
        table.add_row(escape(row["name"]), *_cells(row, list(columns.values())))
    console.print(table)
    for row in rows:
        for error in row["errors"]:
            console.print(f"{row['name']}: {error.splitlines()[0]}", markup=False, highlight=False)
    medians = "; medians, and minimum and maximum below them" if any(row["reached"] > 1 for row in rows) else ""
    console.print(f"value: 1 / (time x dollars), {escape(found['relative_to'])} = 1{medians}", highlight=False)
    if bills:
        as_of = min(bill["as_of"] for bill in bills)
        console.print(f"prices of {bills[0]['region']}, {as_of}{prices.age(as_of, date.today())}", highlight=False)
    if len(rows) > 1:
        console.print(f"\n{found['finding']['text']}", markup=False, highlight=False)
    for but in found["finding"]["but"]:
        console.print(f"- {but}", markup=False, highlight=False)


def _title(found: Mapping[str, Any]) -> str:
    target = "no run is finished" if found["target"] is None else f"to {found['target']:.4g} ({found['split']})"
    return escape(f"{found['source']}: {target}")


def _cells(row: Mapping[str, Any], columns: Sequence[Sequence[str]]) -> list[str]:
    """Under time, epochs and value the least and the most of the runs; of dollars --json has them."""
    runs = f"{row['reached']}" if row["reached"] == row["runs"] else f"{row['reached']} of {row['runs']}"
    if row["cost"] is None:
        if row["best"] is None:
            return ["", "failed" if row["errors"] else ""]
        return [runs, f"best {row['best']:.4g}"]
    parts, relative, test = row["cost"]["parts"], row["relative_value"], row["scores"].get("test")
    unit = row["value"] / relative if relative else 0.0
    usd = [sum(parts.get(part, 0.0) for part in column) for column in columns]
    return [
        runs,
        _spread(row, "seconds", lambda s: f"{s:.1f}" if s < 100 else f"{s:.0f}"),
        _spread(row, "epochs", "{:g}".format),
        written(test),
        *(dollars(amount) if amount else "" for amount in usd),
        dollars(row["cost"]["usd"]),
        _spread(row, "value", lambda worth: f"{worth / unit:.2f}") if unit else "",
    ]


def _spread(row: Mapping[str, Any], key: str, shown: Callable[[float], str]) -> str:
    middle, (least, most) = shown(row[key]), map(shown, row["spread"][key])
    return middle if least == most else f"{middle}\n[dim]{least}–{most}[/dim]"
