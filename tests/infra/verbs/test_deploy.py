"""What deploy does and in which order, with CloudFormation by moto and the CDK's command line by a function."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest.mock import Mock

import pytest
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError

from infra import cdk, creation, deployment, leftovers, limits, package, teardown, wheelhouse, zones
from infra.cloud import Cloud, speaking_plainly
from infra.deployment import PARTS, Made
from infra.imports import ROOT
from infra.machines.mailbox import report_key
from infra.verbs import deploy
from run_coordinator.past_runs import deployments
from siafu.__main__ import main
from siafu.address import COORDINATOR
from siafu.config import Config
from siafu.errors import ConfigError, GnnError
from tests.infra.deployment import until
from tests.infra.made import account, make

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="the CDK needs node, which is not installed")
CONFIG = Config().replace({"data.parts": 2})
limits_check = limits.check  # the tests of deploy leave it out


@pytest.fixture
def cloud(monkeypatch):
    with account(monkeypatch) as cloud:
        yield cloud


@pytest.fixture
def steps(cloud, monkeypatch, tmp_path) -> list[str]:
    """What deploy has done so far. Packages are small files, templates are not made, stacks are moto's."""
    done: list[str] = []
    zipped, wheel = tmp_path / "function.zip", tmp_path / "numpy.whl"
    zipped.write_bytes(b"function")
    wheel.write_bytes(b"numpy")
    built = package.Package(zipped, "abc", package.HANDLER, "python3.12", "arm64", 8, 8, 8, 0)
    monkeypatch.setattr(package, "build", lambda arch: built)
    monkeypatch.setattr(wheelhouse, "build", lambda arch: wheelhouse.Wheelhouse(arch, (wheel,), "def"))
    plan = creation.Plan({name: {} for name in deployment.stacks("siafu")}, {}, "", 0.0)
    monkeypatch.setattr(creation, "plan", lambda *_: plan)
    monkeypatch.setattr(limits, "check", lambda *_: None)
    monkeypatch.setattr(zones, "settle", lambda config, cloud: config)
    monkeypatch.setattr(cdk, "check", lambda: None)
    monkeypatch.setattr(cdk, "check_cli", lambda: None)
    monkeypatch.setattr(cdk, "bootstrap", lambda *_: done.append("bootstrap"))

    def make_stacks(assembly: Path, stacks: list[str], region: str, endpoint: str) -> None:
        there = cloud.client("cloudformation").describe_stacks()["Stacks"]
        missing = [name for name in stacks if name not in {stack["StackName"] for stack in there}]
        make(dataclasses.replace(cloud), [name.removeprefix("siafu-") for name in missing])
        done.extend(missing)

    monkeypatch.setattr(cdk, "deploy", make_stacks)
    upload = creation._upload
    monkeypatch.setattr(creation, "_upload", lambda *arguments: (done.append("upload"), upload(*arguments)))
    return done


# --- order, and going on ----------------------------------------------------------------------------------------------


def test_bucket_is_filled_before_the_function_and_servers_are_made_of_it(steps, cloud):
    made = creation.deploy(CONFIG, cloud)
    assert steps == [
        "bootstrap",
        "siafu-expiry",
        "siafu-data",
        "siafu-network",
        "upload",
        "siafu-function",
        "siafu-servers",
        "siafu-watch",
    ]
    bucket = deployment.bucket("siafu", cloud.account, cloud.region)
    keys = {item["Key"] for item in cloud.client("s3").list_objects_v2(Bucket=bucket)["Contents"]}
    assert {made.package, f"{made.wheels}/arm64/numpy.whl"} <= keys


def test_watchdog_is_there_before_anything_else_is_begun(steps, cloud, monkeypatch):
    calls: list[list[str]] = []
    make_stacks = cdk.deploy
    monkeypatch.setattr(cdk, "deploy", lambda *call: (calls.append(call[1]), make_stacks(*call)))
    creation.deploy(CONFIG, cloud)
    assert calls == [
        ["siafu-expiry"],
        ["siafu-data", "siafu-network"],
        ["siafu-function", "siafu-servers", "siafu-watch"],
    ]


def test_second_deploy_goes_on_where_the_first_was_stopped(steps, cloud, monkeypatch):
    make_stacks = cdk.deploy

    def crash(assembly, stacks, region, endpoint):
        make_stacks(assembly, stacks[:1], region, endpoint)
        if stacks != ["siafu-expiry"]:
            raise KeyboardInterrupt

    monkeypatch.setattr(cdk, "deploy", crash)
    with pytest.raises(KeyboardInterrupt):
        creation.deploy(CONFIG, cloud)
    monkeypatch.setattr(cdk, "deploy", make_stacks)
    steps.clear()
    creation.deploy(CONFIG, cloud)
    assert steps == ["bootstrap", "siafu-network", "upload", "siafu-function", "siafu-servers", "siafu-watch"]


