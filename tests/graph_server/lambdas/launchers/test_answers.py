"""What an answer of the service says; tests name the rule of graph_server/lambdas/launchers/answers.py."""

from __future__ import annotations

import json

import pytest

from graph_server.lambdas.invoke_errors import THROTTLED
from graph_server.lambdas.launchers.answers import Report, lost, ran, read_report, refused

WARM = (
    "REPORT RequestId: 3f1c\tDuration: 1.19 ms\tBilled Duration: 2 ms\tMemory Size: 192 MB\tMax Memory Used: 35 MB\t\n"
)
COLD = WARM.replace("Billed Duration: 2 ms", "Billed Duration: 102 ms").replace(
    "\t\n", "\tInit Duration: 100.61 ms\t\n"
)
OK = b'{"tasks": 3}'


def error(kind: str, message: str = "it broke") -> bytes:
    return json.dumps({"errorType": kind, "errorMessage": message}).encode()


@pytest.mark.parametrize(
    ("log_tail", "expected"),
    [
        (WARM, Report(2, 0.0, 35, timed_out=False)),
        (COLD, Report(102, 100.61, 35, timed_out=False)),
        (
            "START RequestId: 3f1c Version: $LATEST\nhello\nEND RequestId: 3f1c\n" + COLD,
            Report(102, 100.61, 35, timed_out=False),
        ),
        (COLD.replace("\tBilled Duration: 102 ms", ""), Report(102, 100.61, 35, timed_out=False)),  # 101.8 rounded up
        (WARM.replace("\tBilled Duration: 2 ms", ""), Report(2, 0.0, 35, timed_out=False)),
        # Without the memory's size and use nobody knows that it was full.
        ("REPORT RequestId: 3f1c\tDuration: 1.19 ms\tBilled Duration: 2 ms\t\n", Report(2, 0.0, 0, timed_out=False)),
        (WARM.replace("\t\n", "\tStatus: timeout\n"), Report(2, 0.0, 35, timed_out=True)),
        (WARM + "XRAY TraceId: 1-5e\tSegmentId: 4c\tSampled: true\t\n", Report(2, 0.0, 35, timed_out=False)),
        (WARM.replace("\t\n", "\tStatus: error\tError Type: Runtime.ExitError\n"), Report(2, 0.0, 35, timed_out=False)),
        (
            "REPORT RequestId: old\tDuration: 9.00 ms\tBilled Duration: 9 ms\n" + WARM,
            Report(2, 0.0, 35, timed_out=False),
        ),
        ("the function says REPORT RequestId: mine\n" + WARM, Report(2, 0.0, 35, timed_out=False)),
        ("", None),
        ("hello\n", None),
        ("REPORT RequestId: 3f1c", None),
        ("REPORT RequestId: 3f1c\tDuration: soon\tBilled Duration: \n", None),
    ],
)
def test_report_line(log_tail: str, expected: Report | None) -> None:
    """Rule 2."""
    assert read_report(log_tail) == expected


def test_bill_is_the_report_lines() -> None:
    """Rule 2."""
    outcome = ran("w0-1", OK, "", COLD, took_s=0.5)
    assert (outcome.request_id, outcome.payload, outcome.error, outcome.reason) == ("w0-1", OK, None, "")
    assert (outcome.billed_ms, outcome.init_ms, outcome.max_memory_mb) == (102, 100.61, 35)
    assert outcome.log_tail == COLD


def test_bill_without_a_report_is_the_time_it_took_rounded_up() -> None:
    """Rule 2."""
    outcome = ran("w0-1", OK, "", "", took_s=0.1234)
    assert (outcome.billed_ms, outcome.init_ms, outcome.max_memory_mb) == (124, 0.0, 0)


@pytest.mark.parametrize(
    ("payload", "log_tail", "expected"),
    [
        (error("ValueError"), WARM, "Unhandled"),
        (error("Runtime.ExitError"), WARM, "Runtime.ExitError"),
        (error("Runtime.OutOfMemory"), WARM, "Runtime.OutOfMemory"),
        (error("Sandbox.Timedout"), WARM, "Sandbox.Timedout"),
        (error("Function.ResponseSizeTooLarge"), WARM, "Function.ResponseSizeTooLarge"),
        (
            b'{"errorMessage": "2026-11-20T10:00:00.000Z 3f1c Task timed out after 3.00 seconds"}',
            WARM,
            "Sandbox.Timedout",
        ),
        (b'{"errorMessage": "gone"}', WARM.replace("\t\n", "\tStatus: timeout\n"), "Sandbox.Timedout"),
        (b"null", WARM, "Unhandled"),
        (b"not json", WARM, "Unhandled"),
        (b"", "", "Unhandled"),
    ],
)
def test_function_error_is_named_by_the_platform_or_unhandled(payload: bytes, log_tail: str, expected: str) -> None:
    """Rule 1."""
    assert ran("r", payload, "Unhandled", log_tail, 0.1).error == expected


def test_result_that_looks_like_an_error_is_a_result_on_lambda() -> None:
    """Rule 1."""
    assert ran("r", error("ValueError"), "", WARM, 0.1).error is None


def test_refusal_has_the_services_code_and_reason_and_costs_nothing() -> None:
    """Rule 3."""
    outcome = refused("r", THROTTLED, 429, "CallerRateLimitExceeded", "Rate exceeded")
    assert (outcome.error, outcome.reason, outcome.billed_ms) == (THROTTLED, "CallerRateLimitExceeded", 0)
    assert refused("r", "ENINotReadyException", 502, "", "wait a little").reason == "wait a little"


def test_refusal_with_an_unknown_code_is_known_by_its_status() -> None:
    outcome = refused("r", "SlowDown", 503, "", "wait a little")
    assert (outcome.error, outcome.reason) == ("503", "SlowDown: wait a little")


def test_lost_answer_costs_what_was_used() -> None:
    """Rule 3."""
    outcome = lost("r", "ConnectionClosedError", "reset by peer", 1.2345)
    assert (outcome.error, outcome.reason, outcome.billed_ms) == ("ConnectionClosedError", "reset by peer", 1235)
    assert "reset by peer" in json.loads(outcome.payload)["errorMessage"]


@pytest.mark.parametrize(
    ("kind", "message", "report", "expected"),
    [
        ("Runtime.OutOfMemory", "it broke", "", "Runtime.OutOfMemory"),
        ("Runtime.ExitError", "it broke", "Status: error\tError Type: Runtime.OutOfMemory", "Runtime.OutOfMemory"),
        (
            "Runtime.ExitError",
            "RequestId: 3f1c Error: Runtime exited with error: signal: killed",
            "FULL",
            "Runtime.OutOfMemory",
        ),
        (
            "Runtime.ExitError",
            "RequestId: 3f1c Error: Runtime exited with error: signal: killed",
            "",
            "Runtime.ExitError",
        ),
        (
            "Runtime.ExitError",
            "RequestId: 3f1c Error: Runtime exited with error: exit status 1",
            "FULL",
            "Runtime.ExitError",
        ),
    ],
)
def test_a_kill_for_want_of_memory_is_one_wherever_the_service_says_so(
    kind: str, message: str, report: str, expected: str
) -> None:
    """Rule 1."""
    tail = WARM.replace("Used: 35 MB", "Used: 192 MB") if report == "FULL" else WARM.replace("\t\n", f"\t{report}\n")
    assert ran("w0-1", error(kind, message), "Unhandled", tail, took_s=1.0).error == expected
