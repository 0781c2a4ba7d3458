"""The watchdog: removes the whole deployment when its time is over, even if nobody is there.

From the expiry on, a schedule calls ``infra.reaper`` every few minutes; each call takes one step, the last of which
deletes this stack. CloudFormation does the work with the role that the CDK's bootstrap made for it, so the function
itself may only request these stacks' deletion and empty this bucket.
"""

from __future__ import annotations

import json
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambdas
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra import deployment, reaper
from infra.deployment import DATA, EXPIRY, Made
from infra.machines import found
from infra.stacks.nag import keep_findings
from siafu.config import Config

#: Between two steps once the time is over.
STEP_MINUTES = 5
#: Of a deletion's steps, emptying the bucket alone takes long: 1,000 objects a second.
TIMEOUT_S = 600
#: For code that is written into the template.
MAX_INLINE_CHARACTERS = 4096


class ExpiryStack(cdk.Stack):
    def __init__(self, scope: Construct, config: Config, made: Made, **options: object):
        super().__init__(scope, deployment.stack(config.cloud.name, EXPIRY), **options)
        name = config.cloud.name
        bucket = deployment.bucket(name, self.account, self.region)
        group = logs.LogGroup(
            self,
            "Logs",
            log_group_name=deployment.log_groups(name)["reaper"],
            retention=logs.RetentionDays.ONE_WEEK,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        code = Path(reaper.__file__).read_text()
        assert len(code) <= MAX_INLINE_CHARACTERS, len(code)
        function = lambdas.CfnFunction(
            self,
            "Reaper",
            function_name=deployment.reaper(name),
            handler="index.handler",
            runtime="python3.14",
            architectures=["arm64"],
            timeout=TIMEOUT_S,
            memory_size=256,
            role=self._role(name, bucket, group).role_arn,
            code=lambdas.CfnFunction.CodeProperty(zip_file=code),
            environment=lambdas.CfnFunction.EnvironmentProperty(
                variables={
                    "LEVELS": json.dumps(deployment.levels(name)),
                    "DATA": deployment.stack(name, DATA),
                    "BUCKET": bucket,
                }
            ),
        )
        self._schedule(name, function, made)

    def _role(self, name: str, bucket: str, group: logs.LogGroup) -> iam.Role:
        stacks = [
            self.format_arn(service="cloudformation", resource="stack", resource_name=f"{stack}/*")
            for stack in deployment.stacks(name)
        ]
        objects = f"arn:{self.partition}:s3:::{bucket}/*"
        role = iam.Role(self, "ReaperRole", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        policy = iam.Policy(
            self,
            "ReaperPolicy",
            roles=[role],
            statements=[
                iam.PolicyStatement(
                    actions=["cloudformation:DescribeStacks", "cloudformation:DeleteStack"], resources=stacks
                ),
                iam.PolicyStatement(
                    actions=["s3:ListBucketVersions"], resources=[f"arn:{self.partition}:s3:::{bucket}"]
                ),
                iam.PolicyStatement(actions=["s3:DeleteObject", "s3:DeleteObjectVersion"], resources=[objects]),
                iam.PolicyStatement(
                    actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn]
                ),
            ],
        )
        policy.node.add_dependency(group)
        keep_findings(
            policy,
            "IAM5",
            "the id at the end of a stack's name is not known before it is made",
            *(f"Resource::{stack}" for stack in stacks),
        )
        keep_findings(
            policy, "IAM5", "all objects of the deployment's own bucket: they go with it", f"Resource::{objects}"
        )
        return role

    def _schedule(self, name: str, function: lambdas.CfnFunction, made: Made) -> None:
        group = scheduler.CfnScheduleGroup(self, "Group", name=name)
        role = iam.Role(
            self,
            "SchedulerRole",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": self.account}}
            ),
            inline_policies={
                "invoke": iam.PolicyDocument(
                    statements=[iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function.attr_arn])]
                )
            },
        )
        scheduler.CfnSchedule(
            self,
            "Schedule",
            name=f"{name}-expiry",
            group_name=group.ref,
            description=f"removes deployment {name} when its time is over",
            schedule_expression=f"rate({STEP_MINUTES} minutes)",
            start_date=made.expires.strftime(found.TIME),
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=function.attr_arn,
                role_arn=role.role_arn,
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(maximum_retry_attempts=0),
            ),
        )
        cdk.CfnOutput(self, found.EXPIRES, value=made.expires.strftime(found.TIME))
