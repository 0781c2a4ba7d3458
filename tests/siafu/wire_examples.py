"""Example messages, made without any random generator, and the golden files made of them.

``python -m tests.siafu.wire_examples`` writes ``tests/golden/wire_*.bin`` anew. Do that only together with a raised
``wire.VERSION``: a golden file that changes means that an old peer no longer understands us.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from siafu import wire
from siafu.sparse import Array, EdgeRows, SparseRows, TaskRows

GOLDEN = Path(__file__).parent.parent / "golden"
RUN_ID = b"\x00\x01run id"
CLASSES: list[Any] = list(wire.MESSAGES.values())


def example(cls: Any, n: int) -> Any:
    """The ``n``-th example of a message: other values, dtypes, shapes and sparsity for every n."""
    hints = typing.get_type_hints(cls)
    fields = enumerate(dataclasses.fields(cls))
    # 11 shares no factor with the cycles below: every field takes every form.
    return cls(**{field.name: _value(field.type, hints[field.name], 11 * n + i) for i, field in fields})


def _value(kind: Any, hint: Any, n: int) -> Any:
    if kind == wire.TENSOR:
        return dense(n)
    if kind == wire.TENSORS:
        return {f"slot{i}": (sparse, edges, dense, dense, dense)[(n + i) % 5](n + i) for i in range(n % 4)}
    if kind == wire.LANE:
        return ("train", "eval")[n % 2]
    if hint is bool:
        return n % 2 == 1
    if hint is int:
        return (n, -n, 2**63 - 1 - n, -(2**63) + n)[n % 4]
    if hint is float:
        return (n / 8, float(n), -1e300, 5e-324)[n % 4]
    if hint is str:
        return ("", f"text {n}", "a'\"\\\n\x00", "μ→🐜")[n % 4]
    return tuple(_value(None, typing.get_args(hint)[0], n + i) for i in range(n % 3))


def dense(n: int) -> Array:
    """Zero to four dimensions, some of them empty, of every dtype there is."""
    shape = ((3, 4), (), (5,), (0, 3), (2, 1, 3), (1, 2, 2, 2), (0,))[n % 7]
    dtype = list(wire.DTYPES.values())[n % len(wire.DTYPES)]
    values = np.arange(n, n + int(np.prod(shape))).reshape(shape)
    return np.asarray(values % 2 if dtype.kind == "b" else values, dtype)


def sparse(n: int) -> SparseRows:
    """Three rows, the middle one empty; or none at all."""
    if n % 2:
        return SparseRows(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), n)
    indices = np.array([0, n, n + 1, n + 4], np.int32)
    return SparseRows(np.array([0, 1, 1, 4]), indices, np.arange(4, dtype=np.float16), n + 5)


def edges(n: int) -> EdgeRows:
    """Three vertices, the second without an edge; or none at all. In some, edges share two values."""
    counts = [0] if n % 2 else [0, 2, 2, 5]
    if n % 4 > 1:
        values = np.arange(2 * (n % 3), dtype=np.float64).reshape(2, n % 3)
        return EdgeRows(np.array(counts), values, np.arange(counts[-1], dtype=np.int32) % 2)
    return EdgeRows(np.array(counts), np.arange(counts[-1] * (n % 3), dtype=np.float64).reshape(counts[-1], n % 3))


def equal(a: Any, b: Any) -> bool:
    """Whether two messages carry the same: their own ``==`` is identity."""
    return type(a) is type(b) and all(
        _equal(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)
    )


def _equal(x: Any, y: Any) -> bool:
    if isinstance(x, dict):
        return list(x) == list(y) and all(_equal(x[key], y[key]) for key in x)
    if isinstance(x, (np.ndarray, SparseRows, EdgeRows)):
        return _equal_rows(x, y)
    return type(x) is type(y) and x == y


def _equal_rows(x: TaskRows, y: TaskRows) -> bool:
    if type(x) is not type(y):
        return False
    if isinstance(x, EdgeRows):
        shared = x.index is not None and y.index is not None and _equal_rows(x.index, y.index)
        alike = shared or (x.index is None and y.index is None)
        return alike and all(_equal_rows(getattr(x, part), getattr(y, part)) for part in ("indptr", "values"))
    if isinstance(x, SparseRows):
        parts = ("indptr", "indices", "data")
        return x.width == y.width and all(_equal_rows(getattr(x, part), getattr(y, part)) for part in parts)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def sealed(frames: list[bytes]) -> list[bytes]:
    """Frames that somebody has edited, with the checksum of the header in order, as a malicious sender has it."""
    lead, text = frames[0][:-4], frames[1]
    return [lead + struct.pack("<I", zlib.crc32(text, zlib.crc32(lead))), *frames[1:]]


# --- golden files: each frame behind its length (u32) -----------------------------------------------------------------


def golden_path(cls: Any) -> Path:
    return GOLDEN / f"wire_{cls.__name__}.bin"


def pack(frames: list[wire.Frame]) -> bytes:
    return b"".join(struct.pack("<I", len(bytes(frame))) + bytes(frame) for frame in frames)


def unpack(data: bytes) -> list[bytes]:
    frames = []
    while data:
        (size,) = struct.unpack_from("<I", data)
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return frames


def golden_bytes(cls: Any) -> bytes:
    """Three examples of a message, one behind the other."""
    return b"".join(
        pack([struct.pack("<I", len(f)), *f])
        for f in (wire.encode(example(cls, n), RUN_ID, number=n) for n in range(3))
    )


def golden_messages(data: bytes) -> list[list[bytes]]:
    frames, messages = unpack(data), []
    while frames:
        (count,) = struct.unpack("<I", frames[0])
        messages.append(frames[1 : 1 + count])
        frames = frames[1 + count :]
    return messages


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for message in CLASSES:
        golden_path(message).write_bytes(golden_bytes(message))
