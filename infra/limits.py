"""Checks the account's quotas before a deployment is made: CloudFormation would fail after minutes, or never.

A limit that we may not query gives a warning: CloudFormation may have permissions that we lack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from botocore.exceptions import ClientError

from cost_planner.plan import quotas
from infra import deployment
from infra.cloud import Cloud, is_denied
from siafu.config import Config
from siafu.errors import ConfigError

#: Of an account's concurrency, what Lambda lets nobody reserve.
UNRESERVED = 100
#: What Service Quotas says of a quota that was never applied to the account.
UNKNOWN = "NoSuchResourceException"

Say = Callable[[str], None]


def check(config: Config, cloud: Cloud, parts: Sequence[str], say: Say) -> None:
    """Raises ConfigError for more environments or vCPUs than the account may have."""
    for part, ask in (("function", check_concurrency), ("servers", check_vcpus)):
        if part in parts:
            try:
                ask(config, cloud)
            except ClientError as error:
                if not is_denied(error) and error.response["Error"]["Code"] != UNKNOWN:
                    raise
                say(f"not known, and not checked: {error}")


def check_concurrency(config: Config, cloud: Cloud) -> None:
    if not config.cloud.reserved:
        return
    limit, free = _environments(cloud)
    if config.cloud.reserved > free - UNRESERVED:
        others = f", {limit - free} are kept for other functions" if limit > free else ""
        raise ConfigError(
            f"cloud.reserved = {config.cloud.reserved}: this account may run {limit} environments at a time{others}, "
            f"and {UNRESERVED} cannot be reserved; ask AWS for more, or --set "
            f"cloud.reserved={max(0, free - UNRESERVED)}"
        )


def _environments(cloud: Cloud) -> tuple[int, int]:
    """The account's limit of concurrent environments, and how many of them no other function has reserved."""
    api = cloud.client("lambda")
    limit = api.get_account_settings()["AccountLimit"]
    try:
        kept = api.get_function_concurrency(FunctionName=deployment.function(cloud.name))
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        kept = {}  # it is not made yet
    free = limit["UnreservedConcurrentExecutions"] + kept.get("ReservedConcurrentExecutions", 0)
    return int(limit["ConcurrentExecutions"]), int(free)


def check_vcpus(config: Config, cloud: Cloud) -> None:
    """Checks the vCPUs of this deployment alone: quotas do not show the account's other machines."""
    count = instances(config)
    try:
        types = cloud.client("ec2").describe_instance_types(InstanceTypes=list(count))["InstanceTypes"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "InvalidInstanceType":
            raise
        raise ConfigError(f"EC2 in {cloud.region}: {error.response['Error']['Message']}") from None
    needed: Counter[tuple[str, str]] = Counter()
    for one in types:
        quota = quotas.quota(quotas.class_of(one["InstanceType"]), spot=config.cloud.spot)
        if quota["code"]:
            needed[quota["name"], quota["code"]] += count[one["InstanceType"]] * one["VCpuInfo"]["DefaultVCpus"]
    for (name, code), vcpus in needed.items():
        found = cloud.client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
        if vcpus > found["Value"]:
            raise ConfigError(
                f"this deployment needs {vcpus} vCPUs, the account may have {found['Value']:g} in "
                f"{cloud.region}: quota {code}, {name}; ask AWS for more (Service Quotas, Amazon EC2), or deploy "
                "fewer or smaller machines"
            )


def instances(config: Config) -> Counter[str]:
    """Number of machines of each EC2 type in the deployment."""
    cloud = config.cloud
    count = Counter({cloud.graph_instance: config.data.parts})
    count[cloud.param_instance] += config.servers.param_servers
    return count
