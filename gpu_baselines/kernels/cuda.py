"""Quantising on a GPU: Triton kernels that read and write every row once.

A program has a few rows, [R, quads, 4] values: one hash of noise serves a quad, and a
quad's codes make 1, 2 or 4 bytes.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_baselines.halos.quantise import PARAMETER_BYTES, Layout, row_bytes

BLOCK_VALUES = 2048  # of one program, if its rows are no longer than that
_NAN = tl.constexpr(0x7FC0)  # as a bfloat16: Z of a row that cannot be sent


class Packing:
    """``gpu_baselines.kernels.Packing``."""

    def __init__(self, layout: Layout, device: torch.device):
        self.layout = layout
        self._index = [torch.from_numpy(group.rows).to(device) for group in layout.groups]

    def pack(self, rows: Tensor, key: int) -> Tensor:
        message = rows.new_empty(self.layout.nbytes(rows.shape[1]), dtype=torch.uint8)
        signed = key - (1 << 64) if key >> 63 else key
        for bits, index, parameters, codes in self._groups(message, rows.shape[1]):
            shape = _shape(rows.shape[1])
            grid = (triton.cdiv(len(index), shape["ROWS"]),)
            _quantise[grid](rows, index, parameters, codes, len(index), rows.shape[1], signed, BITS=bits, **shape)
        if not bool(self.parameters(message).isfinite().all()):
            raise ValueError
        return message

    def unpack(self, message: Tensor, out: Tensor) -> None:
        for bits, index, parameters, codes in self._groups(message, out.shape[1]):
            shape = _shape(out.shape[1])
            grid = (triton.cdiv(len(index), shape["ROWS"]),)
            _dequantise[grid](out, index, parameters, codes, len(index), out.shape[1], BITS=bits, **shape)

    def parameters(self, message: Tensor) -> Tensor:
        return message[: self.layout.first_code].view(torch.bfloat16)

    def _groups(self, message: Tensor, width: int) -> list[tuple[int, Tensor, Tensor, Tensor]]:
        found, at = [], self.layout.first_code
        for (bits, _, first), index in zip(self.layout.groups, self._index, strict=True):
            begin, size = first * PARAMETER_BYTES, len(index) * row_bytes(width, bits)
            parameters = message[begin : begin + len(index) * PARAMETER_BYTES].view(torch.int16)
            found.append((bits, index, parameters, message[at : at + size]))
            at += size
        return found


def _shape(width: int) -> dict[str, Any]:
    quads = triton.next_power_of_2((width + 3) // 4)
    return {"QUADS": quads, "ROWS": max(1, BLOCK_VALUES // (4 * quads))}


@triton.jit
def _mixed(x):  # type: ignore[no-untyped-def]
    """SplitMix64's finaliser, of uint64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _float32(x):  # type: ignore[no-untyped-def]
    """Of a bfloat16 in the lower half of a uint32."""
    return (x << 16).to(tl.float32, bitcast=True)


# Triton compiles an argument that is 1 as a constant, which a key has no use for: each would be a kernel of its own.
@triton.jit(do_not_specialize=["key", "num_rows"])  # type: ignore[untyped-decorator]
def _quantise(  # type: ignore[no-untyped-def]
    rows, index, parameters, codes, num_rows, width, key, BITS: tl.constexpr, QUADS: tl.constexpr, ROWS: tl.constexpr
):
    own = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = own < num_rows
    source = tl.load(index + own, mask=is_row, other=0)  # [R]
    quad, part = tl.arange(0, QUADS), tl.arange(0, 4)
    column = (quad[:, None] * 4 + part[None, :])[None, :, :]  # [1, Q, 4]
    there = is_row[:, None, None] & (column < width)
    x = tl.load(rows + source[:, None, None] * width + column, mask=there, other=0.0)
    good = tl.where(there, (x >= -4.253529586511731e37) & (x <= 4.253529586511731e37), True)  # 2^125
    low = tl.min(tl.min(tl.where(there, x, float("inf")), 2), 1)  # [R]
    high = tl.max(tl.max(tl.where(there, x, float("-inf")), 2), 1)
    low, high = tl.where(is_row, low, 0.0), tl.where(is_row, high, 0.0)

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
    sendable = tl.min(tl.min(good.to(tl.int32), 2), 1) != 0
    tl.store(parameters + 2 * own, tl.where(sendable, below, _NAN).to(tl.int16), mask=is_row)
    tl.store(parameters + 2 * own + 1, above.to(tl.int16), mask=is_row)

    row_key = _mixed(source.to(tl.uint64) * 0x9E3779B97F4A7C15 + key.to(tl.uint64))  # [R]
    hashes = _mixed(row_key[:, None] + quad.to(tl.uint64)[None, :] * 0x9E3779B97F4A7C15)  # [R, Q]
    random = ((hashes[:, :, None] >> (part * 16).to(tl.uint64)[None, None, :]) & 0xFFFF).to(tl.int32)
    fixed = ((x - Z[:, None, None]) * inverse[:, None, None]).to(tl.int32)
    rounded = tl.minimum((fixed + (2 * random + 1)) >> 17, (1 << BITS) - 1)
    word = tl.sum(tl.where(there, rounded, 0).to(tl.uint32) << (part * BITS).to(tl.uint32)[None, None, :], 2)  # [R, Q]
    BYTES: tl.constexpr = BITS // 2  # of a quad
    byte = tl.arange(0, BYTES)
    value = (word[:, :, None] >> (byte * 8).to(tl.uint32)[None, None, :]) & 0xFF
    row_codes = (width * BITS + 7) // 8
    place = (quad[:, None] * BYTES + byte[None, :])[None, :, :]
    tl.store(
        codes + own[:, None, None] * row_codes + place,
        value.to(tl.uint8),
        mask=is_row[:, None, None] & (place < row_codes),
    )


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def _dequantise(  # type: ignore[no-untyped-def]
    rows, index, parameters, codes, num_rows, width, BITS: tl.constexpr, QUADS: tl.constexpr, ROWS: tl.constexpr
):
    own = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = own < num_rows
    target = tl.load(index + own, mask=is_row, other=0)
    Z = _float32(tl.load(parameters + 2 * own, mask=is_row, other=0).to(tl.uint16, bitcast=True).to(tl.uint32))
    S = _float32(tl.load(parameters + 2 * own + 1, mask=is_row, other=0).to(tl.uint16, bitcast=True).to(tl.uint32))
    row_codes = (width * BITS + 7) // 8
    column = tl.arange(0, 4 * QUADS)[None, :]
    there = is_row[:, None] & (column < width)
    byte = tl.load(codes + own[:, None] * row_codes + column * BITS // 8, mask=there, other=0).to(tl.int32)
    value = (byte >> (column * BITS % 8)) & ((1 << BITS) - 1)
    row = Z[:, None] + S[:, None] * value.to(tl.float32)
    tl.store(rows + target[:, None] * width + column, row, mask=there)
