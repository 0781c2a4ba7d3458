"""LocalStack's Lambda functions as processes of this machine: an executor that it loads
as a plugin, inside its own process.

It exists because LocalStack's own executor wants Docker. A function runs in the environments that ``lambda.on = local``
has (``lambda_funcs.environment``), but with the code, the variables and the limits that it was deployed with: numpy and
pyzmq come from its zip. So errors, timeouts, the memory limit and the bill are the same in both places.

LocalStack calls ``invoke`` from a thread of its own, one invocation at a time for each executor; that thread is the
environment's loop for as long. Between two invocations nothing runs here, as on Lambda, where a frozen environment
waits. The environment starts at once and inits under its first invocation, which pays for it and is told if it fails.

Not modelled: the read-only file system, the share of a core, the VPC.
"""

from __future__ import annotations

import logging
import os
import platform
import selectors
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localstack.services.edge import ROUTER
from localstack.services.lambda_ import runtimes
from localstack.services.lambda_.invocation.lambda_models import FunctionVersion, InvocationResult
from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin
from localstack.services.lambda_.invocation.runtime_executor import RuntimeExecutor

from infra.localstack.identity import EXECUTOR, WHO
from lambda_funcs.environment import Environment
from lambda_funcs.invocation import Function, Invocation

LOG = logging.getLogger(__name__)

