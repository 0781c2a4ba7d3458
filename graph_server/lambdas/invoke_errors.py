"""Classifies the errors of Lambda's Invoke call and of the function by what they mean for later invocations. Pure.

Sources: Lambda API reference, Invoke (errors and TooManyRequestsException.Reason); Lambda developer
guide, "Lambda quotas" and "Understanding retry behavior". A test holds the table against the list of
errors in botocore's model of the service.

Rules:
1. Whatever the error, the invocation is over and its worker is gone.
2. A function that failed is invoked again as needed (GO_ON), since the next invocation may succeed. The backend counts
   invocations that end before they take a task, and so notices a function that cannot start.
3. A refusal is no failure of the function: invocations pause (BACK_OFF), fewer environments are wanted (SHRINK), or,
   where waiting cannot help, the run ends (FAIL).
4. For a code that is not in the table the launcher gives the HTTP status instead, and the status decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lambda_funcs.invocation import NO_ROOM
from siafu.aws_identity import ADVICE


class Next(Enum):
    """The action that follows an invocation's end."""

    GO_ON = "go on"  # it ended well, or its worker died: its tasks go to others, a new worker is invoked as needed
    BACK_OFF = "back off"  # the service is busy or not ready: invoke nothing for a while, longer each time
    SHRINK = "shrink"  # we have as many environments as we may have: want fewer, and back off
    FAIL = "fail"  # the same error would follow again: end the run


@dataclass(frozen=True)
class Verdict:
    next: Next
    why: str  # for the log, or the run's error: one line that says what to do about it


THROTTLED = "TooManyRequestsException"

#: TooManyRequestsException's Reason -> what to do and why.
THROTTLES: dict[str, tuple[Next, str]] = {
    "ConcurrentInvocationLimitExceeded": (
        Next.SHRINK,
        "the account's concurrency is used up: ask AWS for more, or stop what else runs in the region",
    ),
    "ReservedFunctionConcurrentInvocationLimitExceeded": (
        Next.SHRINK,
        "the function's reserved concurrency is used up: deploy with a higher cloud.reserved for more",
    ),
    "FunctionInvocationRateLimitExceeded": (
        Next.BACK_OFF,
        "more than 10 invocations a second per environment that the account may have",
    ),
    "ReservedFunctionInvocationRateLimitExceeded": (
        Next.BACK_OFF,
        "more than 10 invocations a second per reserved environment",
    ),
    "CallerRateLimitExceeded": (Next.BACK_OFF, "too many calls a second from this account"),
    "ConcurrentSnapshotCreateLimitExceeded": (Next.BACK_OFF, "too many snapshots are being made at a time"),
}

_NO_RIGHT = (Next.FAIL, "the credentials lack this right: docs/aws-policy.json has all that siafu needs")

