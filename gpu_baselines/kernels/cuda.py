"""Quantising on a GPU: Triton kernels that read and write every row once.

A program has a few rows. Each lane has one quad of a slice of the row, [ROWS, QUADS, 4] values, in each of SLICES
slices, so that few lanes compute what is computed once per row, and neighbours read neighbouring values. One hash of
noise serves a quad, and a quad's codes make 1, 2 or 4 bytes, which are one number where rows have whole slices (FULL).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_baselines.halos.quantise import PARAMETER_BYTES, Layout, row_bytes

WARPS = 1  # of a program, whose lanes have one quad each, of every slice
MOST_SLICES, LEAST_QUADS = 8, 4  # of a row; of a slice
WORDS = {2: torch.uint8, 4: torch.int16, 8: torch.int32}  # a quad's codes
_NAN = tl.constexpr(0x7FC0)  # as a bfloat16: Z of a row that cannot be sent


class Packing:
    """``gpu_baselines.kernels.Packing`` on a GPU."""

    def __init__(self, layout: Layout, device: torch.device):
        self.layout = layout
        self._index = [torch.from_numpy(group.rows).to(device) for group in layout.groups]
        self._refused = torch.zeros(1, dtype=torch.int32, device=device)

    def pack(self, rows: Tensor, key: int) -> Tensor:
        width = rows.shape[1]
        message = rows.new_empty(self.layout.nbytes(width), dtype=torch.uint8)
        signed, shape = key - (1 << 64) if key >> 63 else key, _shape(width)
        for bits, index, parameters, codes in self._groups(message, width):
            grid = (triton.cdiv(len(index), shape["ROWS"]),)
            given = rows, index, parameters, codes, self._refused
            _quantise[grid](*given, len(index), width, signed, BITS=bits, **shape)
        return message

    def check(self) -> None:
        if self._refused.item():
            self._refused.zero_()
            raise ValueError

    def unpack(self, message: Tensor, out: Tensor) -> None:
        shape = _shape(out.shape[1])
        for bits, index, parameters, codes in self._groups(message, out.shape[1]):
            grid = (triton.cdiv(len(index), shape["ROWS"]),)
            _dequantise[grid](out, index, parameters, codes, len(index), out.shape[1], BITS=bits, **shape)

    def _groups(self, message: Tensor, width: int) -> list[tuple[int, Tensor, Tensor, Tensor]]:
        found, at, full = [], self.layout.first_code, _shape(width)["FULL"]
        for (bits, _, first), index in zip(self.layout.groups, self._index, strict=True):
            begin, size = first * PARAMETER_BYTES, len(index) * row_bytes(width, bits)
            parameters = message[begin : begin + len(index) * PARAMETER_BYTES].view(torch.int32)
            codes = message[at : at + size]
            found.append((bits, index, parameters, codes.view(WORDS[bits]) if full else codes))
            at += size
        return found


def _shape(width: int) -> dict[str, Any]:
    """Block sizes of the kernels. FULL: rows fill all quads of all slices, and every group of codes begins on a
    word."""
    quads = triton.next_power_of_2((width + 3) // 4)
    slices = min(MOST_SLICES, max(1, quads // LEAST_QUADS))
    lanes = quads // slices
    full = width == 4 * quads and quads >= 4
    return {
        "SLICES": slices, "QUADS": lanes, "ROWS": max(1, 32 * WARPS // lanes), "FULL": full, "num_warps": WARPS
    }  # fmt: skip


@triton.jit
def _mixed(x):  # type: ignore[no-untyped-def]
    """SplitMix64's finaliser of a uint64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _float32(x):  # type: ignore[no-untyped-def]
    """The float32 of a bfloat16 in the lower half of a uint32."""
    return (x << 16).to(tl.float32, bitcast=True)


