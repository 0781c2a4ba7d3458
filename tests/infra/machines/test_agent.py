"""An agent beside the bucket: what it learns from EC2, what it does with what it cannot read, how it ends."""

from __future__ import annotations

import contextlib
import http.server
import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from graph_data.prepare import prepare
from infra.machines import agent, graph_store, remote
from infra.machines.agent_state import End, Order
from infra.machines.imds import Machine, Metadata
from infra.machines.mailbox import Mailbox, order_key, report_key, run_key
from infra.machines.runfiles import Receiver
from siafu import config as configs
from siafu.address import COORDINATOR, Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import ConfigError, PeerLost
from tests.infra.deployment import Deployment, bucket, until
from tests.toy_graphs import random_graph

G0, Q0 = graph_server(0), param_server(0)


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with bucket() as made:
        yield made


# --- what EC2 says ----------------------------------------------------------------------------------------------------


class Instance(http.server.BaseHTTPRequestHandler):
    """The metadata service of an instance."""

    answers: ClassVar[dict[str, str]] = {
        "instance-id": "i-0abc",
        "local-ipv4": "10.0.1.7",
        "tags/instance/siafu:role": "graph_server",
        "tags/instance/siafu:index": "1",
        "placement/region": "eu-central-1",
    }
    tokens: ClassVar[set[str]] = set()

    def do_PUT(self) -> None:
        token = secrets.token_hex(4)
        self.tokens.add(token)
        self._answer(200, token)

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") not in self.tokens:
            return self._answer(401, "")
        found = self.answers.get(self.path.removeprefix("/latest/meta-data/"))
        self._answer(404 if found is None else 200, found or "")

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Instance]]:
    kind = type("Instance", (Instance,), {"answers": dict(Instance.answers), "tokens": set()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    yield kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_role_index_and_address_come_from_the_instance(instance: type[Instance], tmp_path: Path) -> None:
    args = agent._parse(["--bucket", "b", "--work", str(tmp_path / "new")])
    member, setting = agent._place(args, Metadata())
    assert (member, setting.machine, setting.host) == (graph_server(1), "i-0abc", "10.0.1.7")
    assert setting.mailbox.region == "eu-central-1"
    assert (tmp_path / "new").is_dir()


def test_a_token_that_has_expired_is_asked_for_again(instance: type[Instance]) -> None:
    metadata = Metadata()
    assert metadata.machine() == Machine("i-0abc", "10.0.1.7")
    instance.tokens.clear()
    assert metadata.machine() == Machine("i-0abc", "10.0.1.7")


def test_a_spot_notice_is_put_into_words(instance: type[Instance]) -> None:
    metadata = Metadata()
    assert metadata.notice() == ""
    instance.answers["spot/instance-action"] = json.dumps({"action": "terminate", "time": "2026-11-21T08:00:00Z"})
    assert metadata.notice() == "EC2 will terminate it at 2026-11-21T08:00:00Z (spot)"
    instance.answers["spot/instance-action"] = "soon"
    assert metadata.notice() == "EC2 takes it back (spot)"


def test_without_metadata_or_tags_there_is_no_role(instance: type[Instance]) -> None:
    with pytest.raises(ConfigError, match="this instance has no tags/instance/nothing"):
        Metadata().tag("nothing")
    with pytest.raises(ConfigError, match="no EC2 instance metadata"):
        Metadata("http://127.0.0.1:9").machine()


@pytest.mark.parametrize(("role", "index"), [("worker", "0"), ("graph_server", "one"), ("", "0")])
def test_a_role_that_no_machine_has_is_refused(role: str, index: str, tmp_path: Path) -> None:
    args = SimpleNamespace(
        role=role, index=index, listen="", work=str(tmp_path), bucket="b", endpoint="", region="", poll=1
    )
    with pytest.raises(ConfigError, match="must be graph_server or param_server and a number"):
        agent._place(args, None)


# --- orders -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def post(box: Mailbox, tmp_path: Path) -> Iterator[agent.Post]:
    member = Address("graph_server", str(secrets.randbelow(1_000_000)))  # that no test had before
    setting = agent.Setting(box, tmp_path, "i-0abc", "127.0.0.1", poll_s=0.05)
    with agent.Post(member, setting) as made:
        yield made


def said(post: agent.Post) -> dict[str, Any]:
    letter = post.mailbox.read(report_key(post.member))
    assert letter is not None
    return letter.value


def turn_until(post: agent.Post, state: str) -> dict[str, Any]:
    def come() -> bool:
        post.turn(1.0, "")
        return bool(said(post)["state"] == state and (said(post)["ended"] or {"kept": True})["kept"])

    until(come, state)
    return said(post)


def test_a_report_names_machine_address_and_notice(post: agent.Post) -> None:
    post.turn(0.0, "EC2 takes it back (spot)")
    report = said(post)
    assert (report["machine"], report["host"], report["state"]) == ("i-0abc", "127.0.0.1", "waiting")
    assert (report["notice"], report["every_s"]) == ("EC2 takes it back (spot)", 0.75)


def test_a_report_is_written_when_something_is_new_and_every_few_seconds(post: agent.Post, box: Mailbox) -> None:
    post.turn(0.0, "")
    box.write(report_key(post.member), {})
    post.turn(0.7, "")
    assert said(post) == {}
    post.turn(0.75, "")
    assert said(post)["state"] == "waiting"
    box.write(report_key(post.member), {})
    post.turn(0.8, "news")
    assert said(post)["notice"] == "news"


def test_a_run_without_a_config_ends_with_that_word(post: agent.Post, box: Mailbox, tmp_path: Path) -> None:
    shards = prepare(random_graph(1, 30), tmp_path / "toy")
    graph_store.send(box, shards)
    order = Order(secrets.token_hex(8), "start", "no-such-run", shards.manifest.digest, "0" * 16, "tcp://127.0.0.1:9")
    post.member = post.duty.member = Address("param_server", post.member.name)
    box.write(order_key(post.member), order.value)
    ended = turn_until(post, "waiting")["ended"]
    assert (ended["order"], ended["code"]) == (order.id, 1)
    assert ended["last_line"] == "run no-such-run: no config in bucket siafu-test"


def test_a_server_whose_coordinator_is_gone_is_ended(post: agent.Post, box: Mailbox, tmp_path: Path) -> None:
    shards = prepare(random_graph(1, 30), tmp_path / "toy")
    graph_store.send(box, shards)
    run = f"run-{secrets.token_hex(4)}"
    box.put(run_key(run, "config.toml"), configs.dump(Config()).encode())
    order = Order(secrets.token_hex(8), "start", run, shards.manifest.digest, "0" * 16, "tcp://127.0.0.1:9")
    post.member = post.duty.member = Address("param_server", post.member.name)
    box.write(order_key(post.member), order.value)
    box.write(run_key(run, "coordinator.json"), {"every_s": 60.0})
    turn_until(post, "running")
    post.turn(100.0, "")
    assert post.duty.state == "running"
    box._s3.delete_object(Bucket=box.bucket, Key=run_key(run, "coordinator.json"))
    post.turn(200.0, "")
    ended = turn_until(post, "waiting")["ended"]
    assert (ended["order"], ended["code"]) == (order.id, -9)


def test_an_order_waits_until_the_last_runs_files_are_sent_and_its_end_is_written(
    post: agent.Post, box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Order(secrets.token_hex(8), "fetch", "run", "f" * 64)
    box.write(order_key(post.member), order.value)
    sender: Any = SimpleNamespace(done=False, folder=tmp_path / "run", __exit__=lambda *_: None)
    post._sender = sender
    post.duty.end = End("0" * 16, "last", 0, "")
    post.turn(1.0, "")
    assert post.duty.order is None
    sender.done = True

    def fail() -> None:
        raise PeerLost("bucket: no answer")

    with monkeypatch.context() as patch:
        patch.setattr(post, "_keep_end", fail)
        with pytest.raises(PeerLost):
            post.turn(2.0, "")
    assert post.duty.order is None
    post.turn(3.0, "")
    assert (post._sender, post.duty.end) == (None, End("0" * 16, "last", 0, "", kept=True))
    post.turn(4.0, "")
    assert post.duty.order == order


@pytest.fixture
def coordinator(box: Mailbox, tmp_path: Path) -> Iterator[agent.Post]:
    for key in (order_key(COORDINATOR), report_key(COORDINATOR)):
        box._s3.delete_object(Bucket=box.bucket, Key=key)
    with agent.Post(COORDINATOR, agent.Setting(box, tmp_path, "i-0abc", "127.0.0.1", poll_s=0.05)) as made:
        yield made


@pytest.mark.parametrize(
    ("order", "code", "words"),
    [
        (Order("1" * 16, "start", "no-graph", "e" * 64), 1, "graph eeeeeeeeeeeeeeee is not in bucket siafu-test"),
        (Order("2" * 16, "stop", "not-begun"), 130, "stopped before it began"),
    ],
)
def test_the_end_of_a_run_that_did_not_begin_is_written_however_often_that_fails(
    coordinator: agent.Post, box: Mailbox, monkeypatch: pytest.MonkeyPatch, order: Order, code: int, words: str
) -> None:
    def fail(*_: Any) -> bool:
        raise PeerLost("bucket: no answer")

    box.write(order_key(COORDINATOR), order.value)
    with monkeypatch.context() as patch:
        patch.setattr(box, "replace", fail)

        def failed() -> bool:
            with contextlib.suppress(PeerLost):
                coordinator.turn(1.0, "")
            return coordinator.duty.unkept

        until(failed, "end")
    assert box.read(run_key(order.run, "end.json")) is None
    coordinator.turn(2.0, "")
    end = box.read(run_key(order.run, "end.json"))
    assert end is not None
    assert end.value["code"] == code
    assert words in end.value["last_line"]
    assert said(coordinator)["ended"]["kept"]


def test_ctrl_c_before_the_order_is_taken_ends_the_run_soon(
    coordinator: agent.Post, box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, over = Order("3" * 16, "start", "regretted", "e" * 64), threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            coordinator.turn(time.monotonic(), "")

    thread = threading.Thread(target=work)

    def press(receiver: Receiver, *, whole: bool = True) -> None:
        if not thread.ident:
            thread.start()  # whose agent has not looked before
            raise KeyboardInterrupt

    monkeypatch.setattr(Receiver, "update", press)
    coordinator.turn(0.0, "")
    box.write(order_key(COORDINATOR), order.value)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            remote.follow(box, order.run, order, tmp_path, lambda status: None)
    finally:
        over.set()
        thread.join()
    assert time.monotonic() - begun < 60  # the run has no end of its own
    end = box.read(run_key(order.run, "end.json"))
    assert end is not None
    assert end.value["code"] in (130, 1)  # it may have taken the order first, whose graph is not there


def test_a_malformed_order_is_reported_and_what_goes_on_is_watched(post: agent.Post, box: Mailbox) -> None:
    watched: list[float] = []
    post._watch_child = watched.append  # type: ignore[method-assign]
    for number, data in enumerate((b"{", b'{"do": "rm -rf /"}')):
        box.put(order_key(post.member), data)
        post.turn(float(number), "")
    assert watched == [0.0, 1.0]
    assert said(post)["error"] == "not an order: do"


def test_what_is_no_order_is_survived(box: Mailbox, tmp_path: Path) -> None:
    box.put(order_key(G0), b"{")
    stop = threading.Event()
    setting = agent.Setting(box, tmp_path, "i-0abc", "127.0.0.1", poll_s=0.02)
    thread = threading.Thread(target=agent.serve, args=(G0, setting, stop))
    thread.start()
    box.put(order_key(G0), b'{"do": "rm -rf /"}')
    order = Order(secrets.token_hex(8), "fetch", "run", "f" * 64)
    box.write(order_key(G0), order.value)

    def ended() -> bool:
        letter = box.read(report_key(G0))
        return letter is not None and letter.value["order"] == order.id and bool(letter.value["ended"])

    try:
        until(ended, "report of the order that is one")
    finally:
        stop.set()
        thread.join()


@pytest.mark.long
def test_a_killed_agent_takes_its_process_with_it_and_a_polite_one_reports_that(box: Mailbox, tmp_path: Path) -> None:
    shards = prepare(random_graph(1, 30), tmp_path / "toy")
    graph_store.send(box, shards)
    box.put(run_key("polite", "config.toml"), configs.dump(Config()).encode())
    box.write(run_key("polite", "coordinator.json"), {"every_s": 60.0})
    with Deployment(box, tmp_path / "deployment", graph_servers=1, param_servers=1) as deployment:
        for number, member in enumerate((G0, Q0)):
            order = Order(f"{number:016x}", "start", "polite", shards.manifest.digest, "0" * 16, "tcp://127.0.0.1:9")
            box.write(order_key(member), order.value)
        until(lambda: deployment.child(G0, "graph_server") and deployment.child(Q0, "param_server"), "both")
        # What is reported as running is on its leash, too: a process is seen a moment before.
        until(lambda: all(state(box, member) == "running" for member in (G0, Q0)), "reports of both")
        pids = deployment.children(G0) + deployment.children(Q0)
        deployment.agents[G0].kill()
        deployment.agents[Q0].terminate()
        until(lambda: not any(map(alive, pids)), "end of both")
        assert deployment.agents[Q0].wait(60) == 0
    letter = box.read(report_key(Q0))
    assert letter is not None
    assert (letter.value["ended"]["last_line"], letter.value["state"]) == ("its agent was stopped", "waiting")
    assert box.read(report_key(COORDINATOR)) is not None  # parameter server 0's agent has that duty, too


def test_an_agent_without_a_bucket_says_so_in_one_line(box: Mailbox, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infra.machines.agent", "--bucket", "no-such-bucket", "--endpoint", box.endpoint]
    ended = subprocess.run(
        [*command, "--role", "graph_server", "--work", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "NoSuchBucket" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def state(box: Mailbox, member: Address) -> object:
    letter = box.read(report_key(member))
    return letter.value["state"] if letter else None


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
