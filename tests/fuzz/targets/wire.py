"""``siafu.wire.decode``: the frames of a message of any peer."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterator

from siafu import wire
from siafu.sparse import EdgeRows, SparseRows
from tests.fuzz.inputs import Input
from tests.fuzz.mutations import edited_json
from tests.fuzz.targets import Target
from tests.siafu.wire_examples import CLASSES, RUN_ID, example

CRC = struct.Struct("<I")


class Wire(Target):
    name = "wire"
    modules = ("siafu.wire", "siafu.sparse", "siafu.tasks")
    tokens = (
        b"SIAF",
        b'{"d":"f4","s":[0],"c":0}',
        b'"f4"',
        b'"i8"',
        b'"b1"',
        b'"u2"',
        b'"w":',
        b'"t":[',
        b'"e":[',
        b"NaN",
        b"Infinity",
        b"-0",
        b"1e999",
        b"[" * 200,
        b'{"a":' * 200,
        b'"train"',
        b'"eval"',
        b"\\ud800",
        b"null",
        b"true",
    )
    repeatable = True
    structured = 0.5

    def examples(self) -> Iterator[Input]:
        for cls in CLASSES:
            for n in range(6):
                frames = wire.encode(example(cls, n), RUN_ID, number=n)
                yield tuple((str(min(i, 2)), bytes(frame)) for i, frame in enumerate(frames))

    def run(self, given: Input) -> None:
        frames = [content for _, content in given]
        message = wire.decode(frames, RUN_ID)
        assert wire.nbytes(message) <= sum(map(len, frames))
        assert getattr(message, "lane", "train") in ("train", "eval")
        wire.number_of(frames)
        for rows in (getattr(message, "rows", None) or getattr(message, "tensors", None) or {}).values():
            if isinstance(rows, SparseRows):
                assert len(rows.row_of_entry()) == len(rows.indices) == len(rows.data)
                assert not len(rows.indices) or 0 <= rows.indices.min() <= rows.indices.max() < rows.width
            if isinstance(rows, EdgeRows):
                assert rows.num_edges == len(rows.each())

    def edited(self, given: Input, rng: random.Random) -> Input | None:
        if len(given) < 2:
            return None
        parts = list(given)
        if rng.random() < 0.1:  # another message's fields
            head = bytearray(parts[0][1])
            if len(head) > 5:
                head[5] = rng.choice(list(wire.MESSAGES))
                parts[0] = ("0", bytes(head))
        else:
            parts[1] = ("1", edited_json(parts[1][1], rng))
        return tuple(parts)

    def sealed(self, given: Input) -> Input:
        """Checksums of tensors, in the order of their descriptors, and of the header."""
        if len(given) < 2:
            return given
        parts = list(given)
        try:
            head = json.loads(parts[1][1])
            for descriptor, (_, content) in zip(list(_descriptors(head)), parts[2:], strict=False):
                descriptor["c"] = zlib.crc32(content)
            parts[1] = (parts[1][0], json.dumps(head, separators=(",", ":")).encode())
        except (ValueError, RecursionError, AttributeError):
            pass
        lead = parts[0][1][: -CRC.size]
        parts[0] = (parts[0][0], lead + CRC.pack(zlib.crc32(parts[1][1], zlib.crc32(lead))))
        return tuple(parts)


def _descriptors(node: object) -> Iterator[dict[str, object]]:
    if isinstance(node, dict):
        if "d" in node and "s" in node:
            yield node
        for child in node.values():
            yield from _descriptors(child)
    elif isinstance(node, list):
        for child in node:
            yield from _descriptors(child)
