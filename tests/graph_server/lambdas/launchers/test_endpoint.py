"""What only the endpoint launcher promises; what it shares with all launchers is in
tests/contracts/test_launchers.py."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import queue
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="needs the extra aws")

from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError, ReadTimeoutError, SSLError

from graph_server.lambdas import launchers
from graph_server.lambdas.invoke_errors import REFUSALS, THROTTLED, THROTTLES
from graph_server.lambdas.launchers.endpoint import EndpointLauncher, _session, endpoint
from graph_server.lambdas.launchers.lines import KEEPALIVE, Lines, keep_alive
from lambda_funcs.invocation import Invocation
from siafu import extras
from siafu.config import Config, Lambda
from siafu.errors import ConfigError, WorkerError
from tests.fake_lambda import FakeLambda, Script, Trouble, quiet, throttle

HANDLERS = "tests.lambda_funcs.handlers"
PATIENCE_S = 120.0  # what does not come within this never does


class Caller:
    """A launcher of the config's, and the outcomes it reported."""

    def __init__(self, config: Config, folder: Path, index: int = 0, max_environments: int = 4):
        self.outcomes: queue.SimpleQueue[Invocation] = queue.SimpleQueue()
        self.log = folder / "invocations.log"
        self.launcher = EndpointLauncher.make(config, index, max_environments, self.outcomes.put, folder)

    def call(self, payload: dict[str, Any] | None = None, request_id: str = "r") -> Invocation:
        self.launcher.invoke(payload or {}, request_id)
        return self.outcomes.get(timeout=PATIENCE_S)


