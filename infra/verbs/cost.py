"""``siafu cost``: the cost of a run, line by line: of a run directory, or of a run on a deployment, even while it
runs.

1. A finished run cost what its result says, at the prices of its day. With other prices (``--prices``) its bill is
   made again, from the same amounts; another region or machine (``--set``) of a run directory does
   the same.
2. A run under way has been billed for its finished invocations. The line "running" is the most that its last epoch has
   counted beyond them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal, cast

from infra.verbs.arguments import add_config, config_of, on_deployment
from run_coordinator import run_config
from siafu import extras, run_files
from siafu.baseline import BaselineConfig, load
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.pricing import cost, prices
from siafu.progress import dollars
from siafu.run_files import CONFIG, METRICS, RESULT, Record, Result

FILES = (CONFIG, METRICS, RESULT)
#: Of a bill; that of an old run may lack some, and the error then says which.
PRINTED: tuple[Literal["usd", "parts", "counted", "as_of", "region"], ...] = (
    "usd",
    "parts",
    "counted",
    "as_of",
    "region",
)

#: Settings that a run directory may be priced with instead of its own: what a price is looked up by.
PRICED = (
    "lambda.region",
    "cloud.graph_instance",
    "cloud.param_instance",
    "cloud.gpu_instance",
    "cloud.spot",
    "cloud.arch",
)

EXAMPLES = """examples:
  siafu cost                                          the newest run in runs/
  siafu cost runs/20261121-060000-digits-gcn-pipe
  siafu cost 20261121-060000-digits-gcn-pipe-0a1b2c   a run on a deployment, by its name in siafu status
  siafu cost RUN --json
  siafu cost --refresh-prices today.csv               write AWS's prices of today; needs credentials
  siafu cost RUN --prices today.csv                   its cost at these prices
  siafu cost RUN --prices eu.csv --set lambda.region=eu-west-1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show what a run has cost: Lambda's requests and GB-seconds, servers by the second."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "run",
        nargs="?",
        default="",
        metavar="RUN",
        help="a run directory, or a run's name in siafu status [the newest in runs/]",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    prices.add_argument(parser)
    parser.add_argument(
        "--refresh-prices",
        default="",
        metavar="FILE",
        help="only write today's prices in lambda.region to FILE, from AWS's Price List API and EC2's spot prices",
    )
    add_config(parser)


def main(args: argparse.Namespace) -> int:
    if args.refresh_prices:
        found = _refresh(Path(args.refresh_prices), config_of(args).lambdas.region)
        print(json.dumps(found) if args.json else _refreshed(found))
        return 0
    prices.use(args.prices)
    again = bool(args.prices)
    local = Path(args.run) if args.run else _newest(Path("runs"))
    if local.is_dir():
        settings = run_config.settings_of(args.set)
        report = examine(local, str(local), again=again or bool(settings), settings=settings)
    else:
        with tempfile.TemporaryDirectory() as folder:
            _fetch(config_of(args), args.run, Path(folder))
            report = examine(Path(folder), args.run, again=again)
    print(json.dumps(report) if args.json else "\n".join(_lines(report)))
    return 0


