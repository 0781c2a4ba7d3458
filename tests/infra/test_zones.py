"""In which zone a deployment is: one that has all it needs. EC2 is played: it says what is where."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra import zones
from infra.cloud import Cloud
from siafu.config import Config
from siafu.errors import ConfigError

CONFIG = Config()
ENDPOINTS = {"lambda": "bcd", "ssm": "abcd", "ssmmessages": "abcd"}


class Ec2:
    """``types``: instance type -> last letters of zones that have it; ``subnet``: where there is a network already."""

    def __init__(self, types: dict[str, str], subnet: str = ""):
        self.types, self.subnet = types, subnet

    def describe_subnets(self, Filters):
        assert Filters == [{"Name": "tag:siafu:deployment", "Values": ["siafu"]}]
        return {"Subnets": [{"AvailabilityZone": self.subnet}] if self.subnet else []}

    def get_paginator(self, name: str) -> Any:
        assert name == "describe_instance_type_offerings"
        return self

    def paginate(self, LocationType, Filters):
        assert (LocationType, Filters[0]["Name"]) == ("availability-zone", "instance-type")
        for name in Filters[0]["Values"]:  # a page each
            yield {
                "InstanceTypeOfferings": [
                    {"InstanceType": name, "Location": f"us-east-1{letter}"} for letter in self.types.get(name, "")
                ]
            }

    def describe_vpc_endpoint_services(self, ServiceNames):
        return {
            "ServiceDetails": [
                {
                    "ServiceName": name,
                    "AvailabilityZones": [f"us-east-1{letter}" for letter in ENDPOINTS[name.rpartition(".")[2]]],
                }
                for name in ServiceNames
            ]
        }


def zone(types: dict[str, str], subnet: str = "", **settings: str) -> str:
    config = CONFIG.replace({f"cloud.{name}": value for name, value in settings.items()})
    return zones.settle(config, Cloud("siafu", "1", "us-east-1", "", {"ec2": Ec2(types, subnet)})).cloud.zone


def test_the_first_zone_with_all_types_and_endpoints_is_taken():
    types = {"c7g.2xlarge": "abcd", "c7g.xlarge": "acd", "g5.xlarge": "bd"}
    assert zone(types) == "us-east-1c"  # a has no endpoint of Lambda, b no c7g.xlarge
    assert zone(types, graph_instance="g5.xlarge") == "us-east-1d"


def test_a_zone_that_the_user_wants_is_taken_if_it_has_everything():
    types = {"c7g.2xlarge": "abcd", "c7g.xlarge": "abc"}
    assert zone(types, zone="us-east-1c") == "us-east-1c"
    with pytest.raises(
        ConfigError, match=r"zone us-east-1a has no endpoint of lambda; all there is in us-east-1b, us-east-1c "
    ):
        zone(types, zone="us-east-1a")
    with pytest.raises(ConfigError, match=r"zone us-east-1z has no c7g.2xlarge, c7g.xlarge, endpoint of lambda, "):
        zone(types, zone="us-east-1z")


def test_a_deployment_stays_where_its_network_is():
    types = {"c7g.2xlarge": "bcd", "c7g.xlarge": "bcd"}
    assert zone(types, subnet="us-east-1d") == "us-east-1d"
    assert zone(types, subnet="us-east-1d", zone="us-east-1d") == "us-east-1d"
    with pytest.raises(ConfigError, match=r"cloud.zone = us-east-1b: deployment siafu is in us-east-1d; siafu destroy"):
        zone(types, subnet="us-east-1d", zone="us-east-1b")
    with pytest.raises(ConfigError, match=r"zone us-east-1d has no c8g.2xlarge; all there is in us-east-1c "):
        zone({**types, "c8g.2xlarge": "ac"}, subnet="us-east-1d", graph_instance="c8g.2xlarge")


def test_who_may_not_ask_needs_a_zone_by_name(monkeypatch):
    denied = ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, "DescribeInstanceTypeOfferings")
    monkeypatch.setattr(Ec2, "paginate", lambda self, **_: (_ for _ in ()).throw(denied))
    assert zone({}, zone="us-east-1z") == "us-east-1z"
    assert zone({}, subnet="us-east-1d") == "us-east-1d"
    with pytest.raises(ClientError):
        zone({})


def test_a_region_without_such_a_zone_is_refused_with_who_has_what():
    with pytest.raises(
        ConfigError, match=r"no zone of us-east-1 has everything .*c7g.2xlarge: none; c7g.xlarge: us-east-1a;"
    ):
        zone({"c7g.xlarge": "a"})


def test_a_stand_in_is_not_asked():
    assert zones.settle(CONFIG, Cloud("siafu", "1", "us-east-1", "http://127.0.0.1:4566")) == CONFIG
