"""A Lambda function's configuration, and the outcome of one invocation, in AWS Lambda's terms.

Pure but for the paths of this process, which the function inherits so that it imports what we import.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from siafu import start
from siafu.variables import of_worker

TASK_ROOT = Path(__file__).resolve().parent.parent  # where siafu and lambda_funcs are imported from

#: ``Invocation.error`` of the local pool if this machine has no descriptors, processes or memory for one more.
NO_ROOM = "LocalResourcesExhausted"


@dataclass(frozen=True)
class Invocation:
    """The outcome of one invocation, as Lambda would report and bill it. An invocation that the service refused has the
    service's code as ``error``, a ``reason``, and no bill."""

    request_id: str
    payload: bytes  # the handler's JSON result, or the JSON error
    error: str | None  # None, "Unhandled" (the handler raised), or Lambda's type: "Sandbox.Timedout", ...
    init_ms: float  # 0.0 when the environment was warm
    billed_ms: int  # duration rounded up, INIT included (billed since 2025-08-01)
    max_memory_mb: int  # peak of the environment so far; 0 where there is no /proc
    log_tail: str  # last 4 KiB of the log of function and platform
    reason: str = ""  # of a refusal: TooManyRequestsException's Reason, or the service's message


@dataclass(frozen=True)
class Function:
    """The configuration of the Lambda function, which all environments of a pool share."""

    handler: str
    memory_mb: int
    timeout_s: float
    init_timeout_s: float
    #: Variables that set how environments compute, from the process that makes this object: with Ray, the launcher's.
    variables: Mapping[str, str] = field(default_factory=of_worker)

    @property
    def task_root(self) -> Path:
        """The folder of the function's code, in which its environments start."""
        return TASK_ROOT

    @property
    def arn(self) -> str:
        return "arn:aws:lambda:local:000000000000:function:siafu"

    def environ(self, api_address: str, log_stream: str) -> dict[str, str]:
        """Returns all variables of the child: Lambda's, ``variables``, and from this process only the paths, so that no
        credentials leak."""
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        return {
            **kept,
            **self.variables,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys([str(TASK_ROOT), *start.paths()])),
            "_HANDLER": self.handler,
            "AWS_LAMBDA_RUNTIME_API": api_address,
            "AWS_REGION": "local",
            "AWS_DEFAULT_REGION": "local",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
            "AWS_LAMBDA_FUNCTION_NAME": "siafu",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/siafu",
            "AWS_LAMBDA_LOG_STREAM_NAME": log_stream,
            "LAMBDA_TASK_ROOT": str(TASK_ROOT),
        }


def error_payload(request_id: str, error: str, message: str) -> bytes:
    """Returns the JSON that Lambda returns for an error which is not the handler's own."""
    return json.dumps({"errorType": error, "errorMessage": f"RequestId: {request_id} Error: {message}"}).encode()


def handler_error(payload: bytes) -> str:
    """Returns Lambda's name for a handler's error: "Runtime.MarshalError" and the like stay, the rest is Unhandled."""
    try:
        error = json.loads(payload)["errorType"]
    except (ValueError, TypeError, KeyError):
        return "Unhandled"
    return error if isinstance(error, str) and error.startswith("Runtime.") else "Unhandled"


def report(
    function: Function,
    request_id: str,
    error: str | None,
    init_ms: float,
    duration_ms: float,
    billed_ms: int,
    max_memory_mb: int,
) -> str:
    """Returns the END and REPORT lines that close an invocation in the log."""
    fields = [
        f"REPORT RequestId: {request_id}",
        f"Duration: {duration_ms:.2f} ms",
        f"Billed Duration: {billed_ms} ms",
        f"Memory Size: {function.memory_mb} MB",
        f"Max Memory Used: {max_memory_mb} MB",
    ]
    if init_ms > 0:
        fields.append(f"Init Duration: {init_ms:.2f} ms")
    if error == "Sandbox.Timedout":
        fields.append("Status: timeout")
    elif error not in (None, "Unhandled"):  # the handler's own errors are no failure of the environment
        fields += ["Status: error", f"Error Type: {error}"]
    return f"END RequestId: {request_id}\n" + "\t".join(fields) + "\n"
