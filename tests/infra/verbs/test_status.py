"""``siafu status`` and ``siafu cost``: what a deployment and its runs say, beside what the cloud says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

from infra import deployment
from infra.machines import found, overview, runs
from infra.machines.agent_state import Order
from infra.machines.mailbox import Mailbox, order_key, report_key, run_key
from infra.machines.remote import status_of
from infra.verbs import cost, status
from run_coordinator import live_status
from run_coordinator import run_directory as run_directory_of
from run_coordinator.actions import Status
from run_coordinator.past_runs import deployments
from siafu import config as configs
from siafu.__main__ import main
from siafu.address import COORDINATOR, Address, graph_server, param_server
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.pricing import prices
from siafu.pricing.cost import amounts_of, of_baseline
from tests.infra.deployment import BUCKET, bucket, empty
from tests.run_coordinator.past_runs.test_past_runs import written

G0, Q0 = graph_server(0), param_server(0)
CONFIG = Config.from_dict({"cloud": {"bucket": BUCKET, "name": "mine"}})


@pytest.fixture(scope="module")
def server() -> Iterator[Mailbox]:
    with bucket() as made:
        yield made


@pytest.fixture
def box(server: Mailbox, monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    empty(server)
    for name, value in (("ENDPOINT_URL", server.endpoint), ("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "x")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers credentials
    return server


def instance(box: Mailbox, member: Address, deployment: str = "mine") -> str:
    """One of EC2's that has the role; its id."""
    tags = {"siafu:deployment": deployment, "siafu:role": member.role, "siafu:index": member.name}
    made = boto3.client("ec2", region_name="us-east-1").run_instances(
        ImageId="ami-12c6146b",
        MinCount=1,
        MaxCount=1,
        InstanceType="c7g.xlarge",
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}],
    )
    return str(made["Instances"][0]["InstanceId"])


def say(box: Mailbox, member: Address, machine: str, **words: Any) -> None:
    box.write(report_key(member), {"state": "waiting", "every_s": 60.0, "machine": machine, "run": "", **words})


def ask(box: Mailbox, run: str, asked: str) -> None:
    request = {"order": "0" * 16, "data": "a" * 64, "graph": "digits", "epochs": 9, "asked": asked}
    box.write(run_key(run, "request.json"), request)


# --- status -----------------------------------------------------------------------------------------------------------


def test_machines_stand_beside_their_instances(box: Mailbox) -> None:
    ids = {member: instance(box, member) for member in (G0, Q0)}
    instance(box, graph_server(5), "another")
    for member, name in ids.items():
        say(box, member, name)
    report = overview.examine(CONFIG, box)
    assert [(m["role"], m["state"], m["machine"], m["instance"]["id"]) for m in report["machines"]] == [
        ("graph_server", "waiting", ids[G0], ids[G0]),
        ("param_server", "waiting", ids[Q0], ids[Q0]),
    ]
    assert report["disagreements"] == report["unknown"] == []


def test_every_disagreement_is_named(box: Mailbox) -> None:
    silent, never, moved = (graph_server(i) for i in range(3))
    ids = [instance(box, member) for member in (silent, never, moved)]
    say(box, silent, ids[0], every_s=-1.0)
    say(box, moved, "i-old")
    say(box, Q0, "i-ghost")
    machines = {Address(m["role"], str(m["index"])): m for m in overview.examine(CONFIG, box)["machines"]}
    machines[silent] |= {"state": "silent", "heard_s": 99.0}
    assert [overview._disagreement(machines[member]) for member in (silent, never, moved, Q0)] == [
        f"graph_server 0: instance {ids[0]} runs, but its agent has said nothing for 99 s",
        f"graph_server 1: instance {ids[1]} runs, but its agent has never reported: it boots, or see its console log",
        f"graph_server 2: its agent reports from i-old, but the cloud says {ids[2]}",
        "param_server 0: its agent reports from i-ghost, but the cloud has no running instance of it",
    ]


def test_runs_are_done_stopped_failed_running_or_lost(box: Mailbox) -> None:
    for number, run in enumerate(("done", "stopped", "failed", "running", "lost")):
        ask(box, run, f"2026-11-21T0{9 - number}:00:00+00:00")
    for run, code in (("done", 0), ("stopped", 130), ("failed", 1)):
        box.write(run_key(run, "end.json"), {"code": code, "last_line": f"{run}."})
    state = {"phase": "training", "epoch": 4, "loss": 0.5, "usd": 0.25}
    say(box, COORDINATOR, "i-1", state="running", run="running", status=state)
    report = overview.examine(CONFIG, box)
    assert [(run["run"], run["state"]) for run in report["runs"]] == [
        (name, name) for name in ("done", "stopped", "failed", "running", "lost")
    ]
    lines = "\n".join(status._lines(report))
    assert "epoch 4/9" in lines
    assert "loss 0.5000  $0.2500" in lines
    assert "failed." in lines
    json.dumps(report, allow_nan=False)