#: Code of a refusal -> what to do and why.
REFUSALS: dict[str, tuple[Next, str]] = {
    THROTTLED: (Next.BACK_OFF, "throttled, and no reason that is known"),
    "ThrottlingException": (Next.BACK_OFF, "too many calls a second from this account"),
    NO_ROOM: (
        Next.SHRINK,
        "this machine has no room for another environment: fewer are wanted (ulimit -n, ulimit -u, memory)",
    ),
    "ServiceQuotaExceededException": (Next.SHRINK, "a quota of the account is used up: ask AWS for more"),
    # The function's network, set up when it is invoked after a while
    "EC2ThrottledException": (Next.BACK_OFF, "EC2 throttles Lambda while it sets up the function's network"),
    "EC2UnexpectedException": (Next.BACK_OFF, "EC2 failed while Lambda set up the function's network"),
    "ENINotReadyException": (Next.BACK_OFF, "the function's network interface is being made, which can take minutes"),
    "ENILimitReachedException": (
        Next.SHRINK,
        "the VPC may have no more network interfaces: ask AWS for more, or delete some",
    ),
    "SubnetIPAddressLimitReachedException": (Next.SHRINK, "the function's subnet has no free address: make it larger"),
    "EC2AccessDeniedException": (Next.FAIL, "the function's role may not make network interfaces: deploy again"),
    "InvalidSecurityGroupIDException": (Next.FAIL, "the function's security group is gone: deploy again"),
    "InvalidSubnetIDException": (Next.FAIL, "the function's subnet is gone: deploy again"),
    # The function is not ready yet
    "ResourceNotReadyException": (Next.BACK_OFF, "the function slept and its network is being made again"),
    "ResourceConflictException": (Next.BACK_OFF, "the function is being made or changed"),
    "CodeArtifactUserPendingException": (Next.BACK_OFF, "the function is being made"),
    # The service, or the way to it
    "ServiceException": (Next.BACK_OFF, "Lambda itself failed"),
    "EndpointConnectionError": (
        Next.BACK_OFF,
        "nothing answers there: check lambda.endpoint and lambda.region; in a VPC its interface endpoint",
    ),
    "ConnectTimeoutError": (
        Next.BACK_OFF,
        "no connection: check lambda.endpoint; in a VPC the interface endpoint's security group",
    ),
    "ProxyConnectionError": (Next.BACK_OFF, "the HTTP proxy does not answer: check HTTPS_PROXY and NO_PROXY"),
    "ConnectionClosedError": (Next.BACK_OFF, "the connection was lost before the answer came"),
    "SSLError": (Next.FAIL, "no trust in the certificate: check lambda.endpoint and AWS_CA_BUNDLE"),
    "ReadTimeoutError": (
        Next.GO_ON,
        "no answer although the function's time is over: it has ended, the answer is lost",
    ),
    # Who we are
    **{name: (Next.FAIL, advice) for name, advice in ADVICE.items()},
    "AccessDeniedException": _NO_RIGHT,
    "AccessDenied": _NO_RIGHT,
    # The function itself
    "ResourceNotFoundException": (
        Next.FAIL,
        "there is no such function: check lambda.function and lambda.region, or run siafu deploy",
    ),
    "InvalidRuntimeException": (Next.FAIL, "the function's runtime is not supported: deploy again"),
    "InvalidZipFileException": (Next.FAIL, "Lambda cannot unzip the function's package: deploy again"),
    "RuntimeAliasDeletedException": (Next.FAIL, "the function's runtime is no longer offered: deploy again"),
    "RuntimeVersionDeletedException": (Next.FAIL, "the function's runtime is no longer offered: deploy again"),
    "CodeArtifactUserDeletedException": (Next.FAIL, "the function's package is gone: deploy again"),
    "CodeArtifactUserFailedException": (Next.FAIL, "the function could not be made: deploy again"),
    "NoPublishedVersionException": (Next.FAIL, "the function has no published version: deploy again"),
    "ModeNotSupportedException": (Next.FAIL, "the function is for asynchronous calls alone: deploy again"),
    "DurableExecutionAlreadyStartedException": (Next.FAIL, "the function is a durable one: deploy siafu's own"),
    "RecursiveInvocationException": (
        Next.FAIL,
        "Lambda takes it for a loop of functions: call it from outside of Lambda",
    ),
    # The call
    "InvalidParameterValueException": (Next.FAIL, "Lambda does not accept the call: check lambda.function"),
    "ValidationException": (Next.FAIL, "Lambda does not accept the call: check lambda.function"),
    "InvalidRequestContentException": (Next.FAIL, "Lambda does not accept the payload: a fault of siafu's"),
    "UnsupportedMediaTypeException": (Next.FAIL, "Lambda does not accept the payload: a fault of siafu's"),
    "RequestTooLargeException": (Next.FAIL, "the payload is beyond Lambda's limit: fewer or shorter server addresses"),
    "SerializedRequestEntityTooLargeException": (
        Next.FAIL,
        "the payload is beyond Lambda's limit: fewer or shorter server addresses",
    ),
}

#: Lambda's names for failures of a function -> why. Other names of these families are failures too: rule 2.
FAILURES = {
    "Unhandled": "the function raised an error: see its log",
    "Handled": "the function reported an error: see its log",
    "Sandbox.Timedout": "the function ran into its timeout: is lambda.margin_s long enough for a task?",
    "Sandbox.Failure": "its environment failed or was closed",
    "Runtime.ExitError": "the function's process died: see its log",
    "Runtime.OutOfMemory": "the function needs more memory than lambda.memory_mb",
    "Runtime.ImportModuleError": "the function's package lacks a module: deploy again",
    "Runtime.HandlerNotFound": "the function's package lacks the handler: check lambda.handler, deploy again",
    "Runtime.UserCodeSyntaxError": "the function's package is not for its runtime's Python: deploy again",
    "Runtime.MarshalError": "the function returned what is not JSON",
    "Function.ResponseSizeTooLarge": "the function returned more than Lambda passes on",
}
FAMILIES = ("Runtime.", "Sandbox.", "Function.", "Extension.")


def judge(error: str | None, reason: str = "") -> Verdict:
    """Returns the verdict on ``Invocation.error`` and ``Invocation.reason``."""
    if error is None:
        return Verdict(Next.GO_ON, "done")
    what, why = _look_up(error, reason)
    return Verdict(what, " ".join(f"{error}{': ' if reason else ''}{reason}: {why}".split()))


def is_known(code: str) -> bool:
    """Whether the table has this code of a refusal. If not, the launcher gives the HTTP status instead."""
    return code in REFUSALS


def _look_up(error: str, reason: str) -> tuple[Next, str]:
    if error == THROTTLED and reason in THROTTLES:
        return THROTTLES[reason]
    if error in REFUSALS:
        return REFUSALS[error]
    if error in FAILURES or error.startswith(FAMILIES):
        return Next.GO_ON, FAILURES.get(error, "the function failed: see its log")
    return _by_status(error)


def _by_status(error: str) -> tuple[Next, str]:
    """Judges an HTTP status by rule 4. Backs off for anything else: a run that gets nothing done ends by itself."""
    if error == "429":
        return Next.BACK_OFF, "throttled"
    if error in ("408", "409", "425"):
        return Next.BACK_OFF, "not now, says the service"
    if len(error) == 3 and error.startswith("4"):
        return Next.FAIL, "the service does not accept the call"
    return Next.BACK_OFF, "the service failed"
