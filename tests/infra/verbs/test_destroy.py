"""Whatever a deploy has left, destroy removes; then there is nothing, and a second one finds nothing to do."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from graph_server.lambdas.launchers import account as account_of
from infra import creation, deployment, leftovers, limits, reaper, teardown, zones
from infra.cloud import Cloud
from infra.deployment import PARTS, REGION_TAG, TAG
from infra.imports import ROOT
from infra.machines import found, functionlogs
from infra.machines.mailbox import Mailbox
from run_coordinator.past_runs import deployments
from siafu.__main__ import main
from siafu.address import graph_server
from siafu.config import Config
from siafu.errors import ConfigError, GnnError
from tests.infra.made import account, make, make_alarm, make_topic, stacks_of, template


@pytest.fixture
def cloud(monkeypatch):
    with account(monkeypatch) as cloud:
        yield cloud


def destroy(cloud: Cloud, said: list[str] | None = None) -> teardown.Gone:
    return teardown.destroy(cloud, (said if said is not None else []).append, lambda seconds: None)


def nothing_is_left(cloud: Cloud) -> bool:
    return not leftovers.find(cloud) and not stacks_of(cloud)


# --- a deploy that crashed --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("steps", range(len(PARTS) + 1))
def test_deploy_that_crashed_after_any_stack_is_removed(cloud, steps):
    make(cloud, PARTS[:steps])
    gone = destroy(cloud)
    assert sorted(gone.stacks) == sorted(deployment.stacks("siafu", PARTS[:steps]))
    assert gone.left == []
    assert nothing_is_left(cloud)


def test_second_destroy_is_a_no_op(cloud):
    make(cloud, PARTS)
    destroy(cloud)
    said: list[str] = []
    assert destroy(cloud, said) == teardown.Gone([], [])
    assert said == []


def test_stack_of_which_there_is_only_a_change_set_is_removed(cloud):
    make(cloud, ["expiry", "data"])
    cloud.client("cloudformation").create_change_set(
        StackName="siafu-network",
        ChangeSetName="first",
        ChangeSetType="CREATE",
        TemplateBody=template("siafu", "network"),
    )
    assert reaper.states_of(cloud.client("cloudformation"), ["siafu-network"]) == {
        "siafu-network": "REVIEW_IN_PROGRESS"
    }
    assert "siafu-network" in destroy(cloud).stacks
    assert nothing_is_left(cloud)


@pytest.mark.parametrize("looks", [1, 2, 3, 4])
def test_destroy_that_crashed_is_ended_by_the_next(cloud, looks):
    make(cloud, PARTS)
    left = [looks]

    def sleep(seconds: float) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        teardown.destroy(cloud, sleep=sleep)
    assert destroy(cloud).left == []
    assert nothing_is_left(cloud)


def test_stack_that_fails_to_go_is_tried_again_and_says_why(cloud, monkeypatch):
    make(cloud, PARTS)
    subnet, vpc = subnet_of(cloud)
    interface = cloud.client("ec2").create_network_interface(
        SubnetId=subnet, Description="VPC Endpoint Interface vpce-1"
    )
    failures = [3]
    ask, delete = reaper.states_of, reaper.delete

    def states_of(api, names):
        found = ask(api, names)
        if failures[0] and set(found) == {"siafu-network", "siafu-data", "siafu-expiry"}:
            found["siafu-network"] = "DELETE_FAILED"
        return found

    def stubborn(api, name):
        if name == "siafu-network" and failures[0]:
            failures[0] -= 1
            if not failures[0]:
                remove_network(cloud, interface["NetworkInterface"]["NetworkInterfaceId"], subnet, vpc)
            return ""
        return delete(api, name)

    monkeypatch.setattr(reaper, "states_of", states_of)
    monkeypatch.setattr(reaper, "delete", stubborn)
    said: list[str] = []
    assert destroy(cloud, said).left == []
    (text, *_) = (text for text in said if text.startswith("siafu-network: delete failed"))
    assert text.endswith("take up to 20 minutes; there are: VPC Endpoint Interface vpce-1")
    assert not any("network interfaces" in text for text in said if text.startswith("siafu-data"))
    assert nothing_is_left(cloud)


def subnet_of(cloud: Cloud) -> tuple[str, str]:
    """A subnet in a VPC that is tagged as the deployment's, and the VPC."""
    ec2, tags = cloud.client("ec2"), [{"Key": TAG, "Value": cloud.name}]
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}])["Vpc"]
    return ec2.create_subnet(VpcId=vpc["VpcId"], CidrBlock="10.1.0.0/20")["Subnet"]["SubnetId"], vpc["VpcId"]


