"""The cost of a run, and of a deployment by the hour. Pure: amounts in, US dollars out; prices come from
``siafu.pricing.prices``.

1. Lambda: requests, and GB-seconds in the monthly tiers of the architecture (``cloud.arch``), INIT among
   them (billed since 2025-08-01). The free tier is not counted: ``free_usd`` says what it would pay.
2. Servers, volumes and endpoints: by the second, 60 s at least. Those of this machine or of a Ray cluster cost nothing.
3. Environments on this machine (local, LocalStack) or on Ray count at Lambda's price.
4. Traffic costs nothing between servers and functions in one zone over private addresses, as in every deployment.
   Functions on Lambda with servers elsewhere send their answers out of AWS, which is charged. Traffic into AWS is free.
5. Servers at work ask S3 for orders and report to it (``infra.machines.agent_loop``): half a cent an hour each. The
   coordinator and the follower of a run list the reports: 2 cents an hour.
6. Baselines: one machine of ``cloud.gpu_instance`` and its disk, for the time of the run; without such a machine the
   cost is unknown.
7. With ``cloud.spot`` servers cost the average spot price of the date in the price list. For types with an unknown spot
   saving the on-demand price counts, and ``bought`` says so. An interruption costs time, in which all servers are
   billed: a plan adds the expected time (``cost_planner.plan.interruptions``), a finished run's time includes it.
8. EC2 bills a machine from the moment that it runs, not while it is pending. A deployment boots its machines before any
   run, so no run pays for that (``siafu deploy``); in a plan of spot machines an interruption pays for one boot.

A bill consists of items: a quantity of something at one price each. Finished, running and planned runs are billed by
the same function (``of_run``) from the same amounts. A deployment costs money while it exists, with or without runs: a
run is charged its own time of the servers and endpoints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from siafu.config import Config
from siafu.errors import PriceUnknown
from siafu.pricing.prices import Rate, instance, rates
from siafu.run_files import Bill, BillLine

EC2_MINIMUM_S = 60.0
#: Lambda's free tier per month: aws.amazon.com/lambda/pricing, 2026-11-20.
FREE_REQUESTS, FREE_GB_S = 1_000_000, 400_000
HOURS_PER_MONTH = 730.0  # as AWS counts
HOUR_S = 3600.0
GB = 1e9  # of traffic
#: The GPU machine's image alone takes most of 60 GiB.
MIN_GPU_VOLUME_GIB = 120
#: Requests of a server at work in an hour: it looks for orders every second, and reports every 5
#: (``infra.machines.agent_loop``).
S3_GETS_PER_HOUR, S3_PUTS_PER_HOUR = 3600.0, 720.0
#: Lists of a run in an hour: its coordinator looks for reports every second, its follower for new pieces of files every
#: 10 (``infra.machines.host``, ``runfiles``). Lists of more than a thousand objects take another request each, which
#: is not counted.
S3_LISTS_PER_HOUR = 3600.0 + 360.0


@dataclass(frozen=True)
class Item:
    """One line of a bill: ``quantity`` units of ``what``, which belongs to ``part``."""

    part: str
    what: str
    quantity: float
    unit: str
    usd_per_unit: float
    as_of: str
    source: str

    @property
    def usd(self) -> float:
        return self.quantity * self.usd_per_unit

    def line(self) -> BillLine:
        return {
            "part": self.part,
            "what": self.what,
            "quantity": self.quantity,
            "unit": self.unit,
            "usd_per_unit": self.usd_per_unit,
            "as_of": self.as_of,
            "source": self.source,
            "usd": self.usd,
        }


class Amounts(TypedDict, total=False):
    """Keywords of ``of_run``."""

    requests: float
    gb_s: float
    seconds: float
    init_gb_s: float
    sent_gb: float
    zone_gb: float


@dataclass(frozen=True)
class Cost:
    """A cost in US dollars by part; the counted parts in one line; region and oldest date of the prices used; the lines
    of the bill, and the amounts behind them (keywords of ``of_run``)."""

    parts: Mapping[str, float] = field(default_factory=dict)
    counted: str = ""
    region: str = ""
    as_of: str = ""
    items: tuple[Item, ...] = ()
    amounts: Mapping[str, float] = field(default_factory=dict)

    @property
    def usd(self) -> float:
        return sum(self.parts.values())

    def to_dict(self) -> Bill:
        """Returns the cost as in a run's result."""
        return {
            "usd": self.usd,
            "parts": dict(self.parts),
            "counted": self.counted,
            "region": self.region,
            "as_of": self.as_of,
            "items": [item.line() for item in self.items],
            "amounts": dict(self.amounts),
        }


