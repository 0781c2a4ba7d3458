"""The templates: what may be reached, what roles may do, what is encrypted, tagged, and removed. Made offline, once."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from infra import deployment
from infra.deployment import PARTS, REGION_TAG, TAG, Made
from infra.stacks import boot
from infra.wheels import Target
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.variables import of_worker

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="the CDK needs node, which is not installed")

CONFIG = Config().replace(
    {"data.parts": 2, "cloud.shell": True, "cloud.email": "somebody@example.org", "cloud.spot": True}
)
EXPIRES = datetime(2026, 11, 21, 18, 30, tzinfo=timezone.utc)
MADE = Made(EXPIRES, "packages/abc.zip", "python3.12", "wheels/def", "python3.13")
#: Of each stack, the types that it may have: LocalStack's open edition really makes
#: those of data, network and function.
LOCALSTACK_MAKES = {
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
    "AWS::EC2::VPC",
    "AWS::EC2::Subnet",
    "AWS::EC2::RouteTable",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::VPCEndpoint",
    "AWS::Lambda::Function",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::IAM::Role",
    "AWS::IAM::Policy",
    "AWS::Logs::LogGroup",
}
#: That CloudFormation cannot tag, or that are no resource of their own.
UNTAGGED = {
    "AWS::S3::BucketPolicy",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::IAM::Policy",
    "AWS::IAM::InstanceProfile",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Scheduler::Schedule",
    "AWS::CloudWatch::Dashboard",
    "AWS::SNS::TopicPolicy",
    "AWS::SNS::Subscription",
    "AWS::Budgets::Budget",
    "AWS::EC2::LaunchTemplate",
}

Resources = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def templates(tmp_path_factory) -> dict[str, Any]:
    """Part -> its template. Parallel test processes share one synthesis: it takes seconds."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "assembly"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "cdk.out" / "manifest.json").exists():
            from infra import cdk

            cdk.check()
            from infra import app

            app.synthesize(CONFIG, MADE, folder / "cdk.out")
    return {part: json.loads((folder / "cdk.out" / f"siafu-{part}.template.json").read_text()) for part in PARTS}


