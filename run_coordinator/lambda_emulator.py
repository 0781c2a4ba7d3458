"""LocalStack for the Lambdas of one run, started as a process.

1. The process (``python -m infra.localstack``) gets the run's resolved config and its directory.
2. When functions can be invoked, it prints one JSON line:
   ``{"endpoint": URLS, "function": NAME, "callback_host": HOST}``.
3. It serves until its stdin ends. A line before that says how many invocations there were.
4. It then collects their logs into ``<run-dir>/logs`` and removes everything else. Its process group ends with us.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from siafu import config as configs
from siafu import start
from siafu.config import Config
from siafu.errors import ConfigError, WorkerError
from siafu.leash import Leash

ASKED = "site.toml"  # of a run's directory: its config before LocalStack's endpoint was filled in
FILLED_IN = ("endpoint", "function", "callback_host")
START_S = 120.0  # on a busy machine
STOP_S = 30.0


@dataclass(frozen=True)
class Site:
    settings: Mapping[str, str]  # what the run's config must say: LocalStack's endpoint
    check: Callable[[], None]  # WorkerError once LocalStack is gone: without it a run would only see refusals
    ended: Callable[[int], None]  # the run has, after that many invocations, whose logs are waited for


def as_asked(config: Config, run_dir: Path) -> Config:
    """The config of a finished run, without the endpoint of the run's own LocalStack, which is gone."""
    if not (run_dir / ASKED).is_file():
        return config
    asked = configs.load(run_dir / ASKED).lambdas
    return config.replace({f"lambda.{key}": getattr(asked, key) for key in FILLED_IN})


@contextlib.contextmanager
def lambda_site(config: Config, run_dir: Path) -> Iterator[Site]:
    """Starts LocalStack while the block runs, if ``lambda.on`` asks for it and the user has named no endpoint.

    WorkerError with LocalStack's own words if it cannot be started; ConfigError if its exit code is 2, a user error.
    """
    lambdas = config.lambdas
    if config.servers.backend != "lambda" or lambdas.on != "localstack" or lambdas.endpoint:
        yield Site({}, lambda: None, lambda invocations: None)
        return
    logs = run_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    asked = run_dir / ASKED
    asked.write_text(configs.dump(config))
    command = start.command("infra.localstack", "--config", str(asked), "--run-dir", str(run_dir))
    leash = Leash()
    log = logs / "localstack.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            env=start.environment(),
            start_new_session=True,
            pass_fds=(leash.fd,),
        )
        leash.tie(process.pid)

    def check() -> None:
        if process.poll() is not None:
            raise WorkerError(f"lambda.on = localstack: {_last_words(log) or 'it is gone'} ({log})")

    def ended(invocations: int) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone: nobody collects logs
            process.stdin.write(b"%d\n" % invocations)

    try:
        yield Site({f"lambda.{key}": value for key, value in _ready(process, log).items()}, check, ended)
    finally:
        _stop(process)
        leash.close()


def _ready(process: subprocess.Popen[bytes], log: Path) -> dict[str, str]:
    """The JSON object that LocalStack prints once it serves."""
    assert process.stdout is not None
    line = _first_line(process.stdout, time.monotonic() + START_S)
    if line:
        found: dict[str, str] = json.loads(line)
        return found
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    why = _last_words(log) or f"it did not answer within {START_S:g} s"
    raise (ConfigError if process.poll() == 2 else WorkerError)(f"lambda.on = localstack: {why} ({log})")


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else ""


def _first_line(stream: IO[bytes], deadline: float) -> bytes:
    """The first line; empty if the stream ends or ``deadline`` passes before it."""
    line = b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
        found = os.read(stream.fileno(), 4096) if readable else b""
        if not found:
            return b""
        line += found
    return line


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
