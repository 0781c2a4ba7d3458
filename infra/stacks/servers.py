"""Graph and parameter servers: EC2 machines, each an Auto Scaling group of one, whose
systemd keeps the agent running."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from infra import deployment
from infra.deployment import INDEX_TAG, ROLE_TAG, SERVERS, Made
from infra.stacks import boot
from infra.stacks.machines import COORDINATOR_WRITES, WRITES, launch_template, machine, machine_role
from infra.stacks.network import NetworkStack
from siafu.config import Config


def architecture(instance: str) -> str:
    """The architecture of an instance type, as in wheels: x86_64 or arm64."""
    is_arm = ec2.InstanceType(instance).architecture == ec2.InstanceArchitecture.ARM_64
    return "arm64" if is_arm else "x86_64"


def counts(config: Config) -> dict[str, int]:
    """Number of machines of each role."""
    return {"graph_server": config.data.parts, "param_server": config.servers.param_servers}


class ServersStack(cdk.Stack):
    def __init__(self, scope: Construct, config: Config, made: Made, network: NetworkStack, **options: object):
        super().__init__(scope, deployment.stack(config.cloud.name, SERVERS), **options)
        cloud = config.cloud
        # (role, instance type, what it writes, whether it calls the function)
        kinds = (
            ("graph_server", cloud.graph_instance, WRITES, True),
            # Parameter server 0's machine also has the coordinator, which gives the orders; they all have one role.
            ("param_server", cloud.param_instance, COORDINATOR_WRITES, False),
        )
        for role, instance, writes, calls in kinds:
            word = role.title().replace("_", "")
            has_keys = config.servers.security != "none"
            rights = machine_role(
                self,
                f"{word}Role",
                config,
                writes=writes,
                calls_function=calls,
                secrets=role if has_keys else "",
                gives_secrets=has_keys and writes is COORDINATOR_WRITES,
            )
            arch = architecture(instance)
            template = launch_template(
                self,
                f"{word}Template",
                config,
                network,
                rights,
                kind=role,
                instance=instance,
                image=ec2.MachineImage.latest_amazon_linux2023(
                    cpu_type=ec2.AmazonLinuxCpuType.ARM_64 if arch == "arm64" else ec2.AmazonLinuxCpuType.X86_64
                ),
                user_data=boot.script(
                    cloud.name,
                    deployment.bucket(cloud.name, self.account, self.region),
                    self.region,
                    f"{made.wheels}/{arch}",
                    made.python,
                ),
            )
            for index in range(counts(config)[role]):
                tags = {ROLE_TAG: role, INDEX_TAG: str(index)}
                machine(self, f"{word}{index}", network, template, tags, deployment.group(cloud.name, role, index))