def remove_network(cloud: Cloud, interface: str, subnet: str, vpc: str) -> None:
    ec2 = cloud.client("ec2")
    ec2.delete_network_interface(NetworkInterfaceId=interface)
    ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=vpc)


def test_stack_that_never_goes_ends_in_an_error_that_names_it(cloud, monkeypatch):
    make(cloud, ["expiry", "data"])
    monkeypatch.setattr(reaper, "delete", lambda api, name: "")
    monkeypatch.setattr(teardown, "LIMIT_S", 10.0)
    with pytest.raises(GnnError, match="siafu-data, siafu-expiry not gone"):
        destroy(cloud)


ROLE = "arn:aws:iam::123456789012:role/cdk-hnb659fds-cfn-exec-role-123456789012-us-east-1"


@pytest.mark.parametrize(
    ("why", "hint"),
    [
        (f"Role {ROLE} is invalid or cannot be assumed", "bootstrap aws://123456789012/us-east-1 brings it back"),
        ("Stack [siafu-data] cannot be deleted while TerminationProtection is enabled", "TerminationProtection"),
    ],
)
def test_refusal_that_waiting_does_not_help_is_told_at_once(cloud, monkeypatch, why, hint):
    make(cloud, ["expiry", "data"])
    refuse_to_delete(cloud, monkeypatch, why)
    slept: list[float] = []
    with pytest.raises(GnnError, match=f"siafu-data: .*{hint}"):
        teardown.destroy(cloud, sleep=slept.append)
    assert slept == []


def test_stack_that_is_being_changed_is_waited_for(cloud, monkeypatch):
    make(cloud, ["expiry"])
    ask, looks = reaper.states_of, []

    def states_of(api, names):
        looks.append(names)
        return ask(api, names) if len(looks) > 2 else {"siafu-expiry": "UPDATE_IN_PROGRESS"}

    with monkeypatch.context() as busy:
        refuse_to_delete(cloud, busy, "Stack [siafu-expiry] cannot be deleted while in status UPDATE_IN_PROGRESS")
        busy.setattr(reaper, "states_of", states_of)

        def sleep(seconds: float) -> None:
            if len(looks) == 2:
                busy.undo()

        assert teardown.destroy(cloud, sleep=sleep).stacks == ["siafu-expiry"]


def refuse_to_delete(cloud: Cloud, monkeypatch, why: str) -> None:
    """From now on CloudFormation deletes no stack, for this reason."""

    def delete_stack(**_: object) -> None:
        raise ClientError({"Error": {"Code": "ValidationError", "Message": why}}, "DeleteStack")

    monkeypatch.setattr(cloud.client("cloudformation"), "delete_stack", delete_stack, raising=False)


def test_objects_that_s3_is_too_busy_for_are_deleted_in_the_next_round(cloud, monkeypatch):
    make(cloud, ["data"])
    s3, name = cloud.client("s3"), deployment.bucket("siafu", cloud.account, cloud.region)
    s3.put_object(Bucket=name, Key="a", Body=b"x")
    delete, busy = s3.delete_objects, [True]

    def delete_objects(*, Delete, **where):
        keys = Delete["Objects"]
        left = [keys.pop()] if busy.pop() else []
        busy.append(False)
        delete(Delete={**Delete, "Objects": keys}, **where)
        return {"Errors": [{"Key": one["Key"], "Code": "SlowDown", "Message": "reduce your rate"} for one in left]}

    monkeypatch.setattr(s3, "delete_objects", delete_objects, raising=False)
    assert [reaper.empty(s3, name) for _ in range(3)][1:] == [1, 0]


