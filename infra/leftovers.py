"""Finds what is left of a deployment outside its stacks, service by service, by tag or by name, and removes it.

``KINDS`` is in the order of removal: a resource comes before those that it uses. The tagging service comes last: it
lags, and lists deleted resources for another hour, so it counts only for kinds that are not listed by their own
service. A name alone does not make a resource ours if another deployment could have it: ``siafu-watch`` is a stack of
``siafu`` and a deployment. Name and tag are not enough either where all regions are listed at once (roles, instance
profiles, budgets, dashboards): the region must match as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra import deployment, reaper
from infra.cloud import Cloud, is_denied
from infra.deployment import REGION_TAG, TAG

Find = Callable[[Cloud], Iterable[str]]
Remove = Callable[[Cloud, str], object]


@dataclass(frozen=True)
class Kind:
    """A kind of resource. ``arn``: its service and type in an ARN; ``local``: whether LocalStack knows it."""

    name: str
    arn: str
    find: Find
    remove: Remove
    local: bool = True


@dataclass(frozen=True)
class Left:
    kind: str
    id: str  # empty: we may not look whether there is any
    why: str = ""  # it could not be removed, or looked for

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.id))) + (f": {self.why}" if self.why else "")


def find(cloud: Cloud) -> list[Left]:
    """Everything that has the deployment's tag or name, and the kinds that we may not list. Raises what botocore
    raises."""
    found = [left for kind in kinds(cloud) for left in _look(cloud, kind.name, kind.find)]
    covered = (*(kind.arn for kind in KINDS), STACKS)
    tagged = _look(cloud, "resource", _tagged)
    return found + [left for left in tagged if not (left.id and _type_of(left.id).startswith(covered))]


def _look(cloud: Cloud, kind: str, find: Find) -> list[Left]:
    try:
        return [Left(kind, id) for id in find(cloud)]
    except ClientError as error:
        if not is_denied(error):
            raise
        return [Left(kind, "", f"there may be one, we may not look ({error})")]


def sweep(cloud: Cloud) -> list[Left]:
    """Removes leftovers; returns those that remain."""
    refused: dict[tuple[str, str], str] = {}
    for kind in kinds(cloud):
        for left in _look(cloud, kind.name, kind.find):
            try:
                if left.id:
                    kind.remove(cloud, left.id)
            except (ClientError, BotoCoreError) as error:  # what uses it is still going, or we may not
                refused[kind.name, left.id] = str(error)
    return [Left(left.kind, left.id, left.why or refused.get((left.kind, left.id), "")) for left in find(cloud)]


def kinds(cloud: Cloud) -> list[Kind]:
    return [kind for kind in KINDS if kind.local or not cloud.endpoint]


# --- how each is found and removed ------------------------------------------------------------------------------------


def _listed(cloud: Cloud, service: str, listing: str, key: str, **words: Any) -> list[dict[str, Any]]:
    """Items on all pages of a listing."""
    pages = cloud.client(service).get_paginator(listing).paginate(**words)
    return [item for page in pages for item in page.get(key, ())]


def _of_ec2(listing: str, key: str, id: str, *, nested: str = "", states: tuple[str, ...] = ()) -> Find:
    """A finder that lists EC2 resources by tag. ``states``: of instances that are not being terminated."""

    def find(cloud: Cloud) -> list[str]:
        filters = [{"Name": f"tag:{TAG}", "Values": [cloud.name]}]
        if states:
            filters.append({"Name": "instance-state-name", "Values": list(states)})
        name = "Filter" if listing == "describe_flow_logs" else "Filters"
        items = _listed(cloud, "ec2", listing, key, **{name: filters})
        if nested:
            items = [inner for item in items for inner in item[nested]]
        return [str(item[id]) for item in items if item.get("State") not in ("deleting", "deleted")]

    return find


def _groups(cloud: Cloud) -> list[str]:
    """Auto Scaling groups of machines."""
    filters = [{"Name": f"tag:{TAG}", "Values": [cloud.name]}]
    groups = _listed(cloud, "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", Filters=filters)
    return [group["AutoScalingGroupName"] for group in groups]


def _remove_group(cloud: Cloud, id: str) -> None:
    cloud.client("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=id, ForceDelete=True)


def _functions(cloud: Cloud) -> list[str]:
    ours = {deployment.function(cloud.name), deployment.reaper(cloud.name)}
    names = [one["FunctionName"] for one in _listed(cloud, "lambda", "list_functions", "Functions")]
    return [name for name in names if name in ours]


def _log_groups(cloud: Cloud) -> list[str]:
    logs, found = cloud.client("logs"), []
    for name in deployment.log_groups(cloud.name).values():
        answer = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        found += [group["logGroupName"] for group in answer if group["logGroupName"] == name]
    return found


def _buckets(cloud: Cloud) -> list[str]:
    ours = deployment.bucket(cloud.name, cloud.account, cloud.region)
    return [bucket["Name"] for bucket in cloud.client("s3").list_buckets()["Buckets"] if bucket["Name"] == ours]


def _remove_bucket(cloud: Cloud, id: str) -> None:
    s3 = cloud.client("s3")
    reaper.empty(s3, id)
    s3.delete_bucket(Bucket=id)


def _is_made_name(stack: str, name: str) -> bool:
    """Whether CloudFormation could have generated the name for a resource of that stack: stack, logical id, random
    letters."""
    return bool(re.fullmatch(rf"{re.escape(stack)}-[A-Za-z0-9]+-[A-Za-z0-9]+", name))


def _roles(cloud: Cloud) -> list[str]:
    """Our roles, by tag. Asks only for tags of roles whose name may come from one of our stacks: CloudFormation cuts
    names at 64 characters."""
    stacks = deployment.stacks(cloud.name)
    names = [role["RoleName"] for role in _listed(cloud, "iam", "list_roles", "Roles")]
    heads = {name: name.rsplit("-", 2)[0] for name in names}
    return [
        name for name in names if any(stack.startswith(heads[name]) for stack in stacks) and _is_our_role(cloud, name)
    ]


def _is_our_role(cloud: Cloud, name: str) -> bool:
    """Whether the role's tags name this deployment and region: a deployment of the same name may exist in another
    region."""
    ours = {TAG: cloud.name, REGION_TAG: cloud.region}
    return ours.items() <= _tags(cloud.client("iam").list_role_tags, RoleName=name).items()


def _remove_role(cloud: Cloud, id: str) -> None:
    iam = cloud.client("iam")
    for policy in iam.list_role_policies(RoleName=id)["PolicyNames"]:
        iam.delete_role_policy(RoleName=id, PolicyName=policy)
    for policy in iam.list_attached_role_policies(RoleName=id)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=id, PolicyArn=policy["PolicyArn"])
    iam.delete_role(RoleName=id)


def _profiles(cloud: Cloud) -> list[str]:
    ours = {deployment.profile(cloud.name, cloud.region, role) for role in ROLES}
    found = _listed(cloud, "iam", "list_instance_profiles", "InstanceProfiles")
    return [one["InstanceProfileName"] for one in found if one["InstanceProfileName"] in ours]


def _remove_profile(cloud: Cloud, id: str) -> None:
    iam = cloud.client("iam")
    for role in iam.get_instance_profile(InstanceProfileName=id)["InstanceProfile"]["Roles"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=id, RoleName=role["RoleName"])
    iam.delete_instance_profile(InstanceProfileName=id)


def _tags(ask: Callable[..., dict[str, Any]], **what: str) -> dict[str, str]:
    """Tags of a resource; empty if it is gone: listings lag too."""
    try:
        return {tag["Key"]: tag["Value"] for tag in ask(**what)["Tags"]}
    except ClientError as error:
        if error.response["Error"]["Code"] not in GONE:
            raise
        return {}


def _schedule_groups(cloud: Cloud) -> list[str]:
    groups = cloud.client("scheduler").list_schedule_groups(NamePrefix=cloud.name)["ScheduleGroups"]
    return [group["Name"] for group in groups if group["Name"] == cloud.name and group["State"] != "DELETING"]


def _dashboards(cloud: Cloud) -> list[str]:
    ours = deployment.dashboard(cloud.name, cloud.region)
    found = cloud.client("cloudwatch").list_dashboards(DashboardNamePrefix=ours)["DashboardEntries"]
    return [entry["DashboardName"] for entry in found if entry["DashboardName"] == ours]


def _alarms(cloud: Cloud) -> list[str]:
    api, stack = cloud.client("cloudwatch"), deployment.stack(cloud.name, deployment.WATCH)
    return [
        alarm["AlarmName"]
        for alarm in _listed(cloud, "cloudwatch", "describe_alarms", "MetricAlarms", AlarmNamePrefix=f"{stack}-")
        if _is_made_name(stack, alarm["AlarmName"])
        and _tags(api.list_tags_for_resource, ResourceARN=alarm["AlarmArn"]).get(TAG) == cloud.name
    ]


def _topics(cloud: Cloud) -> list[str]:
    """ARNs of topics, by tag. Asks only for tags of topics with our stack's name, or that the tagging service lists as
    ours."""
    api, stack = cloud.client("sns"), deployment.stack(cloud.name, deployment.WATCH)
    arns = [topic["TopicArn"] for topic in _listed(cloud, "sns", "list_topics", "Topics")]
    tagged = set(_tagged(cloud)) if arns else set()
    maybe = [arn for arn in arns if arn in tagged or _is_made_name(stack, arn.rpartition(":")[2])]
    return [arn for arn in maybe if _tags(api.list_tags_for_resource, ResourceArn=arn).get(TAG) == cloud.name]


def _budgets(cloud: Cloud) -> list[str]:
    ours = deployment.budget(cloud.name, cloud.region)
    found = _listed(cloud, "budgets", "describe_budgets", "Budgets", AccountId=cloud.account)
    return [one["BudgetName"] for one in found if one["BudgetName"] == ours]


def _secrets(cloud: Cloud) -> list[str]:
    """Names of secrets whose runs lost their coordinator before it removed them (``infra.machines.secret_store``)."""
    filters = [{"Key": "Name", "Option": "BeginsWith", "Values": [f"/siafu/{cloud.name}/"]}]
    found = _listed(cloud, "ssm", "describe_parameters", "Parameters", ParameterFilters=filters)
    return [item["Name"] for item in found]


def _tagged(cloud: Cloud) -> list[str]:
    """ARNs that the tagging service lists."""
    filters, key = [{"Key": TAG, "Values": [cloud.name]}], "ResourceTagMappingList"
    found = _listed(cloud, "resourcegroupstaggingapi", "get_resources", key, TagFilters=filters)
    return [item["ResourceARN"] for item in found]


def _type_of(arn: str) -> str:
    """``ec2:instance/`` of ``arn:aws:ec2:us-east-1:1:instance/i-1``; an S3 bucket's is ``s3:``."""
    _, _, service, _, _, rest = arn.split(":", 5)
    return f"{service}:{rest}"


