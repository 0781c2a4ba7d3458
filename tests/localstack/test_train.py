"""Training through real Lambda invocations: the same weights as on the ``local`` launcher,
and what LocalStack does to a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.processes import Training
from tests.localstack.conftest import Place

pytestmark = pytest.mark.aws
SHARED = Path(__file__).parents[3] / "shared" / "data"
DIGITS = (
    "digits",
    "--mode",
    "pipe",
    "--parts",
    "2",
    "--param-servers",
    "2",
    "--lambdas",
    "2",
    "--intervals",
    "8",
    "--dropout",
    "0.5",
    "--epochs",
    "10",
)
WORKER = "lambda_funcs.handler.handler"


def train(tmp_path: Path, *arguments: str) -> Training:
    return Training(tmp_path / "run", *arguments)


def result(training: Training) -> dict:
    assert training.wait(180) == 0, training.errors
    return training.result


def logs(training: Training) -> str:
    """Of the functions, as LocalStack's CloudWatch had them."""
    return "".join(file.read_text() for file in (training.run_dir / "logs" / "lambda-localstack").glob("*.log"))


@pytest.mark.parametrize("source", ["digits", "cora"])
def test_one_command_trains_to_the_local_weights_collects_logs_and_leaves_nothing(
    tmp_path, local_digest, source, monkeypatch
):
    if source == "cora":
        if not (SHARED / "cora.npz").exists():
            pytest.skip(f"no {SHARED / 'cora.npz'}")
        monkeypatch.setenv("SIAFU_DATA", str(SHARED))
    arguments = DIGITS if source == "digits" else ("cora", "--mode", "pipe", "--epochs", "30", "--lambdas", "3")
    with train(tmp_path, *arguments, "--lambda-on", "localstack") as training:
        found = result(training)
        assert training.all_gone(1)
        lines = logs(training)
    assert found["weights_digest"] == local_digest(*arguments)
    assert lines.count("REPORT RequestId") == found["lambda"]["invocations"] > 0
    assert found["lambda"]["billed_ms"] > 0


def test_localstack_of_the_users_is_used_and_what_was_put_into_it_removed(tmp_path, place, local_digest, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.endpoint)
    before = [found["FunctionName"] for found in place.client("lambda").list_functions()["Functions"]]
    with train(tmp_path, *DIGITS, "--lambda-on", "localstack", *place.callback) as training:
        training.until(training.epochs, "an epoch")
        assert not training.pids("localstack.runtime.main")
        assert result(training)["weights_digest"] == local_digest(*DIGITS)
        assert "REPORT RequestId" in logs(training)
        assert training.all_gone(1)
    assert [found["FunctionName"] for found in place.client("lambda").list_functions()["Functions"]] == before


def test_deployed_function_is_used_where_the_config_names_an_endpoint(tmp_path, place: Place, deploy, local_digest):
    name = deploy(WORKER, timeout_s=900)
    with train(tmp_path, *DIGITS, *place.arguments(name)) as training:
        assert result(training)["weights_digest"] == local_digest(*DIGITS)
        assert training.all_gone(1)


def test_function_that_is_not_what_the_config_says_ends_the_run_before_it_starts(tmp_path, place, deploy):
    name = deploy(WORKER, memory_mb=256, timeout_s=900)
    with train(tmp_path, *DIGITS, *place.arguments(name)) as training:
        assert training.wait(60) == 2
        assert "256" in training.errors.splitlines()[-1]
        assert "lambda.memory_mb" in training.errors.splitlines()[-1]


def test_kill_switch_ends_the_run_before_it_starts(tmp_path, place, deploy):
    name = deploy(WORKER, timeout_s=900, reserved=0)
    with train(tmp_path, *DIGITS, *place.arguments(name)) as training:
        assert training.wait(60) == 2
        assert "reserved concurrency is 0" in training.errors.splitlines()[-1]


def test_throttled_run_ends_with_the_same_weights(tmp_path, place, deploy, local_digest):
    """Half of the environments are taken away while it runs, and workers leave all the
    time: most invocations are refused."""
    short = ("--set", "lambda.timeout_s=3", "--set", "lambda.margin_s=2")
    arguments = (*DIGITS[:-1], "60")
    name = deploy(WORKER, timeout_s=3, reserved=4)
    with train(tmp_path, *arguments, *short, *place.arguments(name)) as training:
        training.until(lambda: training.epochs() >= 3, "three epochs")
        place.client("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=2)
        found = result(training)
        assert training.all_gone(1)
    assert found["weights_digest"] == local_digest(*arguments)
    assert found["usage"]["invocations"] > 4


def test_function_killed_by_its_timeout_is_replaced(tmp_path, place, deploy, local_digest):
    name = deploy("tests.integration.handlers.first_hangs", timeout_s=4)
    settings = ("--set", "lambda.timeout_s=4", "--set", "lambda.margin_s=1", "--set", "lambda.task_timeout_s=1")
    with train(tmp_path, *DIGITS, *settings, *place.arguments(name)) as training:
        found = result(training)
        assert training.all_gone(1)
    assert found["weights_digest"] == local_digest(*DIGITS)
    assert found["lambda"]["relaunches"] >= 2  # one worker of each graph server hangs


def test_function_that_crashes_is_replaced(tmp_path, place, deploy, local_digest):
    name = deploy("tests.localstack.handlers.first_crashes", timeout_s=900)
    with train(tmp_path, *DIGITS, *place.arguments(name)) as training:
        found = result(training)
        assert training.all_gone(1)
    assert found["weights_digest"] == local_digest(*DIGITS)
    assert found["lambda"]["relaunches"] >= 2


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        ("no_such_module.handler", "Runtime.ImportModuleError"),
        ("tests.integration.handlers.does_nothing", "the handler returned without an error"),
    ],
)
def test_function_that_never_works_ends_the_run(tmp_path, place, deploy, handler, reason):
    name = deploy(handler, timeout_s=900)
    with train(tmp_path, *DIGITS, *place.arguments(name)) as training:
        assert training.wait(60) == 1
        assert training.all_gone(1)
        assert reason in training.errors.splitlines()[-1]


def test_run_that_is_killed_takes_its_localstack_with_it(tmp_path):
    with train(tmp_path, *DIGITS[:-1], "100000", "--lambda-on", "localstack") as training:
        training.until(lambda: training.epochs() >= 2, "two epochs")
        assert training.pids("localstack.runtime.main")
        training.process.kill()
        assert training.all_gone(5)


def test_ctrl_c_ends_the_run_and_its_localstack(tmp_path):
    with train(tmp_path, *DIGITS[:-1], "100000", "--lambda-on", "localstack") as training:
        training.until(lambda: training.epochs() >= 2, "two epochs")
        os.kill(training.process.pid, 2)
        assert training.wait(30) == 130
        assert training.all_gone(1)