def test_objects_that_may_not_be_deleted_end_destroy_with_their_name(cloud, monkeypatch):
    make(cloud, ["data"])
    s3 = cloud.client("s3")
    s3.put_object(Bucket=deployment.bucket("siafu", cloud.account, cloud.region), Key="a", Body=b"x")
    errors = [{"Key": "a", "Code": "AccessDenied", "Message": "not you"}]
    monkeypatch.setattr(s3, "delete_objects", lambda **_: {"Errors": errors}, raising=False)
    with pytest.raises(GnnError, match=r"\(AccessDenied\) when calling the DeleteObjects a operation: not you"):
        destroy(cloud)


# --- what no stack remembers ------------------------------------------------------------------------------------------


def make_orphans(cloud: Cloud) -> None:
    """One of each kind that moto has, tagged as ours, in use by each other."""
    tags = [{"Key": TAG, "Value": cloud.name}]

    def tagged(kind: str) -> list[dict[str, object]]:
        return [{"ResourceType": kind, "Tags": tags}]

    ec2, iam, s3, logs = (cloud.client(name) for name in ("ec2", "iam", "s3", "logs"))
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16", TagSpecifications=tagged("vpc"))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/20", TagSpecifications=tagged("subnet"))["Subnet"][
        "SubnetId"
    ]
    group = ec2.create_security_group(
        GroupName="servers", Description="servers", VpcId=vpc, TagSpecifications=tagged("security-group")
    )["GroupId"]
    ec2.create_route_table(VpcId=vpc, TagSpecifications=tagged("route-table"))
    ec2.create_vpc_endpoint(
        VpcId=vpc,
        ServiceName="com.amazonaws.us-east-1.s3",
        VpcEndpointType="Gateway",
        TagSpecifications=tagged("vpc-endpoint"),
    )
    ec2.create_network_interface(SubnetId=subnet, Groups=[group], TagSpecifications=tagged("network-interface"))
    ec2.create_volume(AvailabilityZone="us-east-1a", Size=20, TagSpecifications=tagged("volume"))
    ec2.create_launch_template(
        LaunchTemplateName="template",
        LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "t3.micro"},
        TagSpecifications=tagged("launch-template"),
    )
    cloud.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName="siafu-servers-GraphServer0",
        MinSize=1,
        MaxSize=1,
        VPCZoneIdentifier=subnet,
        LaunchTemplate={"LaunchTemplateName": "template"},
        Tags=[{**tags[0], "PropagateAtLaunch": True}],
    )
    role = make_role(cloud, "siafu-function-WorkerRole1-EXAMPLE")
    iam.put_role_policy(
        RoleName=role,
        PolicyName="p",
        PolicyDocument=json.dumps(
            {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
        ),
    )
    for kind in ("graph_server", "param_server"):  # the second is of no role
        iam.create_instance_profile(InstanceProfileName=deployment.profile("siafu", cloud.region, kind))
    iam.add_role_to_instance_profile(InstanceProfileName="siafu-us-east-1-graph-server", RoleName=role)
    bucket = deployment.bucket(cloud.name, cloud.account, cloud.region)
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for body in (b"old", b"new"):
        s3.put_object(Bucket=bucket, Key="runs/r/end.json", Body=body)
    s3.delete_object(Bucket=bucket, Key="runs/r/end.json")
    s3.put_object(Bucket=bucket, Key="a", Body=b"a")
    for name in deployment.log_groups(cloud.name).values():
        logs.create_log_group(logGroupName=name, tags={TAG: cloud.name})
    make_alarm(cloud)
    make_topic(cloud)
    make_topic(cloud, "somebody-renamed-it")
    make_global(cloud)
    cloud.client("scheduler").create_schedule_group(Name="siafu")
    cloud.client("ssm").put_parameter(
        Name="/siafu/siafu/graph_server/0123456789abcdef", Value="00", Type="SecureString"
    )


def make_role(cloud: Cloud, name: str) -> str:
    tags = [{"Key": TAG, "Value": cloud.name}, {"Key": REGION_TAG, "Value": cloud.region}]
    made = cloud.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}", Tags=tags)
    return str(made["Role"]["RoleName"])


