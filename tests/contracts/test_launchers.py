"""What every launcher promises: the semantics of a Lambda function, asked for and reported on asynchronously.

A new one is one line in LAUNCHERS: a function that starts it for a handler of the tests' own.
"""

import json
import os
import queue
import re
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest

from lambda_funcs.invocation import Function
from lambda_funcs.local_pool import Invocation, LocalPool
from run_coordinator.doctor import EXTRAS
from siafu import ray_cluster, variables
from siafu.errors import WorkerError
from siafu.places import PLACES, Where
from tests.fake_lambda import FakeLambda

HANDLERS = "tests.lambda_funcs.handlers"
PATIENCE_S = 120.0  # what does not come within this never does, even where many interpreters start on one slow core

Outcomes = queue.SimpleQueue[Invocation]


def local(stack: ExitStack, outcomes: Outcomes, handler: str, log_dir: Path, **limits: Any) -> LocalPool:
    return stack.enter_context(LocalPool(handler=handler, on_done=outcomes.put, init_timeout_s=PATIENCE_S, **limits))


def endpoint(
    stack: ExitStack, outcomes: Outcomes, handler: str, log_dir: Path, max_environments: int, **limits: Any
) -> Any:
    """What `localstack` and `aws` are; behind it a service that is ours."""
    service = stack.enter_context(FakeLambda(handler=handler, **limits))
    return stack.enter_context(
        caller(service.url, service.name, outcomes, log_dir, max_environments, service.timeout_s)
    )


def caller(url: str, function: str, outcomes: Outcomes, log_dir: Path, max_environments: int, timeout_s: float) -> Any:
    boto3 = pytest.importorskip("boto3", reason="needs the extra aws")
    from graph_server.lambdas.launchers.endpoint import EndpointLauncher

    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    return EndpointLauncher(
        boto3.client("lambda", endpoint_url=url, **keys),
        function,
        timeout_s=timeout_s,
        limit=max_environments,
        max_environments=max_environments,
        on_done=outcomes.put,
        log_dir=log_dir,
    )


def ray(
    stack: ExitStack,
    outcomes: Outcomes,
    handler: str,
    log_dir: Path,
    max_environments: int,
    memory_mb: int = 192,
    timeout_s: float = 60.0,
) -> Any:
    """Actors on the cluster that this process has joined."""
    from graph_server.lambdas.launchers.ray import RayLauncher

    function = Function(handler, memory_mb, timeout_s, init_timeout_s=PATIENCE_S)
    cluster = ray_cluster.connect("auto")
    return stack.enter_context(
        RayLauncher(function, limit=max_environments, on_done=outcomes.put, log_dir=log_dir, cluster=cluster)
    )


@pytest.fixture(scope="module")
def joined(request: pytest.FixtureRequest) -> Iterator[None]:
    """To join the cluster for each test would take longer than most of them."""
    connection = ray_cluster.connect(request.getfixturevalue("ray_cluster").address)
    yield
    connection.close()


#: By the module of the launcher.
LAUNCHERS: dict[str, Callable[..., Any]] = {"local_pool": local, "endpoint": endpoint, "ray": ray}
#: Whose processes are this launcher's own: called by our names, and ended by ``close``. Those of a service
#: belong to it: it gives each invocation an id of its own, and lets it run on when the caller has hung up.
OWN_PROCESSES = {"local_pool", "ray"}


class Driver:
    """A launcher and the outcomes it reported."""

    def __init__(self, stack: ExitStack, launcher: str, handler: str, log_dir: Path, **limits: Any) -> None:
        self.outcomes: Outcomes = queue.SimpleQueue()
        name = handler if "." in handler else f"{HANDLERS}.{handler}"
        settings = {"max_environments": 4, **limits}
        self.pool = LAUNCHERS[launcher](stack, self.outcomes, name, log_dir, **settings)

    def outcome(self) -> Invocation:
        return self.outcomes.get(timeout=PATIENCE_S)

    def call(self, payload: dict[str, object] | None = None, request_id: str = "r") -> Invocation:
        self.pool.invoke(payload or {}, request_id)
        outcome = self.outcome()
        assert outcome.request_id == request_id
        return outcome