Start = Callable[..., tuple[FakeLambda, Caller]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(
            handler: str = "echo", script: Script = quiet, settings: Any = (), **service: Any
        ) -> tuple[FakeLambda, Caller]:
            fake = stack.enter_context(FakeLambda(handler=f"{HANDLERS}.{handler}", script=script, **service))
            caller = Caller(config(fake.url, **dict(settings)), tmp_path)
            stack.enter_context(caller.launcher)
            return fake, caller

        yield start


def config(url: str, on: str = "localstack", **settings: Any) -> Config:
    return Config().replace({"lambda.endpoint": url, "lambda.on": on, **settings})


# --- what an answer means ---------------------------------------------------------------------------------------------


def test_throttle_is_reported_with_its_reason_and_not_sent_again(start: Start) -> None:
    reasons = list(THROTTLES)
    fake, caller = start(script=lambda number: throttle(reasons[number]))
    for reason in reasons:
        outcome = caller.call()
        assert (outcome.error, outcome.reason, outcome.billed_ms) == (THROTTLED, reason, 0)
    assert len(fake.calls) == len(reasons)


def test_refusal_is_reported_with_its_code_and_not_sent_again(start: Start) -> None:
    refusals = [(502, "ENINotReadyException"), (500, "ServiceException"), (413, "RequestTooLargeException")]
    fake, caller = start(script=lambda number: Trouble("refuse", refusals[number][1], refusals[number][0]))
    for _, code in refusals:
        outcome = caller.call()
        assert (outcome.error, outcome.reason, outcome.billed_ms) == (code, "as the script says", 0)
        assert code in REFUSALS
    assert len(fake.calls) == len(refusals)


def test_unknown_refusal_is_reported_as_its_status(start: Start) -> None:
    outcome = start(script=lambda number: Trouble("refuse", "SlowDown", 503))[1].call()
    assert (outcome.error, outcome.reason) == ("503", "SlowDown: as the script says")


def test_lost_answer_is_reported_and_the_call_is_not_sent_again(start: Start) -> None:
    kinds = ["lose call", "lose answer", "hang up"]
    fake, caller = start(script=lambda number: Trouble(kinds[number]))
    for _ in kinds:
        outcome = caller.call()
        assert outcome.error == "ConnectionClosedError"
        assert outcome.billed_ms >= 1
    assert len(fake.calls) == len(kinds)


def test_function_error_is_no_refusal(start: Start) -> None:
    outcome = start(script=lambda number: Trouble("fail", "Runtime.ExitError"))[1].call()
    assert (outcome.error, outcome.reason) == ("Runtime.ExitError", "")


def test_nobody_at_the_endpoint_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_server.lambdas.launchers.account.environments", lambda client, config: 1)
    with closing(socket.socket()) as nobody:  # bound, it does not listen: the port is nobody else's, either
        nobody.bind(("127.0.0.1", 0))
        caller = Caller(config(f"http://127.0.0.1:{nobody.getsockname()[1]}"), tmp_path)
        outcome = caller.call()
    assert (outcome.error, outcome.billed_ms) == ("EndpointConnectionError", 0)
    caller.launcher.close()


def test_concurrency_beyond_what_is_reserved_is_the_services_refusal(start: Start, tmp_path: Path) -> None:
    _, caller = start("hold", reserved=1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    caller.launcher.invoke({"until": str(fifo)}, "first")
    with open(fifo, "w"):  # opens once the first runs
        outcome = caller.call(request_id="second")
    assert (outcome.error, outcome.reason) == (THROTTLED, "ReservedFunctionConcurrentInvocationLimitExceeded")
    assert caller.outcomes.get(timeout=PATIENCE_S).request_id == "first"


def test_tail_of_every_log_lies_beside_the_runs_logs(start: Start) -> None:
    _, caller = start("talk")
    caller.call({"nbytes": 1}, "r1")
    caller.call({"nbytes": 1}, "r2")
    lines = caller.log.read_text().splitlines()
    assert lines.count("first line") == 2
    assert lines.index("--- r1") < lines.index("--- r2")


def test_log_that_cannot_be_written_costs_no_outcome(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    _, caller = start("talk")
    caller.log.mkdir()
    assert [caller.call({"nbytes": 1}, name).request_id for name in ("r1", "r2")] == ["r1", "r2"]
    caller.launcher.close()
    assert caller.outcomes.empty()
    assert caplog.text.count("no more log in") == 1


def test_call_that_gets_no_thread_is_not_in_flight(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, caller = start()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("graph_server.lambdas.launchers.endpoint.threading.Thread.start", refuse)
        with pytest.raises(WorkerError, match=r"^invocation r1: can't start new thread, 0 are in flight$"):
            caller.launcher.invoke({}, "r1")
    assert caller.call(request_id="r2").error is None
    assert len(fake.calls) == 1


def test_without_an_endpoint_of_ones_own_it_is_awss() -> None:
    assert endpoint(Lambda(on="localstack", endpoint="http://a:1")) == "http://a:1"
    assert endpoint(Lambda(on="aws")) is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "lambda.endpoint is empty: lambda.on = localstack needs"),
        ("localhost:4566", "'localhost:4566': must be an http:// or https:// URL"),
    ],
)
def test_endpoint_that_cannot_be(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        endpoint(Lambda(on="localstack", endpoint=url))


# --- before a run -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "parts", "limit"),
    [({}, 1, 900), ({"account": 10}, 3, 3), ({"account": 10}, 1, 9), ({"account": 50, "reserved": 9}, 2, 4)],
)
def test_limit_is_this_servers_share_of_what_the_function_may_have_and_leaves_some_to_others(
    start: Start, service: Any, parts: int, limit: int
) -> None:
    _, caller = start(settings={"data.parts": parts}, **service)
    assert caller.launcher.limit == limit


@pytest.mark.parametrize(
    ("service", "settings", "message"),
    [
        ({"reserved": 0}, {}, "reserved concurrency is 0, the kill switch"),
        ({"reserved": 2}, {"data.parts": 3}, "it has reserved 2 environments at a time, data.parts = 3"),
        ({"account": 2}, {"data.parts": 2}, "the account leaves it 1 environments at a time, data.parts = 2"),
        ({"memory_mb": 256}, {}, "lambda.memory_mb = 192: siafu was deployed with 256"),
        ({"timeout_s": 60.0}, {}, "lambda.timeout_s = 900: siafu was deployed with 60"),
        ({"name": "other"}, {}, "ResourceNotFoundException: GetFunctionConfiguration: .*check lambda.function"),
    ],
)
def test_function_that_is_not_what_the_config_says_is_refused_before_the_run(
    start: Start, service: Any, settings: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        start(settings=settings, **service)


def test_no_credentials_is_the_users_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _only({}, tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=r"NoCredentialsError: .*run aws configure"):
        EndpointLauncher.make(Config().replace({"lambda.on": "aws"}), 0, 1, print, tmp_path)


SECRETS = {"AWS_ACCESS_KEY_ID": "AKIAREAL", "AWS_SECRET_ACCESS_KEY": "real", "AWS_SESSION_TOKEN": "real"}
REAL = "aws_access_key_id = AKIAREAL\naws_secret_access_key = real\n"
OURS = "aws_access_key_id = 000000000042\naws_secret_access_key = none\n"
#: Whom boto3 would have to ask.
SOURCED = "role_arn = arn:aws:iam::111122223333:role/x\nsource_profile = base\n[profile base]\n" + REAL


@pytest.mark.parametrize(
    ("environment", "profile", "key"),
    [
        ({}, "", "test"),
        (SECRETS, "", "test"),
        ({"AWS_ACCESS_KEY_ID": "AKIAREAL"}, "", "test"),  # half of them
        ({**SECRETS, "AWS_ACCESS_KEY_ID": "test"}, "", "test"),
        ({**SECRETS, "AWS_PROFILE": "mine"}, OURS, "000000000042"),
        ({"AWS_PROFILE": "mine"}, REAL, "test"),
        ({"AWS_PROFILE": "mine"}, "region = us-east-1\n", "test"),
        ({"AWS_PROFILE": "mine"}, OURS + "aws_session_token = real\n", "test"),
        ({"AWS_PROFILE": "mine"}, SOURCED, "test"),
    ],
    ids=[
        "none",
        "real",
        "half",
        "token",
        "profile before keys",
        "real profile",
        "profile without keys",
        "profile with token",
        "role",
    ],
)
def test_localstack_is_sent_no_real_credentials(
    environment: dict[str, str], profile: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only(environment, tmp_path, monkeypatch)
    (tmp_path / "config").write_text(f"[profile mine]\n{profile}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    found = _session(Lambda(on="localstack", endpoint="http://127.0.0.1:1")).get_credentials().get_frozen_credentials()
    assert (found.access_key, found.token) == (key, None)


def test_aws_is_sent_the_users_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _only(SECRETS, tmp_path, monkeypatch)
    found = _session(Lambda(on="aws")).get_credentials().get_frozen_credentials()
    assert (found.access_key, found.secret_key, found.token) == ("AKIAREAL", "real", "real")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"AWS_ACCESS_KEY_ID": "AKIAREAL"}, "Partial credentials found"),
        ({"AWS_PROFILE": "nobody"}, r"profile \(nobody\) could not be found"),
    ],
)
def test_credentials_that_cannot_be_are_the_users_mistake(
    environment: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only(environment, tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=message):
        EndpointLauncher.make(config("http://127.0.0.1:1", "aws"), 0, 1, print, tmp_path)


def _only(environment: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These variables are all that is known of AWS here."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in {**environment, "HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)


def test_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "graph_server.lambdas.launchers.endpoint")
    with pytest.raises(
        ConfigError, match=f"lambda.on = aws: boto3 is not installed: {re.escape(extras.install('aws'))}"
    ):
        launchers.build(Config().replace({"lambda.on": "aws"}), 0, 1, print, tmp_path)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_close_reports_what_is_in_flight_once_and_leaves_no_thread(start: Start) -> None:
    _, caller = start("hang")
    for i in range(4):
        caller.launcher.invoke({}, f"r{i}")
    caller.launcher.close()  # the functions hang for ever: had they been waited for, they would have timed out
    outcomes = [caller.outcomes.get(timeout=PATIENCE_S) for _ in range(4)]
    assert {outcome.request_id for outcome in outcomes} == {"r0", "r1", "r2", "r3"}
    assert {outcome.error for outcome in outcomes} == {"Sandbox.Failure"}
    assert caller.outcomes.empty()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("invoke-")]


