"""``siafu train --on aws`` from end to end, on one machine: moto's bucket, agents as
processes, and what a laptop sees."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from graph_data.prepare import prepare
from infra.machines import found, functionlogs, graph_store, remote
from infra.machines.agent_state import Order
from infra.machines.found import Found
from infra.machines.host import Report
from infra.machines.mailbox import Letter, order_key, piece_key, report_key, run_key
from infra.machines.runfiles import Receiver
from run_coordinator import api, run_config
from run_coordinator.actions import Status
from run_coordinator.run import Run
from siafu import config as configs
from siafu.__main__ import main
from siafu.address import COORDINATOR, Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import ConfigError, PeerLost
from siafu.shards import ShardSet
from tests.infra.deployment import BUCKET, Deployment, bucket, until

G1 = graph_server(1)
SHORT: dict[str, Any] = {"parts": 2, "mode": "pipe", "intervals": 2, "dropout": 0.5}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards") / "digits"
    prepare("digits", folder, parts=2, feature_norm="standard")
    return folder


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with bucket() as mailbox, Deployment(mailbox, tmp_path_factory.mktemp("deployment")) as made:
        yield made


@pytest.fixture(autouse=True)
def _account(deployment: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The laptop's AWS is moto's."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", deployment.mailbox.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.chdir(tmp_path)


def settings(**more: Any) -> dict[str, Any]:
    fast = {"servers.heartbeat_s": 0.2, "servers.silence_s": 60.0}  # a busy machine makes its servers silent
    return {"run.on": "aws", "cloud.bucket": BUCKET, "run.restarts": 0, **fast, **more}


def files_of(run: Run) -> set[str]:
    return {path.relative_to(run.dir).as_posix() for path in run.dir.rglob("*") if path.is_file()}


def call(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a verb prints of this deployment."""
    return printed(*words, "--set", f"cloud.bucket={BUCKET}", capsys=capsys)


