"""infra.rie: AWS's emulator around the unmodified package. Where its binary cannot be had these are skipped."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra import package, rie, wheels
from run_coordinator.api import train
from run_coordinator.lambda_emulator import lambda_site
from siafu import config as configs
from siafu.config import Config
from siafu.errors import ConfigError, WorkerError

HANDLERS = "tests.lambda_funcs.handlers"
PATIENCE_S = 120.0  # what does not come within this never does

Start = Callable[..., rie.Emulators]


@pytest.fixture(scope="session")
def task_root() -> Path:
    if sys.platform != "linux":
        pytest.skip("the emulator runs on Linux alone")
    try:
        rie.binary()
        return package.unpacked(package.build_here())
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def start(task_root: Path, tmp_path: Path) -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def start(handler: str, count: int = 1, timeout_s: float = 20.0) -> rie.Emulators:
            name = handler if "." in handler else f"{HANDLERS}.{handler}"
            function = rie.Function(task_root, name, 192, timeout_s)
            emulators = stack.enter_context(rie.Emulators(function, count, tmp_path / "logs"))
            until, ours = os.pipe()
            watcher = threading.Thread(target=emulators.watch, args=(until,))
            stack.callback(os.close, until)
            stack.callback(watcher.join)
            stack.callback(os.close, ours)
            watcher.start()
            return emulators

        yield start


def ask(url: str, event: Any = None) -> tuple[int, bytes]:
    """Status and body."""
    target = f"{url}/2015-03-31/functions/{rie.FUNCTION}/invocations"
    request = urllib.request.Request(target, data=json.dumps(event or {}).encode())
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def returned(url: str, event: Any = None) -> Any:
    status, body = ask(url, event)
    assert status == 200, body
    return json.loads(body)


def ended(pid: int) -> bool:
    """Within a few seconds; a zombie that its new parent has yet to collect has."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], 60.0)[0])
    finally:
        os.close(pidfd)


def hanging(url: str, folder: Path) -> tuple[threading.Thread, int]:
    """A call that does not return, and the pid of its runtime."""
    fifo = folder / "started"
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo)

    def call() -> None:
        with contextlib.suppress(OSError):  # the emulator is killed under it
            ask(url, {"started": str(fifo)})

    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        thread = threading.Thread(target=call)
        thread.start()
        assert select.select([reader], [], [], PATIENCE_S)[0]
        return thread, int(os.read(reader, 100))
    finally:
        os.close(reader)