def make_global(cloud: Cloud) -> None:
    """What all regions of an account share, beside roles and instance profiles."""
    cloud.client("cloudwatch").put_dashboard(
        DashboardName=deployment.dashboard(cloud.name, cloud.region), DashboardBody="{}"
    )
    budget = {
        "BudgetName": deployment.budget(cloud.name, cloud.region),
        "TimeUnit": "MONTHLY",
        "BudgetType": "COST",
        "BudgetLimit": {"Amount": "1", "Unit": "USD"},
    }
    cloud.client("budgets").create_budget(AccountId=cloud.account, Budget=budget)


def test_resources_that_no_stack_has_are_found_and_removed(cloud):
    make_orphans(cloud)
    found = {left.kind for left in leftovers.find(cloud)}
    assert found >= {
        "Auto Scaling group",
        "instance",
        "launch template",
        "schedule group",
        "dashboard",
        "alarm",
        "topic",
        "budget",
        "secret",
        "VPC endpoint",
        "network interface",
        "volume",
        "security group",
        "subnet",
        "route table",
        "VPC",
        "instance profile",
        "role",
        "bucket",
        "log group",
    }
    assert destroy(cloud).left == []
    assert nothing_is_left(cloud)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["siafu-data", "siafu-servers", "siafu-watch", "siafu-watch-watch"])
def test_other_deployments_are_not_touched(cloud, name):
    other = Cloud(name, cloud.account, cloud.region)
    for one in (other, cloud):
        make(one, PARTS)
        make_alarm(one)
        make_topic(one, f"{one.name}-watch-Alarms1A2B3C4D-EXAMPLE")
    before = sorted(str(left) for left in leftovers.find(other))
    assert {text.partition(" siafu")[0] for text in before} >= {"instance profile", "role", "alarm"}
    destroy(cloud)
    assert stacks_of(cloud) == sorted(deployment.stacks(name))
    assert sorted(str(left) for left in leftovers.find(other)) == before


def test_the_same_name_in_another_region_is_another_deployment(cloud):
    """Somebody who forgets the region takes nothing from it: IAM, budgets and dashboards are the whole account's."""
    europe = Cloud(cloud.name, cloud.account, "eu-west-1")
    role = make_role(europe, "siafu-servers-GraphServerRole1-EXAMPLE")
    iam = europe.client("iam")
    for kind in leftovers.ROLES:
        iam.create_instance_profile(InstanceProfileName=deployment.profile(europe.name, europe.region, kind))
    iam.add_role_to_instance_profile(InstanceProfileName="siafu-eu-west-1-graph-server", RoleName=role)
    make_global(europe)
    there = {str(left) for left in leftovers.find(europe)}
    assert there == {
        "dashboard siafu-eu-west-1",
        "budget siafu-eu-west-1-monthly",
        f"role {role}",
        *(f"instance profile siafu-eu-west-1-{kind}" for kind in ("graph-server", "param-server")),
    }
    assert destroy(cloud) == teardown.Gone([], [])
    assert {str(left) for left in leftovers.find(europe)} == there


def test_what_has_our_form_of_name_and_anothers_tag_is_not_touched(cloud):
    """Of a stack of somebody's own, say, that is called like one of ours."""
    somebody = Cloud("somebody", cloud.account, cloud.region)
    tags = [{"Key": TAG, "Value": "somebody"}]
    make_role(somebody, "siafu-servers-Role1-EXAMPLE")
    cloud.client("iam").create_instance_profile(InstanceProfileName="siafu-servers-Profile1-EXAMPLE")
    cloud.client("cloudwatch").put_metric_alarm(
        AlarmName="siafu-watch-Errors-EXAMPLE",
        MetricName="Errors",
        Namespace="AWS/Lambda",
        Period=60,
        EvaluationPeriods=1,
        ComparisonOperator="GreaterThanThreshold",
        Threshold=1,
        Statistic="Sum",
        Tags=tags,
    )
    make_topic(somebody)
    assert leftovers.find(cloud) == []
    assert destroy(cloud) == teardown.Gone([], [])


def test_role_whose_name_was_cut_is_found(cloud):
    """CloudFormation cuts names of roles at 64 characters."""
    cut = Cloud("a-deployment-of-a-long-name-abc", cloud.account, cloud.region)
    make_role(cut, "a-deployment-of-a-long-name-GraphServerRole1A2B3C4D-EXAMPLE0")
    assert [left.kind for left in leftovers.find(cut)] == ["role"]