def printed(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


# --- a run ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_run_on_machines_is_the_run_of_local_processes(
    deployment: Deployment, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = {"lambda.count": 1, "run.trace": True, "run.checkpoint_every": 2}
    said: list[Status] = []
    far = api.train(
        str(shards),
        **SHORT,
        epochs=4,
        run_dir="far",
        on_status=lambda status: said.append(status),
        settings=settings(**common, **{"lambda.on": "local"}),
    )
    near = api.train(str(shards), **SHORT, epochs=4, run_dir="near", settings=common)
    for name in ("weights_digest", "loss_history", "scores", "epochs", "stopped"):
        assert far.result[name] == near.result[name]
    assert {name: value.tolist() for name, value in far.weights().items()} == {
        name: value.tolist() for name, value in near.weights().items()
    }
    without_lambdas = {file for file in files_of(near) if not file.startswith("logs/lambda-")}
    assert files_of(far) >= without_lambdas | {"logs/coordinator.log"}
    assert any(file.startswith("logs/lambda-") for file in files_of(far))
    assert len(far.metrics()) == len(near.metrics())
    assert far.result["run_dir"] == str(tmp_path / "far")
    assert {"training", "saving"} & {status.phase for status in said}
    deployment.until_idle()
    the_verbs_know_of_it(far, capsys)


def the_verbs_know_of_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """status, logs, cost and attach, of a run that has ended."""
    capsys.readouterr()
    name = json.loads((run.dir / "remote.json").read_text())["run"]
    status = json.loads(call("status", "--json", capsys=capsys))
    assert (status["runs"][0]["run"], status["runs"][0]["state"]) == (name, "done")
    assert [(m["role"], m["index"], m["state"]) for m in status["machines"]] == [
        ("graph_server", 0, "waiting"),
        ("graph_server", 1, "waiting"),
        ("param_server", 0, "waiting"),
    ]
    assert len(status["disagreements"]) == 3  # moto knows of no instances
    assert "graph_server 0" in call("status", capsys=capsys)
    logs = call("logs", name, "--role", "graph_server", "--index", "1", capsys=capsys)
    text = (run.dir / "logs" / "graph_server-1.log").read_text()
    assert [line.partition("| ")[2] for line in logs.splitlines()] == text.splitlines()
    cost = json.loads(call("cost", name, "--json", capsys=capsys))
    assert cost["usd"] == run.result["cost"]["usd"] > 0
    assert cost == {**json.loads(printed("cost", str(run.dir), "--json", capsys=capsys)), "run": name}
    again = json.loads(call("attach", name, "--run-dir", "again", "--json", "--quiet", capsys=capsys))
    assert again["weights_digest"] == run.result["weights_digest"]
    for file in ("model.safetensors", "standard.npy"):  # the latter was on the laptop alone
        assert Path(f"again/{file}").read_bytes() == (run.dir / file).read_bytes()


@pytest.mark.long
def test_a_graph_travels_once(deployment: Deployment, shards: Path) -> None:
    graph_store.send(deployment.mailbox, ShardSet.open(shards))
    assert graph_store.send(deployment.mailbox, ShardSet.open(shards)) == 0


# --- ends -------------------------------------------------------------------------------------------------------------


class LostLaptop(BaseException):
    """What nothing handles."""


def train_until(epoch: int, then: Callable[[], object], shards: Path, run_dir: Path, **changes: Any) -> Run:
    """Trains; once that many epochs have ended, ``then`` is called, once."""
    called = False

    def on_status(status: Status) -> None:
        nonlocal called
        if status.epoch >= epoch and not called:
            called = True
            then()

    common = {"backend": "cpu", "epochs": 1_000_000, "settings": settings(), **SHORT}
    return api.train(str(shards), on_status=on_status, run_dir=str(run_dir), **{**common, **changes})


@pytest.mark.long
def test_a_killed_role_ends_the_run_with_its_name_and_machine(
    deployment: Deployment, shards: Path, tmp_path: Path
) -> None:
    def kill() -> None:
        os.kill(pid_of(deployment, G1), signal.SIGKILL)

    with pytest.raises(PeerLost, match=r"^graph_server 1 died: killed by SIGKILL; .*\(machine .*\)$"):
        train_until(2, kill, shards, tmp_path / "run")
    assert (tmp_path / "run" / "logs" / "graph_server-0.log").is_file()
    assert "graph_server 1 died" in json.loads((tmp_path / "run" / "error.json").read_text())["text"]
    deployment.until_idle()


@pytest.mark.long
def test_a_killed_role_is_started_again_on_its_machine(deployment: Deployment, shards: Path, tmp_path: Path) -> None:
    def kill() -> None:
        os.kill(pid_of(deployment, G1), signal.SIGKILL)

    again = {"epochs": 250, "settings": settings(**{"run.restarts": 3})}
    run = train_until(2, kill, shards, tmp_path / "run", **again)
    (restart,) = run.result["restarts"]
    # usually "died: killed by SIGKILL", but its agent may be slow to say so
    assert "graph_server 1" in restart["reason"]
    assert restart["version"] >= 1
    near = api.train(str(shards), **SHORT, epochs=250, backend="cpu", run_dir=str(tmp_path / "near"))
    assert run.result["weights_digest"] == near.result["weights_digest"]
    assert run.result["loss_history"] == near.result["loss_history"]
    deployment.until_idle()


@pytest.mark.long
def test_a_killed_agent_ends_the_run_once_it_is_silent_and_its_successor_starts_nothing_twice(
    deployment: Deployment, shards: Path, tmp_path: Path
) -> None:
    def kill() -> None:
        deployment.agents[G1].kill()
        deployment.agents[G1].wait()

    begun = time.monotonic()
    # Its process goes with it, so that those it talked to may be the first to miss it.
    silent, missed = r"is lost: machine .* has said nothing for \d+ s", r"not connected|silent for more than"
    try:
        with pytest.raises(PeerLost, match=rf"graph_server 1(:)? ({silent}|{missed})"):
            train_until(2, kill, shards, tmp_path / "run", settings=settings(**{"servers.silence_s": 10.0}))
    finally:
        deployment.start_agent(G1)
    assert time.monotonic() - begun < 90
    until(lambda: _report(deployment, G1).value["ended"], "report of the successor")
    words = _report(deployment, G1).value["ended"]["last_line"]
    assert words in ("its agent was started anew", "stopped before it began")  # the run had it killed meanwhile
    deployment.until_idle()


@pytest.mark.long
def test_ctrl_c_ends_the_run_and_its_roles_and_leaves_the_machines(
    deployment: Deployment, shards: Path, tmp_path: Path
) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_until(2, press, shards, tmp_path / "run")
    deployment.until_idle()
    assert (tmp_path / "run" / "logs" / "graph_server-0.log").is_file()
    assert all(agent.poll() is None for agent in deployment.agents.values())


@pytest.mark.long
def test_a_lost_laptop_does_not_end_the_run_and_another_one_takes_over(
    deployment: Deployment, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose() -> None:
        os.kill(pid_of(deployment, G1), signal.SIGSTOP)  # the run waits for us to look at it
        raise LostLaptop

    with pytest.raises(LostLaptop):
        train_until(1, lose, shards, tmp_path / "run", epochs=600, settings=settings(**{"servers.silence_s": 600.0}))
    name = json.loads((tmp_path / "run" / "remote.json").read_text())["run"]
    try:
        status = json.loads(call("status", "--json", capsys=capsys))
        assert (status["runs"][0]["run"], status["runs"][0]["state"]) == (name, "running")
        with pytest.raises(ConfigError, match=f"busy with run {name}: wait for its end, or siafu attach {name}"):
            api.train(str(shards), run_dir="second", settings=settings())
    finally:
        os.kill(pid_of(deployment, G1), signal.SIGCONT)
    call("logs", "-f", name, capsys=capsys)  # returns when the run has ended
    assert json.loads(call("status", "--json", capsys=capsys))["runs"][0]["state"] == "done"
    result = json.loads(call("attach", "--run-dir", "run", "--json", "--quiet", capsys=capsys))
    assert (result["epochs"], result["run_dir"]) == (600, str(tmp_path / "run"))
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) > 1200
    deployment.until_idle()


def test_more_partitions_than_machines_is_the_users_mistake(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(graph_store, "send", None)  # nothing is sent
    with pytest.raises(ConfigError) as error:
        api.train(
            "digits",
            parts=3,
            epochs=1,
            backend="cpu",
            run_dir=str(tmp_path / "run"),
            settings=settings(**{"servers.start_timeout_s": 0.5}),
        )
    assert str(error.value) == (
        "deployment siafu has 2 graph servers and 1 parameter server, the run asks for 3 graph servers and "
        "1 parameter server: siafu deploy --set data.parts=3"
    )


@pytest.mark.parametrize(
    ("parts", "param_servers", "words"),
    [
        (2, 2, None),
        (1, 1, None),
        (
            3,
            2,
            "has 2 graph servers and 2 parameter servers, the run asks for 3 graph servers and 2 parameter servers: "
            "siafu deploy --set data.parts=3",
        ),
        (2, 3, "siafu deploy --set servers.param_servers=3"),
    ],
)
def test_what_is_deployed_is_known_before_it_has_booted(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, parts: int, param_servers: int, words: str | None
) -> None:
    def instances_of(name: str, region: str) -> dict[Address, dict[str, str]]:
        roles = [graph_server(0), graph_server(1), param_server(0), param_server(1)]
        return {**{role: {"state": "pending"} for role in roles}, graph_server(2): {"state": "terminated"}}

    monkeypatch.setattr(found, "instances_of", instances_of)
    monkeypatch.setattr(found, "refusal", lambda name, region, member: "")
    servers = {"param_servers": param_servers, "start_timeout_s": 600.0}
    config = Config.from_dict({"data": {"parts": parts}, "servers": servers})
    begun = time.monotonic()
    if words is None:
        remote._check_members(deployment.mailbox, config, ignore)
    else:
        with pytest.raises(ConfigError, match=re.escape(words)):
            remote._check_members(deployment.mailbox, config, ignore)
    assert time.monotonic() - begun < 120  # start_timeout_s is 600


def test_a_machine_that_ec2_does_not_give_is_told_of_with_its_reason(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AutoScaling:
        def describe_scaling_activities(self, AutoScalingGroupName: str, MaxRecords: int) -> dict[str, Any]:
            assert AutoScalingGroupName == "siafu-graph-server-2"
            states = ("PreInService", "Failed", "Successful")
            why = "You have requested more vCPU capacity than your current vCPU limit of 8 allows"
            return {"Activities": [{"StatusCode": state, "StatusMessage": why} for state in states]}

    monkeypatch.setattr(found.service, "client", lambda name, region: AutoScaling())
    monkeypatch.setattr(found, "instances_of", lambda *_: {graph_server(0): {"state": "running"}})
    config = Config.from_dict({"data": {"parts": 3}})
    with pytest.raises(
        ConfigError, match=r"\(graph_server 2: You have requested more vCPU .* of 8 allows\): siafu deploy --set"
    ):
        remote._check_members(deployment.mailbox, config, ignore)


@pytest.mark.parametrize(
    ("hours", "max_seconds", "warned"),
    [
        (12.0, 0.0, False),
        (12.0, 11 * 3600.0, False),
        (12.0, 13 * 3600.0, True),
        (0.5, 0.0, True),
        (0.5, 60.0, False),
        (-1.0, 60.0, True),
    ],
)
def test_a_run_is_told_when_its_deployment_removes_itself(
    caplog: pytest.LogCaptureFixture, hours: float, max_seconds: float, warned: bool
) -> None:
    now, said = datetime(2026, 11, 22, 6, tzinfo=timezone.utc), []
    config = Config.from_dict({"run": {"max_seconds": max_seconds}})
    there = Found("bucket", expires=now + timedelta(hours=hours))
    remote.mind_the_end(config, there, now, lambda status: said.append(status.phase))
    assert said[0].startswith("deployment siafu removes itself at 2026-11-22T")
    assert ("siafu deploy sets its clock anew" in caplog.text) == warned
    remote.mind_the_end(config, Found("bucket"), now, lambda status: said.append("nobody knows"))
    assert len(said) == 1


# --- played machines --------------------------------------------------------------------------------------------------


def ignore(status: Status) -> None:
    pass


class Played:
    """A bucket that is a dict, for the laptop's side alone; ``report`` is what the coordinator's machine says."""

    def __init__(self, told: Order | None = None, **report: Any):
        self.letters = {order_key(COORDINATOR): told.value} if told else {}
        if report:
            self.say(**report)

    def say(self, **words: Any) -> None:
        self.letters[report_key(COORDINATOR)] = {
            "state": "waiting",
            "every_s": 0.1,
            "ended": None,
            "order": "",
            **words,
        }

    def read(self, key: str) -> Letter | None:
        value = self.letters.get(key)
        return None if value is None else Letter(value, json.dumps(value), 0.0)

    def write(self, key: str, value: dict[str, Any]) -> None:
        self.letters[key] = value

    def replace(self, key: str, value: dict[str, Any], before: Letter | None) -> bool:
        there = self.read(key)
        if (there and there.etag) != (before and before.etag):
            return False
        self.letters[key] = value
        return True

    def get(self, key: str, limit: int = 0) -> bytes | None:
        return None

    def entries(self, prefix: str, after: str = "") -> Iterator[Any]:
        return iter(())


MINE, BOBS = Order("1" * 16, "start", "mine", "a" * 64), Order("2" * 16, "start", "bobs", "a" * 64)
BEGUN = {"state": "running", "order": MINE.id}


def over(order: Order, *, kept: bool) -> dict[str, Any]:
    return {"order": order.id, "run": order.run, "code": 1, "last_line": "no bread", "kept": kept}


@pytest.mark.parametrize(
    ("order", "report", "words"),
    [
        (
            MINE,
            {"order": MINE.id, "ended": over(MINE, kept=True)},
            "run mine is over, and there is no word how: no bread",
        ),
        (MINE, {"order": BOBS.id}, "run mine is on no machine: waited"),  # not taken
        (BOBS, {**BEGUN, "order": BOBS.id}, "run mine is on no machine"),  # overwritten
        (MINE, {}, "run mine is on no machine"),  # nobody is there
    ],
)
def test_a_run_whose_end_will_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: Order, report: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(remote, "TAKEN_S", 0.1)
    box: Any = Played(order, **report)
    with pytest.raises(PeerLost, match=words):
        remote._until_end(box, "mine", MINE, Receiver(box, "mine", tmp_path), ignore, 5.0)
    assert box.letters[order_key(COORDINATOR)]["do"] == ("stop" if order is MINE else "start")  # none is left to begin


@pytest.mark.parametrize(
    "report",
    [
        BEGUN,
        {"order": MINE.id, "ended": over(MINE, kept=False)},  # its files are on their way
        {"order": BOBS.id, "ended": over(BOBS, kept=False)},  # those of the run before
    ],
)
def test_a_run_that_goes_on_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, report: dict[str, Any]
) -> None:
    monkeypatch.setattr(remote, "TAKEN_S", 0.1)
    box: Any = Played(MINE, **report)
    with pytest.raises(PeerLost, match=r"run mine has not ended within 0\.4 s"):
        remote._until_end(box, "mine", MINE, Receiver(box, "mine", tmp_path), ignore, 0.4)
    box.write(run_key("mine", "end.json"), {"code": 0})
    assert remote._until_end(box, "mine", MINE, Receiver(box, "mine", tmp_path), ignore) == {"code": 0}


def pressed(*_: object, **__: object) -> list[Any]:
    raise KeyboardInterrupt


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("order", [BOBS, Order("3" * 16, "stop", "bobs"), MINE])
def test_ctrl_c_of_a_run_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: Order, ended: bool
) -> None:
    box: Any = Played(order)
    if ended:
        box.write(run_key("mine", "end.json"), {"code": 0})
    monkeypatch.setattr(Receiver, "update", pressed)
    with pytest.raises(KeyboardInterrupt):
        remote.follow(box, "mine", MINE, tmp_path, ignore)
    said = box.letters[order_key(COORDINATOR)]
    if ended or order is not MINE:
        assert said == order.value
    else:
        assert (said["do"], said["run"]) == ("stop", "mine")


def test_a_stop_that_comes_too_late_replaces_no_order_of_another_run() -> None:
    box: Any = Played(MINE)
    read = box.read

    def overtaken(key: str) -> Letter | None:
        letter: Letter | None = read(key)
        box.letters[key] = BOBS.value
        return letter

    box.read = overtaken
    remote.stop(box, "mine")
    assert box.letters[order_key(COORDINATOR)] == BOBS.value


# --- what an attach brings --------------------------------------------------------------------------------------------


def test_the_error_of_a_run_that_failed_early_is_not_hidden(
    deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    box, run = deployment.mailbox, "failed-early"
    request = {
        "order": "a" * 16,
        "data": "0" * 64,
        "graph": "digits",
        "epochs": 3,
        "asked": "2026-11-21T07:00:00+00:00",
    }
    box.write(run_key(run, "request.json"), request)
    box.write(run_key(run, "end.json"), {"code": 2, "last_line": "ConfigError: no machine"})
    error = {"type": "ConfigError", "text": "graph_server 3: no machine of the deployment has this role"}
    box.put(piece_key(run, "error.json"), json.dumps(error).encode())
    for config in (None, b"no = [toml", configs.dump(Config()).encode()):
        if config is not None:
            box.put(run_key(run, "config.toml"), config)
        assert main(["attach", run, "--run-dir", f"run-{len(config or b'')}", "--set", f"cloud.bucket={BUCKET}"]) == 2
        assert error["text"] in capsys.readouterr().err


def test_machines_that_reach_one_bucket_are_asked_for_no_copies_in_another() -> None:
    config = Config().replace({"run.on": "aws", "servers.backend": "cpu", "run.checkpoint_to": "s3://mine/runs"})
    with pytest.raises(ConfigError, match=r"checkpoint_to = s3://mine/runs: deployed machines reach no bucket"):
        remote._settled(config, Found("b"))


def test_logs_of_the_function_are_brought_though_the_coordinator_wrote_no_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box: Any = Played()
    config = Config.from_dict({"servers": {"backend": "lambda"}, "lambda": {"on": "aws", "function": "f"}})
    box.get = lambda key: configs.dump(config).encode() if key == run_key("mine", "config.toml") else None
    box.write(run_key("mine", "request.json"), {"asked": "1970-01-01T00:02:00+00:00"})
    brought: list[Any] = []
    monkeypatch.setattr(functionlogs, "bring", lambda *words: brought.append(words))
    remote._bring_function_logs(box, "mine", tmp_path)
    assert brought == [("f", config.lambdas.region, 60.0, tmp_path / "logs" / "lambda-aws")]


# --- who may start ----------------------------------------------------------------------------------------------------

ORDER = Order("0" * 16, "start", "mine", "a" * 64)


def report(state: str, order: str = ORDER.id, age_s: float = 0.0) -> Report:
    return Report({"state": state, "order": order, "run": "mine", "every_s": 1.0}, age_s)


@pytest.mark.parametrize(
    ("before", "said", "busy"),
    [
        (None, None, False),
        (0.0, report("running"), True),
        (0.0, report("ending"), True),
        (0.0, report("waiting"), False),
        (0.0, report("waiting", "another"), True),  # it was ordered a moment ago
        (99.0, report("waiting", "another"), False),  # nobody takes it
        (0.0, report("running", age_s=11.0), False),  # its machine is lost
    ],
)
def test_a_deployment_serves_one_run_at_a_time(before: float | None, said: Report | None, busy: bool) -> None:
    letter = None if before is None else Letter(ORDER.value, '"etag"', before)
    if busy:
        with pytest.raises(ConfigError, match="busy with run mine: wait for its end, or siafu attach mine"):
            remote._check_free(letter, said, "siafu")
    else:
        remote._check_free(letter, said, "siafu")


@pytest.mark.parametrize(
    ("asked", "given"),
    [({}, "aws"), ({"lambda.on": "local"}, "local"), ({"run.on": "local"}, "local")],
)
def test_lambdas_are_on_aws_where_servers_are_unless_said_otherwise(
    asked: dict[str, str], given: str, tmp_path: Path
) -> None:
    config = run_config.resolve("digits", None, {"run.on": "aws", **asked}, {})
    assert config.lambdas.on == given
    assert run_config.resolve("", config, {}, {}).lambdas.on == given
    file = tmp_path / "config.toml"
    file.write_text('[run]\non = "aws"\n')
    assert run_config.resolve("", file, asked, {}).lambdas.on == given


def test_places_for_lambdas_of_one_machine_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"lambda\.on = localstack: on deployed machines it must be local or aws"):
        remote._settled(
            Config.from_dict({"run": {"on": "aws"}, "servers": {"backend": "lambda"}, "lambda": {"on": "localstack"}}),
            Found("b"),
        )


def test_what_the_deployment_has_fixed_goes_into_the_config() -> None:
    config = Config.from_dict({"run": {"on": "aws"}, "servers": {"backend": "lambda"}, "lambda": {"on": "aws"}})
    settled = remote._settled(config, Found("b", "my-function", "7000-7099"))
    assert (settled.lambdas.function, settled.servers.port_range) == ("my-function", (7000, 7099))


@pytest.mark.parametrize("ports", ["6999-7050", "7050-7100", "9000-9099"])
def test_ports_that_the_deployment_does_not_admit_are_refused(ports: str) -> None:
    config = Config.from_dict({"run": {"on": "aws"}, "servers": {"ports": ports}})
    with pytest.raises(
        ConfigError, match=rf"servers\.ports = {ports}: the deployment's machines admit 7000-7099 alone"
    ):
        remote._settled(config, Found("b", "", "7000-7099"))
    assert remote._settled(config, Found("b")).servers.ports == ports


def test_ports_within_those_of_the_deployment_stay() -> None:
    config = Config.from_dict({"run": {"on": "aws"}, "servers": {"ports": "7010-7099"}})
    assert remote._settled(config, Found("b", "", "7000-7099")).servers.port_range == (7010, 7099)


def pid_of(deployment: Deployment, member: Address) -> int:
    pid = deployment.child(member, member.role)
    assert pid is not None
    return pid


def _report(deployment: Deployment, member: Address) -> Report:
    letter = deployment.mailbox.read(report_key(member))
    assert letter is not None
    return Report(letter.value, letter.age_s)