def of_run(
    config: Config,
    *,
    requests: float,
    gb_s: float,
    seconds: float,
    on_demand: bool = False,
    init_gb_s: float = 0.0,
    sent_gb: float = 0.0,
    zone_gb: float = 0.0,
) -> Cost:
    """Returns the cost of a run, finished or planned, that takes ``seconds`` from the start of its roles to their end.

    gb_s: GB-seconds that Lambda bills, of which ``init_gb_s`` are INIT's. sent_gb: GB that functions send to servers.
    zone_gb: GB between machines in different zones (rule 4: a deployment has none). ``on_demand``: ignore
    ``cloud.spot``. Raises: PriceUnknown for servers without a price.
    """
    cloud, region, on_aws = config.cloud, config.lambdas.region, config.run.on == "aws"
    items: list[Item] = []
    counted: list[str] = []
    if config.servers.backend == "lambda":
        items += _lambda(requests, gb_s, init_gb_s, cloud.arch, region)
        counted.append("Lambda" if config.lambdas.place.billed else f"Lambda's price for {config.lambdas.on} workers")
    if on_aws:
        spot = cloud.spot and not on_demand
        hours = max(seconds, EC2_MINIMUM_S) / HOUR_S
        items += [*_standing(config, hours, spot=spot), *_orders(config, hours)]
        counted.append(f"servers{' at spot prices' * spot}, their volumes and endpoints for as long as the run took")
        types = [instance(name, region) for name, _ in _servers(config).values()]
        unknown = sorted({found.name for found in types if spot and found.spot_saving is None})
        if unknown:
            counted.append(f"of them {', '.join(unknown)} at on-demand prices: what spot saves is not known")
    else:
        counted.append(f"{config.run.on} servers not priced")
    leaves = config.servers.backend == "lambda" and config.lambdas.place.billed and not on_aws
    items += _traffic(sent_gb if leaves else 0.0, zone_gb, region)
    amounts = {
        "requests": requests,
        "gb_s": gb_s,
        "seconds": seconds,
        "init_gb_s": init_gb_s,
        "sent_gb": sent_gb,
        "zone_gb": zone_gb,
    }
    return _bill(items, ", ".join(counted), region, amounts)


def of_baseline(config: Config, *, seconds: float) -> Cost | None:
    """Returns the cost of a baseline that took ``seconds``; None if ``cloud.gpu_instance`` names no machine. Raises:
    PriceUnknown if the machine has no price."""
    cloud, region = config.cloud, config.lambdas.region
    if not cloud.gpu_instance:
        return None
    hours = max(seconds, EC2_MINIMUM_S) / HOUR_S
    items = [
        _machines("gpu", cloud.gpu_instance, 1, hours, region, spot=cloud.spot),
        _volumes(gpu_volume_gib(config), hours, region),
    ]
    counted = f"one {cloud.gpu_instance}{bought(config, cloud.gpu_instance)} and its disk, for as long as the run took"
    return _bill(items, counted, region, {"seconds": seconds})


def standing(config: Config) -> Cost:
    """Returns the cost of a deployment without runs, per hour: servers, their volumes, interface endpoints.

    The cost of running environments is added to it: ``lambda_per_hour``. Raises: PriceUnknown for machines without a
    price.
    """
    items = _standing(config, 1.0, spot=config.cloud.spot)
    return _bill(items, "a deployment while nothing runs", config.lambdas.region, {})


# --- Lambda -----------------------------------------------------------------------------------------------------------


def memory_gb_s(seconds: float, memory_mb: int) -> float:
    """Returns the GB-seconds of environments that ran for ``seconds`` in all."""
    return seconds * memory_mb / 1024


def amounts_of(config: Config, usage: Mapping[str, float], seconds: float) -> Amounts:
    """Returns the keywords of ``of_run`` for the usage that graph servers report (``usage`` of metrics.jsonl)."""
    return {
        "requests": usage.get("invocations", 0.0),
        "gb_s": usage.get("gb_s", 0.0),
        "seconds": seconds,
        "init_gb_s": memory_gb_s(usage.get("init_ms", 0.0) / 1000, config.lambdas.memory_mb),
        "sent_gb": usage.get("bytes_in", 0.0) / GB,
    }


def lambda_usd(
    requests: float, gb_s: float, arch: str = "arm64", region: str = "us-east-1", used_gb_s: float = 0
) -> float:
    """Returns Lambda's price of requests and GB-seconds, if ``used_gb_s`` were used before in the month."""
    return sum(item.usd for item in _lambda(requests, gb_s, 0.0, arch, region, used_gb_s))


def free_usd(requests: float, gb_s: float, arch: str = "arm64", region: str = "us-east-1") -> float:
    """Returns the part of a run's Lambda price that the free tier pays, if it was unused before in the month."""
    return lambda_usd(min(requests, FREE_REQUESTS), min(gb_s, FREE_GB_S), arch, region)


def lambda_per_hour(config: Config, environments: int) -> float:
    """Returns the cost per hour of ``environments`` environments while all of them are at work."""
    return lambda_usd(
        0, memory_gb_s(environments * HOUR_S, config.lambdas.memory_mb), config.cloud.arch, config.lambdas.region
    )


def _lambda(
    requests: float, gb_s: float, init_gb_s: float, arch: str, region: str, used_gb_s: float = 0.0
) -> Iterable[Item]:
    (request,) = rates("lambda_request", region=region)
    yield Item("lambda", "requests", requests, request.unit, request.usd, request.as_of, request.source)
    tiers = rates("lambda_compute", arch, region)
    if init_gb_s:  # billed as the rest is
        yield from _tiered("lambda", f"{arch}, INIT", init_gb_s, tiers, used_gb_s)
    yield from _tiered("lambda", arch, gb_s - init_gb_s, tiers, used_gb_s + init_gb_s)