@pytest.mark.parametrize("stacks", [0, 1, 2, 3, 5])
def test_deploy_killed_between_any_two_stacks_is_removed_whole(steps, cloud, monkeypatch, stacks):
    make_stacks = cdk.deploy
    left = [stacks]

    def crash(assembly, names, region, endpoint):
        for name in names:
            if not left[0]:
                raise KeyboardInterrupt
            make_stacks(assembly, [name], region, endpoint)
            left[0] -= 1

    monkeypatch.setattr(cdk, "deploy", crash)
    with pytest.raises(KeyboardInterrupt):
        creation.deploy(CONFIG, cloud)
    assert teardown.destroy(cloud, sleep=lambda seconds: None).left == []
    assert leftovers.find(cloud) == []
    assert teardown.destroy(cloud, sleep=lambda seconds: None) == teardown.Gone([], [])


def test_what_lies_in_the_bucket_is_not_sent_again(steps, cloud):
    said: list[str] = []
    creation.deploy(CONFIG, cloud, say=said.append)
    creation.deploy(CONFIG, cloud, say=said.append)
    assert sum("uploading" in text for text in said) == 1


def test_deploy_waits_for_what_a_stopped_one_has_begun(steps, cloud, monkeypatch):
    answers = [{"siafu-data": "CREATE_IN_PROGRESS"}, {"siafu-data": "CREATE_COMPLETE"}]
    monkeypatch.setattr(creation.reaper, "states_of", lambda *_: answers.pop(0))
    slept: list[float] = []
    monkeypatch.setattr(creation.time, "sleep", slept.append)
    said: list[str] = []
    creation._settle(cloud, ["siafu-data"], said.append)
    assert slept == [creation.POLL_S]
    assert said == ["CloudFormation is still at work on siafu-data (CREATE_IN_PROGRESS)"]


@pytest.mark.parametrize(
    ("state", "told"),
    [("DELETE_FAILED", "half removed .*siafu destroy"), ("UPDATE_ROLLBACK_FAILED", "continue the rollback")],
)
def test_deploy_does_not_begin_on_a_stack_that_cannot_be_changed(steps, cloud, monkeypatch, state, told):
    answers = [{"siafu-network": "DELETE_IN_PROGRESS"}, {"siafu-data": "CREATE_COMPLETE", "siafu-network": state}]
    monkeypatch.setattr(creation.reaper, "states_of", lambda *_: answers.pop(0))
    monkeypatch.setattr(creation.time, "sleep", lambda seconds: None)
    with pytest.raises(GnnError, match=f"^siafu-network: .*{told}"):
        creation._settle(cloud, deployment.stacks("siafu"), lambda text: None)


def test_upload_that_fails_ends_in_an_error_of_ours(steps, cloud, monkeypatch):
    """boto3's own, which is none of botocore's."""

    def lies(s3, bucket, key, nbytes) -> bool:  # and then somebody removes the bucket
        for one in leftovers._buckets(cloud):
            leftovers._remove_bucket(cloud, one)
        return False

    monkeypatch.setattr(creation, "_lies", lies)
    with pytest.raises(GnnError, match=r"deployment siafu in us-east-1: Failed to upload .*NoSuchBucket"):
        creation.deploy(CONFIG, cloud)


def test_upload_by_who_is_no_longer_known_is_the_users_to_mend(cloud):
    def upload() -> None:
        try:
            raise ClientError({"Error": {"Code": "ExpiredToken", "Message": "expired"}}, "PutObject")
        except ClientError as error:
            raise S3UploadFailedError(f"Failed to upload x: {error}")  # noqa: B904 - as boto3 does

    with pytest.raises(ConfigError, match="ExpiredToken"), speaking_plainly("siafu"):
        upload()


def test_bootstrap_is_done_once_per_account(steps, cloud):
    cloud.client("cloudformation").create_stack(
        StackName="CDKToolkit", TemplateBody='{"Resources": {"Q": {"Type": "AWS::SQS::Queue"}}}'
    )
    creation.deploy(CONFIG, cloud)
    assert "bootstrap" not in steps


