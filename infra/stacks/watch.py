"""Monitoring of a deployment: flow logs, alarms, a dashboard, a budget. Nothing depends on it.

It knows machines and the function by name, so that these may change, come and go without it. Alarms notify
``cloud.email``; without one they are only shown, and there is no budget: not every account may have one.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra import deployment
from infra.deployment import WATCH
from infra.stacks.network import NetworkStack
from infra.stacks.servers import counts
from siafu.config import Config

#: Failed or throttled invocations in five minutes that somebody should know of. A few are normal: they are repeated.
MANY = 100
#: Shares of the monthly budget, spent, at which AWS writes.
BUDGET_PERCENT = (50, 80, 100)


class WatchStack(cdk.Stack):
    def __init__(self, scope: Construct, config: Config, network: NetworkStack, **options: object):
        super().__init__(scope, deployment.stack(config.cloud.name, WATCH), **options)
        self._name = config.cloud.name
        self._flow_log(network)
        topic = self._topic(config.cloud.email)
        machines = {
            f"{role}-{index}": deployment.group(self._name, role, index)
            for role, count in counts(config).items()
            for index in range(count)
        }
        alarms = self._alarms(machines)
        if topic is not None:
            for alarm in alarms:
                alarm.add_alarm_action(actions.SnsAction(topic))
        self._dashboard(machines, alarms)
        if config.cloud.email:  # it shows nothing that the bill does not: it is there to write
            self._budget(config)

    def _flow_log(self, network: NetworkStack) -> None:
        group = logs.LogGroup(
            self,
            "Flows",
            log_group_name=deployment.log_groups(self._name)["flows"],
            retention=logs.RetentionDays.ONE_WEEK,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        role = iam.Role(self, "FlowsRole", assumed_by=iam.ServicePrincipal("vpc-flow-logs.amazonaws.com"))
        policy = iam.Policy(
            self,
            "FlowsPolicy",
            roles=[role],
            statements=[
                iam.PolicyStatement(
                    actions=["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
                    resources=[group.log_group_arn],
                )
            ],
        )
        flow_log = ec2.CfnFlowLog(
            self,
            "FlowLog",
            resource_id=network.vpc.vpc_id,
            resource_type="VPC",
            traffic_type="ALL",
            log_group_name=group.log_group_name,
            deliver_logs_permission_arn=role.role_arn,
        )
        flow_log.node.add_dependency(policy)

    def _topic(self, email: str) -> sns.Topic | None:
        if not email:
            return None
        topic = sns.Topic(self, "Alarms", enforce_ssl=True)
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        topic.add_subscription(subscriptions.EmailSubscription(email))
        return topic

    def _of_function(self, metric: str, statistic: str = "Sum", name: str = "") -> cloudwatch.Metric:
        """A metric of the workers' function. ``name``: of another function."""
        return _metric("AWS/Lambda", metric, statistic, {"FunctionName": name or deployment.function(self._name)})

    @staticmethod
    def _of_machine(group: str, metric: str, statistic: str = "Average") -> cloudwatch.Metric:
        return _metric("AWS/EC2", metric, statistic, {"AutoScalingGroupName": group})

    def _alarms(self, machines: dict[str, str]) -> list[cloudwatch.Alarm]:
        def alarm(id: str, metric: cloudwatch.Metric, threshold: int, periods: int, told: str) -> cloudwatch.Alarm:
            return cloudwatch.Alarm(
                self,
                id,
                metric=metric,
                threshold=threshold,
                evaluation_periods=periods,
                alarm_description=f"{self._name}: {told}",
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            )

        found = []
        for metric in ("Errors", "Throttles"):
            told = f"more than {MANY} of the function's {metric.lower()} in five minutes"
            found.append(alarm(metric, self._of_function(metric), MANY, 1, told))
        for name, group in machines.items():
            failed = self._of_machine(group, "StatusCheckFailed", "Maximum")
            found.append(alarm(f"Machine-{name}", failed, 1, 2, f"{name} fails EC2's status checks"))
        for metric in ("Errors", "Throttles"):
            told = f"{metric.lower()} of the watchdog, which removes it when it is time"
            of_reaper = self._of_function(metric, name=deployment.reaper(self._name))
            found.append(alarm(f"Watchdog-{metric}", of_reaper, 1, 1, told))
        return found

    def _dashboard(self, machines: dict[str, str], alarms: list[cloudwatch.Alarm]) -> None:
        def graph(title: str, *metrics: cloudwatch.Metric) -> cloudwatch.GraphWidget:
            return cloudwatch.GraphWidget(title=title, left=list(metrics), width=12)

        def of_machines(metric: str) -> list[cloudwatch.Metric]:
            return [self._of_machine(group, metric).with_(label=name) for name, group in machines.items()]

        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=deployment.dashboard(self._name, self.region),
            widgets=[
                [cloudwatch.AlarmStatusWidget(alarms=list(alarms), width=24)],
                [
                    graph(
                        "Lambda: invocations, errors, throttles",
                        *map(self._of_function, ("Invocations", "Errors", "Throttles")),
                    ),
                    graph("Lambda: environments at work", self._of_function("ConcurrentExecutions", "Maximum")),
                ],
                [
                    graph(
                        "Lambda: duration, ms",
                        self._of_function("Duration", "Average"),
                        self._of_function("Duration", "Maximum"),
                    ),
                    graph("servers: CPU, %", *of_machines("CPUUtilization")),
                ],
                [
                    graph("servers: bytes in", *of_machines("NetworkIn")),
                    graph("servers: bytes out", *of_machines("NetworkOut")),
                ],
            ],
        )

    def _budget(self, config: Config) -> None:
        """Adds a budget of the whole account: a filter by our tag matches nothing until somebody activates the tag for
        billing."""
        budget = budgets.CfnBudget.BudgetDataProperty(
            budget_name=deployment.budget(self._name, self.region),
            budget_type="COST",
            time_unit="MONTHLY",
            budget_limit=budgets.CfnBudget.SpendProperty(amount=config.cloud.monthly_usd, unit="USD"),
        )
        told = [budgets.CfnBudget.SubscriberProperty(address=config.cloud.email, subscription_type="EMAIL")]
        warnings = [
            budgets.CfnBudget.NotificationWithSubscribersProperty(
                notification=budgets.CfnBudget.NotificationProperty(
                    notification_type="ACTUAL", comparison_operator="GREATER_THAN", threshold=percent
                ),
                subscribers=told,
            )
            for percent in BUDGET_PERCENT
        ]
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budget,
            notifications_with_subscribers=warnings,
            resource_tags=[budgets.CfnBudget.ResourceTagProperty(key=deployment.TAG, value=self._name)],
        )


def _metric(namespace: str, name: str, statistic: str, of: dict[str, str]) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        statistic=statistic,
        dimensions_map=of,
        period=cdk.Duration.minutes(5),
    )