def test_what_is_listed_a_little_longer_than_it_is_there_is_not_left(cloud, monkeypatch):
    make_topic(cloud)
    cloud.client("sns").delete_topic(TopicArn=(gone := make_topic(cloud, "siafu-watch-Gone-EXAMPLE")))
    with monkeypatch.context() as lagging:
        pages = [{"Topics": [{"TopicArn": gone}]}]
        lagging.setattr(
            cloud.client("sns"), "get_paginator", lambda name: SimpleNamespace(paginate=lambda: pages), raising=False
        )
        assert leftovers.find(cloud) == []
    assert [left.kind for left in leftovers.find(cloud)] == ["topic"]


def test_tagging_service_that_lags_is_not_believed_about_stacks_and_topics(cloud, monkeypatch):
    arns = ["arn:aws:cloudformation:us-east-1:1:stack/siafu-data/abc", "arn:aws:sns:us-east-1:1:siafu-watch-Alarms1-X"]
    monkeypatch.setattr(leftovers, "_tagged", lambda cloud: arns)
    make(cloud, PARTS)
    assert destroy(cloud).left == []


def test_what_cannot_be_removed_is_listed_with_the_reason(cloud, monkeypatch):
    make(cloud, PARTS)

    def refuse(cloud: Cloud, id: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not you"}}, "DeleteLogGroup")

    kinds = tuple(
        kind if kind.name != "log group" else leftovers.Kind(kind.name, kind.arn, lambda cloud: ["/siafu/x"], refuse)
        for kind in leftovers.KINDS
    )
    monkeypatch.setattr(leftovers, "KINDS", kinds)
    (left,) = destroy(cloud).left
    assert str(left).startswith("log group /siafu/x: An error occurred (AccessDenied)")


#: What IAM calls calls otherwise than boto3 does.
IN_IAM = {
    "budgets:DeleteBudget": "budgets:ModifyBudget",
    "budgets:DescribeBudgets": "budgets:ViewBudget",
    "resourcegroupstaggingapi:GetResources": "tag:GetResources",
    "s3:DeleteObjects": "s3:DeleteObjectVersion",
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "s3:ListObjectVersions": "s3:ListBucketVersions",
    "s3:ListObjectsV2": "s3:ListBucket",
    **dict.fromkeys(("s3:CreateMultipartUpload", "s3:UploadPart", "s3:CompleteMultipartUpload"), "s3:PutObject"),
    "s3:HeadObject": "s3:GetObject",
    "service-quotas:GetServiceQuota": "servicequotas:GetServiceQuota",
}


UNKNOWN_TO_MOTO = {
    "GetAccountSettings": {"AccountLimit": {"ConcurrentExecutions": 1000, "UnreservedConcurrentExecutions": 1000}},
    "GetFunctionConfiguration": {"State": "Active", "MemorySize": 192, "Timeout": 900},
    "GetFunctionConcurrency": {"ReservedConcurrentExecutions": 100},
    "GetServiceQuota": {"Quota": {"Value": 64.0}},
    "DescribeScalingActivities": {"Activities": []},
}


def rights() -> set[str]:
    """Actions that the policy in the docs allows."""
    policy = json.loads((ROOT / "docs" / "aws-policy.json").read_text())
    actions = [statement["Action"] for statement in policy["Statement"]]
    return {name for one in actions for name in ([one] if isinstance(one, str) else one)}


@contextlib.contextmanager
def noted(monkeypatch) -> Iterator[set[str]]:
    """What any client calls meanwhile, as IAM calls it."""
    called: set[str] = set()
    call = BaseClient._make_api_call

    def note(client, operation, arguments):
        called.add(f"{client.meta.service_model.service_name}:{operation}")
        if operation == "DescribeStacks" and "StackName" not in arguments:
            called.add("cloudformation:ListStacks")  # CloudFormation API reference, DescribeStacks
        return UNKNOWN_TO_MOTO.get(operation) or call(client, operation, arguments)

    with monkeypatch.context() as watched:
        watched.setattr(BaseClient, "_make_api_call", note)
        yield called
    for name in called & IN_IAM.keys():
        called.remove(name)
        called.add(IN_IAM[name])


def test_policy_in_the_docs_allows_whatever_destroy_does(cloud, monkeypatch):
    make(cloud, ["network"])
    make_orphans(cloud)
    with noted(monkeypatch) as called:
        destroy(cloud)
    assert len(called) > 40
    assert called - rights() == set()


def test_policy_in_the_docs_allows_whatever_deploy_and_train_ask(cloud, monkeypatch, tmp_path):
    make(cloud, PARTS)
    config, file = Config(), tmp_path / "file"
    file.write_bytes(b"x" * (9 << 20))  # in parts
    with noted(monkeypatch) as called:
        limits.check(config, cloud, PARTS, lambda text: None)
        zones.settle(config, cloud)
        creation._run_that_goes_on(cloud)
        creation._settle(cloud, deployment.stacks(cloud.name), lambda text: None)
        creation._upload(cloud, {"packages/x.zip": file}, lambda text: None)
        with pytest.raises(ConfigError, match="there is no deployment"):  # moto's stacks have no outputs
            found.find(config)
        mailbox = Mailbox(deployment.bucket(cloud.name, cloud.account, cloud.region), region=cloud.region)
        assert mailbox.replace("orders/coordinator-0.json", {}, None)
        mailbox.upload(file, "shards/x")
        mailbox.download("shards/x", file)
        found.instances_of(cloud.name, cloud.region)
        functionlogs.bring(deployment.function(cloud.name), cloud.region, 0.0, tmp_path)
        found.refusal(cloud.name, cloud.region, graph_server(0))
        assert account_of.environments(cloud.client("lambda"), config) == 100  # graph servers on this machine ask
    assert len(called) > 12
    assert called - rights() == set()


@pytest.mark.parametrize("service", ["budgets", "resourcegroupstaggingapi"])
def test_kinds_that_we_may_not_list_are_named_and_the_others_go(cloud, monkeypatch, service):
    make_orphans(cloud)
    slept: list[float] = []

    def refuse(name: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not you"}}, name)

    with monkeypatch.context() as denied:
        denied.setattr(cloud.client(service), "get_paginator", refuse)
        gone = teardown.destroy(cloud, sleep=slept.append)
    assert {left.kind for left in gone.left} == ({"budget"} if service == "budgets" else {"topic", "resource"})
    assert all("we may not look (An error occurred (AccessDeniedException)" in str(left) for left in gone.left)
    assert len(slept) < teardown.SWEEPS  # nobody waits for what he may not see
    assert {left.kind for left in leftovers.find(cloud)} == {"budget" if service == "budgets" else "topic"}


def test_resource_of_an_unknown_kind_is_reported(cloud):
    queue = make_queue(cloud)
    assert [str(left) for left in destroy(cloud).left] == [f"resource {queue}"]


def make_queue(cloud: Cloud) -> str:
    """Something of no kind that we know: its ARN."""
    sqs = cloud.client("sqs")
    url = sqs.create_queue(QueueName="queue", tags={TAG: cloud.name})["QueueUrl"]
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


# --- the verb ---------------------------------------------------------------------------------------------------------


def test_verb_ends_by_saying_that_nothing_is_left(cloud, monkeypatch, capsys):
    monkeypatch.setattr(teardown, "POLL_S", 0.0)
    make(cloud, PARTS)
    deployments.note(deployments.Deployment("siafu", cloud.region, "bucket", "2099-01-01T00:00:00+00:00"))
    assert main(["destroy", "--yes", "--json"]) == 0
    assert deployments.known(datetime.now(timezone.utc)) == []
    out = json.loads(capsys.readouterr().out)
    assert sorted(out["stacks"]) == sorted(deployment.stacks("siafu"))
    assert out["left"] == []
    assert main(["destroy", "--yes"]) == 0
    assert "there was nothing" in capsys.readouterr().out


def test_verb_exits_with_1_when_something_is_left(cloud, monkeypatch, capsys):
    monkeypatch.setattr(teardown, "SWEEP_S", 0.0)
    make_queue(cloud)
    assert main(["destroy", "--yes"]) == 1
    assert "left of deployment siafu" in capsys.readouterr().out


def test_verb_asks_before_it_removes(cloud, monkeypatch, capsys):
    make(cloud, ["expiry"])
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["destroy"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert stacks_of(cloud) == ["siafu-expiry"]
