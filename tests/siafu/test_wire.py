"""The wire: every message there and back, bytes that never change unnoticed, and a fuzz test of ``decode``."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from siafu import wire
from siafu.errors import LocalProtocolError, RemoteProtocolError
from siafu.sparse import EdgeRows, SparseRows
from siafu.tasks import Lane, TaskId
from tests.siafu.wire_examples import (
    CLASSES,
    RUN_ID,
    equal,
    example,
    golden_bytes,
    golden_messages,
    golden_path,
    sealed,
)

Frames = list[bytes]


def frames_of(message: Any) -> Frames:
    return [bytes(frame) for frame in wire.encode(message, RUN_ID)]


def rows_message(values: Any, lane: str = "train") -> wire.PublishedRows:
    return wire.PublishedRows(lane, epoch=1, pc=2, interval=3, values=values)


def task_message(**rows: Any) -> wire.Task:
    return wire.Task("train", 1, 2, 3, attempt=0, param_server=0, num_parts=1, constants=(), rows=rows)


def with_head(frames: Frames, edit: Callable[[dict[str, Any]], object]) -> Frames:
    head = json.loads(frames[1])
    edit(head)
    return sealed([frames[0], json.dumps(head).encode(), *frames[2:]])


def refused(frames: Any, match: str, run_id: bytes = RUN_ID) -> None:
    with pytest.raises(RemoteProtocolError, match=match) as caught:
        wire.decode(frames, run_id)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


# --- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_message_comes_back_as_it_was(cls):
    for n in range(60):
        message = example(cls, n)
        assert equal(wire.decode(wire.encode(message, RUN_ID), RUN_ID), message)
        assert equal(wire.decode(frames_of(message), RUN_ID), message)


def test_examples_show_every_kind_of_field_in_every_form():
    messages = [example(cls, n) for cls in (wire.Task, wire.ModelWeights) for n in range(60)]
    tensors = [rows for m in messages for rows in (m.rows if hasattr(m, "rows") else m.tensors).values()]
    assert {bool(m.rows) for m in messages if hasattr(m, "rows")} == {True, False}
    assert {X.ndim for X in tensors if isinstance(X, np.ndarray)} == {0, 1, 2, 3, 4}
    assert {X.dtype for X in tensors if isinstance(X, np.ndarray)} == set(wire.DTYPES.values())
    assert {len(X) for X in tensors if isinstance(X, SparseRows)} == {0, 3}
    assert {(len(X), X.values.shape[1]) for X in tensors if isinstance(X, EdgeRows)} >= {(0, 0), (0, 1), (3, 1), (3, 2)}


def test_tags_are_unique_and_fit_a_byte():
    assert all(0 < tag < 256 and cls.tag == tag for tag, cls in wire.MESSAGES.items())
    assert len({cls.__name__ for cls in CLASSES}) == len(CLASSES)


def test_messages_are_frozen():
    with pytest.raises(AttributeError):
        example(wire.Hello, 1).index = 2


def test_tensors_are_not_copied_in_either_direction():
    values = np.arange(12.0).reshape(3, 4)
    frames = wire.encode(rows_message(values), RUN_ID)
    assert np.shares_memory(np.frombuffer(frames[2], np.uint8), values)
    assert np.shares_memory(wire.decode(frames, RUN_ID).values, values)


def test_rows_that_are_not_contiguous_are_sent_as_if_they_were():
    values = np.arange(24.0).reshape(6, 4)
    for part in (values[::2], values.T, values[:, 1:3]):
        np.testing.assert_array_equal(wire.decode(frames_of(rows_message(part)), RUN_ID).values, part)


def test_nan_and_infinity_travel():
    """A loss that diverged must reach the coordinator."""
    result = replace(example(wire.TaskResult, 0), loss=math.nan, compute_s=math.inf, rows={})
    back = wire.decode(frames_of(result), RUN_ID)
    assert math.isnan(back.loss)
    assert back.compute_s == math.inf


def test_an_integral_float_may_come_as_an_integer():
    frames = with_head(frames_of(example(wire.TaskResult, 1)), lambda head: head.update(loss=3))
    loss = wire.decode(frames, RUN_ID).loss
    assert loss == 3.0
    assert type(loss) is float


def test_numpy_floats_and_lanes_are_plain_values_on_the_wire():
    frames = frames_of(replace(example(wire.TaskResult, 1), loss=np.float64(0.5)))
    assert type(wire.decode(frames, RUN_ID).loss) is float
    assert wire.decode(frames_of(rows_message(np.zeros((1, 1)), Lane.EVAL)), RUN_ID).lane == "eval"


def test_tasks_and_their_results_are_named_by_the_task():
    expected = TaskId(Lane.EVAL, 4, 5, 6)
    assert wire.Task("eval", 4, 5, 6, 0, 0, 1, (), {}).id == expected
    assert wire.TaskResult("eval", 4, 5, 6, 0, "w", 0.0, 0.0, {}).id == expected


def test_nbytes_counts_tensors_alone():
    sparse = SparseRows(np.array([0, 2]), np.array([1, 3], np.int32), np.ones(2, np.float32), 9)
    assert wire.nbytes(task_message(a=np.zeros((3, 4), np.float32), b=sparse)) == 48 + 16 + 8 + 8
    assert wire.nbytes(rows_message(np.zeros((2, 2)))) == 32
    assert wire.nbytes(wire.Start()) == 0


# --- bytes that stay --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_bytes_are_those_of_the_golden_file(cls):
    """If this fails on purpose: raise wire.VERSION and run ``python -m tests.siafu.wire_examples``."""
    golden = golden_path(cls).read_bytes()
    assert golden_bytes(cls) == golden
    for n, frames in enumerate(golden_messages(golden)):
        assert equal(wire.decode(frames, RUN_ID), example(cls, n))


def test_every_golden_file_has_its_message():
    names = {path.name for path in golden_path(wire.Hello).parent.glob("wire_*.bin")}
    assert names == {golden_path(cls).name for cls in CLASSES}


# --- what we do not send ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("text", "str is not a message of this protocol"),
        (rows_message(np.zeros(3, complex)), "PublishedRows.values: dtype complex128 is not one of f2, f4, f8, i4, i8"),
        (rows_message(np.zeros(3, ">f4")), "PublishedRows.values: dtype >f4 is not one of"),
        (rows_message(np.array([None])), "PublishedRows.values: dtype object is not one of"),
        (rows_message([1.0]), "PublishedRows.values: list, must be a dense array"),
        (rows_message(np.zeros((1,) * 5)), r"PublishedRows.values: shape \[1, 1, 1, 1, 1\] is not allowed"),
        (task_message(Z0=np.zeros(3, "U1")), "Task.rows.Z0: dtype <U1 is not one of"),
        (rows_message(np.zeros(1), lane="test"), "PublishedRows.lane: 'test' is not one of train, eval"),
        (wire.Welcome(role="worker", index="0"), "Welcome.index: '0' is not of type int"),
        (wire.Welcome(role="worker", index=True), "Welcome.index: 'True' is not of type int"),
        (wire.Welcome(role="worker", index=np.int64(0)), "Welcome.index: '0' is not of type int"),
        (wire.Welcome(role="worker", index=2**63), "Welcome.index: 9223372036854775808 does not fit 64 bits"),
        (wire.Roster(("a", 1), ()), "Roster.graph_servers: '1' is not of type str"),
        (wire.Refused("x" * (1 << 20)), "Refused: header of 1048589 bytes, at most 1048576"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_protocol_does_not_allow_is_our_own_fault(message, error):
    with pytest.raises(LocalProtocolError, match=error):
        wire.encode(message, RUN_ID)


def test_sparse_rows_do_not_fit_a_dense_field():
    sparse = SparseRows(np.array([0]), np.zeros(0, np.int32), np.zeros(0, np.float32), 9)
    for rows in (sparse, EdgeRows(np.array([0]), np.zeros((0, 1)))):
        with pytest.raises(LocalProtocolError, match=r"PublishedRows\.values: \w+Rows, must be a dense array"):
            wire.encode(rows_message(rows), RUN_ID)


# --- what we do not take ----------------------------------------------------------------------------------------------

START = frames_of(wire.Start())
ROWS = frames_of(rows_message(np.arange(6.0).reshape(2, 3)))
SPARSE = frames_of(
    task_message(H0=SparseRows(np.array([0, 1, 3]), np.array([4, 0, 2], np.int32), np.ones(3, np.float32), 5))
)
EDGES = frames_of(task_message(E0=EdgeRows(np.array([0, 1, 1, 3]), np.arange(6.0).reshape(3, 2))))
SHARED = frames_of(
    task_message(E0=EdgeRows(np.array([0, 1, 1, 3]), np.arange(4.0).reshape(2, 2), np.array([0, 1, 0], np.int32)))
)


def test_frames_of_another_protocol_version_or_run_are_refused():
    refused([], "^0 frames, at least 2$")
    refused(START[:1], "^1 frames, at least 2$")
    refused([b"GET / HTTP/1.1", b"{}"], "^not a message of siafu$")
    refused([START[0] + b"x", b"{}"], "^not a message of siafu$")
    refused([b"SIAF\x01" + START[0][5:], b"{}"], f"^protocol version 1, this is version {wire.VERSION}$")
    refused([START[0][:5] + b"\xff" + START[0][6:], b"{}"], "^unknown tag 255$")
    refused(START, "^a Start of another run$", run_id=b"another!")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", "malformed message: JSONDecodeError"),
        (b"{", "malformed message: JSONDecodeError"),
        (b"\xff\xfe{}", "malformed message: UnicodeDecodeError"),
        ("{}".encode("utf-16"), "malformed message: UnicodeDecodeError"),
        (b"[]", "^Start: must have the fields"),
        (b'{"x":1}', "^Start: must have the fields"),
        (b" " * ((1 << 20) + 1), "^Start: header of 1048577 bytes, at most 1048576$"),
        (b"[" * 200_000, "malformed message: RecursionError"),
    ],
    ids=lambda value: repr(value[:8]) if isinstance(value, bytes) else "",
)
def test_headers_that_are_not_the_messages_json_are_refused(text, error):
    refused(sealed([START[0], text]), error)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"epoch": 1.5}, "^PublishedRows.epoch: '1.5' is not of type int$"),
        ({"epoch": True}, "^PublishedRows.epoch: 'True' is not of type int$"),
        ({"epoch": None}, "^PublishedRows.epoch: 'None' is not of type int$"),
        ({"epoch": 2**63}, "^PublishedRows.epoch: 9223372036854775808 does not fit 64 bits$"),
        ({"epoch": 10**4000}, "^PublishedRows.epoch: 1000000000000000000000000000000000000000 does not fit 64 bits$"),
        ({"lane": 1}, "^PublishedRows.lane: '1' is not one of train, eval$"),
        ({"lane": []}, r"^PublishedRows.lane: '\[\]' is not one of train, eval$"),
        ({"values": None}, "^PublishedRows.values: not a tensor's descriptor$"),
        (
            {"values": {"w": 1, "t": []}},
            "PublishedRows.values: not a tensor's descriptor|malformed message: ValueError",
        ),
        ({"values": {"d": "f8", "s": [2, 3]}}, "^PublishedRows.values: not a tensor's descriptor$"),
        ({"values": {"d": "O", "s": [2, 3], "c": 0}}, "^PublishedRows.values: dtype 'O' is not one of f2, f4, f8"),
        ({"values": {"d": "f8", "s": [2, -3], "c": 0}}, r"^PublishedRows.values: shape \[2, -3\] is not allowed$"),
        ({"values": {"d": "f8", "s": [0, 2**40], "c": 0}}, "shape .* is not allowed$"),
        ({"values": {"d": "f8", "s": [1] * 5, "c": 0}}, "shape .* is not allowed$"),
        ({"values": {"d": "f8", "s": [2**62] * 40_000, "c": 0}}, "shape .* is not allowed$"),
        ({"values": {"d": "f8", "s": [2, 4], "c": 0}}, "^PublishedRows.values: 48 bytes, must be 64$"),
        ({"values": {"d": "f4", "s": [2, 3], "c": 0}}, "^PublishedRows.values: 48 bytes, must be 24$"),
        ({"values": {"d": "f8", "s": [2, 3], "c": 0}}, "^PublishedRows.values: checksum differs"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_fields_of_the_wrong_kind_are_refused(change, error):
    refused(with_head(ROWS, lambda head: head.update(change)), error)


def test_frames_must_be_as_many_as_the_tensors():
    refused(ROWS[:2], "^PublishedRows.values: no bytes, must be 48$")
    refused([*ROWS, b""], "^PublishedRows: more frames than tensors$")


def test_a_flipped_bit_in_a_tensor_is_seen():
    refused([*ROWS[:2], bytes([ROWS[2][0] ^ 1]) + ROWS[2][1:]], "checksum differs, the frame was corrupted on its way")


@pytest.mark.parametrize("place", [0, 1])
def test_a_flipped_bit_anywhere_in_the_header_is_seen(place):
    """A digit of an epoch once was believed, and one bit of the tag makes a Ready of a Heartbeat."""
    for position in range(8 * len(START[place])):
        frame = bytearray(START[place])
        frame[position // 8] ^= 1 << position % 8
        frames = [bytes(frame), START[1]] if place == 0 else [START[0], bytes(frame)]
        refused(frames, "checksum of the header differs|not a message of siafu|version|unknown tag|of another run")


def test_the_number_on_the_link_travels():
    for number in (0, 1, 2**64 - 1):
        frames = wire.encode(wire.Start(), RUN_ID, number=number)
        wire.decode(frames, RUN_ID)
        assert wire.number_of(frames) == number


def test_tensors_must_be_an_object():
    """``list.items`` once gave an AttributeError, the third outcome."""
    for value in ([], "H0", 1, None):
        refused(with_head(SPARSE, lambda head, v=value: head.update(rows=v)), "^Task.rows: .* is not of type dict$")


def test_booleans_are_zero_or_one():
    frames = frames_of(rows_message(np.array([0, 2], np.uint8)))
    refused(with_head(frames, lambda head: head["values"].update(d="b1")), "a boolean that is neither 0 nor 1$")


def with_part(part: int, values: Any, *, example: Frames = SPARSE) -> Frames:
    """The sparse example, or another one, with one of its arrays replaced, checksum and shape in order."""
    values = np.asarray(values)

    def edit(head: dict[str, Any]) -> None:
        code = {v: k for k, v in wire.DTYPES.items()}[values.dtype]
        (rows,) = head["rows"].values()
        parts = rows["t"] if "t" in rows else rows["e"]
        parts[part] = {"d": code, "s": list(values.shape), "c": zlib.crc32(values.tobytes())}

    frames = with_head(example, edit)
    frames[2 + part] = values.tobytes()
    return frames


@pytest.mark.parametrize(
    ("frames", "error"),
    [
        (with_part(0, np.array([0, 1, 3], np.int32)), "sparse rows need i8 indptr, i4 indices"),
        (with_part(1, np.array([4, 0, 2], np.int64)), "sparse rows need i8 indptr, i4 indices"),
        (with_part(2, np.ones((3, 1), np.float32)), "each of one dimension"),
        (with_part(0, np.zeros(0, np.int64)), "sparse rows whose lengths disagree"),
        (with_part(0, np.array([1, 1, 3])), "sparse rows whose lengths disagree"),
        (with_part(0, np.array([0, 1, 2])), "sparse rows whose lengths disagree"),
        (with_part(2, np.ones(2, np.float32)), "sparse rows whose lengths disagree"),
        (with_part(1, np.array([4, 0, 5], np.int32)), r"an index outside of \[0, 5\)"),
        (with_part(1, np.array([4, -1, 2], np.int32)), r"an index outside of \[0, 5\)"),
        (with_part(0, np.array([0, 4, 3])), "an index outside of"),
        # Each difference of neighbours is >= 0 once it has wrapped around: seen only if they are compared.
        (with_part(0, np.array([0, 2**63 - 1, -(2**63), -1, 3])), "an index outside of"),
        (with_head(SPARSE, lambda head: head["rows"]["H0"].update(w=-1)), "sparse rows of width -1, must be in"),
        (with_head(SPARSE, lambda head: head["rows"]["H0"].update(w=2**40)), "sparse rows of width 1099511627776"),
        (with_head(SPARSE, lambda head: head["rows"]["H0"]["t"].pop()), "malformed message: ValueError"),
        (with_head(SPARSE, lambda head: head["rows"]["H0"].update(t=[1, 2, 3])), "not a tensor's descriptor"),
    ],
    ids=range(15),
)
def test_sparse_rows_that_are_not_rows_are_refused(frames, error):
    refused(frames, error)


@pytest.mark.parametrize(
    ("part", "values", "error"),
    [
        (0, np.array([0, 1, 1, 3], np.int32), "rows of edges need i8 indptr of one dimension and values of two"),
        (0, np.array([[0, 1, 1, 3]]), "rows of edges need i8 indptr of one dimension and values of two"),
        (1, np.zeros(3), "rows of edges need i8 indptr of one dimension and values of two"),
        (0, np.zeros(0, np.int64), "rows of edges whose lengths disagree"),
        (0, np.array([1, 1, 1, 3]), "rows of edges whose lengths disagree"),
        (0, np.array([0, 1, 1, 2]), "rows of edges whose lengths disagree"),
        (0, np.array([0, 2, 1, 3]), "rows of edges whose lengths disagree"),
        (0, np.array([0, 2**63 - 1, -(2**63), 3]), "rows of edges whose lengths disagree"),
        (1, np.zeros((2, 2)), "rows of edges whose lengths disagree"),
    ],
)
def test_rows_of_edges_that_are_not_are_refused(part, values, error):
    refused(with_part(part, values, example=EDGES), error)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (np.array([0, 1, 2], np.int32), "an index outside of"),
        (np.array([0, -1, 1], np.int32), "an index outside of"),
        (np.array([0, 1], np.int32), "lengths disagree"),
        (np.array([0, 1, 1]), "one i4 index of one dimension"),
        (np.zeros((3, 1), np.int32), "one i4 index of one dimension"),
    ],
)
def test_shared_values_of_edges_that_are_not_there_are_refused(values, error):
    refused(with_part(2, values, example=SHARED), error)


def test_edges_that_share_values_are_read_as_if_each_had_its_own():
    (rows,) = wire.decode(SHARED, RUN_ID).rows.values()
    assert rows.each().tolist() == [[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]]


def test_sparse_rows_do_not_arrive_in_a_dense_field():
    head = json.loads(SPARSE[1])["rows"]["H0"]
    refused(
        [*with_head(ROWS, lambda h: h.update(values=head))[:2], *SPARSE[2:]], "not a tensor's descriptor|must be dense"
    )


# --- fuzz -------------------------------------------------------------------------------------------------------------

HOSTILE = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    255,
    2**31,
    2**62,
    2**63,
    2**64,
    -(2**63),
    10**30,
    10**400,
    0.5,
    -0.0,
    1e308,
    math.nan,
    math.inf,
    "",
    "train",
    "eval",
    "f4",
    "i8",
    "b1",
    "O",
    "\ud800",
    "\x00",
    "x" * 300,
    [],
    [[]],
    [0],
    [2**62],
    [2**62, 4],
    [0, 2**62],
    [-1],
    [1, 1, 1, 1, 1],
    {},
    {"": 0},
    {"d": "f4", "s": [], "c": 0},
    {"d": "u1", "s": [0], "c": 0},
    {"w": 1, "t": []},
    {"w": 1, "t": [0, 0, 0]},
    {"d": {}, "s": {}, "c": {}},
)


def flip_bits(frames: Frames, rng: random.Random, corpus: list[Frames]) -> None:
    place = rng.randrange(len(frames))
    frame = bytearray(frames[place])
    for _ in range(rng.choice((1, 1, 2, 8))):
        if frame:
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    frames[place] = bytes(frame)


def truncate(frames: Frames, rng: random.Random, corpus: list[Frames]) -> None:
    place = rng.randrange(len(frames))
    frames[place] = frames[place][: rng.randrange(len(frames[place]) + 1)]


def splice(frames: Frames, rng: random.Random, corpus: list[Frames]) -> None:
    other = rng.choice(rng.choice(corpus))
    place = rng.randrange(len(frames))
    frame, start, stop = frames[place], rng.randrange(len(other) + 1), rng.randrange(len(other) + 1)
    at = rng.randrange(len(frame) + 1)
    frames[place] = frame[:at] + other[min(start, stop) : max(start, stop)] + frame[at + rng.randrange(4) :]


def shuffle_frames(frames: Frames, rng: random.Random, corpus: list[Frames]) -> None:
    place = rng.randrange(len(frames))
    match rng.randrange(5):
        case 0:
            del frames[place]
        case 1:
            frames.insert(place, frames[place])
        case 2:
            frames.reverse()
        case 3:
            frames[place] = rng.choice(rng.choice(corpus))
        case 4:
            frames += rng.choice(corpus)[2:]


def change_tag(frames: Frames, rng: random.Random, corpus: list[Frames]) -> None:
    frames[0] = frames[0][:5] + bytes([rng.choice(list(wire.MESSAGES))]) + frames[0][6:]


def edit_header(frames: Frames, rng: random.Random, corpus: list[Frames]) -> None:
    """Some value, anywhere in the header, becomes another, goes, or gets a neighbour: the JSON stays valid."""
    head = json.loads(frames[1])
    for _ in range(rng.choice((1, 1, 2, 3))):
        place: Any = head
        while place:
            key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
            if not isinstance(place[key], (dict, list)) or not place[key] or rng.random() < 0.3:
                break
            place = place[key]
        if not place:
            break
        choice = rng.random()
        if choice < 0.7:
            place[key] = rng.choice(HOSTILE)
        elif choice < 0.8:
            place.pop(key)
        elif isinstance(place, dict):
            place[rng.choice(("w", "t", "epoch", "extra"))] = place[key]
        else:
            place.insert(key, rng.choice(HOSTILE))
    frames[1] = json.dumps(head).encode()


def lie_about_a_tensor(frames: Frames, rng: random.Random, corpus: list[Frames]) -> None:
    """Another dtype or shape, often one of as many bytes, or other bytes with the right checksum."""
    head = json.loads(frames[1])
    descriptors = list(tensors_in(head))
    if not descriptors:
        return
    number = rng.randrange(len(descriptors))
    descriptor = descriptors[number]
    match rng.randrange(4):
        case 0:
            descriptor["d"] = rng.choice([*wire.DTYPES, "O", "f16", "<f4", "V8", ""])
        case 1:
            rng.shuffle(descriptor["s"])
            descriptor["s"].insert(rng.randrange(len(descriptor["s"]) + 1), rng.choice((0, 1, 1, 2, -1, 2**62)))
        case 2:
            code = rng.choice(list(wire.DTYPES))
            descriptor["d"], descriptor["s"] = code, [len(frames[2 + number]) // wire.DTYPES[code].itemsize]
        case 3:
            data = np.frombuffer(frames[2 + number], wire.DTYPES[descriptor["d"]]).copy()
            if data.size and data.dtype.kind != "b":
                extremes = (0, 1, -1, 5, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
                with np.errstate(all="ignore"):
                    data[rng.randrange(data.size)] = np.array([rng.choice(extremes)]).astype(data.dtype)[0]
            frames[2 + number] = data.tobytes()
            descriptor["c"] = zlib.crc32(frames[2 + number])
    frames[1] = json.dumps(head).encode()


def tensors_in(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"d", "s", "c"}:
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)


def nest(frames: Frames, rng: random.Random, corpus: list[Frames]) -> None:
    """Deep lists or objects as the value of some field, what follows it in order or cut off."""
    depth = rng.choice((3, 50, 500, 990, 1100, 5000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"d":', b"}")))
    place = frames[1].find(b":", rng.randrange(len(frames[1]))) + 1
    comma = frames[1].find(b",", place)
    rest = frames[1][comma:] if comma >= 0 and rng.random() < 0.7 else b"}"
    frames[1] = frames[1][:place] + opening * depth + b"0" + closing * depth + rest


def huge_number(frames: Frames, rng: random.Random, corpus: list[Frames]) -> None:
    digits = b"9" * rng.choice((10, 19, 20, 400, 4300, 4301, 20_000))
    number = rng.choice((b"", b"-")) + digits + rng.choice((b"", b"", b".5", b"e9", b"e99999"))
    place = frames[1].find(b":", rng.randrange(len(frames[1])))
    if place >= 0:
        end = min((e for e in (frames[1].find(mark, place) for mark in (b",", b"}", b"]")) if e >= 0), default=-1)
        frames[1] = frames[1][: place + 1] + number + frames[1][end:]


MUTATIONS = (
    [flip_bits] * 3
    + [truncate] * 2
    + [splice] * 2
    + [shuffle_frames] * 2
    + [change_tag]
    + [edit_header] * 5
    + [lie_about_a_tensor] * 4
    + [huge_number]
)


def mutant(rng: random.Random, corpus: list[Frames]) -> Frames:
    """The frames of a message after one or more mutations, never as they were."""
    original = rng.choice(corpus)
    frames = list(original)
    while frames == original or rng.random() < 0.25:
        mutation = nest if rng.random() < 0.01 else rng.choice(MUTATIONS)
        # The one before it may have left nothing that this one could work on.
        with suppress(ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            mutation(frames, rng, corpus)
        if not frames:
            break
    # Most are sealed: what follows the checksum of the header is to be tried, too.
    return sealed(frames) if len(frames) > 1 and rng.random() < 0.9 else frames


@pytest.fixture(scope="module")
def corpus() -> list[Frames]:
    return [frames_of(example(cls, n)) for cls in CLASSES for n in range(12)]


def outcome(frames: Frames) -> Any:
    """The message, after a look at everything in it that its reader will trust; None if it was refused."""
    try:
        message = wire.decode(frames, RUN_ID)
    except RemoteProtocolError:
        return None
    assert type(message) in CLASSES
    assert wire.nbytes(message) <= sum(map(len, frames))
    assert getattr(message, "lane", "train") in ("train", "eval")
    tensors = getattr(message, "rows", None) or getattr(message, "tensors", None) or {}
    for rows in tensors.values():
        if isinstance(rows, SparseRows):
            assert len(rows.row_of_entry()) == len(rows.indices) == len(rows.data)
            assert 0 <= rows.width <= wire.MAX_WIDTH
            if len(rows.indices):
                assert 0 <= rows.indices.min() <= rows.indices.max() < rows.width
        if isinstance(rows, EdgeRows):
            assert rows.num_edges == len(rows.each()) == sum(len(rows[i : i + 1].each()) for i in range(len(rows)))
    return message


@pytest.mark.parametrize(("seed", "mutations"), [(20211, 50_000), pytest.param(20213, 200_000, marks=pytest.mark.long)])
def test_any_frames_give_a_message_or_a_remote_protocol_error(corpus, seed, mutations):
    rng = random.Random(seed)
    accepted = sum(outcome(mutant(rng, corpus)) is not None for _ in range(mutations))
    assert 0.01 < accepted / mutations < 0.5  # neither harmless nor all refused at the door


def test_random_bytes_are_refused():
    rng = random.Random(20212)
    for _ in range(5_000):
        frames = [rng.randbytes(rng.choice((0, 1, 26, 100))) for _ in range(rng.randrange(5))]
        assert outcome(frames) is None
        assert outcome(sealed([START[0], b"", *frames])) is None


@pytest.mark.parametrize("depth", [10, 900, 1000, 20_000, 300_000])
def test_deep_nesting_is_refused(depth):
    for opening, closing in ((b"[", b"]"), (b'{"d":', b"}")):
        nested = (opening * depth + b"0" + closing * depth)[: wire.MAX_HEADER_BYTES - 200]
        assert outcome(sealed([ROWS[0], nested])) is None
        for field in (b"epoch", b"lane", b"values"):
            rest = {"lane": b'"train"', "epoch": b"1", "pc": b"2", "interval": b"3", "values": b"0"}
            body = b",".join(b'"%s":%s' % (k.encode(), nested if k.encode() == field else v) for k, v in rest.items())
            assert outcome(sealed([ROWS[0], b"{" + body + b"}"])) is None


def test_decoding_allocates_no_more_than_it_was_sent(corpus):
    rng = random.Random(20213)
    mutants = [mutant(rng, corpus) for _ in range(4_000)]
    for message in corpus[:40]:
        outcome(message)  # caches of the first use are not what is measured
    tracemalloc.start()
    try:
        for frames in mutants:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            outcome(frames)
            grown = tracemalloc.get_traced_memory()[1] - before
            # Python's lists make 2 bytes of JSON, "[]", 88 bytes of memory; a traceback is small; no tensor is copied.
            assert grown < 60 * sum(map(len, frames[1:2])) + sum(map(len, frames)) + 50_000
    finally:
        tracemalloc.stop()


def test_a_large_tensor_is_decoded_without_a_copy():
    frames = wire.encode(rows_message(np.zeros((1000, 1000))), RUN_ID)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        message = wire.decode(frames, RUN_ID)
        assert tracemalloc.get_traced_memory()[1] - before < 100_000
    finally:
        tracemalloc.stop()
    assert message.values.nbytes == 8_000_000
