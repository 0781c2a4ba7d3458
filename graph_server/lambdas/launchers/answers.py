"""Reads the answer to an Invoke call: how the function ended, and what it cost. Pure.

Rules:
1. HTTP 200 with FunctionError set is a failure. FunctionError itself is "Unhandled" for nearly all. The payload's
   errorType says more if it is one of the platform's ("Runtime.ExitError"); any other is the handler's own exception.
   A kill by the kernel for lack of memory comes as Runtime.OutOfMemory, in the payload or only in the REPORT line, or
   as an ExitError of a process that had used all of the memory.
2. The bill is taken from the log tail's REPORT line, INIT included (billed since 2025-08-01). Without such a line it is
   the time that the call took, rounded up.
3. A refusal costs nothing. A lost answer costs the time that may have been used until then. The service's bill may be
   higher, because a worker without a server waits before it leaves: ``lambda.idle_s``, or ``servers.silence_s`` if it
   waits for the rest of a task.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from graph_server.lambdas import invoke_errors
from graph_server.lambdas.out_of_memory import OUT_OF_MEMORY
from lambda_funcs.invocation import Invocation, error_payload

_TIMED_OUT = re.compile(rb"Task timed out after [\d.]+ seconds")


@dataclass(frozen=True)
class Report:
    """The platform's REPORT line."""

    billed_ms: int
    init_ms: float  # 0.0 when the environment was warm
    max_memory_mb: int
    timed_out: bool
    out_of_memory: bool = False  # the line has this error type
    is_full: bool = False  # all of the memory was used


def read_report(log_tail: str) -> Report | None:
    """Parses the last REPORT line of a log tail; None if there is none, or if it has no duration."""
    lines = [line for line in log_tail.splitlines() if line.startswith("REPORT RequestId:")]
    if not lines:
        return None
    fields = dict(re.findall(r"([A-Z][A-Za-z ]+): ([^\t]*)", lines[-1]))
    duration, billed, init = (_number(fields, f"{name}Duration") for name in ("", "Billed ", "Init "))
    if duration is None and billed is None:
        return None
    size_mb, used_mb = (_number(fields, name) or 0.0 for name in ("Memory Size", "Max Memory Used"))
    return Report(
        math.ceil((duration or 0.0) + (init or 0.0) if billed is None else billed),
        init or 0.0,
        int(used_mb),
        fields.get("Status", "").strip() == "timeout",
        fields.get("Error Type", "").strip() == OUT_OF_MEMORY,
        used_mb >= size_mb > 0,
    )


def ran(request_id: str, payload: bytes, function_error: str, log_tail: str, took_s: float) -> Invocation:
    """Returns the outcome of an invocation that was answered."""
    report = read_report(log_tail) or Report(math.ceil(1000 * took_s), 0.0, 0, timed_out=False)
    error = _error(payload, function_error, report) if function_error else None
    return Invocation(request_id, payload, error, report.init_ms, report.billed_ms, report.max_memory_mb, log_tail)


def refused(request_id: str, code: str, status: int, reason: str, message: str) -> Invocation:
    """Returns the outcome of an invocation that the service refused. ``reason``: the Reason of a throttle."""
    if invoke_errors.is_known(code):
        error, why = code, reason or message
    else:
        error, why = str(status), ": ".join(filter(None, (code, message)))
    return lost(request_id, error, why, 0.0)


def lost(request_id: str, error: str, why: str, used_s: float) -> Invocation:
    """Returns the outcome of an invocation without an answer."""
    payload = error_payload(request_id, error, why)
    return Invocation(request_id, payload, error, 0.0, math.ceil(1000 * used_s), 0, "", why)


def _error(payload: bytes, function_error: str, report: Report) -> str:
    """Returns the error of a failed function by rule 1."""
    kind = str(_object(payload).get("errorType", ""))
    was_killed = kind == "Runtime.ExitError" and b"signal: killed" in payload
    if report.out_of_memory or (was_killed and report.is_full):
        return OUT_OF_MEMORY
    if kind.startswith(invoke_errors.FAMILIES):
        return kind
    if report.timed_out or (not kind and _TIMED_OUT.search(payload)):
        return "Sandbox.Timedout"
    return function_error


def _object(payload: bytes) -> dict[str, Any]:
    """Parses the payload as a JSON object; empty if it is none."""
    try:
        found = json.loads(payload)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(fields: dict[str, str], name: str) -> float | None:
    found = re.match(r"\d+(\.\d+)?", fields.get(name, ""))
    return float(found[0]) if found else None