def _tiered(part: str, what: str, quantity: float, tiers: tuple[Rate, ...], used: float = 0.0) -> Iterable[Item]:
    """Yields an item for each tier reached, at least one, if ``used`` were used before in the month."""
    ends = [*(tier.above for tier in tiers[1:]), math.inf]
    for tier, end in zip(tiers, ends, strict=True):
        inside = max(0.0, min(used + quantity, end) - max(used, tier.above))
        if inside or (not quantity and tier.above <= used < end):
            name = what + (f", above {tier.above:g}" if tier.above else "")
            yield Item(part, name, inside, tier.unit, tier.usd, tier.as_of, tier.source)


# --- servers ----------------------------------------------------------------------------------------------------------


def num_endpoints(config: Config) -> int:
    """Returns the number of a deployment's interface endpoints: Lambda's, Systems Manager's for its runs' secrets, and
    one more for Session Manager if ``cloud.shell``."""
    if config.cloud.shell:
        return 3
    return 1 if config.servers.security == "none" else 2


def gpu_volume_gib(config: Config) -> int:
    """Returns the size of a baseline's disk: AWS's images with a GPU driver need more than servers do."""
    return max(MIN_GPU_VOLUME_GIB, config.cloud.volume_gib)


def bought(config: Config, name: str) -> str:
    """Returns the words after the name of an EC2 type that say how it is bought: "" on demand."""
    if not config.cloud.spot:
        return ""
    try:
        is_known = instance(name, config.lambdas.region).spot_saving is not None
    except PriceUnknown:  # reported where the price is shown
        is_known = True
    return " (spot)" if is_known else " (spot, counted on demand: what it saves is not known)"


def _servers(config: Config) -> dict[str, tuple[str, int]]:
    """Returns part -> (EC2 type, count)."""
    return {
        "graph_servers": (config.cloud.graph_instance, config.data.parts),
        "param_servers": (config.cloud.param_instance, config.servers.param_servers),
    }


def _standing(config: Config, hours: float, *, spot: bool) -> list[Item]:
    region, servers = config.lambdas.region, _servers(config)
    (endpoint,) = rates("interface_endpoint", region=region)
    quantity = num_endpoints(config) * hours
    return [
        *(_machines(part, name, count, hours, region, spot=spot) for part, (name, count) in servers.items()),
        _volumes(config.cloud.volume_gib * sum(count for _, count in servers.values()), hours, region),
        Item(
            "endpoints", "interface endpoints", quantity, endpoint.unit, endpoint.usd, endpoint.as_of, endpoint.source
        ),
    ]


def _machines(part: str, name: str, count: int, hours: float, region: str, *, spot: bool) -> Item:
    found = instance(name, region)
    is_spot = spot and found.spot_saving is not None
    what = f"{count} x {name}" + ", spot" * is_spot
    return Item(part, what, count * hours, "hour", found.price(spot=is_spot), found.dated(spot=is_spot), found.source)


def _volumes(gib: float, hours: float, region: str) -> Item:
    rate = rates("volume_gp3", region=region)[0]
    quantity = gib * hours / HOURS_PER_MONTH
    return Item("volumes", f"{gib:g} GiB gp3", quantity, rate.unit, rate.usd, rate.as_of, rate.source)


# --- what goes to and fro ---------------------------------------------------------------------------------------------


def _orders(config: Config, hours: float) -> Iterable[Item]:
    """Yields the items of S3 requests (rule 5)."""
    servers = config.data.parts + config.servers.param_servers
    asked = (
        ("GET", "s3_get", servers * S3_GETS_PER_HOUR),
        ("PUT", "s3_put", servers * S3_PUTS_PER_HOUR),
        ("LIST", "s3_put", S3_LISTS_PER_HOUR),  # S3 has one price for both
    )
    for what, item, per_hour in asked:
        (rate,) = rates(item, region=config.lambdas.region)
        yield Item("s3", what, hours * per_hour, rate.unit, rate.usd, rate.as_of, rate.source)


def _traffic(out_gb: float, zone_gb: float, region: str) -> Iterable[Item]:
    """Yields the items of traffic (rule 4). Between zones, both sides pay."""
    if zone_gb:
        yield from _tiered("traffic", "between zones, out and in", 2 * zone_gb, rates("traffic_zone", region=region))
    if out_gb:
        yield from _tiered("traffic", "out of AWS", out_gb, rates("traffic_out", region=region))


def _bill(items: Iterable[Item], counted: str, region: str, amounts: Mapping[str, float]) -> Cost:
    found = tuple(items)
    parts: dict[str, float] = {}
    for item in found:
        parts[item.part] = parts.get(item.part, 0.0) + item.usd
    return Cost(parts, counted, region, min((item.as_of for item in found), default=""), found, amounts)
