"""What a run costs, and a deployment by the hour. Pure: amounts in, US dollars out; prices are ``bench.prices``'.

1. Lambda: requests, and GB-seconds in the monthly tiers of the architecture (``cloud.arch``). The free tier is not counted.
2. Servers, volumes and endpoints: by the second, 60 s at least. Those of this machine or of a Ray cluster cost nothing.
3. Environments on this machine (local, RIE, LocalStack) or on Ray count as what Lambda would have charged for them.
4. Traffic costs nothing: servers and functions are in one zone and talk over private addresses.
5. Baselines: one machine of ``cloud.gpu_instance`` and its disk, for as long as the run took; without one, nothing is known.
6. With ``cloud.spot`` servers cost what they do on an average day. What spot saves is not known of every type: such a one
   counts at its on-demand price, and ``bought`` says so.

A deployment costs as long as it stands, runs or not: of its servers and endpoints a run is charged its own time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.prices import instance, rates
from siafu.config import Config
from siafu.errors import PriceUnknown

EC2_MINIMUM_S = 60.0
HOURS_PER_MONTH = 730.0  # as AWS counts
HOUR_S = 3600.0
#: The GPU machine's image alone takes most of 60 GiB.
MIN_GPU_VOLUME_GIB = 120


@dataclass(frozen=True)
class Cost:
    """By part, in US dollars; what was counted, in one line; region and date of the prices, the oldest of those used."""

    parts: Mapping[str, float] = field(default_factory=dict)
    counted: str = ""
    region: str = ""
    as_of: str = ""

    @property
    def usd(self) -> float:
        return sum(self.parts.values())

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a run's result."""
        return {
            "usd": self.usd, "parts": dict(self.parts), "counted": self.counted, "region": self.region, "as_of": self.as_of,
        }  # fmt: skip


def lambda_usd(
    requests: float, gb_s: float, arch: str = "arm64", region: str = "us-east-1", used_gb_s: float = 0
) -> float:
    """Of so many requests and GB-seconds, when ``used_gb_s`` were used before in the month."""
    (request,) = rates("lambda_request", region=region)
    tiers = rates("lambda_compute", arch, region)
    ends = [*(tier.above for tier in tiers[1:]), float("inf")]
    total = requests * request.usd
    for tier, end in zip(tiers, ends, strict=True):
        total += max(0.0, min(used_gb_s + gb_s, end) - max(used_gb_s, tier.above)) * tier.usd
    return total


def per_hour(config: Config, *, gpu: bool = True, on_demand: bool = False) -> dict[str, float]:
    """What a deployment costs by the hour while nothing runs, by part: servers, their volumes, interface endpoints.

    Environments come on top when they run: ``lambda_per_hour``. ``gpu``: with the machine for the baselines, if there is one.
    ``on_demand``: whatever ``cloud.spot`` says. PriceUnknown as ``bench.prices`` says.
    """
    region, servers = config.lambdas.region, _servers(config, gpu=gpu)
    spot = config.cloud.spot and not on_demand
    parts = {part: count * instance(name, region).price(spot=spot) for part, (name, count) in servers.items()}
    gib = sum(count * volume_gib(config, part) for part, (_, count) in servers.items())
    parts["volumes"] = gib * rates("volume_gp3", region=region)[0].usd / HOURS_PER_MONTH
    parts["endpoints"] = num_endpoints(config) * rates("interface_endpoint", region=region)[0].usd
    return parts


def num_endpoints(config: Config) -> int:
    """Interface endpoints of a deployment: Lambda's, and Session Manager's three where there is a shell. A GPU machine runs
    what somebody types there: it needs one."""
    return 4 if config.cloud.shell or config.cloud.gpu_instance else 1


def volume_gib(config: Config, part: str) -> int:
    """Of the disk of one server of a part of ``per_hour``."""
    return max(MIN_GPU_VOLUME_GIB, config.cloud.volume_gib) if part == "gpu" else config.cloud.volume_gib


def bought(config: Config, name: str) -> str:
    """How machines of an EC2 type are bought, as it stands behind the type: "" on demand."""
    if not config.cloud.spot:
        return ""
    try:
        is_known = instance(name, config.lambdas.region).spot_saving is not None
    except PriceUnknown:  # whoever shows the price has said so
        is_known = True
    return " (spot)" if is_known else " (spot, counted on demand: what it saves is not known)"


def _servers(config: Config, *, gpu: bool) -> dict[str, tuple[str, int]]:
    """Part -> EC2 type and count, of those that there are."""
    cloud = config.cloud
    found = {
        "graph_servers": (cloud.graph_instance, config.data.parts),
        "param_servers": (cloud.param_instance, config.servers.param_servers),
        "gpu": (cloud.gpu_instance, 1),
    }
    return {part: bought for part, bought in found.items() if part != "gpu" or (gpu and cloud.gpu_instance)}


def lambda_per_hour(config: Config, environments: int) -> float:
    """What so many environments cost by the hour while all of them are at work."""
    gb_s = environments * config.lambdas.memory_mb / 1024 * HOUR_S
    return lambda_usd(0, gb_s, config.cloud.arch, config.lambdas.region)


def of_run(config: Config, *, requests: float, gb_s: float, seconds: float, on_demand: bool = False) -> Cost:
    """Of a run that took ``seconds`` from the start of its roles to their end; ``on_demand`` as of ``per_hour``. PriceUnknown
    for servers without a price."""
    cloud, region = config.cloud, config.lambdas.region
    parts, counted, dates = {}, [], [rates("lambda_request", region=region)[0].as_of]
    if config.servers.backend == "lambda":
        parts["lambda"] = lambda_usd(requests, gb_s, cloud.arch, region)
        counted.append("Lambda" if config.lambdas.on == "aws" else f"what Lambda would charge for {config.lambdas.on}")
    if config.run.on == "aws":
        hours = max(seconds, EC2_MINIMUM_S) / HOUR_S
        parts |= {part: usd * hours for part, usd in per_hour(config, gpu=False, on_demand=on_demand).items()}
        types = [instance(name, region) for name, _ in _servers(config, gpu=False).values()]
        spot = cloud.spot and not on_demand
        counted.append(f"servers{' at spot prices' * spot}, their volumes and endpoints for as long as the run took")
        unknown = sorted({found.name for found in types if spot and found.spot_saving is None})
        if unknown:
            counted.append(f"of them {', '.join(unknown)} at on-demand prices: what spot saves is not known")
        dates += [found.as_of for found in types]
    else:
        counted.append(f"no servers: run.on = {config.run.on}")
    return Cost(parts, ", ".join(counted), region, min(dates))


def of_baseline(config: Config, *, seconds: float) -> Cost | None:
    """Of a baseline that took ``seconds``; None where no ``cloud.gpu_instance`` says on what. PriceUnknown if it has no price."""
    cloud, region = config.cloud, config.lambdas.region
    if not cloud.gpu_instance:
        return None
    machine, hours = instance(cloud.gpu_instance, region), max(seconds, EC2_MINIMUM_S) / HOUR_S
    disk = volume_gib(config, "gpu") * rates("volume_gp3", region=region)[0].usd / HOURS_PER_MONTH
    parts = {"gpu": machine.price(spot=cloud.spot) * hours, "volumes": disk * hours}
    counted = f"one {machine.name}{bought(config, machine.name)} and its disk, for as long as the run took"
    return Cost(parts, counted, region, machine.as_of)