#: Lambda's runtimes that this LocalStack does not know.
YOUNGER = ("python3.14",)
INIT_TIMEOUT_S = 20.0
BURIAL_S = 2.0  # for the kernel to take a killed process down
MAX_LOG_NBYTES = 2**20  # of one invocation that reach CloudWatch, which takes no more in one call
RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"
ARCHITECTURE = {"aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), "x86_64")
HERE = f"{RUNTIME} on {ARCHITECTURE}"


def who(request: object = None) -> dict[str, object]:
    """The answer at ``WHO``: functions run here, not in Docker, and in this runtime and architecture. LocalStack
    replaces an executor that it does not find by Docker's, without an error."""
    return {"pid": os.getpid(), "runtime": RUNTIME, "arch": ARCHITECTURE}


@dataclass(frozen=True, kw_only=True)
class Deployed(Function):
    """The function as it was deployed."""

    code: Path
    function_arn: str

    @property
    def task_root(self) -> Path:
        return self.code

    @property
    def arn(self) -> str:
        return self.function_arn

    def environ(self, api_address: str, log_stream: str) -> dict[str, str]:
        """The environment's variables: one thread for BLAS and none of ours, as everywhere; then LocalStack's, above
        all the function's own. The code is found because the client starts in its folder."""
        clean = super().environ(api_address, log_stream)
        del clean["PYTHONPATH"]
        return {**clean, **self.variables, "AWS_LAMBDA_RUNTIME_API": api_address, "LAMBDA_TASK_ROOT": str(self.code)}


class ProcessExecutor(RuntimeExecutor):
    """An execution environment of LocalStack: one process at a time, replaced when it has died."""

    def __init__(self, id: str, function_version: FunctionVersion) -> None:
        super().__init__(id, function_version)
        self._lock = threading.Lock()  # who holds it is the environment's thread
        # All mutable state:
        self._function: Deployed | None = None
        self._environment: Environment | None = None
        self._selector = selectors.DefaultSelector()
        self._stopped = False

    def start(self, env_vars: dict[str, Any]) -> None:
        config = self.function_version.config
        variables = {name: str(value) for name, value in env_vars.items() if not name.startswith("LOCALSTACK_")}
        code = Path(config.code.get_unzipped_code_location())
        arn = self.function_version.qualified_arn
        with self._lock:
            self._function = Deployed(
                config.handler,
                config.memory_size,
                float(config.timeout),
                INIT_TIMEOUT_S,
                variables,
                code=code,
                function_arn=arn,
            )
            self._environment = self._new()

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        request_id = payload["invoke-id"]
        with self._lock:
            environment = self._warm() or self._new()
            environment.assign(request_id, payload["payload"].encode(), time.monotonic())
            outcome = None
            while outcome is None:
                outcome = self._step(environment, environment.wake_at())
            if not environment.idle:
                self._bury()
            return InvocationResult(
                request_id, outcome.payload, is_error=outcome.error is not None, logs=self._take_log()
            )

    def stop(self) -> None:
        """Ends the process; may be called from any thread. An invocation in flight fails as if its process was
        killed."""
        self._stopped = True
        environment = self._environment
        if environment is not None and not environment.gone:
            environment.kill()
        with self._lock:
            self._bury()
            self._selector.close()
        self._log_path.unlink(missing_ok=True)

    def _new(self) -> Environment:
        if self._stopped or self._function is None:
            raise RuntimeError(f"environment {self.id} was stopped")
        self._log_path.parent.mkdir(exist_ok=True)
        self._environment = Environment(self.id, self._function, self._selector, self._log_path)
        return self._environment

    def _warm(self) -> Environment | None:
        """The environment if it still runs: it may have been killed since the last invocation."""
        if self._environment is not None:
            self._step(self._environment, 0.0)
            if self._environment.idle:
                return self._environment
        self._bury()
        return None

    def _bury(self) -> None:
        """Kills the process, and waits until it is reaped and its descriptors are closed."""
        environment, self._environment = self._environment, None
        if environment is None or environment.gone:
            return
        environment.kill()
        until = time.monotonic() + BURIAL_S
        while not environment.gone and time.monotonic() < until:
            self._step(environment, until)
        if not environment.gone:
            LOG.error("process %d survived SIGKILL for %g s", environment.pid, BURIAL_S)

    def _step(self, environment: Environment, until: float) -> Invocation | None:
        """Waits for events until ``until`` (monotonic seconds) at most, and handles them."""
        outcome = None
        for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
            if self._selector.get_map().get(key.fd) is key:  # else closed by an event before it
                outcome = key.data(time.monotonic()) or outcome
        now = time.monotonic()
        if outcome is None and not environment.gone and now >= environment.wake_at():
            outcome = environment.tick(now)
        return outcome

    # -- logs

    @property
    def _log_path(self) -> Path:
        return Path(tempfile.gettempdir()) / "environments" / f"{self.id}.log"

    def _take_log(self) -> str:
        """The log since the last call."""
        text = self._log_path.read_bytes()
        os.truncate(self._log_path, 0)  # it is open for appending: the next line is its first
        return text[-MAX_LOG_NBYTES:].decode(errors="replace")

    def get_logs(self) -> str:
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    # -- what LocalStack's own executor needs addresses for: containers that dial it

    def get_address(self) -> str:
        return "127.0.0.1"

    def get_endpoint_from_executor(self) -> str:
        return "127.0.0.1"

    def get_runtime_endpoint(self) -> str:
        return ""

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        """Raises ValueError for code that cannot run here: the function's state becomes Failed, with this reason. Pure
        Python code runs, whatever Python and architecture it names."""
        config = function_version.config
        if not (config.runtime or "").startswith("python3") or not config.code:
            raise ValueError(f"only zips of Python run here, not {config.runtime or config.package_type}")
        config.code.prepare_for_execution()
        wanted = f"{config.runtime} on {(config.architectures or [ARCHITECTURE])[0]}"
        if wanted != HERE and next(Path(config.code.get_unzipped_code_location()).rglob("*.so"), None):
            raise ValueError(f"only compiled code for {HERE} runs here, not for {wanted}")

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        pass

    @classmethod
    def validate_environment(cls) -> bool:
        """Called when LocalStack loads its Lambda service."""
        runtimes.ALL_RUNTIMES += [runtime for runtime in YOUNGER if runtime not in runtimes.ALL_RUNTIMES]
        ROUTER.add(WHO, endpoint=who)
        return True


class ProcessExecutorPlugin(RuntimeExecutorPlugin):
    name = EXECUTOR

    def load(self, *args: object, **kwargs: object) -> type[ProcessExecutor]:
        return ProcessExecutor
