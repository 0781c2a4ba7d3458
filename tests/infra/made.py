"""Deployments in moto, as deploys that came to different ends leave them: small stacks of
what CloudFormation can make there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from moto import mock_aws

from infra import deployment
from infra.cloud import Cloud
from infra.deployment import REGION_TAG, TAG

#: Of all tests: moto answers them in any of its accounts.
_CLIENTS: dict[str, Any] = {}
REGION, ACCOUNT = "us-east-1", "123456789012"  # moto's


@contextlib.contextmanager
def account(monkeypatch: pytest.MonkeyPatch, name: str = "siafu") -> Iterator[Cloud]:
    """An empty one of moto's."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # a tenth of a second each time
    with mock_aws():
        yield Cloud(name, ACCOUNT, REGION, "", _CLIENTS)


def template(name: str, part: str) -> str:
    """Of a stack that has what its part is about."""
    tags = [{"Key": TAG, "Value": name}]
    groups = deployment.log_groups(name)
    assume = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}],
    }
    of_role = [*tags, {"Key": REGION_TAG, "Value": REGION}]
    role = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": assume, "Tags": of_role}}
    resources = {
        "expiry": {"Logs": _log_group(groups["reaper"], tags), "Role": role},
        "data": {
            "Bucket": {
                "Type": "AWS::S3::Bucket",
                "Properties": {"BucketName": deployment.bucket(name, ACCOUNT, REGION), "Tags": tags},
            }
        },
        "network": {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16", "Tags": tags}}},
        "function": {"Logs": _log_group(groups["function"], tags), "Role": role},
        "servers": {
            "Role": role,
            "Profile": _profile(name, "graph_server"),
            "Template": {
                "Type": "AWS::EC2::LaunchTemplate",
                "Properties": {
                    "LaunchTemplateData": {"InstanceType": "t3.micro"},
                    "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}],
                },
            },
        },
        "watch": {"Logs": _log_group(groups["flows"], tags)},
    }
    return json.dumps({"Resources": resources[part]})


def _profile(name: str, kind: str) -> dict[str, object]:
    called = deployment.profile(name, REGION, kind)
    return {
        "Type": "AWS::IAM::InstanceProfile",
        "Properties": {"InstanceProfileName": called, "Roles": [{"Ref": "Role"}]},
    }


def _log_group(name: str, tags: list[dict[str, str]]) -> dict[str, object]:
    return {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": name, "Tags": tags}}


def make(cloud: Cloud, parts: Sequence[str]) -> None:
    """Stacks of these parts, and something in the bucket."""
    api = cloud.client("cloudformation")
    for part in parts:
        api.create_stack(
            StackName=deployment.stack(cloud.name, part),
            TemplateBody=template(cloud.name, part),
            Tags=[{"Key": TAG, "Value": cloud.name}],
        )
    if "data" in parts:
        bucket = deployment.bucket(cloud.name, cloud.account, cloud.region)
        for key in ("packages/a.zip", "runs/r/request.json", "boot/graph_server-0.log"):
            cloud.client("s3").put_object(Bucket=bucket, Key=key, Body=b"x")


def make_alarm(cloud: Cloud) -> None:
    """As the watch stack has it: moto's CloudFormation makes none."""
    cloud.client("cloudwatch").put_metric_alarm(
        AlarmName=f"{deployment.stack(cloud.name, 'watch')}-Errors1A2B3C4D-EXAMPLE",
        MetricName="Errors",
        Namespace="AWS/Lambda",
        Period=60,
        EvaluationPeriods=1,
        ComparisonOperator="GreaterThanThreshold",
        Threshold=1,
        Statistic="Sum",
        Tags=[{"Key": TAG, "Value": cloud.name}],
    )


def make_topic(cloud: Cloud, name: str = "siafu-watch-Alarms1A2B3C4D-EXAMPLE") -> str:
    """Its ARN."""
    tags = [{"Key": TAG, "Value": cloud.name}]
    return str(cloud.client("sns").create_topic(Name=name, Tags=tags)["TopicArn"])


def stacks_of(cloud: Cloud) -> list[str]:
    found = cloud.client("cloudformation").describe_stacks()["Stacks"]
    return sorted(stack["StackName"] for stack in found)
