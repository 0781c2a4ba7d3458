"""Rows in 2, 4 or 8 bits: AdaQP sends them instead of halo rows (Wan et al., MLSys 2023, section 3.1). Bytes, no I/O.

1. Of a row h travel Z, the largest bfloat16 that is <= min h, S, the smallest that is >= (max h - Z) / (2^b - 1), and
   codes q in 0..2^b - 1. It arrives as Z + q S.
2. Codes are computed from the Z and S that travel, so that rounding these biases nothing, and no code needs a clamp.
3. q = floor((h - Z) / S + u) with u uniform in [0, 1): E[Z + q S] = h, and the variance of a row of F values is about
   F S^2 / 6. Fractions and u have 16 bits: what is left of float32 below an 8-bit code.
4. u is a hash of (key, row of the message, column), so that the same bytes come out on every device and in every run.
5. A constant row has S = 0 and all codes 0, if bfloat16 can represent its value.
6. A message is Z and S of all rows, then the codes of all rows. Rows are in the order 2, 4, 8 bits, and rows of one
   width in their given order: both sides know all widths. Everything is little-endian.
7. A row's codes lie in ceil(F b / 8) bytes: 8 / b values to a byte along the row, the first in the lowest bits. Bits
   that are left in the last byte are 0.
8. Values beyond +-LIMIT, NaN and infinities cannot be sent.

The functions here are the reference, in numpy; ``gpu_baselines.kernels`` has what training calls, with the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from siafu import ops
from siafu.sparse import Array

WIDTHS = (2, 4, 8)  # bits of a code
PARAMETER_BYTES = 4  # of a row's Z and S
LIMIT = 2.0**125  # of a value: the difference of two is finite, and so is all that is computed from it
LEAST_STEP = 2.0**-100  # of S that is not 0: what is divided by it is finite
_UNIT = np.float32(2**17)  # of the fixed point that rows are rounded in: noise has the 2^16 odd ones below it


class Group(NamedTuple):
    """Rows of one width in a message."""

    bits: int
    rows: Array  # int64, which
    first: int  # how many rows are before them


@dataclass(frozen=True, eq=False)
class Layout:
    """Number of bits of each row: uint8 [k]."""

    widths: Array

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        found, first = [], 0
        for bits in WIDTHS:
            rows = np.flatnonzero(self.widths == bits)
            if len(rows):
                found.append(Group(bits, rows, first))
                first += len(rows)
        assert first == len(self.widths), np.unique(self.widths)
        return tuple(found)

    def nbytes(self, width: int) -> int:
        """Bytes of a message of rows of ``width`` values."""
        return self.first_code + sum(len(group.rows) * row_bytes(width, group.bits) for group in self.groups)

    @property
    def first_code(self) -> int:
        """Number of bytes before the codes."""
        return PARAMETER_BYTES * len(self.widths)


def row_bytes(width: int, bits: int) -> int:
    """Bytes of one row's codes."""
    return (width * bits + 7) // 8


def message_key(seed: int, epoch: int, stream: int, sender: int, receiver: int) -> int:
    """The key of one message's noise: rows that go to several ranks are rounded anew for each."""
    return int(np.random.SeedSequence([seed, epoch, stream, sender, receiver, 2]).generate_state(1, np.uint64)[0])


