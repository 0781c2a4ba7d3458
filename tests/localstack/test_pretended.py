"""The detector of what LocalStack only pretends to deploy, on a stack that has some of both."""

from __future__ import annotations

import json
import time

import pytest
from botocore.exceptions import ClientError

from tests.localstack.pretended import missing, pretended, resources

pytestmark = pytest.mark.aws
OPEN = {"IpProtocol": "tcp", "FromPort": 7000, "ToPort": 7099, "CidrIp": "10.0.0.0/16"}
PRINCIPAL = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
REAL = {
    "Vpc": ("AWS::EC2::VPC", {"CidrBlock": "10.0.0.0/16"}),
    "Group": (
        "AWS::EC2::SecurityGroup",
        {"GroupDescription": "x", "VpcId": {"Ref": "Vpc"}, "SecurityGroupIngress": [OPEN]},
    ),
    "Bucket": ("AWS::S3::Bucket", {}),
    "Logs": ("AWS::Logs::LogGroup", {"RetentionInDays": 7}),
    "Role": ("AWS::IAM::Role", {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [PRINCIPAL]}}),
    "Topic": ("AWS::SNS::Topic", {}),
    "Parameter": ("AWS::SSM::Parameter", {"Type": "String", "Value": "x"}),
}
PRETENDED = {
    "Rule": ("AWS::EC2::SecurityGroupIngress", {"GroupId": {"Fn::GetAtt": ["Group", "GroupId"]}, **OPEN}),
    "Flow": ("AWS::EC2::FlowLog", {"ResourceId": {"Ref": "Vpc"}, "ResourceType": "VPC", "TrafficType": "ALL"}),
    "Template": ("AWS::EC2::LaunchTemplate", {"LaunchTemplateData": {"InstanceType": "c7g.large"}}),
    "Scaling": ("AWS::AutoScaling::AutoScalingGroup", {"MinSize": "1", "MaxSize": "1"}),
    "Dashboard": ("AWS::CloudWatch::Dashboard", {"DashboardBody": "{}"}),
    "Budget": ("AWS::Budgets::Budget", {"Budget": {"BudgetType": "COST", "TimeUnit": "MONTHLY"}}),
    "Cluster": ("AWS::ECS::Cluster", {}),
}


@pytest.fixture
def stack(place):
    name, cloudformation = "siafu-pretended", place.client("cloudformation")
    template = {"Resources": {id_: {"Type": t, "Properties": p} for id_, (t, p) in (REAL | PRETENDED).items()}}
    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template))
    yield name
    cloudformation.delete_stack(StackName=name)
    with pytest.raises(ClientError, match="does not exist"):
        until(lambda: not status(cloudformation, name))


def status(cloudformation, name) -> str:
    return str(cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])


def until(happened, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_green_stack_is_seen_through(place, stack):
    until(lambda: status(place.client("cloudformation"), stack) == "CREATE_COMPLETE")
    assert {found.logical_id for found in resources(place.client, stack)} == REAL.keys() | PRETENDED.keys()
    assert {found.logical_id for found in pretended(place.client, stack)} == PRETENDED.keys()
    assert {found.logical_id for found in missing(place.client, stack)} == PRETENDED.keys()
    group = next(found.physical_id for found in resources(place.client, stack) if found.logical_id == "Group")
    (made,) = place.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"]
    assert made["IpPermissions"] == []  # a rule inside the group is dropped too: only templates can be asked for it
