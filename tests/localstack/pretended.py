"""What LocalStack says it has deployed and has not: a stack is CREATE_COMPLETE there whatever is in it.

A resource of a type that it does not know is marked complete, and nothing in a green deployment shows that
nothing was made. Its physical id gives it away: one word for all of them. That a type is known proves less
than one would like, so ``missing`` asks the service itself for each resource, and for the rules of security
groups, which are dropped without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

FALLBACK_ID = "unknown"  # MOCKED_REFERENCE in LocalStack's CloudFormation engine

#: Gives a boto3 client of a service.
Clients = Callable[[str], Any]


@dataclass(frozen=True, order=True)
class Resource:
    type: str
    stack: str
    logical_id: str
    physical_id: str


def resources(clients: Clients, stack: str) -> list[Resource]:
    """Those that the stack lists."""
    pages = clients("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
    return [
        Resource(found["ResourceType"], stack, found["LogicalResourceId"], found.get("PhysicalResourceId", FALLBACK_ID))
        for page in pages
        for found in page["StackResourceSummaries"]
    ]


def pretended(clients: Clients, stack: str) -> list[Resource]:
    """Resources of types that LocalStack does not know."""
    return [resource for resource in resources(clients, stack) if resource.physical_id == FALLBACK_ID]


def missing(clients: Clients, stack: str) -> list[Resource]:
    """Resources that their service does not know, whatever the stack says; those for whose type there is no question in
    ``ASK`` count as missing."""
    all_of_it = resources(clients, stack)
    return [resource for resource in all_of_it if not _exists(clients, resource, all_of_it)]


def _exists(clients: Clients, resource: Resource, siblings: Sequence[Resource]) -> bool:
    ask = ASK.get(resource.type)
    if ask is None or resource.physical_id == FALLBACK_ID:
        return False
    try:
        return bool(ask(clients, resource.physical_id, siblings))
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
            raise
        return False


def _ids(siblings: Sequence[Resource], type_: str) -> list[str]:
    return [resource.physical_id for resource in siblings if resource.type == type_]


def _policy(clients: Clients, id_: str, siblings: Sequence[Resource]) -> bool:
    """Of a role. On LocalStack the id is ``stack-``, the first letters of the policy's name, and noise."""
    start = id_.split("-")[1]
    roles = _ids(siblings, "AWS::IAM::Role")
    names = (name for role in roles for name in clients("iam").list_role_policies(RoleName=role)["PolicyNames"])
    return any(name.startswith(start) for name in names)


def _bucket_policy(clients: Clients, id_: str, siblings: Sequence[Resource]) -> bool:
    """The id names no bucket: all of the stack have one."""
    return all(clients("s3").get_bucket_policy(Bucket=bucket)["Policy"] for bucket in _ids(siblings, "AWS::S3::Bucket"))


def _event_invoke_config(clients: Clients, id_: str, siblings: Sequence[Resource]) -> bool:
    """The id names no function: one of the stack has it."""
    names = _ids(siblings, "AWS::Lambda::Function")
    return any(
        clients("lambda").list_function_event_invoke_configs(FunctionName=name)["FunctionEventInvokeConfigs"]
        for name in names
    )


def _association(clients: Clients, id_: str, siblings: Sequence[Resource]) -> bool:
    tables = clients("ec2").describe_route_tables()["RouteTables"]
    return any(found["RouteTableAssociationId"] == id_ for table in tables for found in table["Associations"])


def _topic_policy(clients: Clients, id_: str, siblings: Sequence[Resource]) -> bool:
    """Of a topic, in place of the one that every topic has from the start. The id is the stack's name and noise."""
    attributes = (clients("sns").get_topic_attributes(TopicArn=arn) for arn in _ids(siblings, "AWS::SNS::Topic"))
    return any("__default_policy_ID" not in found["Attributes"]["Policy"] for found in attributes)


def _schedule(clients: Clients, id_: str, siblings: Sequence[Resource]) -> bool:
    """In whichever group."""
    return any(found["Name"] == id_ for found in clients("scheduler").list_schedules()["Schedules"])


def _log_group(clients: Clients, id_: str, siblings: Sequence[Resource]) -> bool:
    groups = clients("logs").describe_log_groups(logGroupNamePrefix=id_)["logGroups"]
    return any(group["logGroupName"] == id_ for group in groups)


def _call(
    service: str, call: str, argument: str, result: str = ""
) -> Callable[[Clients, str, Sequence[Resource]], object]:
    """A question of one call: ``argument`` takes the id, in a list where it is a
    plural; ``result`` must not be empty."""

    def ask(clients: Clients, id_: str, siblings: Sequence[Resource]) -> object:
        plural = argument.endswith("Ids") or argument.endswith("Names")
        found = getattr(clients(service), call)(**{argument: [id_] if plural else id_})
        return found[result] if result else True

    return ask


#: Type -> whether its service knows the resource with a physical id; a ClientError means no.
ASK: dict[str, Callable[[Clients, str, Sequence[Resource]], object]] = {
    "AWS::CDK::Metadata": lambda clients, id_, siblings: True,  # nothing is made of it anywhere
    "AWS::CloudWatch::Alarm": _call("cloudwatch", "describe_alarms", "AlarmNames", "MetricAlarms"),
    "AWS::EC2::RouteTable": _call("ec2", "describe_route_tables", "RouteTableIds", "RouteTables"),
    "AWS::EC2::SecurityGroup": _call("ec2", "describe_security_groups", "GroupIds", "SecurityGroups"),
    "AWS::EC2::Subnet": _call("ec2", "describe_subnets", "SubnetIds", "Subnets"),
    "AWS::EC2::SubnetRouteTableAssociation": _association,
    "AWS::EC2::VPC": _call("ec2", "describe_vpcs", "VpcIds", "Vpcs"),
    "AWS::EC2::VPCEndpoint": _call("ec2", "describe_vpc_endpoints", "VpcEndpointIds", "VpcEndpoints"),
    "AWS::IAM::InstanceProfile": _call("iam", "get_instance_profile", "InstanceProfileName"),
    "AWS::IAM::Policy": _policy,
    "AWS::IAM::Role": _call("iam", "get_role", "RoleName"),
    "AWS::KMS::Key": _call("kms", "describe_key", "KeyId"),
    "AWS::Lambda::EventInvokeConfig": _event_invoke_config,
    "AWS::Lambda::Function": _call("lambda", "get_function", "FunctionName"),
    "AWS::Logs::LogGroup": _log_group,
    "AWS::S3::Bucket": _call("s3", "head_bucket", "Bucket"),
    "AWS::S3::BucketPolicy": _bucket_policy,
    "AWS::SNS::Subscription": _call("sns", "get_subscription_attributes", "SubscriptionArn"),
    "AWS::SNS::Topic": _call("sns", "get_topic_attributes", "TopicArn"),
    "AWS::SNS::TopicPolicy": _topic_policy,
    "AWS::SSM::Parameter": _call("ssm", "get_parameter", "Name"),
    "AWS::Scheduler::Schedule": _schedule,
    "AWS::Scheduler::ScheduleGroup": _call("scheduler", "get_schedule_group", "Name"),
}
