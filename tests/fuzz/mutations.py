"""Changes to bytes that formats are afraid of. All of them are pure: the generator is an argument."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.inputs import Input

#: Numbers at the edges of types.
NUMBERS = (
    0, 1, -1, 2, 3, 4, 7, 8, 16, 100, 127, 128, 255, 256, 4096, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, -(2**31),
    2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 2**64, 10**30,
)  # fmt: skip
WIDTHS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
JSON_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "x",
    "a\nb",
    "\x00",
    "../../etc",
    "1",
    [],
    {},
    [[]],
    {"": {}},
    [None],
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    10**4000,
    *NUMBERS,
)
MAX_PART = 1 << 14  # a part longer than that is cut: what is long is only slow

Change = Callable[[bytearray, random.Random], None]


def flip_bit(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)


def set_byte(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def add_to_number(data: bytearray, rng: random.Random) -> None:
    width, place = _number(data, rng)
    if place is not None:
        (value,) = struct.unpack_from(WIDTHS[width], data, place)
        struct.pack_into(WIDTHS[width], data, place, (value + rng.randint(-35, 35)) % 256**width)


def set_number(data: bytearray, rng: random.Random) -> None:
    width, place = _number(data, rng)
    if place is not None:
        struct.pack_into(WIDTHS[width], data, place, rng.choice(NUMBERS) % 256**width)


def remove_block(data: bytearray, rng: random.Random) -> None:
    start, stop = _block(data, rng)
    del data[start:stop]


def repeat_block(data: bytearray, rng: random.Random) -> None:
    start, stop = _block(data, rng)
    place = rng.randrange(len(data) + 1)
    data[place:place] = data[start:stop] * rng.choice((1, 1, 1, 2, 10, 100))


def insert_bytes(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.choice((rng.randbytes(rng.choice((1, 2, 4, 8, 100))), bytes(rng.choice((1, 8, 64)))))


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def change_digits(data: bytearray, rng: random.Random) -> None:
    """Another number where one stands as text."""
    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if digits:
        first = last = rng.choice(digits)
        while last + 1 < len(data) and 48 <= data[last + 1] <= 57:
            last += 1
        data[first : last + 1] = str(rng.choice(NUMBERS)).encode()


BYTE_CHANGES: tuple[Change, ...] = (
    flip_bit,
    flip_bit,
    set_byte,
    add_to_number,
    set_number,
    set_number,
    remove_block,
    repeat_block,
    insert_bytes,
    truncate,
    change_digits,
    change_digits,
)


def changed(
    given: Input, rng: random.Random, others: Sequence[Input], tokens: Sequence[bytes], repeatable: bool
) -> Input:
    """One change to one part. ``others``: inputs to take from; ``repeatable``: whether parts may come twice."""
    parts = list(given)
    if not parts or rng.random() < 0.06:
        return _other_parts(parts, rng, others, repeatable)
    which = rng.randrange(len(parts))
    name, content = parts[which]
    data = bytearray(content)
    roll = rng.random()
    if tokens and roll < 0.2:
        token, place = rng.choice(tokens), rng.randrange(len(data) + 1)
        data[place : place + rng.choice((0, len(token)))] = token
    elif others and roll < 0.3:
        _splice(data, name, rng, others)
    elif data:
        rng.choice(BYTE_CHANGES)(data, rng)
    else:
        data += rng.randbytes(rng.choice((1, 4, 16)))
    parts[which] = (name, bytes(data[:MAX_PART]))
    return tuple(parts)


def _other_parts(
    parts: list[tuple[str, bytes]], rng: random.Random, others: Sequence[Input], repeatable: bool
) -> Input:
    source = rng.choice(others) if others and rng.random() < 0.6 else ()
    taken = rng.choice(source) if source else None
    if taken is not None and (repeatable or taken[0] not in dict(parts)):
        parts.insert(rng.randrange(len(parts) + 1), taken)
    elif taken is not None:
        parts = [taken if name == taken[0] else (name, content) for name, content in parts]
    elif parts:
        del parts[rng.randrange(len(parts))]
    return tuple(parts)


def _splice(data: bytearray, name: str, rng: random.Random, others: Sequence[Input]) -> None:
    """The rest, or a block, of the same part of another input."""
    source = dict(rng.choice(others)).get(name, b"")
    if source:
        start, stop = _block(source, rng)
        place = rng.randrange(len(data) + 1)
        if rng.random() < 0.5:
            data[place:] = source[start:]
        else:
            data[place : place + stop - start] = source[start:stop]


def _block(data: bytes | bytearray, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data))
    return start, min(len(data), start + rng.choice((1, 2, 4, 8, 16, 64, 256)))


def _number(data: bytearray, rng: random.Random) -> tuple[int, int | None]:
    width = rng.choice(tuple(WIDTHS))
    return width, rng.randrange(len(data) - width + 1) if len(data) >= width else None


# --- structure --------------------------------------------------------------------------------------------------------


def edited_json(text: bytes, rng: random.Random) -> bytes:
    """One node of a JSON text replaced, removed, renamed or put elsewhere; the text itself if it is none."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        return text
    holders = list(_holders(root))
    if not holders:
        return json.dumps(rng.choice(JSON_VALUES)).encode()
    holder = rng.choice(holders)
    key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    roll = rng.random()
    if roll < 0.55:
        holder[key] = _near(holder[key], rng)
    elif roll < 0.7:
        del holder[key]
    elif isinstance(holder, dict):
        names = list(rng.choice([h for h in holders if isinstance(h, dict)]))
        other = rng.choice(names if roll < 0.85 else ("more", "", "../x", "a\x00", "x" * 300, "7/", "\ud800"))
        holder[other] = holder.pop(key) if rng.random() < 0.5 else holder[key]
    else:
        holder.insert(key, rng.choice((holder[key], rng.choice(JSON_VALUES))))
    return json.dumps(root, separators=(",", ":")).encode()