def test_what_the_account_may_not_have_is_refused_before_anything_is_made(steps, cloud, monkeypatch):
    monkeypatch.setattr(limits, "check", limits_check)
    monkeypatch.setattr(limits, "_environments", lambda cloud: (1000, 1000))  # moto does not say
    with pytest.raises(ConfigError, match=r"cloud\.reserved = 5000: this account may run 1000 .* cloud\.reserved=900"):
        creation.deploy(CONFIG.replace({"cloud.reserved": 5000}), cloud)
    assert steps == []


def test_servers_are_made_in_the_zone_that_was_found(steps, cloud, monkeypatch):
    planned: list[Config] = []
    plan = creation.plan
    monkeypatch.setattr(creation, "plan", lambda *call: (planned.append(call[0]), plan(*call))[1])
    monkeypatch.setattr(zones, "settle", lambda config, cloud: config.replace({"cloud.zone": "us-east-1c"}))
    creation.deploy(CONFIG, cloud)
    assert [config.cloud.zone for config in planned] == ["us-east-1c"]


@pytest.mark.parametrize(
    ("state", "age", "goes_on"), [("running", 60.0, True), ("waiting", 60.0, False), ("running", -1.0, False)]
)
def test_a_run_that_goes_on_keeps_its_machines_while_the_clock_is_set_anew(
    steps, cloud, monkeypatch, state, age, goes_on
):
    """A newer image, or other sources here, would replace them. ``age``: the machine's
    interval; below 0 it is silent."""
    make(cloud, PARTS)
    bucket = deployment.bucket("siafu", cloud.account, cloud.region)
    said_of_run = {"state": state, "run": "mine", "every_s": age}
    cloud.client("s3").put_object(Bucket=bucket, Key=report_key(COORDINATOR), Body=json.dumps(said_of_run).encode())
    monkeypatch.setattr("infra.machines.mailbox.LEAST_SILENCE_S", -1.0 if age < 0 else 10.0)
    calls: list[str] = []
    monkeypatch.setattr(cdk, "deploy", lambda assembly, stacks, *_: calls.extend(stacks))
    said: list[str] = []
    before = datetime.now(timezone.utc)
    made = creation.deploy(CONFIG.replace({"cloud.ttl_hours": 24.0}), cloud, say=said.append)
    assert made.expires - before >= timedelta(hours=24)
    assert (calls == ["siafu-expiry"]) == goes_on
    assert any("run mine goes on: only the clock is set anew" in text for text in said) == goes_on


# --- the verb ---------------------------------------------------------------------------------------------------------