def test_a_run_is_not_lost_before_its_machine_has_seen_it_nor_before_its_last_files_are_there(box: Mailbox) -> None:
    def state() -> str:
        (run,) = runs.told(box, runs.coordinator(box))
        asked = runs.named(box, "mine")
        assert runs.alive(box, asked, runs.coordinator(box)) is (run["state"] == "running")
        return str(run["state"])

    ask(box, "mine", "2026-11-21T09:00:00+00:00")
    before = {"phase": "training", "epoch": 4}  # of the run whose last files are being sent
    say(box, COORDINATOR, "i-1", state="waiting", run="before", order="0" * 16, ended=None, status=before)
    assert state() == "lost"  # nobody was told to begin it
    box.write(order_key(COORDINATOR), Order("1" * 16, "start", "mine", "0" * 64).value)
    assert state() == "running"
    assert runs.told(box, runs.coordinator(box))[0]["epoch"] == 0
    ended = {"order": "1" * 16, "run": "mine", "code": 0, "last_line": "done.", "kept": False}
    say(box, COORDINATOR, "i-1", state="waiting", run="mine", order="1" * 16, ended=ended)
    assert state() == "running"
    say(box, COORDINATOR, "i-1", state="waiting", run="mine", order="1" * 16, ended={**ended, "kept": True})
    assert state() == "lost"
    box.write(run_key("mine", "end.json"), {"code": 0, "last_line": "done."})
    assert runs.told(box, runs.coordinator(box))[0]["state"] == "done"


