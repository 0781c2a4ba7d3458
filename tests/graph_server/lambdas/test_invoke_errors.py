"""The table of what an ended invocation means."""

from __future__ import annotations

import pytest

from graph_server.lambdas.invoke_errors import FAILURES, REFUSALS, THROTTLED, THROTTLES, Next, Verdict, judge
from siafu import aws_identity

#: Of what siafu's function has not: they are judged by the status that comes with them.
WITHOUT = ("SnapStart", "KMS", "EFS", "S3Files")


def of_invoke() -> tuple[set[str], set[str]]:
    """Errors of the Invoke call, and a throttle's reasons, by the model of the service that boto3 ships."""
    session = pytest.importorskip("botocore.session", reason="needs the extra aws")
    model = session.get_session().get_service_model("lambda")
    errors = {shape.name for shape in model.operation_model("Invoke").error_shapes}
    return errors, set(model.shape_for("ThrottleReason").enum)


def test_every_error_of_the_invoke_call_is_in_the_table() -> None:
    errors, reasons = of_invoke()
    others = {error for error in errors if error.startswith(WITHOUT)}
    assert errors - others <= REFUSALS.keys()
    assert {judge("502").next, judge("403").next} == {Next.BACK_OFF, Next.FAIL}  # and so of the others, by their status
    assert reasons == THROTTLES.keys()


@pytest.mark.parametrize(
    ("error", "reason", "expected"),
    [
        (None, "", Next.GO_ON),
        (THROTTLED, "ConcurrentInvocationLimitExceeded", Next.SHRINK),
        (THROTTLED, "ReservedFunctionConcurrentInvocationLimitExceeded", Next.SHRINK),
        (THROTTLED, "FunctionInvocationRateLimitExceeded", Next.BACK_OFF),
        (THROTTLED, "ReservedFunctionInvocationRateLimitExceeded", Next.BACK_OFF),
        (THROTTLED, "CallerRateLimitExceeded", Next.BACK_OFF),
        (THROTTLED, "ConcurrentSnapshotCreateLimitExceeded", Next.BACK_OFF),
        (THROTTLED, "Rate exceeded", Next.BACK_OFF),
        ("EC2ThrottledException", "", Next.BACK_OFF),
        ("ENINotReadyException", "", Next.BACK_OFF),
        ("ENILimitReachedException", "", Next.SHRINK),
        ("SubnetIPAddressLimitReachedException", "", Next.SHRINK),
        ("ResourceConflictException", "Pending", Next.BACK_OFF),
        ("ServiceException", "", Next.BACK_OFF),
        ("EndpointConnectionError", "", Next.BACK_OFF),
        ("ConnectionClosedError", "", Next.BACK_OFF),
        ("ReadTimeoutError", "", Next.GO_ON),
        ("ResourceNotFoundException", "", Next.FAIL),
        ("RequestTooLargeException", "", Next.FAIL),
        ("RecursiveInvocationException", "", Next.FAIL),
        ("AccessDeniedException", "", Next.FAIL),
        ("ExpiredTokenException", "", Next.FAIL),
        ("NoCredentialsError", "", Next.FAIL),
        ("Unhandled", "", Next.GO_ON),
        ("Sandbox.Timedout", "", Next.GO_ON),
        ("Runtime.ImportModuleError", "", Next.GO_ON),  # three in a row that never took a task end the run
        ("Runtime.SomethingNew", "", Next.GO_ON),
        ("503", "SlowDown: not now", Next.BACK_OFF),
        ("429", "", Next.BACK_OFF),
        ("418", "Teapot: never", Next.FAIL),
        ("Nonsense", "", Next.BACK_OFF),
    ],
)
def test_what_to_do(error: str | None, reason: str, expected: Next) -> None:
    assert judge(error, reason).next is expected


def test_every_why_is_one_line_that_names_the_error_and_its_reason() -> None:
    names = [*REFUSALS, *FAILURES, "503"]
    for error, reason in [(name, "its\n  reason") for name in names] + [(THROTTLED, reason) for reason in THROTTLES]:
        why = judge(error, reason).why
        assert why.startswith(f"{error}: {' '.join(reason.split())}: ")
        assert "\n" not in why


def test_why_without_a_reason_has_no_gap() -> None:
    assert judge("ServiceException").why == "ServiceException: Lambda itself failed"


def test_a_caller_whom_aws_does_not_know_reads_what_every_command_says():
    """Cloud.advice_on has the same table."""
    assert all(judge(name) == Verdict(Next.FAIL, f"{name}: {advice}") for name, advice in aws_identity.ADVICE.items())