# Triton compiles an argument that is 1 as a constant, which a key has no use for: each would be a kernel of its own.
@triton.jit(do_not_specialize=["key", "num_rows"])  # type: ignore[untyped-decorator]
def _quantise(  # type: ignore[no-untyped-def]
    rows, index, parameters, codes, refused, num_rows, width, key,
    BITS: tl.constexpr, SLICES: tl.constexpr, QUADS: tl.constexpr, ROWS: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    # The last program does the last row as often as it has lanes for: no mask is needed.
    own = tl.minimum(tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), num_rows - 1)
    source = tl.load(index + own)  # [R]
    quad, part = tl.arange(0, QUADS), tl.arange(0, 4)
    values = ()
    for number in tl.static_range(SLICES):
        if FULL:  # loaded in two dimensions: of three, Triton would give a warp 16 rows, and a row to all warps
            at = number * (4 * QUADS) + tl.arange(0, 4 * QUADS)
            one = tl.reshape(tl.load(rows + source[:, None] * width + at[None, :]), [ROWS, QUADS, 4])
        else:  # beyond the last column there is the last value again: nothing changes for the row
            at = tl.minimum((number * QUADS + quad)[:, None] * 4 + part[None, :], width - 1)
            one = tl.load(rows + source[:, None, None] * width + at[None, :, :])
        values = values + (one,)  # type: ignore[assignment]  # noqa: RUF005 (no star)
    low, high, zero = values[0], values[0], values[0] * 0.0  # type: ignore[misc]
    for number in tl.static_range(1, SLICES):
        low, high = tl.minimum(low, values[number]), tl.maximum(high, values[number])
        zero += values[number] * 0.0  # NaN where a value is none, or is infinite: a minimum passes over NaN
    low, high = tl.min(tl.min(low, 2), 1), tl.max(tl.max(high, 2), 1)  # [R]
    sendable = (low >= -4.253529586511731e37) & (high <= 4.253529586511731e37)  # 2^125
    sendable = sendable & (tl.sum(tl.sum(zero, 2), 1) == 0)

    low_bits = low.to(tl.uint32, bitcast=True)
    below = (low_bits >> 16) + tl.where((low_bits >> 31 != 0) & ((low_bits & 0xFFFF) != 0), 1, 0).to(tl.uint32)
    below = tl.where(below == 0x8000, 0, below).to(tl.uint32)
    Z = _float32(below)
    span = high - Z
    step = tl.maximum(tl.div_rn(span, tl.full([ROWS], (1 << BITS) - 1, tl.float32)), 7.888609052210118e-31)  # 2^-100
    above = (step.to(tl.uint32, bitcast=True) + 0xFFFF) >> 16
    above = tl.where(span > 0, above, 0).to(tl.uint32)
    S = _float32(above)
    inverse = tl.where(S > 0, tl.div_rn(tl.full([ROWS], 131072.0, tl.float32), tl.where(S > 0, S, 1.0)), 0.0)
    tl.store(parameters + own, (tl.where(sendable, below, _NAN) | (above << 16)).to(tl.int32, bitcast=True))
    tl.store(refused + tl.zeros([ROWS], tl.int32), 1, mask=sendable == 0)

    row_key = _mixed(source.to(tl.uint64) * 0x9E3779B97F4A7C15 + key.to(tl.uint64))  # [R]
    row_codes = (width * BITS + 7) // 8
    for number in tl.static_range(SLICES):
        place = quad + number * QUADS  # [Q], of the row's quads
        hashes = _mixed(row_key[:, None] + place.to(tl.uint64)[None, :] * 0x9E3779B97F4A7C15)  # [R, Q]
        random = ((hashes[:, :, None] >> (part * 16).to(tl.uint64)[None, None, :]) & 0xFFFF).to(tl.int32)
        fixed = ((values[number] - Z[:, None, None]) * inverse[:, None, None]).to(tl.int32)
        rounded = tl.minimum((fixed + (2 * random + 1)) >> 17, (1 << BITS) - 1)
        if not FULL:
            rounded = tl.where((place[:, None] * 4 + part[None, :] < width)[None, :, :], rounded, 0)
        word = tl.sum(rounded.to(tl.uint32) << (part * BITS).to(tl.uint32)[None, None, :], 2)  # [R, Q]
        if FULL:
            target = codes + own[:, None] * (SLICES * QUADS) + place[None, :]
            tl.store(target, word.to(codes.dtype.element_ty))
        else:
            byte = tl.arange(0, BITS // 2)  # of a quad
            value = (word[:, :, None] >> (byte * 8).to(tl.uint32)[None, None, :]) & 0xFF
            to = (place[:, None] * (BITS // 2) + byte[None, :])[None, :, :]
            tl.store(codes + own[:, None, None] * row_codes + to, value.to(tl.uint8), mask=to < row_codes)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _dequantise(  # type: ignore[no-untyped-def]
    rows, index, parameters, codes, num_rows, width,
    BITS: tl.constexpr, SLICES: tl.constexpr, QUADS: tl.constexpr, ROWS: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    own = tl.minimum(tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), num_rows - 1)
    target = tl.load(index + own)
    both = tl.load(parameters + own).to(tl.uint32, bitcast=True)
    Z, S = _float32(both & 0xFFFF), _float32(both >> 16)
    row_codes = (width * BITS + 7) // 8
    quad, part = tl.arange(0, QUADS), tl.arange(0, 4)
    for number in tl.static_range(SLICES):
        place = quad + number * QUADS
        column = number * (4 * QUADS) + tl.arange(0, 4 * QUADS)[None, :]
        if FULL:
            word = tl.load(codes + own[:, None] * (SLICES * QUADS) + place[None, :]).to(tl.int32)  # [R, Q]
            code = (word[:, :, None] >> (part * BITS)[None, None, :]) & ((1 << BITS) - 1)
            code = tl.reshape(code, [ROWS, 4 * QUADS])
        else:
            byte = tl.load(codes + own[:, None] * row_codes + column * BITS // 8, mask=column < width, other=0)
            code = (byte.to(tl.int32) >> (column * BITS % 8)) & ((1 << BITS) - 1)
        row = Z[:, None] + S[:, None] * code.to(tl.float32)
        to = rows + target[:, None] * width + column
        if FULL:
            tl.store(to, row)
        else:
            tl.store(to, row, mask=column < width)