Start = Callable[..., Driver]


#: Ray's own start takes longer than all the others' tests: make test-long.
CONTENDERS = [pytest.param(name, marks=[pytest.mark.long] * (name == "ray")) for name in sorted(LAUNCHERS)]


@pytest.fixture(params=CONTENDERS)
def launcher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(launcher: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    if launcher == "ray":
        request.getfixturevalue("joined")
    with ExitStack() as stack:
        yield lambda handler, **limits: Driver(stack, launcher, handler, tmp_path, **limits)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def error_of(outcome: Invocation) -> dict[str, Any]:
    found = json.loads(outcome.payload)
    assert isinstance(found, dict)
    return found


def has_ended(pid: int) -> bool:
    """Whether it is dead, or a zombie that its parent has yet to collect."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    readable, _, _ = select.select([pidfd], [], [], 60.0)
    os.close(pidfd)
    return bool(readable)


# -- results


def test_result_is_the_handlers_json(start: Start, launcher: str) -> None:
    outcome = start("echo").call({"interval": 3}, "request-1")
    assert outcome.error is None
    result = json.loads(outcome.payload)
    assert result["event"] == {"interval": 3}
    assert result["request_id"] == "request-1" or launcher not in OWN_PROCESSES


def test_first_invocation_is_cold_and_the_second_reuses_its_environment(start: Start) -> None:
    driver = start("echo")
    cold, warm = driver.call(), driver.call()
    assert cold.init_ms > 0.0
    assert warm.init_ms == 0.0
    assert json.loads(cold.payload)["pid"] == json.loads(warm.payload)["pid"]


def test_bill_covers_init_and_duration_in_whole_ms(start: Start, fifo: Path) -> None:
    driver = start("hold")
    before = time.monotonic()
    driver.pool.invoke({"until": str(fifo)}, "r")
    fifo.open("w").close()  # returns once the handler runs
    outcome = driver.outcome()
    assert outcome.init_ms <= outcome.billed_ms <= 1e3 * (time.monotonic() - before) + 1
    assert driver.call({"until": os.devnull}).billed_ms >= 1


def test_payload_and_result_of_a_megabyte_pass(start: Start) -> None:
    text = "x" * 1_000_000
    assert json.loads(start("echo").call({"text": text}).payload)["event"]["text"] == text


def test_concurrent_invocations_run_side_by_side_and_each_reports_once(start: Start, tmp_path: Path) -> None:
    driver = start("hold", max_environments=8)
    fifos = [tmp_path / f"fifo-{i}" for i in range(8)]
    for i, path in enumerate(fifos):
        os.mkfifo(path)
        driver.pool.invoke({"until": str(path)}, f"r{i}")
    gates = [path.open("w") for path in fifos]  # opens only if all eight handlers run at the same time
    for gate in gates:
        gate.close()
    outcomes = [driver.outcome() for _ in fifos]
    assert sorted(outcome.request_id for outcome in outcomes) == [f"r{i}" for i in range(8)]
    assert len({outcome.payload for outcome in outcomes}) == 8
    driver.pool.close()
    assert driver.outcomes.empty()


def test_many_invocations_one_after_another_report_once_each(start: Start) -> None:
    driver = start("echo", max_environments=4)
    for round_ in range(50):
        names = {f"{round_}-{i}" for i in range(4)}
        for name in names:
            driver.pool.invoke({}, name)
        assert {driver.outcome().request_id for _ in names} == names
    driver.pool.close()
    assert driver.outcomes.empty()


# -- failures


def test_exception_in_the_handler_is_unhandled_and_keeps_the_environment(start: Start) -> None:
    driver = start("fail")
    outcome = driver.call()
    assert outcome.error == "Unhandled"
    assert (error_of(outcome)["errorType"], error_of(outcome)["errorMessage"]) == ("ValueError", "no such interval: 7")
    assert error_of(outcome)["stackTrace"]
    assert driver.call().init_ms == 0.0


def test_result_that_is_not_json_is_a_marshal_error(start: Start) -> None:
    assert start("unserialisable").call().error == "Runtime.MarshalError"


def test_missing_module_is_reported_with_its_name_each_time(start: Start) -> None:
    driver = start("tests.nowhere.handler")
    for _ in range(2):
        outcome = driver.call()
        assert outcome.error == "Runtime.ImportModuleError"
        assert "tests.nowhere" in error_of(outcome)["errorMessage"]
        assert outcome.billed_ms >= outcome.init_ms > 0.0


def test_missing_handler_is_reported(start: Start) -> None:
    assert start("absent").call().error == "Runtime.HandlerNotFound"


@pytest.mark.parametrize(("handler", "how"), [("crash", "exit status 3"), ("abort", "SIGSEGV|segmentation fault")])
def test_crash_says_how_and_the_next_invocation_is_cold(start: Start, handler: str, how: str) -> None:
    driver = start(handler)
    for _ in range(2):
        outcome = driver.call()
        assert outcome.error == "Runtime.ExitError"
        assert re.search(how, error_of(outcome)["errorMessage"])
        assert outcome.init_ms > 0.0


def test_what_a_crashed_function_wrote_is_in_its_log(start: Start) -> None:
    assert "about to go" in start("crash").call().log_tail


def test_kill_from_outside_ends_the_invocation(start: Start, launcher: str, fifo: Path) -> None:
    if launcher not in OWN_PROCESSES:
        pytest.skip("its processes are the service's")
    driver = start("hang")
    driver.pool.invoke({"started": str(fifo)}, "victim")
    pid = int(fifo.read_text())
    assert launcher != "local_pool" or driver.pool.pids == {"victim": pid}
    os.kill(pid, signal.SIGKILL)
    outcome = driver.outcome()
    assert (outcome.request_id, outcome.error) == ("victim", "Runtime.ExitError")
    assert "SIGKILL" in error_of(outcome)["errorMessage"]
    assert launcher != "local_pool" or driver.pool.pids == {}


def test_deadline_ends_the_invocation_and_the_environment(start: Start) -> None:
    driver = start("hang", timeout_s=0.2)
    for _ in range(2):
        outcome = driver.call()
        assert outcome.error == "Sandbox.Timedout"
        assert "timed out after 0.20 seconds" in outcome.payload.decode()
        assert outcome.billed_ms >= 200 + outcome.init_ms
        assert outcome.init_ms > 0.0


@pytest.mark.parametrize("brief", [False, True], ids=["held", "between two samples"])
def test_memory_above_the_limit_ends_the_environment(start: Start, brief: bool) -> None:
    driver = start("hog", memory_mb=64)
    outcome = driver.call({"mb": 100, "brief": brief})
    assert outcome.error == "Runtime.OutOfMemory"
    assert outcome.max_memory_mb > 64
    assert driver.call({"mb": 1, "brief": True}).init_ms > 0.0


def test_memory_below_the_limit_is_reported(start: Start) -> None:
    outcome = start("hog", memory_mb=192).call({"mb": 50, "brief": True})
    assert outcome.error is None
    assert 50 < outcome.max_memory_mb < 192


def test_result_beyond_six_megabytes_is_an_error(start: Start) -> None:
    assert start("large").call({"nbytes": 6 * 2**20 + 1000}).error == "Function.ResponseSizeTooLarge"


# -- logs


def test_log_has_the_platforms_lines_around_the_functions(start: Start, launcher: str) -> None:
    driver = start("talk", memory_mb=192)
    lines = driver.call({"nbytes": 1}, "r1").log_tail.splitlines()
    name = lines[0].split()[2]
    assert name == "r1" or launcher not in OWN_PROCESSES
    assert lines[:5] == [
        f"START RequestId: {name} Version: $LATEST",
        "first line",
        "x",
        "last line",
        f"END RequestId: {name}",
    ]
    fields = [field.partition(":")[0] for field in lines[5].split("\t")]
    cold = ["REPORT RequestId", "Duration", "Billed Duration", "Memory Size", "Max Memory Used", "Init Duration"]
    assert fields == cold
    assert "first line" in driver.call({"nbytes": 1}, "r2").log_tail


def test_log_tail_is_the_last_four_kib(start: Start) -> None:
    tail = start("talk").call({"nbytes": 100_000}).log_tail
    assert len(tail) == 4096
    assert "last line\nEND" in tail


# -- limits and the end


def test_invocation_beyond_the_limit_is_throttled_until_one_ends(start: Start, fifo: Path) -> None:
    driver = start("hold", max_environments=1)
    driver.pool.invoke({"until": str(fifo)}, "r1")
    with pytest.raises(WorkerError, match=r"r2.*throttled.*1 environments"):
        driver.pool.invoke({"until": str(fifo)}, "r2")
    fifo.open("w").close()
    assert driver.outcome().request_id == "r1"
    assert driver.call({"until": os.devnull}, "r3").error is None


def test_payload_beyond_a_megabyte_is_refused(start: Start) -> None:
    with pytest.raises(WorkerError, match="1048576"):
        start("echo").pool.invoke({"text": "x" * 2**20}, "r")


def test_close_ends_busy_and_idle_environments_and_reports_each_invocation(
    start: Start, launcher: str, tmp_path: Path
) -> None:
    driver = start("hang")
    pids = []
    for i, stubborn in enumerate([False, True]):
        path = tmp_path / f"started-{i}"
        os.mkfifo(path)
        driver.pool.invoke({"started": str(path), "ignore_term": stubborn, "grandchild": True}, f"r{i}")
        pids += [int(pid) for pid in path.read_text().split()]
    driver.pool.close()
    assert driver.pool.hangs_up is (launcher not in OWN_PROCESSES)
    ended = [driver.outcome() for _ in range(2)]
    # Those that hang do so for ever: had they been waited for, their time would be up, or the test's.
    assert {(outcome.request_id, outcome.error) for outcome in ended} == {
        (f"r{i}", "Sandbox.Failure") for i in range(2)
    }
    assert driver.outcomes.empty()
    assert len(pids) == 4
    assert launcher not in OWN_PROCESSES or all(has_ended(pid) for pid in pids)


def test_close_right_after_invoke_still_reports_it(start: Start) -> None:
    driver = start("hang")
    driver.pool.invoke({}, "r")
    driver.pool.close()
    assert driver.outcome().error == "Sandbox.Failure"


def test_closed_launcher_refuses_and_closes_again(start: Start) -> None:
    driver = start("echo")
    driver.pool.close()
    driver.pool.close()
    with pytest.raises(WorkerError, match="closed"):
        driver.pool.invoke({}, "r")


# -- inside


def test_function_sees_lambdas_variables_and_none_of_ours(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.setenv("SOME_SETTING", "hidden")
    result = json.loads(start("environment", memory_mb=192, timeout_s=60.0).call().payload)
    found = result["variables"]
    assert found["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "192"
    assert found["_HANDLER"] == f"{HANDLERS}.environment"
    assert "hidden" not in found.values()
    assert 0 < result["remaining_ms"] <= 60_000


def test_function_computes_as_the_run_was_told(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it runs: these variables decide the last bits of a product."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("LANG", "tr_TR.UTF-8")
    found = json.loads(start("environment").call().payload)["variables"]
    expected = variables.of_worker()
    assert expected["OPENBLAS_CORETYPE"] == "Prescott"
    decide = {*variables.THREADS, *variables.KERNELS, *variables.LOCALE}
    assert {name: value for name, value in found.items() if name in decide} == expected


def test_function_imports_siafu_wherever_the_launcher_was_started(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.loads(start("imports_ours").call().payload) == "siafu.errors"


def test_a_place_is_a_row_of_facts_and_a_value_of_the_setting():
    assert list(PLACES) == list(get_args(Where))
    for name, place in PLACES.items():
        module = place.launcher.partition(":")[0]
        assert find_spec(module), name
        assert module.rpartition(".")[2] in LAUNCHERS, f"{name}: no test here starts its launcher"
        assert place.extra in ("", *EXTRAS)