def _near(value: Any, rng: random.Random) -> Any:
    """A number close to it, a text like it, or anything."""
    if rng.random() < 0.5:
        if type(value) is int:
            return value + rng.choice((-2, -1, 1, 2, 2**31, -(2**40)))
        if isinstance(value, str) and value:
            text = bytearray(value.encode("utf-8", "replace"))
            rng.choice((flip_bit, repeat_block, truncate, set_byte))(text, rng)
            return text.decode("utf-8", "replace")
    return rng.choice(JSON_VALUES)


def _holders(node: Any) -> Any:
    """Every object and list that is not empty."""
    if isinstance(node, (dict, list)) and node:
        yield node
        for child in node.values() if isinstance(node, dict) else node:
            yield from _holders(child)


DTYPES = (
    "<f4",
    "<f8",
    "<f2",
    "<i4",
    "<i8",
    "|u1",
    "|b1",
    "<u2",
    "|O",
    "<U5",
    "|S3",
    ">i8",
    "<M8[s]",
    "|V3",
    "<c16",
    "<f16",
)


def edited_npy(data: bytes, rng: random.Random) -> bytes:
    """The header of a .npy file with another dtype, order or shape, of the right length."""
    if data[:6] != b"\x93NUMPY" or len(data) < 10:
        return data
    (length,) = struct.unpack_from("<H", data, 8)
    sizes = [rng.choice((0, 1, 2, 3, 5, 40, rng.choice(NUMBERS))) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 33)))]
    shape = f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
    order = rng.choice(("False", "False", "True", "0"))
    header = f"{{'descr': '{rng.choice(DTYPES)}', 'fortran_order': {order}, 'shape': {shape}, }}"
    text = header.encode().ljust(117) + b"\n"
    return data[:8] + struct.pack("<H", len(text)) + text + data[10 + length :]


def edited_safetensors(data: bytes, rng: random.Random) -> bytes:
    """A node of the JSON header changed, its length made right."""
    if len(data) < 8:
        return data
    (length,) = struct.unpack_from("<Q", data)
    if length > len(data) - 8:
        return data
    text = edited_json(data[8 : 8 + length], rng)
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[8 + length :]