def examine(
    run_dir: Path, name: str, *, again: bool = False, settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """``usd``, ``parts`` (name -> US dollars), ``items`` and their amounts; ``finished``: whether the run is over.
    ``again``: at today's prices, whatever the run's result says. ``settings``: of ``PRICED``, instead of the run's.
    ConfigError if it is no run directory, or no epoch has ended yet."""
    for needed in FILES[:2]:
        if not (run_dir / needed).is_file():
            raise ConfigError(f"{name}: not a run directory: it has no {needed}")
    settings = settings or {}
    for key in settings.keys() - {*PRICED}:
        raise ConfigError(f"{key} = {settings[key]}: no price depends on it, only on {', '.join(PRICED)}")
    config = load(run_dir / CONFIG).replace(settings)
    records, result = run_files.records(run_dir), run_files.result(run_dir)
    if isinstance(config, BaselineConfig):
        return {"run": name, "finished": bool(result), **_of_baseline(config, result, records, name)}
    if result:
        usage, seconds, spent = result["usage"], result["train_seconds"], result["cost"]
        if again or spent is None:
            amounts = cast(cost.Amounts, spent["amounts"]) if spent else cost.amounts_of(config, usage, seconds)
            spent = cost.of_run(config, **amounts).to_dict()
    else:
        epochs = [record for record in records if record["event"] == "epoch"]
        if not epochs:
            raise ConfigError(f"{name}: no epoch has ended yet, so nothing is known")
        usage, seconds = epochs[-1]["usage"], epochs[-1]["time_s"]
        spent = cost.of_run(config, **cost.amounts_of(config, usage, seconds)).to_dict()
        if not again:
            running = max(0.0, epochs[-1]["usd"] - spent["usd"])
            spent = {**spent, "usd": spent["usd"] + running, "parts": {**spent["parts"], "running": running}}
    return {
        "run": name,
        "finished": bool(result),
        **spent,
        **{key: spent[key] for key in PRINTED},
        "seconds": seconds,
        "requests": usage.get("invocations", 0),
        "gb_s": usage.get("gb_s", 0.0),
        **_servers(config, seconds),
    }


def _of_baseline(config: BaselineConfig, result: Result | None, records: Sequence[Record], name: str) -> dict[str, Any]:
    """The cost of a baseline, which has no Lambdas. The machine is also rented while it evaluates. ConfigError if the
    config names no machine."""
    timed = [
        record["time_s"] + record.get("evaluation_s", 0.0)  # of older runs, time_s has both
        for record in records
        if record["event"] in ("epoch", "evaluation")
    ]
    times = [result["train_seconds"] + result.get("evaluation_seconds", 0.0)] if result else timed
    if not times:
        raise ConfigError(f"{name}: no epoch has ended yet, so nothing is known")
    spent = cost.of_baseline(config, seconds=times[-1])
    if spent is None:
        raise ConfigError(
            f"{name}: a baseline on a machine of its own costs what that costs: cloud.gpu_instance is empty"
        )
    machine = {"count": 1, "type": config.cloud.gpu_instance, "seconds": times[-1]}
    return {**spent.to_dict(), "seconds": times[-1], "requests": 0, "gb_s": 0.0, "servers": {"gpu": machine}}


def _servers(config: Config, seconds: float) -> dict[str, Any]:
    """Number of servers of each kind, and the seconds that all of them together have run."""
    counts = {"graph_servers": config.data.parts, "param_servers": config.servers.param_servers}
    cloud = config.cloud
    types = {"graph_servers": cloud.graph_instance, "param_servers": cloud.param_instance}
    paid = config.run.on == "aws"
    return {
        "servers": {
            kind: {"count": count, "type": types[kind] if paid else config.run.on, "seconds": count * seconds}
            for kind, count in counts.items()
        }
    }


def _lines(report: Mapping[str, Any]) -> list[str]:
    """The bill: a line for each item, and one for each part of several and for parts without items."""
    items = report.get("items", [])
    table: list[tuple[str, ...]] = [("part", "of", "amount", "", "each", "dollars")]
    for part, usd in report["parts"].items():
        mine = [item for item in items if item["part"] == part]
        name = part.replace("_", " ")
        table += [
            (
                name if item is mine[0] else "",
                item["what"],
                f"{item['quantity']:,.6g}",
                _plural(item),
                _exact(item["usd_per_unit"]),
                dollars(item["usd"]),
            )
            for item in mine
        ]
        if not mine:
            table.append((name, "begun and not billed yet" * (part == "running"), "", "", "", dollars(usd)))
    table.append(("all", "", "", "", "", dollars(report["usd"])))
    lines = [f"{report['run']}{'' if report['finished'] else ', so far'}: {report['seconds']:.1f} s of training"]
    lines += [*_aligned(table), report["counted"]]
    as_of = report["as_of"]
    return [*lines, f"prices of {report['region']}, {as_of}{prices.age(as_of, date.today())}"] if as_of else lines


def _plural(item: Mapping[str, Any]) -> str:
    unit = str(item["unit"])
    return unit + "s" * (unit in ("request", "hour", "GiB-month") and item["quantity"] != 1)


def _exact(usd: float) -> str:
    """A unit's price without trailing zeros: "$0.29", "$0.0000133334"."""
    return f"${usd:.10f}".rstrip("0").rstrip(".")


def _aligned(table: list[tuple[str, ...]]) -> Iterable[str]:
    """Lines with names to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = [
            text.rjust(width) if column in (2, 4, 5) else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells[:2]) + "  " + " ".join(cells[2:4]) + "  " + "  ".join(cells[4:])


def _refresh(path: Path, region: str) -> dict[str, Any]:
    """Writes a list of today's prices of a region (``infra.pricelist.refresh``). ConfigError without boto3 or
    credentials: then nothing is written."""
    with extras.needed("aws"):
        from infra import pricelist
    return pricelist.refresh(path, region)


def _refreshed(found: Mapping[str, Any]) -> str:
    numbers = f"{found['instances']} instance types and {found['rates']} rates of {found['region']}, {found['as_of']}"
    missing = f"; not among them: {', '.join(found['missing'])}" if found["missing"] else ""
    return f"{found['file']}: {numbers}{missing}"


def _newest(folder: Path) -> Path:
    found = [path.parent for path in folder.glob("*/config.toml")]
    if not found:
        raise ConfigError(f"{folder}/ holds no run: siafu cost RUN")
    return max(found, key=lambda path: path.stat().st_mtime)


def _fetch(config: Config, run: str, folder: Path) -> None:
    """Fetches the files of a run on a deployment that pricing needs. Run directories are priced without boto3."""
    with on_deployment(run):
        with extras.needed("aws"):
            from infra.machines import found, runfiles, runs
        mailbox = found.mailbox_of(config)
        runfiles.Receiver(mailbox, runs.named(mailbox, run).run, folder).update(FILES)
