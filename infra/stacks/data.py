"""The data bucket: graphs, runs, and what servers install. It is removed with the deployment, after its objects."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra import deployment
from infra.deployment import DATA
from infra.machines import found
from infra.stacks.nag import keep
from siafu.config import Config

#: Whatever lies there longer was forgotten: a deployment lives for hours. Not what machines and the function are made
#: of (wheels, packages): one that stands for longer makes them anew.
KEPT_DAYS, FORGETS = 30, ("boot", "machines", "orders", "runs", "shards")


class DataStack(cdk.Stack):
    def __init__(self, scope: Construct, config: Config, **options: object):
        super().__init__(scope, deployment.stack(config.cloud.name, DATA), **options)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            bucket_name=deployment.bucket(config.cloud.name, self.account, self.region),
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=cdk.RemovalPolicy.DESTROY,
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=cdk.Duration.days(1)),
                *(s3.LifecycleRule(expiration=cdk.Duration.days(KEPT_DAYS), prefix=f"{folder}/") for folder in FORGETS),
            ],
        )
        keep(
            self.bucket,
            S1=(
                "a server access log would need a second bucket that outlives this one, and deliver after the "
                "deployment has gone; all access is by the deployment's own roles, and CloudTrail can record "
                "it where that is asked for"
            ),
        )
        cdk.CfnOutput(self, found.BUCKET, value=self.bucket.bucket_name)
        self.export_value(self.bucket.bucket_name)  # as the network's
