"""One machine that is replaced when it dies: an Auto Scaling group of one, and the role that lets it use the bucket.

Machines are private and encrypted, without SSH. Instance metadata is of version 2 only, and includes the instance's
tags, from which the agent reads its role: a replacement machine gets the dead one's role and index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from infra import deployment
from infra.stacks.nag import keep, keep_findings
from infra.stacks.network import NetworkStack, calls_of_function
from infra.stacks.secrets import SECRET_READS, SECRET_WRITES, secrets_of
from siafu.config import Config

#: Folders of the bucket, by what a machine may do there: ``infra.machines.mailbox`` says what lies in them.
READS = ("wheels", "shards", "orders", "runs", "machines")
WRITES = ("machines", "runs", "boot")
COORDINATOR_WRITES = (*WRITES, "orders")
#: Amazon Linux's root.
DEVICE = "/dev/xvda"
#: What Session Manager's agent calls.
SHELL_ACTIONS = [
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
]


def machine_role(
    stack: cdk.Stack,
    id: str,
    config: Config,
    *,
    writes: Sequence[str],
    calls_function: bool,
    secrets: str,
    gives_secrets: bool,
) -> iam.Role:
    """The role of one kind of machine: it may use its folders of the bucket, call the one function, and read the
    ``secrets`` of its role's runs, or write those of all."""
    bucket = deployment.bucket(config.cloud.name, stack.account, stack.region)
    arn = f"arn:{stack.partition}:s3:::{bucket}"
    statements = [
        # Without it, what is not there yet could not be told from what is forbidden.
        iam.PolicyStatement(actions=["s3:ListBucket"], resources=[arn]),
        iam.PolicyStatement(actions=["s3:GetObject"], resources=[f"{arn}/{folder}/*" for folder in READS]),
        iam.PolicyStatement(actions=["s3:PutObject"], resources=[f"{arn}/{folder}/*" for folder in writes]),
    ]
    if calls_function:
        statements += calls_of_function(stack, config)
    if secrets:
        statements.append(iam.PolicyStatement(actions=SECRET_READS, resources=[secrets_of(stack, config, secrets)]))
    if gives_secrets:
        statements.append(iam.PolicyStatement(actions=SECRET_WRITES, resources=[secrets_of(stack, config)]))
    shell = config.cloud.shell
    if shell:
        statements.append(iam.PolicyStatement(actions=SHELL_ACTIONS, resources=["*"]))
    role = iam.Role(stack, id, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    policy = iam.Policy(stack, f"{id}Policy", roles=[role], statements=statements)
    keep_findings(
        policy,
        "IAM5",
        "objects of one folder of the deployment's own bucket; their names are digests and runs",
        *(f"Resource::{arn}/{folder}/*" for folder in dict.fromkeys((*READS, *writes))),
    )
    if secrets:
        keep_findings(
            policy,
            "IAM5",
            "secrets of this deployment's own runs, which have the runs' names, of one role or to be given",
            f"Resource::{secrets_of(stack, config, secrets)}",
            *((f"Resource::{secrets_of(stack, config)}",) if gives_secrets else ()),
        )
    if calls_function or shell:
        keep_findings(
            policy, "IAM5", "these actions have no resource: an account's limits, a shell's channels", "Resource::*"
        )
    return role


def launch_template(
    stack: cdk.Stack,
    id: str,
    config: Config,
    network: NetworkStack,
    role: iam.Role,
    *,
    kind: str,
    instance: str,
    image: ec2.IMachineImage,
    user_data: str,
) -> ec2.LaunchTemplate:
    """The launch template of machines of one ``kind``, which ``deployment.profile`` calls a role."""
    script = ec2.UserData.custom(user_data)
    profile = iam.InstanceProfile(
        stack,
        f"{id}Profile",
        role=role,
        instance_profile_name=deployment.profile(config.cloud.name, stack.region, kind),
    )
    return ec2.LaunchTemplate(
        stack,
        id,
        instance_type=ec2.InstanceType(instance),
        machine_image=image,
        instance_profile=profile,
        user_data=script,
        security_group=network.servers,
        associate_public_ip_address=False,
        detailed_monitoring=False,
        require_imdsv2=True,
        http_put_response_hop_limit=1,
        instance_metadata_tags=True,
        block_devices=[
            ec2.BlockDevice(
                device_name=DEVICE,
                volume=ec2.BlockDeviceVolume.ebs(
                    config.cloud.volume_gib,
                    encrypted=True,
                    delete_on_termination=True,
                    volume_type=ec2.EbsDeviceVolumeType.GP3,
                ),
            )
        ],
        # Bought once: the group asks for another when it is taken back.
        spot_options=ec2.LaunchTemplateSpotOptions(request_type=ec2.SpotRequestType.ONE_TIME)
        if config.cloud.spot
        else None,
    )


def machine(
    stack: cdk.Stack,
    id: str,
    network: NetworkStack,
    template: ec2.LaunchTemplate,
    tags: Mapping[str, str],
    name: str | None = None,
) -> None:
    """A group of one machine, restarted when EC2 finds it unhealthy or takes it back. ``tags``: also of the
    instance."""
    group = autoscaling.CfnAutoScalingGroup(
        stack,
        id,
        auto_scaling_group_name=name,
        min_size="1",
        max_size="1",
        desired_capacity="1",
        health_check_type="EC2",
        vpc_zone_identifier=[network.subnet.subnet_id],
        launch_template=autoscaling.CfnAutoScalingGroup.LaunchTemplateSpecificationProperty(
            launch_template_id=template.launch_template_id, version=template.latest_version_number
        ),
    )
    # Another template replaces the machine: a role holds nothing that the bucket does not have.
    group.cfn_options.update_policy = cdk.CfnUpdatePolicy(
        auto_scaling_rolling_update=cdk.CfnAutoScalingRollingUpdate(max_batch_size=1, min_instances_in_service=0)
    )
    named = {"Name": " ".join([stack.stack_name, *tags.values()]), **tags}
    for key, value in named.items():
        cdk.Tags.of(group).add(key, value, apply_to_launched_instances=True)
    keep(group, AS3="a machine's loss shows in siafu status, in the run that ends with its name, and in the alarm")
