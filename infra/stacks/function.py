"""The Lambda: in the servers' subnet, with the package that deploy has put into the bucket, allowed to do nothing else.

A worker dials servers and calls no service. Its role may write its log and, as Lambda requires of every function in a
VPC, let Lambda make the network interfaces; code in the function may not.
"""

from __future__ import annotations

import math
import os

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambdas
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import deployment
from infra.deployment import FUNCTION, Made
from infra.machines import found
from infra.stacks.data import DataStack
from infra.stacks.nag import keep, keep_findings
from infra.stacks.network import NetworkStack
from infra.wheels import Target
from siafu.config import Config
from siafu.variables import of_worker

MAX_EVENT_AGE_S = 60
#: Lambda makes interfaces with the function's role; AWS's own policy for it allows these on everything as well.
INTERFACES = [
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
]


def _variables(arch: str) -> dict[str, str]:
    """Variables of a worker's environment. This machine's choice of kernels applies only to its own architecture."""
    return of_worker(os.environ if arch == Target.here().arch else {})


class FunctionStack(cdk.Stack):
    def __init__(
        self, scope: Construct, config: Config, made: Made, data: DataStack, network: NetworkStack, **options: object
    ):
        super().__init__(scope, deployment.stack(config.cloud.name, FUNCTION), **options)
        name, lambdas_config = deployment.function(config.cloud.name), config.lambdas
        group = logs.LogGroup(
            self,
            "Logs",
            log_group_name=deployment.log_groups(config.cloud.name)["function"],
            retention=logs.RetentionDays.ONE_WEEK,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        role, policy = self._role(name, group)
        function = lambdas.CfnFunction(
            self,
            "Worker",
            function_name=name,
            role=role.role_arn,
            handler=lambdas_config.handler,
            runtime=made.runtime,
            architectures=[config.cloud.arch],
            memory_size=lambdas_config.memory_mb,
            timeout=math.ceil(lambdas_config.timeout_s),
            code=lambdas.CfnFunction.CodeProperty(s3_bucket=data.bucket.bucket_name, s3_key=made.package),
            environment=lambdas.CfnFunction.EnvironmentProperty(variables=_variables(config.cloud.arch)),
            # 0: none is kept for it, and the account's limit is its limit.
            reserved_concurrent_executions=config.cloud.reserved or None,
            vpc_config=lambdas.CfnFunction.VpcConfigProperty(
                security_group_ids=[network.functions.security_group_id], subnet_ids=[network.subnet.subnet_id]
            ),
        )
        function.node.add_dependency(policy)
        keep(function, L1="the runtime whose Python and C library load the very wheels that servers compute with")
        # The service must not repeat what the dispatcher repeats by itself.
        lambdas.CfnEventInvokeConfig(
            self,
            "Invocation",
            function_name=function.ref,
            qualifier="$LATEST",
            maximum_retry_attempts=0,
            maximum_event_age_in_seconds=MAX_EVENT_AGE_S,
        )
        cdk.CfnOutput(self, found.FUNCTION, value=function.ref)

    def _role(self, name: str, group: logs.LogGroup) -> tuple[iam.Role, iam.Policy]:
        role = iam.Role(self, "WorkerRole", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        arn = self.format_arn(
            service="lambda", resource="function", resource_name=name, arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
        )
        policy = iam.Policy(
            self,
            "WorkerPolicy",
            roles=[role],
            statements=[
                iam.PolicyStatement(
                    actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn]
                ),
                iam.PolicyStatement(actions=INTERFACES, resources=["*"]),
                iam.PolicyStatement(
                    effect=iam.Effect.DENY,
                    actions=INTERFACES,
                    resources=["*"],
                    conditions={"ArnEquals": {"lambda:SourceFunctionArn": arn}},
                ),
            ],
        )
        keep_findings(
            policy,
            "IAM5",
            "Lambda makes the function's network interfaces, which have no name before; code in it may not",
            "Resource::*",
        )
        return role, policy
