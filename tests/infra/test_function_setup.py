"""The function by API calls, against moto: what is created, changed, collected and removed. Nothing runs here."""

from __future__ import annotations

import dataclasses
import threading
import time
import zipfile

import pytest
from moto.server import ThreadedMotoServer

from infra import function_setup, service
from siafu.errors import WorkerError
from siafu.variables import of_worker


@pytest.fixture(scope="module")
def endpoint():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def definition(tmp_path):
    path = tmp_path / "package.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("handler.py", "def handler(event, context): return {}")
    return function_setup.Definition("siafu", path, "handler.handler", "python3.11", "x86_64", 192, 59.5, reserved=3)


@pytest.fixture
def api(endpoint, definition):
    yield service.client("lambda", service.LOCAL_REGION, endpoint)
    function_setup.remove("siafu", endpoint)


def test_function_is_made_as_defined_and_the_service_never_repeats_it(endpoint, definition, api):
    function_setup.deploy(definition, endpoint)
    found = api.get_function_configuration(FunctionName="siafu")
    assert (found["MemorySize"], found["Timeout"], found["Handler"]) == (192, 60, "handler.handler")
    assert (found["Runtime"], found["Architectures"]) == ("python3.11", ["x86_64"])
    assert found["Environment"]["Variables"] == of_worker()
    again = api.get_function_event_invoke_config(FunctionName="siafu")
    assert (again["MaximumRetryAttempts"], again["MaximumEventAgeInSeconds"]) == (0, 60)
    assert api.get_function_concurrency(FunctionName="siafu")["ReservedConcurrentExecutions"] == 3


def test_deploying_again_changes_it(endpoint, definition, api):
    function_setup.deploy(definition, endpoint)
    before = api.get_function_configuration(FunctionName="siafu")["CodeSha256"]
    with zipfile.ZipFile(definition.package, "a") as archive:
        archive.writestr("more.py", "")
    function_setup.deploy(dataclasses.replace(definition, memory_mb=512), endpoint)
    found = api.get_function_configuration(FunctionName="siafu")
    assert found["MemorySize"] == 512
    assert found["CodeSha256"] != before


def test_refusal_is_one_error_with_the_services_words(endpoint, definition, api):
    with pytest.raises(WorkerError, match=f"(?s)function siafu at {endpoint}: .*MemorySize"):
        function_setup.deploy(dataclasses.replace(definition, memory_mb="many"), endpoint)


def test_nobody_at_the_endpoint_is_an_error_that_names_it(definition):
    with pytest.raises(WorkerError, match=r"http://127\.0\.0\.1:9"):
        function_setup.deploy(definition, "http://127.0.0.1:9")


def test_removing_what_is_not_there_is_no_error(endpoint, definition, api):
    function_setup.deploy(definition, endpoint)
    for _ in range(2):
        function_setup.remove("siafu", endpoint)
    assert api.list_functions()["Functions"] == []


def test_logs_come_home_whole_one_file_per_stream(endpoint, tmp_path):
    logs = service.client("logs", service.LOCAL_REGION, endpoint)
    logs.create_log_group(logGroupName="/aws/lambda/talks")
    now = int(1000 * time.time())  # older lines are dropped
    for stream in ("2026/11/21/[$LATEST]abc", "2026/11/21/[$LATEST]def"):
        logs.create_log_stream(logGroupName="/aws/lambda/talks", logStreamName=stream)
        events = [{"timestamp": now + i, "message": f"line {i} of {stream}\n"} for i in range(150)]
        logs.put_log_events(logGroupName="/aws/lambda/talks", logStreamName=stream, logEvents=events)
    files = function_setup.collect_logs("talks", tmp_path / "logs", endpoint)
    assert [file.name for file in files] == ["2026-11-21-LATEST-abc.log", "2026-11-21-LATEST-def.log"]
    assert files[0].read_text().splitlines() == [f"line {i} of 2026/11/21/[$LATEST]abc" for i in range(150)]


def test_function_that_never_ran_has_no_logs(endpoint, tmp_path):
    assert function_setup.collect_logs("silent", tmp_path / "logs", endpoint) == []


def test_logs_of_the_last_invocation_are_waited_for_however_late_they_are(endpoint, tmp_path):
    """Two equal answers do not tell that all is there: on a busy machine a second passed between two reports."""
    logs = service.client("logs", service.LOCAL_REGION, endpoint)
    place = {"logGroupName": "/aws/lambda/late", "logStreamName": "abc"}
    logs.create_log_group(logGroupName="/aws/lambda/late")
    logs.create_log_stream(**place)

    def report(number: int) -> None:
        event = {"timestamp": int(1000 * time.time()), "message": f"REPORT RequestId: {number}\n"}
        logs.put_log_events(**place, logEvents=[event])

    report(1)
    second = threading.Timer(1.0, report, (2,))
    second.start()
    (file,) = function_setup.collect_logs("late", tmp_path, endpoint, invocations=2)
    second.join()
    assert file.read_text().splitlines() == ["REPORT RequestId: 1", "REPORT RequestId: 2"]
