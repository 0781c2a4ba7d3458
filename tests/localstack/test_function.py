"""What a function meets on LocalStack: the semantics of Lambda, through boto3."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from infra import function_setup, service
from siafu.errors import WorkerError
from siafu.variables import of_worker
from tests.localstack.conftest import Place, has_ended

pytestmark = pytest.mark.aws
OURS = "tests.lambda_funcs.handlers"
HERE = "tests.localstack.handlers"


class Caller:
    def __init__(self, place: Place, name: str):
        self.name = name
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": service.LOCAL_REGION}
        once = Config(retries={"total_max_attempts": 1}, max_pool_connections=32)  # boto3 would ask again
        self._api = boto3.client("lambda", endpoint_url=place.endpoint, config=once, **keys)

    def __call__(self, **event):
        """The payload, the error and the log's tail."""
        found = self._api.invoke(FunctionName=self.name, LogType="Tail", Payload=json.dumps(event))
        tail = base64.b64decode(found["LogResult"]).decode()
        assert found["StatusCode"] == 200
        return json.loads(found["Payload"].read()), found.get("FunctionError"), tail


@pytest.fixture
def calls(place, deploy):
    def calls(handler, **settings):
        return Caller(place, deploy(handler, **settings))

    return calls


def report(tail: str) -> dict[str, str]:
    """Fields of the REPORT line."""
    line = next(line for line in tail.splitlines() if line.startswith("REPORT"))
    return dict(field.split(": ", 1) for field in line.strip().split("\t"))


def test_first_invocation_is_cold_and_billed_with_its_init_the_second_is_warm(calls):
    call = calls(f"{OURS}.echo")
    cold, error, cold_tail = call(interval=3)
    warm, _, warm_tail = call()
    assert (cold["event"], error) == ({"interval": 3}, None)
    assert cold["pid"] == warm["pid"]
    init_ms = float(report(cold_tail)["Init Duration"].split()[0])
    assert int(report(cold_tail)["Billed Duration"].split()[0]) >= init_ms > 0
    assert "Init Duration" not in report(warm_tail)


def test_function_takes_numpy_and_pyzmq_from_its_zip_and_nothing_from_us(calls):
    found, error, _ = calls(f"{HERE}.where")()
    assert error is None
    for path in (found["numpy"], found["zmq"]):
        assert path.startswith(found["cwd"])
    assert str(Path(__file__).parents[2]) not in found["path"]


