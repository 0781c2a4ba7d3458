"""``siafu status``: a deployment's machines and runs, as ``infra.machines.overview`` finds them; or a local run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.verbs.arguments import add_config, config_of
from run_coordinator.past_runs.cli import status_of
from siafu import extras
from siafu.progress import dollars

EXAMPLES = """examples:
  siafu status
  siafu status --name siafu --set lambda.region=eu-central-1
  siafu status --json
  siafu status runs/mine              of a run directory on this machine; needs no AWS
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show the stacks, machines and runs of a deployment, or the state of a run on this machine."
    parser.epilog = EXAMPLES
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="a run directory [the deployment]")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_config(parser)


def main(args: argparse.Namespace) -> int:
    if args.run:
        status_of(Path(args.run), as_json=args.json)
        return 0
    config = config_of(args)
    with extras.needed("aws"):
        from infra.machines import found, overview
    report = overview.examine(config, found.mailbox_of(config))
    print(json.dumps(report) if args.json else "\n".join(_lines(report)))
    return 0


def _name(machine: Mapping[str, Any]) -> str:
    return f"{machine['role']} {machine['index']}"


def _lines(report: Mapping[str, Any]) -> list[str]:
    lines = [f"deployment {report['deployment']} in {report['region']}, bucket {report['bucket']}"]
    lines += [f"  {stack['name']:28}{stack['status']}" for stack in report["stacks"]]
    if report["removes_itself"]:
        lines.append(f"  removes itself {report['removes_itself']}; siafu deploy sets the clock anew")
    rows: list[tuple[str, ...]] = [("machine", "says", "heard", "instance", "cloud says", "run")]
    for machine in report["machines"]:
        heard = "never" if machine["heard_s"] is None else f"{machine['heard_s']:.0f} s ago"
        instance = machine["instance"] or {}
        name = instance.get("id") or machine["machine"] or "-"
        state = instance.get("state", "-")
        rows.append((_name(machine), machine["state"] or "-", heard, name, state, machine["run"] or ""))
    lines += ["", *_table(rows)] if len(rows) > 1 else ["", "no machine has reported yet"]
    if report["runs"]:
        lines += ["", *_table([("run", "state", "", ""), *map(_run_row, report["runs"])])]
    notices = [f"{_name(m)}: {m['notice']}" for m in report["machines"] if m["notice"]]
    return [*lines, *(f"! {text}" for text in (*notices, *report["disagreements"], *report["unknown"]))]


def _run_row(run: Mapping[str, Any]) -> tuple[str, ...]:
    if run["state"] == "running":
        loss = "" if run["loss"] is None else f"loss {run['loss']:.4f}  "
        return run["run"], run["phase"], f"epoch {run['epoch']}/{run['epochs']}", f"{loss}{dollars(run['usd'])}"
    return (
        run["run"],
        run["state"],
        str(run["asked"] or ""),
        "" if run["state"] == "done" else str(run.get("last_line") or "")[:60],
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
