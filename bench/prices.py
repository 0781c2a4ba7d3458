"""What things cost: EC2 instances (``prices.csv``) and everything else (``services.csv``), with region and date.

Prices are data. EC2's are on-demand list prices; the spot saving is an average that moves daily, so a spot price is an
estimate. Rows of ``services.csv`` that are not ``certain`` are of one cent an hour and less, quoted from memory.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from siafu.errors import PriceUnknown

FOLDER = Path(__file__).parent
REGION = "us-east-1"


@dataclass(frozen=True)
class Instance:
    """An EC2 instance type in a region. None: not known, or there is none."""

    name: str
    region: str
    as_of: str  # date of the price
    arch: str  # "x86_64" or "arm64"
    vcpu: int
    mem_gib: float
    network_baseline_gbps: float | None  # for as long as one likes; ``network_gbps`` is a burst
    network_gbps: float | None
    gpu: str  # "1x NVIDIA T4"; "" without
    gpu_mem_gib: float | None
    usd_per_hour: float  # on demand
    spot_saving: float | None  # share of the price that spot saves, on average

    def price(self, *, spot: bool = False) -> float:
        """USD per hour. Where the spot saving is not known it is taken for none: spot is never dearer than on demand."""
        return self.usd_per_hour * (1 - (self.spot_saving or 0.0) if spot else 1.0)


@dataclass(frozen=True)
class Rate:
    """The price of one unit of a service, of those above ``above`` units a month."""

    above: float
    usd: float
    unit: str
    as_of: str


def instance(name: str, region: str = REGION) -> Instance:
    """PriceUnknown, naming what is known, for an instance type or a region without a row."""
    known = _instances()
    if (name, region) in known:
        return known[name, region]
    regions = sorted({place for _, place in known})
    if region not in regions:
        raise PriceUnknown(f"{name} in {region}: prices are known for {', '.join(regions)}")
    raise PriceUnknown(f"{name} in {region}: not among the {len(known)} instance types whose price is known")


def instances(region: str = REGION) -> list[Instance]:
    """All whose price is known there."""
    return [found for (_, place), found in _instances().items() if place == region]


def rates(item: str, arch: str = "", region: str = REGION) -> tuple[Rate, ...]:
    """Tiers of a service's price, the first one from 0 units up. PriceUnknown where there is none."""
    found = _rates().get((item, arch, region))
    if found is None:
        raise PriceUnknown(f"{item}{f' on {arch}' if arch else ''} in {region}: its price is not known")
    return found


@lru_cache(maxsize=1)
def _instances() -> dict[tuple[str, str], Instance]:
    found = {}
    for row in _rows("prices.csv"):
        saving = _number(row["spot_saving_pct"])
        found[row["instance"], row["region"]] = Instance(
            row["instance"], row["region"], row["as_of"], row["arch"], int(row["vcpu"]), float(row["mem_gib"]),
            _number(row["network_baseline_gbps"]), _number(row["network_gbps"]), row["gpu"], _number(row["gpu_mem_gib"]),
            float(row["usd_per_hour_on_demand"]), None if saving is None else saving / 100,
        )  # fmt: skip
    return found


@lru_cache(maxsize=1)
def _rates() -> dict[tuple[str, str, str], tuple[Rate, ...]]:
    found: dict[tuple[str, str, str], tuple[Rate, ...]] = {}
    for row in _rows("services.csv"):
        key = row["item"], row["arch"], row["region"]
        found[key] = (*found.get(key, ()), Rate(float(row["above"]), float(row["usd"]), row["unit"], row["as_of"]))
    return found


def _rows(name: str) -> list[dict[str, str]]:
    with open(FOLDER / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _number(text: str) -> float | None:
    return float(text) if text else None
