"""The rules of `lambda_funcs.runtime_api`, on bytes as AWS's client was seen to send them."""

import random

import pytest

from lambda_funcs.runtime_api import (
    MAX_HEAD_NBYTES,
    MAX_RESPONSE_NBYTES,
    InitError,
    Next,
    RequestParser,
    ResponseTooLargeError,
    Result,
    invocation,
)
from siafu.errors import RemoteProtocolError

API = b"/2018-06-01/runtime"
NEXT = b"GET " + API + b"/invocation/next HTTP/1.1\r\nHost: 127.0.0.1:38095\r\nAccept: */*\r\n\r\n"


def post(path: bytes, body: bytes, headers: bytes = b"") -> bytes:
    length = b"content-length: %d\r\n" % len(body)
    return b"POST " + API + path + b" HTTP/1.1\r\nHost: 127.0.0.1:38095\r\n" + headers + length + b"\r\n" + body


RESPONSE = post(b"/invocation/r1/response", b'{"x": 1}')
ERROR = post(b"/invocation/r2/error", b'{"errorType": "ValueError"}')
INIT_ERROR = post(b"/init/error", b"{}", b"Lambda-Runtime-Function-Error-Type: Runtime.ImportModuleError\r\n")
CALLS = [
    Next(),
    Result("r1", b'{"x": 1}', failed=False),
    Result("r2", b'{"errorType": "ValueError"}', failed=True),
    InitError("Runtime.ImportModuleError", b"{}"),
]
STREAM = NEXT + RESPONSE + ERROR + INIT_ERROR


@pytest.mark.parametrize("piece", [1, 7, 100, len(STREAM)])
def test_calls_are_found_however_the_bytes_are_cut(piece: int) -> None:
    parser = RequestParser()
    pieces = [STREAM[at : at + piece] for at in range(0, len(STREAM), piece)]
    assert [call for part in pieces for call in parser.feed(part)] == CALLS


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01 no http\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET " + API + b"/invocation/r1/response HTTP/1.1\r\n\r\n",
        b"POST " + API + b"/invocation/r1/response HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST " + API + b"/invocation/r1/response HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST " + API + b"/invocation/r1/response HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n",
        b"x" * (MAX_HEAD_NBYTES + 1),
    ],
)
def test_rules_1_and_4_anything_else_is_a_protocol_error(request_bytes: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        RequestParser().feed(request_bytes)


def test_rule_3_too_large_a_response_is_refused_by_its_head() -> None:
    head = b"POST " + API + b"/invocation/r1/response HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    assert RequestParser().feed(head % MAX_RESPONSE_NBYTES) == []
    with pytest.raises(ResponseTooLargeError, match=str(MAX_RESPONSE_NBYTES + 1)):
        RequestParser().feed(head % (MAX_RESPONSE_NBYTES + 1))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(200))
def test_rule_4_changed_bytes_have_no_third_outcome(seed: int) -> None:
    rng = random.Random(seed)
    changed = bytearray(STREAM)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    try:
        calls = RequestParser().feed(bytes(changed))
    except RemoteProtocolError:
        return
    assert all(isinstance(call, Next | Result | InitError) for call in calls)


def test_an_invocation_carries_its_headers_and_its_length() -> None:
    head, _, body = invocation("r1", b'{"a": 1}', 1234, "arn:x").partition(b"\r\n\r\n")
    assert body == b'{"a": 1}'
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert {b"Lambda-Runtime-Aws-Request-Id: r1", b"Lambda-Runtime-Deadline-Ms: 1234", b"Content-Length: 8"} < set(
        lines
    )
