"""Fetches today's prices from AWS (its Price List API, and EC2's history of spot prices) and writes them as a list
for ``--prices``.

1. Types are those of ``siafu.pricing.prices``; their sizes and networks stay, as they are the same everywhere. Prices,
   date and source are new. Types that a region does not offer, or that AWS prices in a way that we do not understand,
   are left out and named.
2. Nothing is written unless all requests were answered, and the file appears whole: it is first read back as any list.
3. Spot: EC2's present price for Linux, the mean over the zones that have the type; never more than on demand.

Docs: https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from infra import service
from infra.cloud import ENDPOINT_VARIABLE, speaking_plainly
from siafu import outputs
from siafu.errors import GnnError
from siafu.pricing import prices
from siafu.pricing.prices import Instance
from siafu.run_files import draft_of

#: Where the Price List API is; it knows all regions' prices.
PRICING_REGION = "us-east-1"
#: What a plain Linux machine that nobody has reserved is, among EC2's products.
ON_DEMAND = {
    "productFamily": "Compute Instance",
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
COLUMNS = (*prices.OF_INSTANCE, *(name for name in prices.OF_ITEM if name not in prices.OF_INSTANCE), *prices.COMMON)


class Service(NamedTuple):
    """An item of ``siafu.pricing.prices``, by its names in the Price List API. ``usage``: suffix of its usage type, ""
    for any; in most regions, usage types begin with the region."""

    item: str
    arch: str
    code: str
    attributes: dict[str, str]  # that its product has
    usage: str = ""
    region: str = "regionCode"  # the attribute that names the region


SERVICES = (
    Service("lambda_request", "", "AWSLambda", {"group": "AWS-Lambda-Requests"}),
    Service("lambda_compute", "x86_64", "AWSLambda", {"group": "AWS-Lambda-Duration"}),
    Service("lambda_compute", "arm64", "AWSLambda", {"group": "AWS-Lambda-Duration-ARM"}),
    Service("interface_endpoint", "", "AmazonVPC", {"productFamily": "VpcEndpoint"}, "VpcEndpoint-Hours"),
    Service("volume_gp3", "", "AmazonEC2", {"productFamily": "Storage", "volumeApiName": "gp3"}, "EBS:VolumeUsage.gp3"),
    Service("s3_put", "", "AmazonS3", {"group": "S3-API-Tier1"}, "Requests-Tier1"),
    Service("s3_get", "", "AmazonS3", {"group": "S3-API-Tier2"}, "Requests-Tier2"),
    Service(
        "traffic_zone",
        "",
        "AWSDataTransfer",
        {"transferType": "IntraRegion"},
        "DataTransfer-Regional-Bytes",
        "fromRegionCode",
    ),
    Service(
        "traffic_out",
        "",
        "AWSDataTransfer",
        {"transferType": "AWS Outbound"},
        "DataTransfer-Out-Bytes",
        "fromRegionCode",
    ),
)

Clients = Callable[[str, str], Any]


def refresh(path: Path, region: str, clients: Clients | None = None, now: datetime | None = None) -> dict[str, Any]:
    """Writes the prices of a region to ``path``. ``instances`` and ``rates`` count them, ``missing`` names those left
    out, ``as_of`` is today.

    clients: (service, region) -> a client of boto3; None: with the user's credentials. ConfigError without credentials,
    GnnError for an answer of AWS that we do not understand: nothing is written then.
    """
    outputs.check_file("prices", path)
    now, clients = now or datetime.now(timezone.utc), clients or _client
    with speaking_plainly(f"prices of {region}"):
        pricing, ec2 = clients("pricing", PRICING_REGION), clients("ec2", region)
        known = {one.name: one for one in prices.instances(prices.REGION)}
        on_demand = _on_demand(pricing, region, known)
        offered = {name: machine for name, machine in known.items() if name in on_demand}
        if not offered:
            raise GnnError(f"{region}: the Price List API has no price of any type that we know there")
        spot = _spot(ec2, list(offered), now)
        services = [(one, _tiers(pricing, one, region)) for one in SERVICES]
    common = {"region": region, "as_of": now.date().isoformat()}
    rows = [_instance_row(machine, *on_demand[name], spot.get(name, [])) | common for name, machine in offered.items()]
    rates = [row | common for one, tiers in services for row in _rate_rows(one, tiers)]
    _write(path, [*rows, *rates])
    missing = [
        *(name for name in known if name not in offered),
        *(_named(one) for one, tiers in services if not tiers),
    ]
    return {"file": str(path), **common, "instances": len(rows), "rates": len(rates), "missing": missing}


def _client(name: str, region: str) -> Any:
    return service.client(name, region, os.environ.get(ENDPOINT_VARIABLE, ""))


def _named(one: Service) -> str:
    return f"{one.item} {one.arch}".rstrip()


# --- answers ----------------------------------------------------------------------------------------------------------


class Tier(NamedTuple):
    above: float
    usd: str
    published: str  # when AWS wrote the offer down


def _on_demand(pricing: Any, region: str, known: Collection[str]) -> dict[str, tuple[float, str]]:
    """USD per hour of known types, and the date of the offer; without types that have two prices."""
    found: dict[str, dict[float, str]] = {}
    for product in _products(pricing, "AmazonEC2", {**ON_DEMAND, "regionCode": region}):
        name = product["product"]["attributes"]["instanceType"]
        if name in known:
            found.setdefault(name, {}).update({float(tier.usd): tier.published for tier in _dimensions(product, name)})
    return {name: next(iter(offers.items())) for name, offers in found.items() if len(offers) == 1}


def _tiers(pricing: Any, one: Service, region: str) -> list[Tier]:
    """Price tiers of a service; empty if AWS has no price, or contradictory ones: then ours stay."""
    tiers: dict[float, Tier] = {}
    for product in _products(pricing, one.code, {**one.attributes, one.region: region}):
        usage = product["product"]["attributes"]["usagetype"]
        if one.usage and usage != one.usage and not usage.endswith(f"-{one.usage}"):
            continue
        for tier in _dimensions(product, _named(one)):
            if tiers.setdefault(tier.above, tier).usd != tier.usd:
                return []
    return [tiers[above] for above in sorted(tiers)]


def _products(pricing: Any, code: str, attributes: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in attributes.items()]
    for page in pricing.get_paginator("get_products").paginate(
        ServiceCode=code, Filters=filters, FormatVersion="aws_v1", PaginationConfig={"PageSize": 100}
    ):
        for text in page["PriceList"]:  # each is JSON, as text
            try:
                product: dict[str, Any] = json.loads(text)
            except ValueError:
                raise GnnError(f"{code}: the Price List API's answer is no JSON: {text[:80]}") from None
            yield product


def _dimensions(product: Mapping[str, Any], name: str) -> Iterator[Tier]:
    """On-demand price tiers. The names of terms and dimensions do not matter."""
    try:
        for term in product.get("terms", {}).get("OnDemand", {}).values():
            for dimension in term["priceDimensions"].values():
                usd = dimension["pricePerUnit"]["USD"]
                yield Tier(float(dimension.get("beginRange") or 0), usd, str(product.get("publicationDate", ""))[:10])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise GnnError(f"{name}: the Price List API's answer has no price in USD ({error})") from None


def _spot(ec2: Any, names: list[str], now: datetime) -> dict[str, list[float]]:
    """USD per hour of each type, in each zone that has it."""
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    pages = ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=names, ProductDescriptions=list(LINUX), StartTime=now, EndTime=now
    )
    for page in pages:
        for row in page["SpotPriceHistory"]:
            key, at = (row["InstanceType"], row["AvailabilityZone"]), row["Timestamp"]
            if key not in latest or at > latest[key][0]:
                latest[key] = at, float(row["SpotPrice"])
    found: dict[str, list[float]] = {}
    for (name, _), (_, usd) in sorted(latest.items()):
        found.setdefault(name, []).append(usd)
    return found


# --- rows -------------------------------------------------------------------------------------------------------------


def _instance_row(machine: Instance, usd: float, published: str, spot: list[float]) -> dict[str, Any]:
    saving = round(max(0.0, 100 * (1 - mean(spot) / usd)), 1) if spot else None
    zones = f"; spot: EC2, mean of {len(spot)} zones" if spot else ""
    return {
        "instance": machine.name,
        "arch": machine.arch,
        "vcpu": machine.vcpu,
        "mem_gib": machine.mem_gib,
        "network_baseline_gbps": machine.network_baseline_gbps,
        "network_gbps": machine.network_gbps,
        "gpu": machine.gpu,
        "gpu_mem_gib": machine.gpu_mem_gib,
        "usd_per_hour_on_demand": usd,
        "spot_saving_pct": saving,
        "source": _source(published) + zones,
    }


def _rate_rows(one: Service, tiers: Iterable[Tier]) -> Iterator[dict[str, Any]]:
    for tier in tiers:
        yield {
            "item": one.item,
            "arch": one.arch,
            "above": f"{tier.above:.0f}",
            "usd": tier.usd,
            "unit": prices.ITEMS[one.item],
            "source": _source(tier.published),
        }


def _source(published: str) -> str:
    return "AWS Price List API" + f", offer of {published}" * bool(published)


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes the list: rule 2."""
    try:
        with draft_of(path) as draft:
            with open(draft, "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            prices.read(draft)
    except OSError as error:
        raise GnnError(f"{path}: not written: {error.strerror}") from error