def reborn(emulator: rie.Emulator, died: int) -> None:
    """Waits until another process than ``died`` listens on the emulator's port."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", emulator.port), 1.0):
            if emulator.pid != died:
                return
        select.select([], [], [], 0.02)


# --- what an emulator answers: the table of the module's docstring ------------------------------------------------------


def test_result_is_the_handlers_json_and_the_environment_stays(start):
    [url] = start("echo").urls
    first, second = returned(url, {"interval": 3}), returned(url)
    assert first["event"] == {"interval": 3}
    assert first["pid"] == second["pid"]
    assert first["request_id"] != second["request_id"]


@pytest.mark.parametrize(
    ("handler", "status", "error"),
    [
        ("fail", 200, "ValueError"),
        ("unserialisable", 200, "Runtime.MarshalError"),
        ("crash", 502, "Runtime.ExitError"),
        ("abort", 502, "Runtime.ExitError"),
        ("absent", 502, "Runtime.HandlerNotFound"),
        (f"{HANDLERS}_not_there.handler", 502, "Runtime.ImportModuleError"),
    ],
)
def test_failure_is_a_body_with_its_type(start, handler, status, error):
    [url] = start(handler).urls
    for _ in range(2):
        found = ask(url)
        assert (found[0], json.loads(found[1])["errorType"]) == (status, error)


def test_timeout_is_plain_text_with_status_200_and_the_next_call_gets_a_new_environment(start, tmp_path):
    [url] = start("hang", timeout_s=4.0).urls
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    pids: list[int] = []
    for _ in range(2):
        reader = threading.Thread(target=lambda: pids.append(int(fifo.read_text())))
        reader.start()
        assert ask(url, {"started": str(fifo)}) == (200, b"Task timed out after 4.00 seconds")
        reader.join()
    assert pids[0] != pids[1]


def test_another_function_is_not_found(start):
    [url] = start("echo").urls
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{url}/2015-03-31/functions/siafu/invocations", data=b"{}", timeout=PATIENCE_S)
    with caught.value as answer:
        assert answer.code == 404


# --- the environment ----------------------------------------------------------------------------------------------------


def test_environment_has_lambdas_variables_and_none_of_ours(start, task_root, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("HOME", "/home/me")
    [url] = start("environment").urls
    found = returned(url)
    variables = found["variables"]
    assert {variables[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")} == {"1"}
    assert variables["LAMBDA_TASK_ROOT"] == str(task_root)
    assert variables["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "192"
    assert variables["AWS_SECRET_ACCESS_KEY"] == ""
    assert "HOME" not in variables
    assert 0 < found["remaining_ms"] <= 20_000


def test_only_the_package_and_the_runtime_client_can_be_imported(task_root):
    function = rie.Function(task_root, package.HANDLER, 192, 1.0)
    code = (
        "import importlib.util as u, json, awslambdaric, numpy, siafu, lambda_funcs.handler\n"
        "there = [n for n in ('scipy', 'rich', 'graph_server', 'tests', 'pip') if u.find_spec(n)]\n"
        "print(json.dumps([there, numpy.__file__, siafu.__file__]))"
    )
    command = [*function.command(0)[:3], "-c", code]
    done = subprocess.run(command, env=function.environ(), cwd=task_root, capture_output=True, text=True, check=True)
    there, *files = json.loads(done.stdout)
    assert there == []
    assert [Path(file).parent.parent for file in files] == [task_root, task_root]


def test_environments_write_their_logs_to_files_of_their_own(start, tmp_path):
    for url in start("talk", count=2).urls:
        ask(url, {"nbytes": 10})
    for name in ("env-0001", "env-0002"):
        text = (tmp_path / "logs" / f"{name}.log").read_text()
        assert "first line" in text
        assert "REPORT RequestId:" in text


def test_handler_that_is_nowhere_is_the_users_error(task_root, tmp_path):
    with pytest.raises(ConfigError, match=r"lambda.handler = nowhere.handler: there is no nowhere in the function's"):
        rie.Emulators(rie.Function(task_root, "nowhere.handler", 192, 1.0), 1, tmp_path)


# --- life and death -----------------------------------------------------------------------------------------------------


def test_emulator_that_died_is_started_again_on_its_port_and_its_runtime_goes_with_it(start, tmp_path):
    emulators = start("hang")
    [url], [emulator] = emulators.urls, emulators.all
    call, runtime = hanging(url, tmp_path)
    died = emulator.pid
    os.kill(died, 9)
    call.join(PATIENCE_S)
    assert ended(runtime)
    reborn(emulator, died)
    call, runtime = hanging(url, tmp_path)
    emulators.__exit__()
    call.join(PATIENCE_S)
    assert ended(runtime)


def test_two_calls_at_a_time_cost_an_emulator_and_not_the_run(start, tmp_path):
    emulators = start("hang")
    [url], [emulator] = emulators.urls, emulators.all
    died = emulator.pid
    call, runtime = hanging(url, tmp_path)
    with pytest.raises(OSError, match=r"closed|reset"):
        ask(url)
    call.join(PATIENCE_S)
    assert ended(runtime)
    reborn(emulator, died)


def test_emulator_that_cannot_live_ends_the_site(task_root, tmp_path):
    function = rie.Function(task_root, package.HANDLER, 192, 1.0)
    emulator = rie.Emulator("env", function, rie.binary(), tmp_path / "log")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        emulator.start(port, port)
        with contextlib.closing(emulator):
            for _ in range(rie.MAX_SHORT_LIVES - 1):
                assert not emulator.wait()
                emulator.restart(port)
            assert not emulator.wait()
            with pytest.raises(WorkerError, match=r"emulator env died 5 times in a row: "):
                emulator.restart(port)


def test_site_serves_until_it_is_left_and_leaves_nothing(task_root, tmp_path):
    config = Config().replace(
        {"servers.backend": "lambda", "lambda.on": "rie", "lambda.count": 1, "lambda.handler": f"{HANDLERS}.echo"}
    )
    with lambda_site(config, tmp_path) as site:
        ready = site.config
        urls = ready.lambdas.endpoint.split(",")
        assert (len(urls), ready.lambdas.function) == (2, rie.FUNCTION)
        pids = [returned(url)["pid"] for url in urls]
    assert all(ended(pid) for pid in pids)
    for url in urls:
        with pytest.raises(urllib.error.URLError, match="refused"):
            ask(url)


def test_kill_9_of_the_site_leaves_nothing(task_root, tmp_path):
    config = Config().replace({"servers.backend": "lambda", "lambda.count": 1, "lambda.handler": f"{HANDLERS}.hang"})
    (tmp_path / "site.toml").write_text(configs.dump(config))
    command = [sys.executable, "-m", "infra.rie", "--config", str(tmp_path / "site.toml"), "--run-dir", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as site:
        assert site.stdout is not None
        url = json.loads(site.stdout.readline())["endpoint"].split(",")[0]
        call, runtime = hanging(url, tmp_path)  # busy: it would not notice by itself
        site.kill()
    call.join(PATIENCE_S)
    assert not call.is_alive()
    assert ended(runtime)


def test_site_says_in_its_last_line_what_the_user_must_change(task_root, tmp_path):
    config = Config().replace({"servers.backend": "lambda", "lambda.on": "rie", "lambda.handler": "nowhere.handler"})
    with (
        pytest.raises(ConfigError, match=r"lambda.on = rie: lambda.handler = nowhere.handler: "),
        lambda_site(config, tmp_path),
    ):
        pass


# --- what is run --------------------------------------------------------------------------------------------------------


def test_a_binary_that_is_not_the_pinned_one_is_refused(monkeypatch, tmp_path):
    def download(requirement: str, folder: Path) -> Path:
        assert requirement == rie.WHEEL
        with zipfile.ZipFile(folder / "sam.whl", "w") as archive:
            archive.writestr("samcli/local/rapid/aws-lambda-rie-x86_64", "#!/bin/sh")
        return folder / "sam.whl"

    monkeypatch.setattr(wheels, "download", download)
    monkeypatch.setattr(rie, "CACHE", tmp_path)
    monkeypatch.setattr(wheels.Target, "here", lambda: wheels.Target("x86_64", "python3.11", 36))
    with pytest.raises(ConfigError, match=f"has SHA-256 [0-9a-f]{{64}}, must be {rie.BINARIES['x86_64']}"):
        rie.binary()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_without_an_index_the_emulator_cannot_be_had(monkeypatch, tmp_path):
    monkeypatch.setattr(rie, "CACHE", tmp_path)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(wheels.Target, "here", lambda: wheels.Target("x86_64", "python3.11", 36))
    with pytest.raises(ConfigError, match=f"pip cannot download {rie.WHEEL}"):
        rie.binary()


@pytest.mark.parametrize(("count", "parts", "emulators"), [(3, 1, 6), (3, 2, 12), (0, 1, 16), (0, 8, 32)])
def test_twice_as_many_emulators_as_are_wanted_at_work(count, parts, emulators, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    config = dataclasses.replace(Config(), data=configs.Data(parts=parts), lambdas=configs.Lambda(count=count))
    assert rie.environments(config) == emulators


# --- all of it ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("parts", [1, 2])
def test_training_on_emulators_gives_the_local_launchers_weights_bit_for_bit(task_root, tmp_path, parts):
    pytest.importorskip("boto3", reason="the launcher needs siafu[aws]")
    runs = [
        train("digits", parts=parts, epochs=4, mode="pipe", lambdas=2, lambda_on=on, run_dir=str(tmp_path / on))
        for on in ("local", "rie")
    ]
    assert runs[0].result["weights_digest"] == runs[1].result["weights_digest"]
    assert runs[1].result["usage"]["lost_workers"] == 0
    logs = [path.read_text() for path in (runs[1].dir / "logs" / "lambda-rie").iterdir()]
    # its end is written after its answer: the emulator may be gone before
    assert sum(log.count("START RequestId:") for log in logs) == runs[1].result["usage"]["invocations"]