def test_function_sees_its_own_variables_and_computes_as_the_run_was_told(calls, monkeypatch):
    monkeypatch.setenv("SOME_SETTING", "hidden")
    variables = calls(f"{OURS}.environment", memory_mb=256)()[0]["variables"]
    assert variables["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "256"
    assert variables.items() >= of_worker().items()
    assert "hidden" not in variables.values()
    assert "PYTHONPATH" not in variables


def test_exception_keeps_the_environment_and_its_log(calls):
    call = calls(f"{OURS}.fail")
    found, error, tail = call()
    assert error == "Unhandled"
    assert (found["errorType"], found["errorMessage"]) == ("ValueError", "no such interval: 7")
    assert "ValueError" in tail
    assert "Init Duration" not in report(call()[2])


@pytest.mark.parametrize(
    ("handler", "settings", "event", "error_type", "message"),
    [
        ("crash", {}, {}, "Runtime.ExitError", "exit status 3"),
        ("abort", {}, {}, "Runtime.ExitError", "SIGSEGV"),
        ("hang", {"timeout_s": 1}, {}, "Sandbox.Timedout", "timed out after 1.00 seconds"),
        ("hog", {"memory_mb": 128}, {"mb": 200, "brief": False}, "Runtime.OutOfMemory", "the limit is 128 MB"),
        ("large", {}, {"nbytes": 6 * 2**20 + 1000}, "Function.ResponseSizeTooLarge", ""),
        ("absent", {}, {}, "Runtime.HandlerNotFound", ""),
    ],
)
def test_failure_is_named_and_the_next_environment_is_cold(calls, handler, settings, event, error_type, message):
    call = calls(f"{OURS}.{handler}", **settings)
    for _ in range(2):
        found, error, tail = call(**event)
        assert (error, found["errorType"]) == ("Unhandled", error_type)
        assert message in found["errorMessage"]
        assert "Init Duration" in report(tail)


def test_missing_module_is_reported_with_its_name(calls):
    found, error, _ = calls("nowhere.handler")()
    assert (error, found["errorType"]) == ("Unhandled", "Runtime.ImportModuleError")
    assert "nowhere" in found["errorMessage"]


def test_concurrent_invocations_run_side_by_side(calls):
    call = calls(f"{HERE}.sleeps")
    begun = time.monotonic()
    with ThreadPoolExecutor(12) as pool:
        assert [error for _, error, _ in pool.map(lambda _: call(seconds=5), range(12))] == [None] * 12
    assert time.monotonic() - begun < 45  # one after another: 60 s


def test_invocation_beyond_the_reserved_concurrency_is_throttled_with_its_reason(calls, tmp_path):
    call, gate = calls(f"{OURS}.hold", reserved=1), tmp_path / "gate"
    os.mkfifo(gate)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(call, until=str(gate))
        with gate.open("w"), pytest.raises(ClientError) as refused:  # the gate opens once the function runs
            call(until=os.devnull)
        assert held.result(20)[1] is None
    assert refused.value.response["Error"]["Code"] == "TooManyRequestsException"
    assert refused.value.response["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
    assert call(until=os.devnull)[1] is None


def test_function_that_is_deleted_while_it_runs_ends_and_leaves_no_process(place, calls, tmp_path):
    call, started = calls(f"{OURS}.hang"), tmp_path / "started"
    os.mkfifo(started)
    results = []

    def ask():
        try:
            results.append(call(started=str(started), grandchild=True))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    pids = [int(pid) for pid in started.read_text().split()]
    function_setup.remove(call.name, place.endpoint)
    thread.join(10)
    assert not thread.is_alive()
    assert len(pids) == 2
    assert all(has_ended(pid) for pid in pids)


def test_event_is_accepted_at_once_and_run(place, deploy, tmp_path):
    name, started = deploy(f"{OURS}.hang"), tmp_path / "started"
    os.mkfifo(started)
    found = place.client("lambda").invoke(
        FunctionName=name, InvocationType="Event", Payload=json.dumps({"started": str(started)})
    )
    assert found["StatusCode"] == 202
    assert int(started.read_text()) > 0  # returns once the function writes


def test_logs_are_collected_whole_one_file_per_environment(place, calls, tmp_path):
    call = calls(f"{OURS}.talk")
    for _ in range(2):
        call(nbytes=10_000)
    (file,) = function_setup.collect_logs(call.name, tmp_path, place.endpoint)
    text = file.read_text()
    assert text.count("START RequestId") == text.count("REPORT RequestId") == 2
    assert "x" * 10_000 in text


def test_deploying_again_changes_the_function(place, deploy, zipped):
    name = deploy(f"{OURS}.echo")
    function_setup.deploy(
        function_setup.Definition(name, zipped.path, f"{OURS}.imports_ours", zipped.runtime, zipped.arch, 320, 20),
        place.endpoint,
    )
    assert Caller(place, name)()[0] == "siafu.errors"
    found = place.client("lambda").get_function_configuration(FunctionName=name)
    assert (found["MemorySize"], found["Timeout"]) == (320, 20)
    config = place.client("lambda").get_function_event_invoke_config(FunctionName=name)
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (0, 60)


@pytest.mark.parametrize("change", [{"runtime": "python3.13"}, {"arch": "arm64"}, {"runtime": "nodejs20.x"}])
def test_function_that_cannot_run_here_says_why_when_it_is_deployed(place, zipped, change):
    if not place.is_ours:
        pytest.skip("LocalStack with Docker runs them")
    definition = function_setup.Definition(
        f"unfit-{os.getpid()}", zipped.path, f"{OURS}.echo", zipped.runtime, zipped.arch, 128, 3
    )
    try:
        with pytest.raises(WorkerError, match=f"only .* here, not .*{next(iter(change.values()))}"):
            function_setup.deploy(dataclasses.replace(definition, **change), place.endpoint)
    finally:
        function_setup.remove(definition.name, place.endpoint)


def test_function_of_python_alone_runs_whatever_it_was_made_for(place, tmp_path):
    """That of the deployment's watchdog, for one; it finds boto3, as on Lambda."""
    if not place.is_ours:
        pytest.skip("LocalStack with Docker takes another image")
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        archive.writestr("index.py", "import boto3\ndef handler(event, context): return boto3.__name__")
    name = f"plain-{os.getpid()}"
    definition = function_setup.Definition(
        name, tmp_path / "package.zip", "index.handler", "python3.13", "arm64", 128, 9
    )
    try:
        function_setup.deploy(definition, place.endpoint)
        assert Caller(place, name)()[0] == "boto3"
    finally:
        function_setup.remove(name, place.endpoint)
