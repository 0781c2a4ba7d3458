"""``siafu deploy`` and ``siafu destroy`` against LocalStack: what it really makes, what
it only pretends, and what is left.

The CDK's own command line and templates, CloudFormation's order of things, the function that was deployed, the
watchdog: all as on AWS. What LocalStack cannot make stands in ``PRETENDED``; anything else that it pretends fails here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import app, cdk, deployment
from infra.creation import LOCAL_PARTS
from infra.localstack.stack import Stack
from siafu.config import Config
from tests.integration.processes import Training
from tests.localstack.conftest import ENDPOINT
from tests.localstack.pretended import missing, pretended

pytestmark = [
    pytest.mark.aws,
    pytest.mark.skipif(shutil.which("npx") is None, reason="the CDK needs node and npx: https://nodejs.org"),
    pytest.mark.skipif(
        bool(os.environ.get(ENDPOINT)), reason="needs a LocalStack of its own: it looks at all that is there"
    ),
]
NAME = "siafu-ls"
TRAINING = ("digits", "--mode", "pipe", "--parts", "2", "--lambdas", "2", "--intervals", "8", "--epochs", "10")
#: Types of resources that this LocalStack calls complete without making any.
PRETENDED = {
    "AWS::AutoScaling::AutoScalingGroup",
    "AWS::Budgets::Budget",
    "AWS::CloudWatch::Dashboard",
    "AWS::EC2::FlowLog",
    "AWS::EC2::LaunchTemplate",
}
#: Of the CDK's bootstrap: a registry for images, which we have none of; LocalStack's needs another edition.
NOT_OURS = {"AWS::ECR::Repository"}


class Laptop:
    """Runs siafu's verbs against a LocalStack."""

    def __init__(self, stack: Stack, folder: Path):
        self.stack, self.folder = stack, folder
        self.environ = {
            **os.environ,
            "AWS_ENDPOINT_URL": stack.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        settings = ("--set", f"cloud.name={NAME}", "--set", "data.parts=2")
        with open(self.folder / "siafu.err", "w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "siafu", *arguments, *settings],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def run(self, *arguments: str) -> dict:
        process = self.start(*arguments, "--json")
        printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0, self.errors
        return json.loads(printed)

    @property
    def errors(self) -> str:
        return (self.folder / "siafu.err").read_text()

    def states(self) -> dict[str, str]:
        """Stack -> status, of the deployment's that are there."""
        found = self.stack.client("cloudformation").describe_stacks()["Stacks"]
        return {
            one["StackName"]: one["StackStatus"]
            for one in found
            if one["StackName"].startswith(f"{NAME}-") and one["StackStatus"] != "DELETE_COMPLETE"
        }

    def left(self) -> set[str]:
        """All that carries the deployment's name, asked of each service: LocalStack's
        tagging service knows few of them."""
        client = self.stack.client
        roles = (
            role["RoleName"] for page in client("iam").get_paginator("list_roles").paginate() for role in page["Roles"]
        )
        names = {
            *self.states(),
            *(found["FunctionName"] for found in client("lambda").list_functions()["Functions"]),
            *(found["Name"] for found in client("s3").list_buckets()["Buckets"]),
            *(found["logGroupName"] for found in client("logs").describe_log_groups()["logGroups"]),
            *(found["Name"] for found in client("scheduler").list_schedule_groups()["ScheduleGroups"]),
            *(found["AlarmName"] for found in client("cloudwatch").describe_alarms()["MetricAlarms"]),
            *(found["TopicArn"] for found in client("sns").list_topics()["Topics"]),
            *roles,
        }
        tagged = client("resourcegroupstaggingapi").get_resources(TagFilters=[{"Key": deployment.TAG}])
        return {name for name in names if NAME in name} | {
            found["ResourceARN"] for found in tagged["ResourceTagMappingList"]
        }


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    folder = tmp_path_factory.mktemp("laptop")
    with Stack(folder / "localstack.log") as stack:
        yield Laptop(stack, folder)


@pytest.fixture
def deployed(laptop: Laptop) -> Laptop:
    """What LocalStack can really make is there; it stays for the next test."""
    if not set(deployment.stacks(NAME, LOCAL_PARTS)) <= set(laptop.states()):
        laptop.run("deploy", "--yes")
    return laptop


@pytest.fixture
def with_the_rest(deployed: Laptop, tmp_path: Path) -> Laptop:
    names = deployment.stacks(NAME)
    if rest := [name for name in names if name not in deployed.states()]:
        config = Config().replace({"cloud.name": NAME, "data.parts": 2, "cloud.email": "ant@example.com"})
        app.synthesize(config, app.unmade(config), tmp_path)
        cdk.deploy(tmp_path, rest, "us-east-1", deployed.stack.endpoint)
    return deployed


def test_what_is_deployed_is_real_in_every_resource(deployed):
    assert set(deployed.states()) == set(deployment.stacks(NAME, LOCAL_PARTS))
    assert set(deployed.states().values()) == {"CREATE_COMPLETE"}
    for stack in deployed.states():
        assert pretended(deployed.stack.client, stack) == missing(deployed.stack.client, stack) == []


def test_second_deploy_changes_nothing(deployed):
    before = deployed.states()
    deployed.run("deploy", "--yes")
    assert deployed.states() == before


def test_run_on_the_deployed_function_ends_with_the_local_weights(deployed, tmp_path, local_digest):
    endpoint = (
        "--set",
        f"lambda.endpoint={deployed.stack.endpoint}",
        "--set",
        f"lambda.function={deployment.function(NAME)}",
    )
    with Training(tmp_path / "run", *TRAINING, "--lambda-on", "localstack", *endpoint) as training:
        assert training.wait(120) == 0, training.errors
        assert training.result["weights_digest"] == local_digest(*TRAINING)
        assert training.all_gone(1)


def test_nothing_is_pretended_beyond_the_list(with_the_rest):
    laptop = with_the_rest
    assert set(laptop.states().values()) == {"CREATE_COMPLETE"}
    found = [one for stack in laptop.states() for one in pretended(laptop.stack.client, stack)]
    assert {one.type for one in found} == PRETENDED
    unknown = [one for stack in (*laptop.states(), "CDKToolkit") for one in missing(laptop.stack.client, stack)]
    assert {one.type for one in unknown} - PRETENDED == NOT_OURS


def test_destroy_leaves_nothing_and_a_second_one_does_nothing(deployed):
    deployed.run("destroy", "--yes")
    assert deployed.left() == set()
    deployed.run("destroy", "--yes")
    assert deployed.left() == set()


@pytest.mark.parametrize("stack", [deployment.DATA, deployment.FUNCTION])
def test_destroy_after_a_deploy_that_was_killed_leaves_nothing(laptop, stack):
    """kill -9 of the whole of it, as soon as a stack has appeared."""
    deploy = laptop.start("deploy", "--yes")
    deadline = time.monotonic() + 200
    while deployment.stack(NAME, stack) not in laptop.states():
        assert deploy.poll() is None, laptop.errors
        assert time.monotonic() < deadline, laptop.errors
        time.sleep(0.02)
    os.killpg(deploy.pid, signal.SIGKILL)
    deploy.communicate()
    assert laptop.left()
    laptop.run("destroy", "--yes")
    assert laptop.left() == set()


def test_watchdog_removes_everything_when_nobody_is_there(with_the_rest):
    deployed = with_the_rest
    api, reaper = deployed.stack.client("lambda"), deployment.reaper(NAME)
    steps = 0
    while reaper in {found["FunctionName"] for found in api.list_functions()["Functions"]}:  # its own stack goes last
        found = api.invoke(FunctionName=reaper)  # its schedule does so every few minutes
        assert "FunctionError" not in found, found["Payload"].read()
        settled(deployed)
        steps += 1
        assert steps < 10, deployed.states()
    assert deployed.left() == set()


def settled(laptop: Laptop) -> None:
    deadline = time.monotonic() + 60
    while any(state.endswith("_IN_PROGRESS") for state in laptop.states().values()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
