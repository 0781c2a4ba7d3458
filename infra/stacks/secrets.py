"""Permissions of stacks on the secrets of runs (``infra.machines.secret_store``)."""

from __future__ import annotations

import aws_cdk as cdk

from siafu.config import Config

SECRET_READS = ["ssm:GetParameter"]
SECRET_WRITES = ["ssm:PutParameter", "ssm:DeleteParameters"]


def secrets_of(stack: cdk.Stack, config: Config, role: str = "") -> str:
    """The ARN of all secrets of the deployment's runs; ``role``: only that role's."""
    name = "/".join(["siafu", config.cloud.name, *((role,) if role else ()), "*"])
    return str(stack.format_arn(service="ssm", resource="parameter", resource_name=name))