def of_type(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Properties of all resources of a type."""
    return [one.get("Properties", {}) for one in template["Resources"].values() if one["Type"] == kind]


def everything(templates: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [found for template in templates.values() for found in of_type(template, kind)]


def statements(template: dict[str, Any]) -> list[dict[str, Any]]:
    """Of all policies of a stack's roles."""
    found = [one["PolicyDocument"] for one in of_type(template, "AWS::IAM::Policy")]
    found += [one["PolicyDocument"] for role in of_type(template, "AWS::IAM::Role") for one in role.get("Policies", ())]
    return [statement for document in found for statement in document["Statement"]]


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# --- the network ------------------------------------------------------------------------------------------------------


def test_nothing_can_be_reached_from_outside(templates):
    kinds = {one["Type"] for template in templates.values() for one in template["Resources"].values()}
    assert not kinds & {
        "AWS::EC2::InternetGateway",
        "AWS::EC2::NatGateway",
        "AWS::EC2::EIP",
        "AWS::EC2::VPCGatewayAttachment",
        "AWS::EC2::Route",
        "AWS::Lambda::Url",
        "AWS::Lambda::Permission",
    }
    assert all(not one["MapPublicIpOnLaunch"] for one in everything(templates, "AWS::EC2::Subnet"))
    for template in everything(templates, "AWS::EC2::LaunchTemplate"):
        assert [one["AssociatePublicIpAddress"] for one in template["LaunchTemplateData"]["NetworkInterfaces"]] == [
            False
        ]


def test_security_groups_admit_the_runs_ports_from_the_subnet_alone(templates):
    groups = {one["GroupDescription"]: one for one in everything(templates, "AWS::EC2::SecurityGroup")}
    (subnet,) = everything(templates, "AWS::EC2::Subnet")
    admitted = {
        name: [
            (rule["CidrIp"], rule["FromPort"], rule["ToPort"], rule["IpProtocol"])
            for rule in group.get("SecurityGroupIngress", ())
        ]
        for name, group in groups.items()
    }
    assert admitted == {
        "graph and parameter servers": [(subnet["CidrBlock"], 7000, 7099, "tcp")],
        "Lambda environments": [],
        "interface endpoints": [(subnet["CidrBlock"], 443, 443, "tcp")],
    }
    assert not everything(templates, "AWS::EC2::SecurityGroupIngress")


def test_functions_reach_the_runs_ports_alone(templates):
    (group,) = [one for one in everything(templates, "AWS::EC2::SecurityGroup") if "Lambda" in one["GroupDescription"]]
    assert [(rule["FromPort"], rule["ToPort"]) for rule in group["SecurityGroupEgress"]] == [(7000, 7099)]


def test_only_what_servers_call_has_an_interface_endpoint():
    services = deployment.services
    assert services(Config()) == ("lambda", "ssm")
    assert services(Config().replace({"servers.security": "none"})) == ("lambda",)
    assert services(CONFIG)[1:] == services(Config().replace({"cloud.shell": True}))[1:] == ("ssm", "ssmmessages")


def test_endpoints_let_through_what_the_deployment_needs(templates):
    gateway, function = (
        one for one in of_type(templates["network"], "AWS::EC2::VPCEndpoint") if "PolicyDocument" in one
    )
    assert gateway["VpcEndpointType"] == "Gateway"
    allowed = json.dumps(gateway["PolicyDocument"])
    assert "s3:Delete" not in allowed
    assert '"*"' not in json.dumps([one["Resource"] for one in gateway["PolicyDocument"]["Statement"]])
    assert ":function:siafu-worker" in json.dumps(function["PolicyDocument"])


def test_flow_log_records_the_whole_network(templates):
    (log,) = everything(templates, "AWS::EC2::FlowLog")
    assert (log["ResourceType"], log["TrafficType"]) == ("VPC", "ALL")


# --- machines ---------------------------------------------------------------------------------------------------------


def test_machines_have_version_2_metadata_with_tags_and_encrypted_volumes_and_no_key(templates):
    for one in everything(templates, "AWS::EC2::LaunchTemplate"):
        data = one["LaunchTemplateData"]
        assert "KeyName" not in data
        assert data["MetadataOptions"] == {
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",
        }
        assert all(device["Ebs"]["Encrypted"] for device in data["BlockDeviceMappings"])
        assert data["InstanceMarketOptions"] == {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}


def test_each_role_and_index_is_a_group_of_one_that_its_machine_knows_by_tags(templates):
    groups = of_type(templates["servers"], "AWS::AutoScaling::AutoScalingGroup")
    tags = [{tag["Key"]: tag["Value"] for tag in one["Tags"] if tag["PropagateAtLaunch"]} for one in groups]
    assert sorted((one["siafu:role"], one["siafu:index"]) for one in tags) == [
        ("graph_server", "0"),
        ("graph_server", "1"),
        ("param_server", "0"),
    ]
    assert {one[TAG] for one in tags} == {"siafu"}
    assert all((one["MinSize"], one["MaxSize"], one["DesiredCapacity"]) == ("1", "1", "1") for one in groups)


def test_machines_have_names_of_ours_and_what_watches_knows_them_by_these(templates):
    groups = of_type(templates["servers"], "AWS::AutoScaling::AutoScalingGroup")
    names = {one["AutoScalingGroupName"] for one in groups}
    assert names == {"siafu-graph-server-0", "siafu-graph-server-1", "siafu-param-server-0"}
    watched = {
        dimension["Value"]
        for one in of_type(templates["watch"], "AWS::CloudWatch::Alarm")
        for dimension in one["Dimensions"]
        if dimension["Name"] == "AutoScalingGroupName"
    }
    assert watched == names


def imports(template: dict[str, Any]) -> set[str]:
    return set(re.findall(r'"Fn::ImportValue": "([^"]+)"', json.dumps(template)))


def exports(template: dict[str, Any]) -> set[str]:
    return {one["Export"]["Name"] for one in template.get("Outputs", {}).values() if "Export" in one}


def test_stacks_of_a_level_use_only_what_goes_after_them(templates):
    for level, parts in enumerate(deployment.LEVELS):
        later = {part for others in deployment.LEVELS[level + 1 :] for part in others}
        used = {name.partition(":")[0] for part in parts for name in imports(templates[part])}
        assert used <= {f"siafu-{part}" for part in later}


def test_no_config_takes_away_what_a_stack_of_an_earlier_deploy_uses(templates, tmp_path):
    """CloudFormation refuses to drop an export that is in use; stacks are made one after the other."""
    from infra import app

    used = set().union(*map(imports, templates.values()))
    # one server, no GPU, nobody told
    small = Config().replace({"servers.ports": "9000-9009", "cloud.reserved": 0, "cloud.zone": "us-east-1c"})
    app.synthesize(small, MADE, tmp_path, ["data", "network"])
    files = [tmp_path / f"siafu-{part}.template.json" for part in ("data", "network")]
    assert used == set().union(*(exports(json.loads(file.read_text())) for file in files))


def test_image_comes_from_a_parameter_that_is_read_when_the_stack_is_made(templates):
    kinds = {one.get("Default", ""): one["Type"] for one in templates["servers"]["Parameters"].values()}
    image = next(path for path in kinds if "al2023" in path)
    assert image.endswith("arm64")
    assert kinds[image] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"


# --- rights -----------------------------------------------------------------------------------------------------------


def test_no_role_has_a_managed_policy_or_all_rights(templates):
    for template in templates.values():
        assert all("ManagedPolicyArns" not in role for role in of_type(template, "AWS::IAM::Role"))
        for statement in statements(template):
            assert not any("*" in action for action in as_list(statement["Action"])), statement


def test_wildcard_resources_are_those_that_have_no_other_name(templates):
    free = {
        action
        for template in templates.values()
        for statement in statements(template)
        if "*" in as_list(statement["Resource"]) and statement["Effect"] == "Allow"
        for action in as_list(statement["Action"])
    }
    assert {action.partition(":")[0] for action in free} == {"ec2", "lambda", "ssm", "ssmmessages"}
    assert {action for action in free if action.startswith("lambda")} == {"lambda:GetAccountSettings"}
    assert all(
        "NetworkInterface" in action or "Subnets" in action or "PrivateIp" in action
        for action in free
        if action.startswith("ec2")
    )


def test_code_in_the_function_may_not_touch_the_network(templates):
    denied = [one for one in statements(templates["function"]) if one["Effect"] == "Deny"]
    (condition,) = [one["Condition"]["ArnEquals"] for one in denied]
    assert ":function:siafu-worker" in json.dumps(condition["lambda:SourceFunctionArn"])


def test_only_machines_of_the_coordinators_role_give_orders_and_nobody_deletes(templates):
    texts = [json.dumps(one) for one in statements(templates["servers"]) if "s3:PutObject" in as_list(one["Action"])]
    assert sorted("/orders/*" in text for text in texts) == [False, True]
    deleted = {
        action for one in statements(templates["servers"]) for action in as_list(one["Action"]) if "Delete" in action
    }
    assert deleted == {"ssm:DeleteParameters"}
    assert not any("/wheels/*" in text for text in texts)


def test_only_graph_servers_call_the_function(templates):
    callers = [one for one in statements(templates["servers"]) if "Invoke" in str(one["Action"])]
    assert len(callers) == 1
    assert json.dumps(callers[0]["Resource"]).endswith(':function:siafu-worker"]]}')


def test_secrets_are_read_by_their_role_and_given_and_removed_by_the_coordinators(templates):
    """A run's secrets are /siafu/<deployment>/<role>/<run id>."""
    found = [one for one in statements(templates["servers"]) if "Parameter" in str(one["Action"])]
    rights = {
        str(one["Action"]): re.findall(r":parameter/siafu/siafu/[^\"]*", json.dumps(one["Resource"])) for one in found
    }
    assert len(found) == 3
    reads = [one for one in found if one["Action"] == "ssm:GetParameter"]
    assert sorted(json.dumps(one["Resource"]).split("siafu/siafu/")[1][:12] for one in reads) == [
        "graph_server",
        "param_server",
    ]
    (gives,) = [name for name in rights if "Put" in name]
    assert gives == "['ssm:PutParameter', 'ssm:DeleteParameters']"
    assert rights[gives] == [":parameter/siafu/siafu/*"]
    assert not any("Parameter" in str(one["Action"]) for one in statements(templates["function"]))


# --- the function and the bucket --------------------------------------------------------------------------------------


def test_function_is_what_the_config_says_and_is_never_repeated_by_the_service(templates):
    (function,) = of_type(templates["function"], "AWS::Lambda::Function")
    assert function["Architectures"] == ["arm64"]
    assert function["Runtime"] == "python3.12"
    assert function["Code"]["S3Key"] == "packages/abc.zip"
    assert (function["MemorySize"], function["Timeout"], function["ReservedConcurrentExecutions"]) == (192, 900, 100)
    assert len(function["VpcConfig"]["SubnetIds"]) == 1
    told = of_worker() if Target.here().arch == "arm64" else of_worker({})  # a choice of kernels is one machine's
    assert function["Environment"]["Variables"] == told
    (invocation,) = of_type(templates["function"], "AWS::Lambda::EventInvokeConfig")
    assert (invocation["MaximumRetryAttempts"], invocation["MaximumEventAgeInSeconds"]) == (0, 60)


def test_bucket_is_encrypted_private_and_forgets(templates):
    (bucket,) = everything(templates, "AWS::S3::Bucket")
    assert bucket["BucketEncryption"]
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    rules = [one for one in bucket["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" in one]
    assert {one["ExpirationInDays"] for one in rules} == {30}
    # What machines and the function are made of, wheels and packages, stays for as long as the deployment.
    assert {one["Prefix"] for one in rules} == {"boot/", "machines/", "orders/", "runs/", "shards/"}
    (policy,) = everything(templates, "AWS::S3::BucketPolicy")
    assert {"Bool": {"aws:SecureTransport": "false"}} in [
        one.get("Condition") for one in policy["PolicyDocument"]["Statement"]
    ]


def test_every_log_group_forgets_and_goes_with_its_stack(templates):
    for template in templates.values():
        for one in template["Resources"].values():
            if one["Type"] in ("AWS::Logs::LogGroup", "AWS::S3::Bucket"):
                assert one["DeletionPolicy"] == "Delete"
    names = {one["LogGroupName"] for one in everything(templates, "AWS::Logs::LogGroup")}
    assert names == set(deployment.log_groups("siafu").values())
    assert all(one["RetentionInDays"] == 7 for one in everything(templates, "AWS::Logs::LogGroup"))


# --- the end ----------------------------------------------------------------------------------------------------------


def test_watchdog_begins_when_the_time_is_over_and_may_touch_this_deployment_alone(templates):
    (schedule,) = of_type(templates["expiry"], "AWS::Scheduler::Schedule")
    assert schedule["StartDate"] == "2026-11-21T18:30:00Z"
    assert schedule["ScheduleExpression"] == "rate(5 minutes)"
    (function,) = of_type(templates["expiry"], "AWS::Lambda::Function")
    assert json.loads(function["Environment"]["Variables"]["LEVELS"]) == deployment.levels("siafu")
    deletes = next(one for one in statements(templates["expiry"]) if "cloudformation:DeleteStack" in one["Action"])
    named = re.findall(r"stack/([\w-]+)/", json.dumps(deletes["Resource"]))
    assert sorted(named) == sorted(deployment.stacks("siafu"))


def test_every_resource_that_can_carry_it_has_the_deployments_tag(templates):
    for part, template in templates.items():
        for id, one in template["Resources"].items():
            if one["Type"] in UNTAGGED:
                continue
            tags = one["Properties"].get("Tags") or one["Properties"].get("ResourceTags") or {}
            pairs = tags if isinstance(tags, dict) else {tag["Key"]: tag["Value"] for tag in tags}
            assert pairs.get(TAG) == "siafu", f"{part}: {id} ({one['Type']})"
    for one in everything(templates, "AWS::EC2::LaunchTemplate"):
        kinds = {spec["ResourceType"] for spec in one["LaunchTemplateData"]["TagSpecifications"]}
        assert kinds == {"instance", "volume"}
        assert {spec["ResourceType"] for spec in one["TagSpecifications"]} == {"launch-template"}


def test_stacks_for_localstack_have_only_what_it_really_makes(templates):
    kinds = {one["Type"] for part in ("data", "network", "function") for one in templates[part]["Resources"].values()}
    assert kinds <= LOCALSTACK_MAKES


def test_templates_need_no_asset_and_fit_into_a_request(templates):
    assert all(len(json.dumps(template)) < 51_200 for template in templates.values())


def test_budget_and_alarms_tell_the_address(templates):
    (budget,) = of_type(templates["watch"], "AWS::Budgets::Budget")
    assert {told["Address"] for one in budget["NotificationsWithSubscribers"] for told in one["Subscribers"]} == {
        "somebody@example.org"
    }
    assert all(alarm["AlarmActions"] for alarm in of_type(templates["watch"], "AWS::CloudWatch::Alarm"))


def test_nobody_who_is_told_nothing_has_a_budget_and_a_zone_has_a_name(tmp_path):
    """Not every account may have a budget; "the first zone" may lack what the deployment needs."""
    from infra import app

    app.synthesize(Config().replace({"cloud.zone": "us-east-1c"}), MADE, tmp_path, ["data", "network", "watch"])
    made = {part: json.loads((tmp_path / f"siafu-{part}.template.json").read_text()) for part in ("network", "watch")}
    assert of_type(made["watch"], "AWS::Budgets::Budget") == []
    assert [one["AvailabilityZone"] for one in of_type(made["network"], "AWS::EC2::Subnet")] == ["us-east-1c"]


def test_what_all_regions_share_says_of_which_it_is(templates):
    """Or a destroy of the same name in another region takes it for its own."""
    region = json.dumps({"Ref": "AWS::Region"})
    roles = everything(templates, "AWS::IAM::Role")
    assert all({"Key": REGION_TAG, "Value": {"Ref": "AWS::Region"}} in one["Tags"] for one in roles)
    profiles = [json.dumps(one["InstanceProfileName"]) for one in everything(templates, "AWS::IAM::InstanceProfile")]
    assert sorted(profiles) == sorted(
        json.dumps({"Fn::Join": ["", ["siafu-", {"Ref": "AWS::Region"}, f"-{kind}"]]})
        for kind in ("graph-server", "param-server")
    )
    for kind, key in (("AWS::CloudWatch::Dashboard", "DashboardName"), ("AWS::Budgets::Budget", "Budget")):
        assert all(region in json.dumps(one[key]) for one in everything(templates, kind))


def test_watchdog_that_fails_or_cannot_run_is_told_of(templates):
    watched = {
        one["MetricName"]
        for one in of_type(templates["watch"], "AWS::CloudWatch::Alarm")
        if one["Dimensions"] == [{"Name": "FunctionName", "Value": "siafu-reaper"}]
    }
    assert watched == {"Errors", "Throttles"}


def test_finding_of_cdk_nag_that_nobody_argued_fails_the_synthesis(monkeypatch, tmp_path):
    from infra import app
    from infra.stacks import data

    monkeypatch.setattr(data, "keep", lambda *_, **reasons: None)
    with pytest.raises(ConfigError, match="cannot be made"):
        app.synthesize(Config(), MADE, tmp_path, ["data", "network"])


# --- what servers do when they boot -----------------------------------------------------------------------------------


def test_boot_script_is_shell_and_names_what_it_installs(tmp_path: Path):
    text = boot.script("siafu", "siafu-1-us-east-1", "us-east-1", "wheels/def/arm64", "python3.14")
    file = tmp_path / "boot.sh"
    file.write_text(text)
    assert subprocess.run(["bash", "-n", str(file)], check=False).returncode == 0
    assert "{" not in re.sub(r"\$\{[^}]*\}|tag\(\) \{", "", text)
    assert "s3://siafu-1-us-east-1/wheels/def/arm64/ " in text
    assert "--bucket siafu-1-us-east-1 --deployment siafu --region us-east-1" in text
    assert "dnf install --quiet --assumeyes python3.14 gcc-c++\n" in text
    assert "\npython3.14 -m venv" in text
    for line in (
        "AWS_METADATA_SERVICE_TIMEOUT=5 AWS_METADATA_SERVICE_NUM_ATTEMPTS=5",
        "Restart=always",
        "OOMPolicy=continue",
        "net.ipv4.tcp_keepalive_time=60",
        "LimitNOFILE=65536",
        "gcc-c++",
    ):
        assert line in text


def test_user_data_is_the_boot_script_of_the_instances_architecture(templates):
    for one in of_type(templates["servers"], "AWS::EC2::LaunchTemplate"):
        text = json.dumps(one["LaunchTemplateData"]["UserData"])
        assert "/wheels/def/arm64/" in text
        assert "python3.13 -m venv" in text