def test_error_in_on_done_harms_no_other_invocation(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    _, caller = start()
    raised: list[threading.Thread] = []

    def report(outcome: Invocation) -> None:
        if outcome.request_id == "r1":
            raised.append(threading.current_thread())
        caller.outcomes.put(outcome)
        if outcome.request_id == "r1":
            raise ValueError("no such thing")

    caller.launcher._on_done = report
    assert caller.call(request_id="r1").request_id == "r1"
    assert caller.call(request_id="r2").request_id == "r2"
    raised[0].join(PATIENCE_S)  # it writes to the log once the other call may be over
    assert "on_done failed for invocation r1" in caplog.text


# --- connections ------------------------------------------------------------------------------------------------------


def test_silent_connections_are_kept_alive(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    seen: list[dict[str, int]] = []

    def spy(sock: socket.socket) -> None:
        keep_alive(sock)
        found = {
            name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in KEEPALIVE
            if hasattr(socket, name)
        }
        seen.append({"on": sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), **found})

    monkeypatch.setattr("graph_server.lambdas.launchers.lines.keep_alive", spy)
    start()[1].call()
    assert seen == [{"on": 1, **{name: KEEPALIVE[name] for name in KEEPALIVE if hasattr(socket, name)}}]


def test_only_certificates_that_somebody_vouches_for_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = _self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        request = AWSPreparedRequest("GET", f"https://127.0.0.1:{server.getsockname()[1]}/", {}, b"", False)
        answerer = threading.Thread(target=_answer_twice, args=(server, context))
        answerer.start()
        with pytest.raises(SSLError, match=r"self.signed certificate"):
            Lines(PATIENCE_S).carry(request)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        assert Lines(PATIENCE_S).carry(request).status_code == 204
        answerer.join()
    with pytest.raises(EndpointConnectionError):
        Lines(PATIENCE_S).carry(request)


def _self_signed(folder: Path) -> Path:
    """A certificate of 127.0.0.1, beside it key.pem."""
    x509 = pytest.importorskip("cryptography.x509", reason="comes with moto")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.timezone.utc)
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "siafu test")])
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(1)
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    (folder / "certificate.pem").write_bytes(made.public_bytes(pem))
    return folder / "certificate.pem"


def _answer_twice(server: socket.socket, context: ssl.SSLContext) -> None:
    for _ in range(2):
        peer, _ = server.accept()
        with closing(peer), contextlib.suppress(ssl.SSLError), context.wrap_socket(peer, server_side=True) as talk:
            talk.recv(65536)
            talk.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def test_answer_that_does_not_come_in_time_is_a_timeout() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(ReadTimeoutError):
            Lines(0.05).carry(AWSPreparedRequest("POST", url, {}, b"", False))


def test_an_answer_is_waited_for_longer_than_the_function_may_run(start: Start) -> None:
    _, caller = start()
    # else its timeout is a lost connection
    assert caller.launcher._lines._read_timeout_s > Config().lambdas.timeout_s + 1


def test_lines_that_were_cut_carry_nothing_more() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        lines = Lines(PATIENCE_S)
        lines.cut()
        with pytest.raises(ConnectionClosedError):
            lines.carry(AWSPreparedRequest("POST", url, {}, b"", False))
