"""``--refresh-prices``: AWS's answers, in the shape in which it gives them, become a price list; botocore checks what
it is asked. Rules are those of ``infra.pricelist``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

import infra
from infra import pricelist
from siafu import extras
from siafu.__main__ import main
from siafu.errors import ConfigError, GnnError
from siafu.pricing import prices

NOW = datetime(2026, 11, 22, 8, 0, tzinfo=timezone.utc)
PUBLISHED = "2026-11-18T02:13:07Z"


def product(attributes: dict[str, str], *tiers: tuple[str, str, str], unit: str = "Hrs", currency: str = "USD") -> str:
    """As the API gives it: JSON in a string. tiers: (from, to, price)."""
    sku = "JRTCKXETXF".ljust(16, "0")
    dimensions = {
        f"{sku}.JRTCKXETXF.{number}": {
            "unit": unit,
            "beginRange": begin,
            "endRange": end,
            "description": "$ per unit",
            "appliesTo": [],
            "rateCode": f"{sku}.JRTCKXETXF.{number}",
            "pricePerUnit": {currency: usd},
        }
        for number, (begin, end, usd) in enumerate(tiers)
    }
    term = {
        "priceDimensions": dimensions,
        "sku": sku,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "offerTermCode": "JRTCKXETXF",
        "termAttributes": {},
    }
    return json.dumps(
        {
            "product": {"productFamily": "whatever", "attributes": attributes, "sku": sku},
            "serviceCode": "AmazonEC2",
            "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}, "Reserved": {}},
            "version": "20261118021307",
            "publicationDate": PUBLISHED,
        }
    )


def machine(name: str, usd: str, **more: Any) -> str:
    attributes = {
        "instanceType": name,
        "vcpu": "8",
        "memory": "16 GiB",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "regionCode": "eu-west-1",
        "location": "EU (Ireland)",
        "usagetype": f"EU-BoxUsage:{name}",
        "capacitystatus": "Used",
        "preInstalledSw": "NA",
        "marketoption": "OnDemand",
        "networkPerformance": "Up to 15 Gigabit",
    }
    return product(attributes, ("0", "Inf", usd), **more)


def rate(usage: str, *tiers: tuple[str, str, str]) -> str:
    return product({"usagetype": usage, "regionCode": "eu-west-1", "group": "whatever"}, *tiers, unit="Requests")


MACHINES = [
    machine("c7g.2xlarge", "0.3104000000"),
    machine("c5.2xlarge", "0.3840000000"),
    machine("u7in.metal", "200.0"),
]
COMPUTE = [
    rate(
        "EU-Lambda-GB-Second-ARM",
        ("18750000000", "Inf", "0.0000106667"),
        ("0", "7500000000", "0.0000133334"),
        ("7500000000", "18750000000", "0.0000120001"),
    )
]
#: In the order of ``SERVICES``.
SERVICES: list[list[str]] = [
    [rate("EU-Request", ("0", "Inf", "0.0000002000"))],
    [rate("EU-Lambda-GB-Second", ("0", "Inf", "0.0000166667"))],
    COMPUTE,
    [rate("EU-VpcEndpoint-Bytes", ("0", "Inf", "0.01")), rate("EU-VpcEndpoint-Hours", ("0", "Inf", "0.0110000000"))],
    [rate("EU-EBS:VolumeUsage.gp3", ("0", "Inf", "0.0880000000"))],
    [rate("EU-Requests-Tier1", ("0", "Inf", "0.0000050000"))],
    [rate("EU-Requests-Tier2", ("0", "Inf", "0.0000004000")), rate("EU-Requests-Tier2", ("0", "Inf", "0.0000005"))],
    [rate("EU-DataTransfer-Regional-Bytes", ("0", "Inf", "0.0100000000"))] * 2,
    [],
]
SPOT = [
    {
        "InstanceType": "c7g.2xlarge",
        "AvailabilityZone": "eu-west-1a",
        "SpotPrice": "0.1",
        "Timestamp": NOW - timedelta(hours=1),
        "ProductDescription": "Linux/UNIX",
    },
    {
        "InstanceType": "c7g.2xlarge",
        "AvailabilityZone": "eu-west-1a",
        "SpotPrice": "0.9",
        "Timestamp": NOW - timedelta(hours=9),
        "ProductDescription": "Linux/UNIX",
    },
    {
        "InstanceType": "c7g.2xlarge",
        "AvailabilityZone": "eu-west-1b",
        "SpotPrice": "0.1552",
        "Timestamp": NOW,
        "ProductDescription": "Linux/UNIX",
    },
]


class Aws:
    """boto3's clients with their answers; what is asked must fit the API, and is checked where it matters."""

    def __init__(self, machines: list[str] = MACHINES, services: list[list[str]] = SERVICES, spot: Any = SPOT):
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
        self.made = {
            "pricing": boto3.client("pricing", region_name="us-east-1", **keys),
            "ec2": boto3.client("ec2", region_name="eu-west-1", **keys),
        }
        self.stubs = {name: Stubber(client) for name, client in self.made.items()}
        half = len(machines) // 2
        asked = {"ServiceCode": "AmazonEC2", "FormatVersion": "aws_v1", "MaxResults": 100, "Filters": ANY}
        pages = ({"NextToken": "more", "PriceList": machines[:half]}, {"PriceList": machines[half:]})
        self.stubs["pricing"].add_response("get_products", {"FormatVersion": "aws_v1", **pages[0]}, asked)
        self.stubs["pricing"].add_response("get_products", {**pages[1]}, {**asked, "NextToken": "more"})
        for one, answer in zip(pricelist.SERVICES, services, strict=True):
            filters = [{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in one.attributes.items()]
            filters += [{"Type": "TERM_MATCH", "Field": one.region, "Value": "eu-west-1"}]
            self.stubs["pricing"].add_response(
                "get_products", {"PriceList": answer}, {**asked, "ServiceCode": one.code, "Filters": filters}
            )
        asked_spot = {
            "InstanceTypes": ANY,
            "ProductDescriptions": ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
            "StartTime": NOW,
            "EndTime": NOW,
        }
        self.stubs["ec2"].add_response("describe_spot_price_history", {"SpotPriceHistory": spot}, asked_spot)

    def __call__(self, name: str, region: str) -> Any:
        assert (name, region) in (("pricing", "us-east-1"), ("ec2", "eu-west-1"))
        return self.made[name]

    def refresh(self, path: Path) -> dict[str, Any]:
        with ExitStack() as stack:
            for stub in self.stubs.values():
                stack.enter_context(stub)
            return pricelist.refresh(path, "eu-west-1", self, NOW)


@pytest.fixture(autouse=True)
def ours() -> Iterator[None]:
    yield
    prices.use(None)


def test_every_item_of_a_bill_is_asked_for():
    assert [*dict.fromkeys(one.item for one in pricelist.SERVICES)] == [*prices.ITEMS]


def test_answers_become_a_list_that_prices_are_taken_from(tmp_path: Path) -> None:
    file = tmp_path / "eu.csv"
    found = Aws().refresh(file)
    assert (found["instances"], found["rates"], found["as_of"], found["region"]) == (2, 9, "2026-11-22", "eu-west-1")
    prices.use(file)
    now, ours = prices.instance("c7g.2xlarge", "eu-west-1"), prices.instance("c7g.2xlarge")
    assert (now.usd_per_hour, now.as_of) == (0.3104, "2026-11-22")
    assert now.spot_saving == pytest.approx(1 - (0.1 + 0.1552) / 2 / 0.3104, abs=1e-3)  # the newest price of each zone
    assert now.source == "AWS Price List API, offer of 2026-11-18; spot: EC2, mean of 2 zones"
    assert (now.vcpu, now.mem_gib, now.network_baseline_gbps) == (ours.vcpu, ours.mem_gib, ours.network_baseline_gbps)
    assert prices.instance("c5.2xlarge", "eu-west-1").spot_saving is None
    tiers = prices.rates("lambda_compute", "arm64", "eu-west-1")
    assert [(tier.above, tier.usd) for tier in tiers] == [
        (0, 0.0000133334),
        (7.5e9, 0.0000120001),
        (18.75e9, 0.0000106667),
    ]
    assert prices.rates("interface_endpoint", region="eu-west-1")[0].usd == 0.011  # not what a GB through it costs


def test_what_a_region_lacks_or_contradicts_itself_about_is_left_out_and_named(tmp_path: Path) -> None:
    missing = Aws().refresh(tmp_path / "eu.csv")["missing"]
    assert {"c8gn.4xlarge", "s3_get", "traffic_out"} <= set(missing)
    assert not {"c7g.2xlarge", "p3.2xlarge", "u7in.metal", "s3_put"} & set(missing)


def test_types_that_we_do_not_know_or_that_contradict_themselves_do_not_spoil_the_others(tmp_path: Path) -> None:
    strange = [machine("z9.large", "1", currency="CNY"), machine("z9.large", "0"), machine("c5.2xlarge", "0.5")]
    found = Aws(machines=[*MACHINES, *strange]).refresh(tmp_path / "eu.csv")
    assert found["instances"] == 1
    assert "c5.2xlarge" in found["missing"]
    assert not {"c7g.2xlarge", "z9.large"} & set(found["missing"])


def test_spot_that_is_dearer_saves_nothing(tmp_path: Path) -> None:
    Aws(spot=[{**SPOT[0], "SpotPrice": "0.4"}]).refresh(tmp_path / "eu.csv")
    prices.use(tmp_path / "eu.csv")
    assert prices.instance("c7g.2xlarge", "eu-west-1").spot_saving == 0


@pytest.mark.parametrize(
    ("aws", "message"),
    [
        (
            {"machines": [machine("c5.2xlarge", "3", currency="CNY")]},
            "c5.2xlarge: the Price List API's answer has no price in USD ('USD')",
        ),
        ({"machines": []}, "eu-west-1: the Price List API has no price of any type that we know there"),
        ({"machines": ["<html>"]}, "AmazonEC2: the Price List API's answer is no JSON: <html>"),
    ],
)
def test_answers_that_nobody_understands_leave_the_old_list(aws: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "eu.csv"
    file.write_text("the old one")
    with pytest.raises(GnnError) as refused:
        Aws(**aws).refresh(file)
    assert str(refused.value) == message
    assert [path.read_text() for path in tmp_path.iterdir()] == ["the old one"]


def test_an_error_of_aws_leaves_the_old_list(tmp_path: Path) -> None:
    aws = Aws()
    aws.stubs["ec2"] = Stubber(aws.made["ec2"])
    aws.stubs["ec2"].add_client_error("describe_spot_price_history", "UnauthorizedOperation", "You are not authorized")
    with pytest.raises(GnnError, match=r"^prices of eu-west-1: .*UnauthorizedOperation.*You are not authorized"):
        aws.refresh(tmp_path / "eu.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_said_before_anybody_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        pricelist.refresh(tmp_path / "no" / "eu.csv", "eu-west-1", clients=lambda name, region: 1 / 0)


def test_who_is_nobody_gets_one_line_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "ENDPOINT_URL"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    assert main(["cost", "--refresh-prices", str(tmp_path / "new.csv")]) == 2
    told = r"siafu cost: .*: Unable to locate credentials; set AWS_PROFILE, run aws configure, .*\n"
    assert re.fullmatch(told, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_what_came_of_it_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    whole = pricelist.refresh

    def refresh(path: Path, region: str, *clients: Any) -> dict[str, Any]:
        return whole(path, region, *clients) if clients else Aws().refresh(path) | {"missing": ["s3_get"]}

    monkeypatch.setattr(pricelist, "refresh", refresh)
    file = tmp_path / "eu.csv"
    assert main(["cost", "--refresh-prices", str(file), "--set", "lambda.region=eu-west-1"]) == 0
    said = f"{file}: 2 instance types and 9 rates of eu-west-1, 2026-11-22; not among them: s3_get\n"
    assert capsys.readouterr().out == said


def test_without_boto3_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("pricelist", "cloud", "service"):
        monkeypatch.delitem(sys.modules, f"infra.{name}")
        monkeypatch.delattr(infra, name)
    for name in ("boto3", "botocore", "boto3.exceptions", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["cost", "--refresh-prices", str(tmp_path / "new.csv")]) == 2
    assert f"is not installed: {extras.install('aws')}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