def _call(service: str, call: str, argument: str, *, many: bool = False) -> Remove:
    def remove(cloud: Cloud, id: str) -> Any:
        return getattr(cloud.client(service), call)(**{argument: [id] if many else id})

    return remove


def _ec2(name: str, *, id: str = "", arn: str = "", many: bool = False) -> Kind:
    """A kind of EC2 resource: calls to list and remove it, and its id, all contain one noun. ``many``: removal takes a
    list."""
    noun = name.lower().replace(" ", "_")
    key = noun.title().replace("_", "")
    id = id or f"{key}Id"
    plural = "s" * many
    return Kind(
        name,
        f"ec2:{arn or noun.replace('_', '-')}/",
        _of_ec2(f"describe_{noun}s", f"{key}s", id),
        _call("ec2", f"delete_{noun}{plural}", f"{id}{plural}", many=many),
    )


#: Service in a stack's ARN: stacks are asked for by name, by who removes them, before anybody looks here.
STACKS = "cloudformation:"
#: What IAM, CloudWatch and SNS say of what does not exist.
GONE = {"NoSuchEntity", "ResourceNotFoundException", "ResourceNotFound", "NotFound"}
LIVING = ("pending", "running", "stopping", "stopped")
#: Whose machines have an instance profile.
ROLES = ("graph_server", "param_server")
KINDS = (
    Kind("Auto Scaling group", "autoscaling:", _groups, _remove_group, local=False),
    Kind(
        "instance",
        "ec2:instance/",
        _of_ec2("describe_instances", "Reservations", "InstanceId", nested="Instances", states=LIVING),
        _call("ec2", "terminate_instances", "InstanceIds", many=True),
    ),
    _ec2("launch template"),
    Kind("function", "lambda:function:", _functions, _call("lambda", "delete_function", "FunctionName")),
    Kind(
        "schedule group",
        "scheduler:",
        _schedule_groups,
        _call("scheduler", "delete_schedule_group", "Name"),
        local=False,
    ),
    Kind(
        "dashboard",
        "cloudwatch:dashboard",
        _dashboards,
        _call("cloudwatch", "delete_dashboards", "DashboardNames", many=True),
        local=False,
    ),
    Kind("alarm", "cloudwatch:alarm:", _alarms, _call("cloudwatch", "delete_alarms", "AlarmNames", many=True)),
    Kind("topic", "sns:", _topics, _call("sns", "delete_topic", "TopicArn")),
    Kind(
        "budget",
        "budgets:",
        _budgets,
        lambda cloud, id: cloud.client("budgets").delete_budget(AccountId=cloud.account, BudgetName=id),
        local=False,
    ),
    Kind("secret", "ssm:parameter/siafu/", _secrets, _call("ssm", "delete_parameter", "Name")),
    _ec2("flow log", arn="vpc-flow-log", many=True),
    _ec2("VPC endpoint", many=True),
    _ec2("network interface"),
    _ec2("volume"),
    _ec2("security group", id="GroupId"),
    _ec2("subnet"),
    _ec2("route table"),
    _ec2("VPC"),
    Kind("instance profile", "iam:instance-profile/", _profiles, _remove_profile),
    Kind("role", "iam:role/", _roles, _remove_role),
    Kind("bucket", "s3:", _buckets, _remove_bucket),
    Kind("log group", "logs:log-group:", _log_groups, _call("logs", "delete_log_group", "logGroupName")),
)