def test_siafu_runs_lists_what_status_does(
    box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(box, "done", "2026-11-21T09:00:00+00:00")
    box.write(run_key("done", "end.json"), {"code": 0, "last_line": "done."})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expires = (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat()
    deployments.note(deployments.Deployment("mine", "us-east-1", BUCKET, expires))
    assert main(["runs", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["deployed"] == [{"deployment": "mine", **overview.examine(CONFIG, box)["runs"][0]}]
    assert found["deployed"][0]["state"] == "done"
    monkeypatch.setattr(runs, "of_bucket", lambda bucket, region: runs.told(Mailbox("gone"), None))
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert "runs of deployment mine in us-east-1 are not listed: bucket gone, runs/: NoSuchBucket" in (
        capsys.readouterr().err
    )


def test_a_state_of_any_shape_is_survived() -> None:
    assert status_of({}).phase == status_of({"status": [1]}).phase == "starting the coordinator"
    odd = status_of({"status": {"phase": 7, "epoch": "x", "loss": 1, "more": 1, "ghost_bytes": 5}})
    assert (odd.phase, odd.epoch, odd.loss, odd.ghost_bytes) == ("starting", 0, 1, 5)
    scores = {"train": {"acc": 0.5}, "val": {"acc": 0.25}, "test": None}
    assert status_of({"status": {"evaluation": scores}}).evaluation == scores
    for strange in ({"val": {"acc": 1}}, {**scores, "val": 3}, {**scores, "val": {"acc": "high"}}):
        assert status_of({"status": {"epoch": 1, "evaluation": strange}}).evaluation is None


def test_a_deployment_is_found_by_its_stacks(box: Mailbox) -> None:
    config = Config.from_dict({"cloud": {"name": "mine"}})
    with pytest.raises(ConfigError, match="there is no deployment mine in us-east-1: siafu deploy makes it"):
        found.find(config)
    cloud = boto3.client("cloudformation", region_name="us-east-1")
    expires = {found.EXPIRES: "2026-11-22T18:30:00Z"}
    stacks = (("expiry", expires), ("data", {found.BUCKET: BUCKET}), ("function", {found.FUNCTION: "mine-worker"}))
    for part, outputs in stacks:
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {name: {"Value": value} for name, value in outputs.items()},
        }
        cloud.create_stack(StackName=f"mine-{part}", TemplateBody=json.dumps(template))
    cloud.create_stack(StackName="mine-other-data", TemplateBody=json.dumps(template))
    named: list[str] = []
    found.service.client("cloudformation", "us-east-1")  # boto3's session is there
    boto3.DEFAULT_SESSION.events.register(
        "before-parameter-build.cloudformation.DescribeStacks", lambda params, **_: named.append(params["StackName"])
    )
    end = datetime(2026, 11, 22, 18, 30, tzinfo=timezone.utc)
    assert found.find(config) == found.Found(BUCKET, "mine-worker", "7000-7099", end)
    report = overview.examine(config, found.mailbox_of(config))
    assert [stack["name"] for stack in report["stacks"]] == ["mine-expiry", "mine-data", "mine-function"]
    assert set(named) == set(deployment.stacks("mine"))  # without a name, it needs ListStacks as well
    assert report["expires"] == "2026-11-22T18:30:00Z"
    assert "  removes itself at 2026-11-22T18:30:00Z, " in "\n".join(status._lines(report))
    assert found.until(end, end - timedelta(hours=3.5)) == "at 2026-11-22T18:30:00Z, in 3.5 h"


def test_without_credentials_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["status"]) == 2
    told = r"siafu status: .*: Unable to locate credentials; set AWS_PROFILE, run aws configure, .*\n"
    assert re.fullmatch(told, capsys.readouterr().err)


@pytest.mark.long
@pytest.mark.parametrize("words", ["status", "train digits --on aws --backend cpu --quiet --run-dir run"])
def test_without_boto3_one_line_says_what_to_install(words: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules['boto3'] = None; from siafu.__main__ import main; sys.exit(main({words.split()}))"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd())},
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "boto3" in line
    assert " install -e " in line
    assert "[aws" in line


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["logs", "no-such-run"], "no-such-run: no such run in bucket siafu-test; siafu status lists them"),
        (["attach", "../x"], "'../x' is not the name of a run"),
        (["logs"], "bucket siafu-test has no runs yet"),
        (["logs", "--index", "1"], "--index 1 needs --role"),
        (["attach", "lost"], "run lost is lost: its coordinator does not run any more"),
    ],
)
def test_a_run_that_is_not_there_is_the_users_mistake(
    box: Mailbox, capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    if "lost" in words:
        ask(box, "lost", "")
    assert main([*words, "--set", f"cloud.bucket={BUCKET}"]) == 2
    assert error in capsys.readouterr().err


def test_logs_of_a_run_directory_need_no_deployment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs" / "lambda-0").mkdir(parents=True)
    (tmp_path / "logs" / "graph_server-0.log").write_text("one\ntwo\n")
    (tmp_path / "logs" / "lambda-0" / "a.log").write_text("three\n")
    assert main(["logs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "graph_server 0  | one\ngraph_server 0  | two\n"
    assert main(["logs", str(tmp_path), "--role", "lambda", "--index", "0"]) == 0
    assert capsys.readouterr().out.endswith("| three\n")


def test_a_run_on_this_machine_needs_no_aws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    run = written(tmp_path / "mine", ended=False)
    with run_directory_of.alone(run), live_status.kept(run, lambda status: None) as on_status:
        on_status(Status(phase="training", tasks_in_flight=7))
        assert main(["status", str(run)]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"^mine +2026-11-26 19:00 .*running", shown, re.MULTILINE)
        assert f"{run}: training, 7 tasks in flight\n" in shown
        assert main(["status", str(run), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["epochs"], told["running"][str(run)]["phase"]) == ("running", 2, "training")
    assert main(["status", str(tmp_path)]) == 2
    assert "not a run directory: it has neither config.toml nor plan.json" in capsys.readouterr().err


# --- cost -------------------------------------------------------------------------------------------------------------


def run_directory(folder: Path, on: str, *, finished: bool) -> Path:
    config = Config.from_dict(
        {"data": {"parts": 2}, "run": {"on": on}, "servers": {"backend": "lambda"}, "lambda": {"on": "aws"}}
    )
    (folder / "config.toml").write_text(configs.dump(config))
    usage = {"invocations": 12, "refused": 2, "gb_s": 100.0}
    epoch = {"event": "epoch", "epoch": 0, "time_s": 1800.0, "usage": usage, "usd": 0.1}
    (folder / "metrics.jsonl").write_text(json.dumps(epoch) + '\n{"event": "ep')
    if finished:
        spent = {
            "usd": 1.5,
            "parts": {"lambda": 1.5},
            "counted": "Lambda",
            "region": "us-east-1",
            "as_of": "2026-07-20",
            "items": [],
            "amounts": amounts_of(config, usage, 1800.0),
        }
        result = {"usage": usage, "train_seconds": 1800.0, "cost": spent}
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_a_finished_run_cost_what_its_result_says(tmp_path: Path) -> None:
    report = cost.examine(run_directory(tmp_path, "aws", finished=True), "mine")
    assert (report["usd"], report["finished"], report["requests"], report["gb_s"]) == (1.5, True, 12, 100.0)
    assert report["servers"]["graph_servers"] == {"count": 2, "type": "c7g.2xlarge", "seconds": 3600.0}


@pytest.mark.parametrize("key", ["usd", "parts", "counted", "as_of", "region"])
def test_a_bill_that_lacks_a_key_is_named(tmp_path: Path, key: str) -> None:
    run_dir = run_directory(tmp_path, "aws", finished=True)
    result = json.loads((run_dir / "result.json").read_text())
    del result["cost"][key]
    (run_dir / "result.json").write_text(json.dumps(result))
    with pytest.raises(ConfigError, match=rf"result.json: lacks '{key}'"):
        cost.examine(run_dir, "mine")


def test_a_run_that_goes_on_cost_what_its_last_epoch_says(tmp_path: Path) -> None:
    report = cost.examine(run_directory(tmp_path, "aws", finished=False), "mine")
    assert not report["finished"]
    assert report["parts"].keys() >= {"lambda", "graph_servers", "param_servers"}
    assert report["usd"] == pytest.approx(sum(report["parts"].values()))
    text = "\n".join(cost._lines(report))
    assert "mine, so far: 1800.0 s" in text
    assert "graph servers  2 x c7g.2xlarge  1 hour  $0.29  $0.2900" in re.sub("  +", "  ", text)
    assert "running" in text


def test_other_prices_make_the_bill_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, file = run_directory(tmp_path, "aws", finished=True), tmp_path / "mine.csv"
    columns = "instance,arch,vcpu,mem_gib,usd_per_hour_on_demand,region,as_of,source\n"
    file.write_text(columns + "c7g.2xlarge,arm64,8,16,10,us-east-1,2026-11-22,our contract\n")
    try:
        assert main(["cost", str(run), "--prices", str(file), "--json"]) == 0
    finally:
        prices.use(None)
    report = json.loads(capsys.readouterr().out)
    (servers,) = (item for item in report["items"] if item["part"] == "graph_servers")
    assert (servers["usd_per_unit"], servers["usd"], servers["source"]) == (10, 10, "our contract")
    assert report["usd"] == pytest.approx(sum(item["usd"] for item in report["items"]))
    assert main(["cost", str(run), "--prices", str(tmp_path / "none.csv")]) == 2
    assert capsys.readouterr().err.startswith(f"siafu cost: {tmp_path}/none.csv: no price list: ")


def test_a_run_is_priced_in_another_region_and_on_other_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = run_directory(tmp_path, "aws", finished=True), tmp_path / "mine.csv"
    rows = [line.split(",") for line in (prices.FOLDER / "services.csv").read_text().splitlines()]
    moved = [[*row[:5], "moon-1", *row[6:]] for row in rows[1:]]
    columns = [*rows[0], "instance", "vcpu", "mem_gib", "usd_per_hour_on_demand"]
    big = ["", "arm64", "", "", "", "moon-1", "2026-11-22", "our contract", "big", "8", "16", "10"]
    file.write_text(
        "\n".join(",".join(row) for row in (columns, *([*row, "", "", "", ""] for row in moved), big)) + "\n"
    )
    there = [f"--set={key}=big" for key in ("cloud.graph_instance", "cloud.param_instance")]
    try:
        words = ["cost", str(run), "--prices", str(file), "--set", "lambda.region=moon-1", *there, "--json"]
        assert main(words) == 0
    finally:
        prices.use(None)
    report = json.loads(capsys.readouterr().out)
    assert report["region"] == "moon-1"
    assert {item["usd_per_unit"] for item in report["items"] if item["part"].endswith("servers")} == {10}
    assert main(["cost", str(run), "--set", "lambda.region=mars"]) == 2
    assert main(["cost", str(run), "--set", "train.lr=1"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "in mars: its price is not known" in errors[0]
    assert errors[1].startswith("siafu cost: train.lr = 1: no price depends on it, only on lambda.region, ")


def test_what_is_no_run_directory_has_no_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="not a run directory"):
        cost.examine(tmp_path, "here")
    run_directory(tmp_path, "local", finished=False)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ConfigError, match="here: no epoch has ended yet"):
        cost.examine(tmp_path, "here")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="runs/ holds no run: siafu cost RUN"):
        cost._newest(Path("runs"))


def test_a_baselines_machine_is_paid_for_while_it_evaluates(tmp_path: Path) -> None:
    """An hour of training and half of one of evaluations, unfinished and finished; an older run's time has both."""
    config = BaselineConfig().replace({"cloud.gpu_instance": "g4dn.xlarge"})
    (tmp_path / "config.toml").write_text(configs.dump(config))
    hour = of_baseline(config, seconds=3600)
    assert hour is not None
    line: dict[str, Any] = {"event": "epoch", "epoch": 1, "loss": 0.5, "epoch_s": 1.0, "ghost_bytes": 0, "usd": 0.0}
    for apart in ({"time_s": 3600.0, "evaluation_s": 1800.0}, {"time_s": 5400.0}):
        (tmp_path / "metrics.jsonl").write_text(json.dumps(line | apart) + "\n")
        assert cost.examine(tmp_path, "mine")["usd"] == pytest.approx(1.5 * hour.usd)
    (tmp_path / "result.json").write_text(json.dumps({"train_seconds": 3600.0, "evaluation_seconds": 1800.0}))
    assert cost.examine(tmp_path, "mine")["usd"] == pytest.approx(1.5 * hour.usd)
