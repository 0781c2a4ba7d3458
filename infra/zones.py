"""Chooses an availability zone that has all instance types and endpoints of a deployment. Not every zone does.

A zone's name is the account's own: us-east-1a is another place in another account, so the right zone cannot be known
beforehand.
"""

from __future__ import annotations

from botocore.exceptions import ClientError

from infra import deployment
from infra.cloud import Cloud, is_denied
from infra.deployment import TAG
from infra.limits import instances
from siafu.config import Config
from siafu.errors import ConfigError


def settle(config: Config, cloud: Cloud) -> Config:
    """The config with the zone's name: where the deployment is already, where the user
    wants it, or the first that will do.

    ConfigError if that zone lacks something, or every zone does. A caller who may not list zones must name one.
    """
    if cloud.endpoint:  # it has all there is in each
        return config
    there, wanted = _of_subnet(cloud), config.cloud.zone
    if there and wanted and there != wanted:
        raise ConfigError(
            f"cloud.zone = {wanted}: deployment {cloud.name} is in {there}; siafu destroy removes it, "
            "then it can be elsewhere"
        )
    try:
        having = zones_of(config, cloud)
    except ClientError as error:
        if not is_denied(error) or not (there or wanted):
            raise
        return config.replace({"cloud.zone": there or wanted})  # CloudFormation says what it lacks
    able = set.intersection(*having.values())
    zone = there or wanted or min(able, default="")
    if zone not in able:
        lacking = [what for what, zones in having.items() if zone not in zones]
        raise ConfigError(_refusal(zone, cloud.region, lacking, having, able))
    return config.replace({"cloud.zone": zone})


def _refusal(zone: str, region: str, lacking: list[str], having: dict[str, set[str]], able: set[str]) -> str:
    if zone:
        elsewhere = f"all there is in {', '.join(sorted(able))}" if able else f"no zone of {region} has everything"
        return (
            f"zone {zone} has no {', '.join(lacking)}; {elsewhere} (cloud.zone, "
            "cloud.graph_instance, cloud.param_instance)"
        )
    where = "; ".join(f"{what}: {', '.join(sorted(zones)) or 'none'}" for what, zones in having.items())
    return (
        f"no zone of {region} has everything that the deployment needs ({where}); choose other instance "
        "types, or another region"
    )


def _of_subnet(cloud: Cloud) -> str:
    """The zone of the deployment's network; empty without a network."""
    found = cloud.client("ec2").describe_subnets(Filters=[{"Name": f"tag:{TAG}", "Values": [cloud.name]}])["Subnets"]
    return str(found[0]["AvailabilityZone"]) if found else ""


def zones_of(config: Config, cloud: Cloud) -> dict[str, set[str]]:
    """Instance type, and service with an endpoint -> zones that have it."""
    ec2 = cloud.client("ec2")
    found: dict[str, set[str]] = {name: set() for name in instances(config)}
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": list(found)}]
    )
    for offer in (offer for page in pages for offer in page["InstanceTypeOfferings"]):
        found[offer["InstanceType"]].add(offer["Location"])
    names = [f"com.amazonaws.{cloud.region}.{service}" for service in deployment.services(config)]
    for one in ec2.describe_vpc_endpoint_services(ServiceNames=names)["ServiceDetails"]:
        found[f"endpoint of {one['ServiceName'].rpartition('.')[2]}"] = set(one["AvailabilityZones"])
    return found
