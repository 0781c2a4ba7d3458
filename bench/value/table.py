"""The table of ``siafu value``: a line for each contender, its spread below it, and the finding in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from bench import prices
from siafu.progress import dollars

#: Of the table -> parts of a bill that it adds up; --json has each. A column that is empty is left out.
COLUMNS = {"Lambdas": ("lambda",), "servers": ("graph_servers", "param_servers"), "GPU": ("gpu",)}
REST = "rest"  # disks, endpoints, requests of S3, traffic


def show(found: Mapping[str, Any], console: Console) -> None:
    rows = found["rows"]
    bills = [row["cost"] for row in rows if row["cost"]]
    parts = {part for bill in bills for part, usd in bill["parts"].items() if usd}
    known = {part for column in COLUMNS.values() for part in column}
    columns = {head: column for head, column in {**COLUMNS, REST: tuple(parts - known)}.items() if parts & {*column}}
    heads = ("time", "epochs", "test", *columns, "dollars", "value")
    table = Table(
        Column(no_wrap=True), *(Column(head, justify="right", no_wrap=True) for head in heads), title=_title(found)
    )
    for row in rows:
        table.add_row(escape(_name(row)), *_cells(row, list(columns.values())))
    console.print(table)
    for row in rows:
        for error in row["errors"]:
            console.print(f"{row['name']}: {error.splitlines()[0]}", markup=False, highlight=False)
    below = " [dim]least – most of the runs below[/dim]" if any(_is_spread(row) for row in rows) else ""
    console.print(f"value: 1 / (time x dollars), {escape(found['relative_to'])} = 1{below}", highlight=False)
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


def _name(row: Mapping[str, Any]) -> str:
    short = row["runs"] > 1 or not row["reached"]
    return str(row["name"]) + (f" ({row['reached']} of {row['runs']})" if short and row["run_dirs"] else "")


def _cells(row: Mapping[str, Any], columns: Sequence[Sequence[str]]) -> list[str]:
    if row["cost"] is None:
        if row["best"] is None:
            return ["failed" if row["errors"] else ""]
        return [f"best {row['best']:.4g}"]
    parts, relative, test = row["cost"]["parts"], row["relative_value"], row["scores"].get("test")
    usd = [sum(parts.get(part, 0.0) for part in column) for column in columns]
    values = [
        _seconds(row["seconds"]), f"{row['epochs']:g}", "" if test is None else f"{test:.4f}",
        *(dollars(amount) if amount else "" for amount in usd), dollars(row["cost"]["usd"]),
        "" if relative is None else f"{relative:.2f}",
    ]  # fmt: skip
    if not _is_spread(row):
        return values
    unit = row["value"] / relative if relative else 0.0
    spreads = {0: _range(row, "seconds", _seconds), 1: _range(row, "epochs", "{:g}".format)}
    spreads[len(values) - 2] = _range(row, "usd", dollars)
    spreads[len(values) - 1] = _range(row, "value", lambda worth: f"{worth / unit:.2f}") if unit else ""
    return [f"{value}\n[dim]{spreads.get(place, '')}[/dim]" for place, value in enumerate(values)]


def _is_spread(row: Mapping[str, Any]) -> bool:
    return bool(row["reached"] > 1)


def _range(row: Mapping[str, Any], key: str, shown: Any) -> str:
    low, high = row["spread"][key]
    return f"{shown(low)} – {shown(high)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"
