"""A LocalStack of our own is what we think it is, and leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import boto3
import localstack_client.session
import pytest

from infra import function_setup, service
from infra.localstack.stack import PREFIX, Stack
from siafu import config as configs
from siafu.config import Config
from siafu.errors import WorkerError
from tests.localstack.conftest import Place, has_ended

pytestmark = pytest.mark.aws


def test_boto3_and_localstack_client_are_pointed_at_it(place: Place, deploy, monkeypatch):
    name = deploy("lambda_funcs.handler.ping")
    host = place.endpoint.removeprefix("http://")
    for variable, value in (("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")):
        monkeypatch.setenv(variable, value)
    session = localstack_client.session.Session(localstack_host=host)
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.endpoint)  # of the AWS CLI and every SDK
    for client in (session.client("lambda"), boto3.client("lambda", region_name=service.LOCAL_REGION)):
        assert name in {found["FunctionName"] for found in client.list_functions()["Functions"]}
        assert "memory_mb" in json.loads(client.invoke(FunctionName=name, Payload=b"{}")["Payload"].read())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"LAMBDA_RUNTIME_EXECUTOR": "nowhere"}, "does not run functions with our executor"),
        ({"GATEWAY_SERVER": "twisted"}, "it listens on 0.0.0.0"),
        ({"GATEWAY_SERVER": "nonsense"}, "it ended with code"),
    ],
)
def test_what_is_not_as_it_should_be_is_refused_and_ended(tmp_path, settings, words):
    stack = Stack(tmp_path / "log", settings)
    with pytest.raises(WorkerError, match=words), stack:
        pass
    assert has_ended(stack.pid)
    assert not answers(stack.endpoint)


def test_end_leaves_no_process_no_port_and_no_folder(tmp_path, zipped):
    with Stack(tmp_path / "log") as stack:
        folder = Path(f"/proc/{stack.pid}/cwd").resolve()
        assert folder.name.startswith(PREFIX)
        name = "siafu-left"
        definition = function_setup.Definition(
            name, zipped.path, "tests.lambda_funcs.handlers.hang", zipped.runtime, zipped.arch, 192, 60
        )
        function_setup.deploy(definition, stack.endpoint)
        pids = hanging(stack.endpoint, name, tmp_path / "started")
    assert all(has_ended(pid) for pid in (*pids, stack.pid))
    assert not answers(stack.endpoint)
    assert not folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_one_that_serves_ends_with_its_owner(tmp_path, zipped, number):
    owner = subprocess.Popen(
        [sys.executable, "-m", "infra.localstack", "serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with owner:
        said = dict(word.split("=", 1) for word in owner.stdout.readline().split()[1:])
        endpoint = said["AWS_ENDPOINT_URL"]
        definition = function_setup.Definition(
            "kept", zipped.path, "tests.lambda_funcs.handlers.hang", zipped.runtime, zipped.arch, 192, 60
        )
        function_setup.deploy(definition, endpoint)
        pids = hanging(endpoint, "kept", tmp_path / "started")
        owner.send_signal(number)
        assert owner.wait(60) == {signal.SIGINT: 130, signal.SIGTERM: 130, signal.SIGKILL: -9}[number]
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (all(map(has_ended, pids)) and not answers(endpoint)):
        time.sleep(0.02)
    assert all(has_ended(pid) for pid in pids)
    assert not answers(endpoint)


def test_place_of_a_run_ends_when_its_localstack_dies(tmp_path):
    (tmp_path / "config.toml").write_text(configs.dump(Config()))
    command = [
        sys.executable,
        "-m",
        "infra.localstack",
        "--config",
        str(tmp_path / "config.toml"),
        "--run-dir",
        str(tmp_path),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as owner:
        found = json.loads(owner.stdout.readline())
        assert answers(found["endpoint"])
        (child,) = Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        said = owner.stderr.read().splitlines()
        assert owner.wait(60) == 1
    assert "LocalStack: it ended with code -9" in said[-1]


def hanging(endpoint: str, name: str, started: Path) -> list[int]:
    """Invokes a function that never returns; its process ids."""
    os.mkfifo(started)
    api = service.client("lambda", service.LOCAL_REGION, endpoint)
    payload = json.dumps({"started": str(started), "grandchild": True, "ignore_term": True})

    def ask():
        with contextlib.suppress(Exception):  # its end is what is tested
            api.invoke(FunctionName=name, Payload=payload)

    threading.Thread(target=ask, daemon=True).start()
    return [int(pid) for pid in started.read_text().split()]


def answers(endpoint: str) -> bool:
    host, _, port = endpoint.removeprefix("http://").partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False
