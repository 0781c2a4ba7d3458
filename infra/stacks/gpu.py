"""One GPU machine for the baselines, in the same network, reached through Session Manager."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from infra import deployment
from infra.deployment import GPU, ROLE_TAG
from infra.stacks.machines import WRITES, launch_template, machine, machine_role
from infra.stacks.network import NetworkStack
from infra.stacks.servers import architecture
from siafu.config import Config
from siafu.pricing import cost

#: AWS's image with NVIDIA's driver. Its parameter names the newest; x86_64 or arm64.
IMAGE = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"


class GpuStack(cdk.Stack):
    def __init__(self, scope: Construct, config: Config, network: NetworkStack, **options: object):
        super().__init__(scope, deployment.stack(config.cloud.name, GPU), **options)  # type: ignore[arg-type]
        role = machine_role(self, "Role", config, writes=WRITES, shell=True)  # noqa: S604 (no process: Session Manager may come in)
        template = launch_template(
            self,
            "Template",
            config,
            network,
            role,
            kind="gpu",
            instance=config.cloud.gpu_instance,
            image=ec2.MachineImage.from_ssm_parameter(IMAGE.format(arch=architecture(config.cloud.gpu_instance))),
            volume_gib=cost.volume_gib(config, "gpu"),
            user_data="#!/bin/bash\n",
        )
        machine(self, "Machine", network, template, {ROLE_TAG: "gpu_baseline"})