@needs_node
@pytest.mark.parametrize(
    ("region", "hint"), [("mars", "there are af-south-1"), ("us-eats-1", "did you mean us-east-1?")]
)
def test_a_region_that_does_not_exist_is_refused_even_when_nothing_is_made(region, hint, capsys):
    assert main(["deploy", "--dry-run", "--set", f"lambda.region={region}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"siafu deploy: lambda.region = {region}: boto3 ")
    assert hint in line


def test_dry_run_needs_no_credentials_and_says_what_it_makes_and_costs(monkeypatch, capsys):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    assert main(["deploy", "--dry-run", "--json", "--set", "data.parts=4", "--set", "cloud.name=big"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["stacks"] == ["big-expiry", "big-data", "big-network", "big-function", "big-servers", "big-watch"]
    assert said["resources"]["AWS::AutoScaling::AutoScalingGroup"] == 5
    assert said["usd_per_hour"] == pytest.approx(sum(said["parts"].values()))
    assert set(said["parts"]) == {"graph_servers", "param_servers", "volumes", "endpoints"}
    assert said["parts"]["graph_servers"] == pytest.approx(4 * 0.29)


def test_types_that_cost_more_than_their_price_are_told_of():
    planned = creation.Plan({}, {"graph_servers": 0.0336}, "", 0.0)
    burstable = CONFIG.replace({"cloud.graph_instance": "t4g.medium", "cloud.param_instance": "t4g.medium"})
    assert "\n  t4g.medium: paid for in CPU credits, " in deploy._table(burstable, planned)
    assert "CPU credits" not in deploy._table(CONFIG, planned)


@needs_node
def test_unknown_price_is_said_and_hides_nothing(tmp_path):
    from infra import app

    config = CONFIG.replace({"cloud.graph_instance": "x9z.2xlarge"})
    planned = creation.plan(config, app.unmade(config), tmp_path)
    assert planned.total is None
    assert "x9z.2xlarge" in planned.unknown
    assert "price unknown" in deploy._table(config, planned)


@needs_node
def test_nobody_is_charged_who_was_not_asked(monkeypatch, capsys):
    with account(monkeypatch):
        monkeypatch.setattr("sys.stdin", io.StringIO())
        assert main(["deploy"]) == 2
    assert "add --yes" in capsys.readouterr().err


@needs_node
def test_deploy_that_is_stopped_says_how_to_go_on_and_how_to_remove(monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(creation, "deploy", stop)
    with account(monkeypatch) as cloud:
        make(cloud, ["expiry"])
        assert main(["deploy", "--yes"]) == 130
    said = capsys.readouterr().err
    assert "siafu deploy goes on from here" in said
    assert "siafu destroy removes" in said


EXPIRED = ClientError({"Error": {"Code": "ExpiredToken", "Message": "expired"}}, "HeadObject")


@pytest.mark.parametrize("kind", [GnnError, ConfigError])
@pytest.mark.parametrize("step", ["_settle", "_upload"])
def test_deploy_that_fails_says_what_to_do_with_what_it_has_made(steps, cloud, monkeypatch, step, kind):
    error = GnnError("cdk deploy: siafu-data failed") if kind is GnnError else EXPIRED
    monkeypatch.setattr(creation, step, Mock(side_effect=error))
    with pytest.raises(kind) as told:
        creation.deploy(CONFIG, cloud)
    has_begun = step == "_upload"
    assert ("; siafu deploy goes on from here, siafu destroy removes what there is" in str(told.value)) == has_begun


@needs_node
def test_siafu_runs_knows_of_what_was_deployed(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expires = datetime(2099, 1, 1, tzinfo=timezone.utc)
    monkeypatch.setattr(creation, "deploy", lambda *_: Made(expires, "", "", ""))
    with account(monkeypatch) as cloud:
        assert main(["deploy", "--yes", "--set", "cloud.email=me@example.org"]) == 0
        assert "alarms reach me@example.org only after a click" in capsys.readouterr().out
        bucket = deployment.bucket("siafu", cloud.account, cloud.region)
        known = [deployments.Deployment("siafu", cloud.region, bucket, expires.isoformat())]
        assert deployments.known(datetime.now(timezone.utc)) == known


def test_credentials_that_are_missing_are_named(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it remembers credentials of the tests before
    with pytest.raises(ConfigError, match="Unable to locate credentials; set AWS_PROFILE"):
        Cloud.of(CONFIG)


def test_node_that_is_missing_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="node is not installed"):
        cdk.check()
    with pytest.raises(ConfigError, match="npx is not installed"):
        cdk.check_cli()


# --- the CDK's command line -------------------------------------------------------------------------------------------


def fake_npx(folder: Path, script: str, monkeypatch) -> None:
    file = folder / "npx"
    file.write_text(f"#!/bin/bash\n{script}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_command_line_is_pinned_and_told_where_to_go(monkeypatch, tmp_path, capsys):
    fake_npx(tmp_path, 'echo "$AWS_REGION $AWS_ENDPOINT_URL $CDK_DISABLE_CLI_TELEMETRY called: $@"', monkeypatch)
    cdk.deploy(tmp_path / "cdk.out", ["siafu-data"], "eu-west-1", "http://127.0.0.1:4566")
    said = capsys.readouterr().err
    assert said.startswith("eu-west-1 http://127.0.0.1:4566 true called: --yes aws-cdk@2.1148.1 deploy siafu-data ")
    assert "--require-approval never" in said


def test_failed_stack_ends_in_an_error_with_its_own_line(monkeypatch, tmp_path):
    fake_npx(
        tmp_path, "echo x; echo 'siafu-data | 0/3 | CREATE_FAILED | AWS::S3::Bucket | exists'; exit 1", monkeypatch
    )
    with pytest.raises(GnnError, match=r"cdk deploy: siafu-data \| 0/3 \| CREATE_FAILED"):
        cdk.deploy(tmp_path / "cdk.out", ["siafu-data"], "us-east-1")


def test_command_line_does_not_outlive_a_killed_deploy(tmp_path, monkeypatch):
    fake_npx(tmp_path, "echo $$ > $(dirname $0)/pid; sleep 60 & sleep 60", monkeypatch)
    code = f"from infra import cdk; cdk.deploy(__import__('pathlib').Path('{tmp_path}'), ['siafu-data'], 'us-east-1')"
    killed = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), "start of the command line")
    group = int((tmp_path / "pid").read_text())
    killed.kill()
    killed.wait()
    until(lambda: not members(group), "end of the command line")


def members(group: int) -> list[int]:
    """Processes of a group that live."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = entry.read_text().rpartition(")")[2].split()[:3]
            if state != "Z" and int(its_group) == group:
                found.append(int(entry.parent.name))
    return found