def noise(key: int, rows: Array, width: int) -> Array:
    """uint16 [k, width]: 16 random bits for each value of these rows (int64 [k]) of a message."""
    with np.errstate(over="ignore"):
        row_key = ops.mixed(rows.astype(np.uint64) * ops.GOLDEN + np.uint64(key))
        quads = np.arange((width + 3) // 4, dtype=np.uint64) * ops.GOLDEN  # one 64-bit hash serves four columns
        return np.asarray(ops.mixed(row_key[:, None] + quads).astype("<u8", copy=False).view("<u2")[:, :width])


def parameters(rows: Array, bits: int) -> Array:
    """Z and S of rows [k, F], float32: bfloat16 [k, 2], as uint16. Raises: ValueError for values that cannot be
    sent."""
    if not rows.shape[1]:
        return np.zeros((len(rows), 2), np.uint16)
    low, high = rows.min(1), rows.max(1)
    if not np.all((low >= -LIMIT) & (high <= LIMIT)):  # numpy's minimum of a row with a NaN is NaN
        raise ValueError
    Z = _bfloat16_below(low)
    span = high - ops.from_bfloat16(Z)
    S = np.maximum(span / np.float32((1 << bits) - 1), np.float32(LEAST_STEP))
    S = np.where(span > 0, S, np.float32(0))
    return np.stack([Z, (S.view(np.uint32) + np.uint32(0xFFFF) >> np.uint32(16)).astype(np.uint16)], 1)


def codes(rows: Array, bits: int, ZS: Array, random: Array) -> Array:
    """uint8 [k, F] of rows [k, F], their Z and S (uint16 [k, 2]) and noise (uint16 [k, F])."""
    Z, S = ops.from_bfloat16(ZS[:, :1]), ops.from_bfloat16(ZS[:, 1:])
    inverse = np.divide(_UNIT, S, out=np.zeros_like(S), where=S > 0)
    fixed = ((rows - Z) * inverse).astype(np.int32)  # rounding to 16 bits of fraction is left to the odd steps of noise
    rounded = (fixed + (2 * random.astype(np.int32) + 1)) >> 17
    return np.minimum(rounded, (1 << bits) - 1).astype(np.uint8)


def packed(values: Array, bits: int) -> Array:
    """uint8 [k, row_bytes] of codes uint8 [k, F]."""
    per_byte = 8 // bits
    padded = np.zeros((len(values), row_bytes(values.shape[1], bits) * per_byte), np.uint8)
    padded[:, : values.shape[1]] = values
    shifts = (np.arange(per_byte) * bits).astype(np.uint8)
    return np.bitwise_or.reduce(padded.reshape(len(values), -1, per_byte) << shifts, axis=2).astype(np.uint8)


def unpacked(packed_codes: Array, bits: int, width: int) -> Array:
    """The codes, uint8 [k, width], that ``packed`` has packed."""
    shifts = (np.arange(8 // bits) * bits).astype(np.uint8)
    values = (packed_codes[:, :, None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(values.reshape(len(packed_codes), -1)[:, :width])


def message(rows: Array, layout: Layout, key: int) -> Array:
    """The message, uint8, of rows float32 [k, F]. Raises: ValueError for values that cannot be sent."""
    out = np.zeros(layout.nbytes(rows.shape[1]), np.uint8)
    ZS, at = out[: layout.first_code].view("<u2").reshape(-1, 2), layout.first_code
    for bits, index, first in layout.groups:
        own = rows[index]
        ZS[first : first + len(index)] = found = parameters(own, bits)
        packed_codes = packed(codes(own, bits, found, noise(key, index, rows.shape[1])), bits)
        out[at : at + packed_codes.size] = packed_codes.ravel()
        at += packed_codes.size
    return out


def rows_of(message: Array, layout: Layout, width: int) -> Array:
    """The rows, float32 [k, width], in a message."""
    out = np.empty((len(layout.widths), width), np.float32)
    ZS, at = ops.from_bfloat16(message[: layout.first_code].view("<u2")).reshape(-1, 2), layout.first_code
    for bits, index, first in layout.groups:
        size = len(index) * row_bytes(width, bits)
        values = unpacked(message[at : at + size].reshape(len(index), -1), bits, width)
        Z, S = ZS[first : first + len(index), :1], ZS[first : first + len(index), 1:]
        out[index] = Z + S * values  # the product is exact: 8 bits times 8
        at += size
    return out


def _bfloat16_below(x: Array) -> Array:
    """uint16: the largest bfloat16 <= x, float32; 0 without a sign."""
    bits = x.view(np.uint32)
    away = ((bits >> 31 == 1) & (bits & np.uint32(0xFFFF) != 0)).astype(np.uint32)  # a negative one's magnitude grows
    below = (bits >> np.uint32(16)) + away
    return np.where(below == 0x8000, 0, below).astype(np.uint16)
