"""Prices of EC2 instances (``prices.csv``) and of everything else (``services.csv``), with region, date and source.

1. Prices are data. EC2's are on-demand list prices. The spot saving is an average that changes daily, so a spot price
   is an estimate, with a date of its own (``spot_as_of``; if empty, the row's date). ``spot_interrupted_pct``, of the
   same date, is the upper end of the band in which AWS's Spot Advisor puts the share of machines taken back in a month;
   its last band, above 20, ends at 100. Prices with the source "from memory" are of a cent an hour or less, or of
   traffic that no deployment of ours has.
2. A price list is CSV. A row is of an ``instance``, or of one tier of an ``item``. Columns may have any order, and a
   list of one kind omits those of the other. Our lists are checked like any other: an invalid cell is refused with its
   line.
3. ``use`` lays another list over ours: its rows override ours, all tiers of an item together.
4. A retired type has a price but cannot be rented: its price is returned only for ``retired=True``.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from siafu.errors import ConfigError, PriceUnknown

FOLDER = Path(__file__).parent
OURS = ("prices.csv", "services.csv")
REGION = "us-east-1"
#: Older prices are used with a warning. EC2's change every few years, and spot's daily.
OLD_DAYS = 180

ARCHITECTURES = ("arm64", "x86_64")
#: Columns of a row of either kind; then those of its own.
COMMON = ("region", "as_of", "source")
OF_INSTANCE = (
    "instance",
    "arch",
    "vcpu",
    "mem_gib",
    "network_baseline_gbps",
    "network_gbps",
    "gpu",
    "gpu_mem_gib",
    "usd_per_hour_on_demand",
    "spot_saving_pct",
    "spot_interrupted_pct",
    "spot_as_of",
    "retired",
)
OF_ITEM = ("item", "arch", "above", "usd", "unit")
COLUMNS = frozenset((*COMMON, *OF_INSTANCE, *OF_ITEM))
#: Services -> the units of their prices.
ITEMS = {
    "lambda_request": "request",
    "lambda_compute": "GB-s",
    "interface_endpoint": "hour",
    "volume_gp3": "GiB-month",
    "s3_put": "request",
    "s3_get": "request",
    "traffic_zone": "GB",  # between two zones of a region: of either side
    "traffic_out": "GB",  # to the internet
}


@dataclass(frozen=True)
class Instance:
    """An EC2 instance type in a region. Fields that are None are unknown, or do not apply."""

    name: str
    region: str
    as_of: str  # date of the price
    arch: str  # "x86_64" or "arm64"
    vcpu: int
    mem_gib: float
    network_baseline_gbps: float | None  # sustained; ``network_gbps`` is a burst
    network_gbps: float | None
    gpu: str  # "1x NVIDIA T4"; "" without
    gpu_mem_gib: float | None
    usd_per_hour: float  # on demand
    spot_saving: float | None  # share of the price that spot saves, on average
    source: str = ""
    retired: bool = False
    spot_as_of: str = ""  # date of the spot columns; "": that of the price
    spot_interrupted: float | None = None  # share of spot machines that AWS takes back in a month, at most

    def dated(self, *, spot: bool = False) -> str:
        """Returns the oldest date of the values behind ``price``."""
        return min(self.as_of, self.spot_as_of or self.as_of) if spot else self.as_of

    def price(self, *, spot: bool = False) -> float:
        """Returns USD per hour. An unknown spot saving counts as none: spot never costs more than on demand."""
        return self.usd_per_hour * (1 - (self.spot_saving or 0.0) if spot else 1.0)


@dataclass(frozen=True)
class Rate:
    """A tier of a service's price: the price of one unit beyond ``above`` units a month."""

    above: float
    usd: float
    unit: str
    as_of: str
    source: str = ""


@dataclass(frozen=True)
class PriceList:
    instances: dict[tuple[str, str], Instance]  # (name, region)
    rates: dict[tuple[str, str, str], tuple[Rate, ...]]  # (item, arch, region): tiers, the first one from 0 units up

    def over(self, other: PriceList) -> PriceList:
        """Lays this list over another one (rule 3)."""
        return PriceList({**other.instances, **self.instances}, {**other.rates, **self.rates})


# All mutable state: the list given to ``use``, over ours. None: ours alone.
_used: PriceList | None = None


