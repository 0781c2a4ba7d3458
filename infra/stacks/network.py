"""The network: one subnet in one zone that nothing outside can reach, and that reaches only S3 and the endpoints
listed here.

No NAT, no public address, no internet gateway. Servers and functions share the subnet:
traffic between zones costs money.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra import deployment
from infra.deployment import NETWORK
from infra.machines import found
from infra.stacks.nag import keep
from infra.stacks.secrets import SECRET_READS, SECRET_WRITES, secrets_of
from siafu.config import Config
from siafu.pricing import cost

#: 4,091 addresses in the subnet. A function's environments share a few of them.
VPC_CIDR, SUBNET_MASK = "10.20.0.0/19", 20
HTTPS = 443


def ports(config: Config) -> tuple[int, int]:
    """First and last port that roles of a deployment bind."""
    return config.servers.port_range or config.replace({"servers.ports": deployment.PORTS}).servers.port_range  # type: ignore[return-value]


class NetworkStack(cdk.Stack):
    """``vpc``, its one ``subnet``, and the security groups of ``servers`` and ``functions``."""

    def __init__(self, scope: Construct, config: Config, **options: object):
        super().__init__(scope, deployment.stack(config.cloud.name, NETWORK), **options)
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(VPC_CIDR),
            nat_gateways=0,
            create_internet_gateway=False,
            **({"availability_zones": [config.cloud.zone]} if config.cloud.zone else {"max_azs": 1}),
            # It has no member. Emptying its rules takes a function of the CDK's own, with rights of its own.
            restrict_default_security_group=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Private", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=SUBNET_MASK
                )
            ],
        )
        keep(self.vpc, VPC7="its flow log is in the watch stack")
        self.subnet = self.vpc.isolated_subnets[0]
        self.servers, self.functions = self._groups(config)
        self._endpoints(config)
        first, last = ports(config)
        cdk.CfnOutput(self, found.PORTS, value=f"{first}-{last}")
        # Whoever uses them now: a value that a deploy stops exporting may still be in use by a stack of the one before.
        groups = (self.servers.security_group_id, self.functions.security_group_id)
        for value in (self.vpc.vpc_id, self.subnet.subnet_id, *groups):
            self.export_value(value)

    def _groups(self, config: Config) -> tuple[ec2.SecurityGroup, ec2.SecurityGroup]:
        """Security groups. Rules name the subnet, not each other: so a group holds its own rules, and can be deleted
        before another.

        DNS, time and instance metadata are not subject to security groups.
        """
        first, last = ports(config)
        run, subnet = ec2.Port.tcp_range(first, last), ec2.Peer.ipv4(self.subnet.ipv4_cidr_block)
        servers = ec2.SecurityGroup(
            self, "Servers", vpc=self.vpc, allow_all_outbound=False, description="graph and parameter servers"
        )
        servers.add_ingress_rule(subnet, run, "roles and functions of runs")
        servers.add_egress_rule(subnet, run, "roles of runs")
        # S3 has public addresses; the only way out is its gateway endpoint, whose policy says which buckets.
        servers.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "S3 and the interface endpoints")
        functions = ec2.SecurityGroup(
            self, "Functions", vpc=self.vpc, allow_all_outbound=False, description="Lambda environments"
        )
        functions.add_egress_rule(subnet, run, "roles of runs")
        return servers, functions

    def _endpoints(self, config: Config) -> None:
        s3 = self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        bucket = deployment.bucket(config.cloud.name, self.account, self.region)
        s3.add_to_policy(
            iam.PolicyStatement(
                principals=[iam.AnyPrincipal()],
                actions=["s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:GetBucketLocation"],
                resources=[f"arn:{self.partition}:s3:::{bucket}", f"arn:{self.partition}:s3:::{bucket}/*"],
            )
        )
        s3.add_to_policy(
            iam.PolicyStatement(  # Amazon Linux's packages
                principals=[iam.AnyPrincipal()],
                actions=["s3:GetObject"],
                resources=[f"arn:{self.partition}:s3:::al2023-repos-{self.region}-*/*"],
            )
        )
        group = ec2.SecurityGroup(
            self, "Endpoints", vpc=self.vpc, allow_all_outbound=False, description="interface endpoints"
        )
        group.add_ingress_rule(ec2.Peer.ipv4(self.subnet.ipv4_cidr_block), ec2.Port.tcp(HTTPS), "servers")
        names = deployment.services(config)
        assert len(names) == cost.num_endpoints(config), "what is priced is what is made"
        for service in names:
            endpoint = ec2.InterfaceVpcEndpoint(
                self,
                f"{service.title()}Endpoint",
                vpc=self.vpc,
                service=ec2.InterfaceVpcEndpointAwsService(service),
                private_dns_enabled=True,
                open=False,
                security_groups=[group],
                subnets=ec2.SubnetSelection(subnets=[self.subnet]),
            )
            if service == "lambda":
                self._limit_to_function(endpoint, config)
            if service == "ssm" and not config.cloud.shell:
                self._limit_to_secrets(endpoint, config)

    def _limit_to_secrets(self, endpoint: ec2.InterfaceVpcEndpoint, config: Config) -> None:
        """Limits the endpoint to the secrets of the deployment's runs."""
        endpoint.add_to_policy(
            iam.PolicyStatement(
                principals=[iam.AnyPrincipal()],
                resources=[secrets_of(self, config)],
                actions=[*SECRET_READS, *SECRET_WRITES],
            )
        )

    def _limit_to_function(self, endpoint: ec2.InterfaceVpcEndpoint, config: Config) -> None:
        """Limits the endpoint to calls of the one function."""
        for statement in calls_of_function(self, config):
            statement.add_any_principal()
            endpoint.add_to_policy(statement)


def calls_of_function(stack: cdk.Stack, config: Config) -> list[iam.PolicyStatement]:
    """The permissions to call the deployment's function."""
    function = stack.format_arn(
        service="lambda",
        resource="function",
        resource_name=deployment.function(config.cloud.name),
        arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
    )
    actions = ["lambda:InvokeFunction", "lambda:GetFunctionConfiguration", "lambda:GetFunctionConcurrency"]
    return [
        iam.PolicyStatement(actions=actions, resources=[function]),
        iam.PolicyStatement(actions=["lambda:GetAccountSettings"], resources=["*"]),
    ]
