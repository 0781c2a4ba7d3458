"""What an account may have: environments of Lambda, vCPUs of EC2. The services are played."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra import limits
from infra.cloud import Cloud
from infra.deployment import PARTS
from siafu.config import Config
from siafu.errors import ConfigError

CONFIG = Config().replace({"data.parts": 2})
VCPUS = {"c7g.2xlarge": 8, "c7g.xlarge": 4, "g5.xlarge": 4, "p5.48xlarge": 192, "x2gd.4xlarge": 16}


def cloud(**services: Any) -> Cloud:
    return Cloud(
        "siafu", "123456789012", "us-east-1", "", {name.replace("_", "-"): one for name, one in services.items()}
    )


def error(code: str, operation: str, message: str = "not you") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


class Ec2:
    def describe_instance_types(self, InstanceTypes):
        if strange := [name for name in InstanceTypes if name not in VCPUS]:
            raise error("InvalidInstanceType", "DescribeInstanceTypes", f"do not exist: {strange}")
        return {
            "InstanceTypes": [
                {"InstanceType": name, "VCpuInfo": {"DefaultVCpus": VCPUS[name]}} for name in InstanceTypes
            ]
        }


class Quotas:
    """``values``: code -> vCPUs; None: nobody may ask."""

    def __init__(self, values: dict[str, float] | None):
        self.values = values

    def get_service_quota(self, ServiceCode, QuotaCode):
        assert ServiceCode == "ec2"
        if self.values is None:
            raise error("AccessDeniedException", "GetServiceQuota")
        if QuotaCode not in self.values:
            raise error("NoSuchResourceException", "GetServiceQuota", "was never applied")
        return {"Quota": {"Value": self.values[QuotaCode]}}


#: Of an account of 1000 environments: unreserved, ours already (None: no function yet), asked for, at most possible.
@pytest.mark.parametrize(
    ("unreserved", "ours", "asked", "most"),
    [
        (1000, None, 900, None),
        (200, None, 101, 100),
        (100, None, 1, 0),
        (100, 100, 100, None),
        (150, 100, 200, 150),
        (1000, 0, 901, 900),
    ],
)
def test_environments_that_other_functions_keep_are_not_ours(unreserved, ours, asked, most):
    class Lambda:
        def get_account_settings(self):
            return {"AccountLimit": {"ConcurrentExecutions": 1000, "UnreservedConcurrentExecutions": unreserved}}

        def get_function_concurrency(self, FunctionName):
            assert FunctionName == "siafu-worker"
            if ours is None:
                raise error("ResourceNotFoundException", "GetFunctionConcurrency")
            return {"ReservedConcurrentExecutions": ours} if ours else {}

    config = CONFIG.replace({"cloud.reserved": asked})
    with contextlib.nullcontext() if most is None else pytest.raises(ConfigError, match=rf"cloud\.reserved={most}$"):
        limits.check_concurrency(config, cloud(**{"lambda": Lambda()}))


#: Settings, the account's quotas, and what is refused: vCPUs needed, allowed, and by which quota.
@pytest.mark.parametrize(
    ("settings", "quotas", "refused"),
    [
        ({}, {"L-1216C47A": 20.0}, ()),
        ({"cloud.param_instance": "x2gd.4xlarge"}, {"L-1216C47A": 16.0}, ()),  # X has a quota of its own
        ({}, {"L-1216C47A": 19.0}, (20, 19, "L-1216C47A")),
        ({"cloud.spot": True}, {"L-34B43A08": 5.0}, (20, 5, "L-34B43A08")),
        ({"cloud.param_instance": "g5.xlarge"}, {"L-1216C47A": 16.0, "L-DB2E81BA": 0.0}, (4, 0, "L-DB2E81BA")),
        (
            {"cloud.param_instance": "p5.48xlarge", "cloud.spot": True},
            {"L-34B43A08": 64.0, "L-C4BD4855": 96.0},
            (192, 96, "L-C4BD4855"),
        ),
    ],
)
def test_more_vcpus_than_a_quota_are_refused_by_its_name(settings, quotas, refused):
    where = cloud(ec2=Ec2(), service_quotas=Quotas(quotas))
    config = CONFIG.replace({"cloud.reserved": 0, **settings})
    if not refused:
        return limits.check(config, where, PARTS, pytest.fail)
    needed, allowed, code = refused
    with pytest.raises(
        ConfigError, match=rf"needs {needed} vCPUs, the account may have {allowed} in us-east-1: quota {code}, "
    ):
        limits.check(config, where, PARTS, pytest.fail)


def test_a_type_that_the_region_does_not_have_is_the_users_mistake():
    config = CONFIG.replace({"cloud.reserved": 0, "cloud.graph_instance": "x9z.large"})
    with pytest.raises(ConfigError, match=r"^EC2 in us-east-1: do not exist: \['x9z.large'\]$"):
        limits.check(config, cloud(ec2=Ec2(), service_quotas=Quotas({})), PARTS, pytest.fail)


@pytest.mark.parametrize("values", [None, {}])
def test_who_may_not_ask_or_asks_for_what_nobody_has_applied_is_warned_and_goes_on(values):
    said: list[str] = []
    limits.check(
        CONFIG.replace({"cloud.reserved": 0}), cloud(ec2=Ec2(), service_quotas=Quotas(values)), PARTS, said.append
    )
    (line,) = said
    assert line.startswith("not known, and not checked: ")
    assert "GetServiceQuota" in line


def test_parts_that_are_not_made_are_not_asked_about():
    limits.check(CONFIG, cloud(), ["data", "network"], pytest.fail)