def add_argument(parser: argparse._ActionsContainer) -> None:
    """Adds the flag ``--prices FILE``, for ``use``."""
    parser.add_argument(
        "--prices",
        default="",
        metavar="FILE",
        help="CSV whose prices replace siafu's, such as siafu cost --refresh-prices writes",
    )


def use(path: str | Path | None) -> None:
    """Lays this list over ours from now on; "" and None: ours alone. A verb calls it once, before it uses a price.

    Raises: ConfigError, one line with file and line number, if the file is not a valid price list.
    """
    global _used
    _used = read(Path(path)).over(_ours()) if path else None


def instance(name: str, region: str = REGION, *, retired: bool = False) -> Instance:
    """Returns an instance type in a region. Raises: PriceUnknown, with the known alternatives, for a type or a region
    without a row, and for a retired type unless ``retired``."""
    known = _list().instances
    found = known.get((name, region))
    if found is not None and found.retired and not retired:
        raise PriceUnknown(f"{name} in {region}: AWS no longer offers it, its price of {found.as_of} is history")
    if found is not None:
        return found
    regions = sorted({place for _, place in known})
    if region not in regions:
        raise PriceUnknown(f"{name} in {region}: prices are known for {', '.join(regions)}")
    names = [one.name for one in instances(region)]
    close = get_close_matches(name, names, 1, 0.75)
    raise PriceUnknown(
        f"{name} in {region}: not among the {len(names)} instance types whose price is known"
        + (f"; did you mean {close[0]}?" if close else "")
    )


def instances(region: str = REGION) -> list[Instance]:
    """Returns all instance types of a region that can be rented and have a price."""
    return [found for (_, place), found in _list().instances.items() if place == region and not found.retired]


def rates(item: str, arch: str = "", region: str = REGION) -> tuple[Rate, ...]:
    """Returns the tiers of a service's price, the first one from 0 units up. Raises: PriceUnknown if there is none."""
    found = _list().rates.get((item, arch, region))
    if found is None:
        raise PriceUnknown(f"{item}{f' on {arch}' if arch else ''} in {region}: its price is not known")
    return found


def age(as_of: str, today: date) -> str:
    """Returns a warning to append to the date of old prices; "" for others, and without a date."""
    days = (today - date.fromisoformat(as_of)).days if as_of else 0
    return f": {days} days old" if days > OLD_DAYS else ""


# --- reading ----------------------------------------------------------------------------------------------------------


def read(path: Path) -> PriceList:
    """Reads a price list. Raises: ConfigError with file and line for an invalid row (rule 2)."""
    instances: dict[tuple[str, str], Instance] = {}
    tiers: dict[tuple[str, str, str], dict[float, Rate]] = {}
    for row in _rows(path):
        if row.is_instance:
            found = _instance(row)
            if (found.name, found.region) in instances:
                raise row.wrong(f"{found.name} in {found.region} is there already")
            instances[found.name, found.region] = found
        else:
            key, rate = _rate(row)
            of_item = tiers.setdefault(key, {})
            if rate.above in of_item:
                raise row.wrong(f"{' '.join(filter(None, key))} above {rate.above:g} is there already")
            of_item[rate.above] = rate
    for key, of_item in tiers.items():
        if 0.0 not in of_item:
            raise ConfigError(f"{path}: {' '.join(filter(None, key))}: no tier begins above 0")
    return PriceList(
        instances, {key: tuple(of_item[above] for above in sorted(of_item)) for key, of_item in tiers.items()}
    )


class _Row:
    """A line of a price list. An invalid cell raises ConfigError with its file and line."""

    def __init__(self, path: Path, line: int, cells: dict[str, str]):
        self._where, self._cells = f"{path}, line {line}", cells
        self.is_instance = bool(cells.get("instance"))
        if self.is_instance == bool(cells.get("item")):
            raise self.wrong("a row is of an instance or of an item")
        strangers = [name for name in cells if cells[name] and name not in (*COMMON, *self._own)]
        if strangers:
            raise self.wrong(f"{strangers[0]} = {cells[strangers[0]]}: {self._kind} has none")

    @property
    def _kind(self) -> str:
        return "an instance" if self.is_instance else "an item"

    @property
    def _own(self) -> tuple[str, ...]:
        return OF_INSTANCE if self.is_instance else OF_ITEM

    def wrong(self, why: str) -> ConfigError:
        return ConfigError(f"{self._where}: {why}")

    def cell(self, column: str) -> str:
        """Returns the cell of a column; "" if there is none."""
        return self._cells.get(column, "")

    def text(self, column: str, among: tuple[str, ...] = ()) -> str:
        found = self.cell(column)
        if among and found not in among:
            allowed = ", ".join(name or "empty" for name in among)
            raise self.wrong(f"{column} = {found or 'empty'}: must be {'one of ' * bool(among[1:])}{allowed}")
        if not found and not among:
            raise self.wrong(f"{column} is missing")
        return found

    def number(self, column: str, *, positive: bool = False, most: float = math.inf) -> float:
        """Parses a number: >= 0, or > 0 if ``positive``, and at most ``most``."""
        text = self.text(column)
        try:
            found = float(text)
        except ValueError:
            raise self.wrong(f"{column} = {text}: must be a number") from None
        if not (math.isfinite(found) and 0 <= found <= most and (found or not positive)):
            limits = f"{'>' if positive else '>='} 0" + (f" and <= {most:g}" if most < math.inf else "")
            raise self.wrong(f"{column} = {text}: must be {limits}")
        return found

    def optional(self, column: str, *, positive: bool = False, most: float = math.inf) -> float | None:
        return self.number(column, positive=positive, most=most) if self.cell(column) else None

    def day(self, column: str = "as_of") -> str:
        text = self.text(column)
        try:
            found = date.fromisoformat(text).isoformat()
        except ValueError:
            found = ""
        if found != text:  # other forms of a date do not sort as they come
            raise self.wrong(f"{column} = {text}: must be a date such as 2026-11-22")
        return text


def _instance(row: _Row) -> Instance:
    vcpu, saving = row.number("vcpu", positive=True), row.optional("spot_saving_pct", most=99)
    interrupted = row.optional("spot_interrupted_pct", most=100)
    if vcpu != int(vcpu):
        raise row.wrong(f"vcpu = {vcpu:g}: must be a whole number")
    return Instance(
        row.text("instance"),
        row.text("region"),
        row.day(),
        row.text("arch", ARCHITECTURES),
        int(vcpu),
        row.number("mem_gib", positive=True),
        row.optional("network_baseline_gbps", positive=True),
        row.optional("network_gbps", positive=True),
        row.cell("gpu"),
        row.optional("gpu_mem_gib", positive=True),
        row.number("usd_per_hour_on_demand", positive=True),
        None if saving is None else saving / 100,
        row.text("source"),
        row.text("retired", ("", "yes")) == "yes",
        row.day("spot_as_of") if row.cell("spot_as_of") else "",
        None if interrupted is None else interrupted / 100,
    )


def _rate(row: _Row) -> tuple[tuple[str, str, str], Rate]:
    item = row.text("item", tuple(ITEMS))
    arch = row.text("arch", ARCHITECTURES if item == "lambda_compute" else ("",))
    unit = row.text("unit", (ITEMS[item],))
    rate = Rate(row.number("above"), row.number("usd"), unit, row.day(), row.text("source"))
    return (item, arch, row.text("region")), rate


def _rows(path: Path) -> Iterator[_Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin with a mark
            lines = csv.DictReader(file)
            names = lines.fieldnames or []
            if strange := [name for name in names if name not in COLUMNS]:
                raise ConfigError(f"{path}, line 1: unknown column {strange[0]!r}")
            if twice := [name for name in names if names.count(name) > 1]:
                raise ConfigError(f"{path}, line 1: column {twice[0]!r} is there twice")
            if not {"instance", "item"} & set(names):
                raise ConfigError(f"{path}, line 1: no column 'instance' or 'item'")
            for cells in lines:
                if None in cells or None in cells.values():
                    raise ConfigError(f"{path}, line {lines.line_num}: must have {len(names)} cells, as line 1 has")
                yield _Row(path, lines.line_num, {name: cell.strip() for name, cell in cells.items()})
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: no price list: {why}") from None


@lru_cache(maxsize=1)
def _ours() -> PriceList:
    instances, services = (read(FOLDER / name) for name in OURS)
    return instances.over(services)


def _list() -> PriceList:
    return _used or _ours()
