"""Attention on a GPU without a tensor of values per edge (full Reddit with 4 heads of 32 would need 59 GB for each).

As FlashAttention does (Dao et al., NeurIPS 2022), along the edges of a sparse graph: the forward pass keeps, of each
target's softmax, the logarithm of its sum; the backward pass computes coefficients again from that. A program has one
target (forward), or one source (backward), and goes through its edges in blocks.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_baselines.graph import AttentionEdges

BLOCK_VALUES, WARPS = 1024, 1  # of a block of edges' rows; of a program


class Attend(torch.autograd.Function):
    """Z_v = Σ_u kept_vu softmax_u(LeakyReLU(t_v + s_u)) T_u, [n, K, D], of T [n + h, K, D], s [n + h, K], t [n, K].

    An edge's weight multiplies its exponential; ``kept`` [m, K]: what its coefficients are multiplied by after the
    softmax (dropout), or None. float32 or float64. Sums of ``t``'s gradient are in no fixed order.
    """

    @staticmethod
    def forward(
        ctx: Any, T: Tensor, s: Tensor, t: Tensor, edges: AttentionEdges, slope: float, kept: Tensor | None
    ) -> Tensor:
        T, s, t = T.contiguous(), s.contiguous(), t.contiguous()
        num_targets, (_, heads, width) = len(t), T.shape
        Z, log_total = T.new_empty(num_targets, heads, width), torch.empty_like(t)
        where = edges.by_target
        weight, factor = _or_nothing(edges.weight, T), _or_nothing(kept, T)
        given = {"WEIGHTED": edges.weight is not None, "DROPPED": kept is not None}
        if num_targets:
            _forward[(num_targets,)](
                T, s, t, weight, factor, where.first, where.other, Z, log_total, heads, width,
                SLOPE=slope, **given, **_shape(heads, width),
            )  # fmt: skip
        ctx.save_for_backward(T, s, t, weight, factor, Z, log_total)
        ctx.edges, ctx.slope, ctx.given = edges, slope, given
        return Z

    @staticmethod
    def backward(ctx: Any, dZ: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        T, s, t, weight, factor, Z, log_total = ctx.saved_tensors
        dZ, where, (num_sources, heads, width) = dZ.contiguous(), ctx.edges.by_source, T.shape
        mean = (dZ * Z).sum(-1)  # Σ_u α_vu dα_vu: what the softmax takes from each coefficient's gradient
        dT, ds, dt = torch.empty_like(T), torch.empty_like(s), torch.zeros_like(t)
        if num_sources:
            _backward[(num_sources,)](
                T, s, t, weight, factor, log_total, mean, dZ, where.first, where.other, where.edge, dT, ds, dt,
                heads, width, SLOPE=ctx.slope, **ctx.given, **_shape(heads, width),
            )  # fmt: skip
        return dT, ds, dt, None, None, None


def _or_nothing(values: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(1) if values is None else values.contiguous()


def _shape(heads: int, width: int) -> dict[str, int]:
    K, D = triton.next_power_of_2(heads), triton.next_power_of_2(width)
    return {"K": K, "D": D, "EDGES": max(1, BLOCK_VALUES // (K * D)), "num_warps": WARPS}


@triton.jit  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
    T, s, t, weight, kept, first, source, Z, log_total, heads, width, SLOPE: tl.constexpr,
    WEIGHTED: tl.constexpr, DROPPED: tl.constexpr, K: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64)
    k, column, lane = tl.arange(0, K), tl.arange(0, D), tl.arange(0, EDGES)
    is_head = k < heads
    value = (k[:, None] * width + column[None, :])[None, :, :]  # [1, K, D], of a row
    is_value = (is_head[:, None] & (column < width)[None, :])[None, :, :]
    own = tl.load(t + v * heads + k, mask=is_head, other=0.0)
    begin, stop = tl.load(first + v), tl.load(first + v + 1)
    top = tl.full([K], float("-inf"), T.dtype.element_ty)
    total = tl.zeros([K], T.dtype.element_ty)
    summed = tl.zeros([K, D], T.dtype.element_ty)
    at = begin
    while at < stop:  # no range: Triton's interpreter and numpy 2.4 do not agree on one of loaded ends
        edge = at + lane
        is_edge = edge < stop
        there = is_edge[:, None] & is_head[None, :]
        u = tl.load(source + edge, mask=is_edge, other=0).to(tl.int64)
        score = tl.load(s + u[:, None] * heads + k[None, :], mask=there, other=0.0) + own[None, :]
        score = tl.where(score > 0, score, score * SLOPE)
        score = tl.where(is_edge[:, None], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 0))
        share = tl.exp(score - higher[None, :])
        if WEIGHTED:
            share *= tl.load(weight + edge, mask=is_edge, other=0.0)[:, None]
        shrunk = tl.exp(top - higher)
        total = total * shrunk + tl.sum(share, 0)
        if DROPPED:
            share *= tl.load(kept + edge[:, None].to(tl.int64) * heads + k[None, :], mask=there, other=0.0)
        rows = tl.load(
            T + u[:, None, None] * (heads * width) + value, mask=is_edge[:, None, None] & is_value, other=0.0
        )
        summed = summed * shrunk[:, None] + tl.sum(rows * share[:, :, None], 0)
        top = higher
        at += EDGES
    found = tl.where(total > 0, 1 / total, 0.0)[:, None] * summed
    place = Z + v * heads * width + k[:, None] * width + column[None, :]
    tl.store(place, found, mask=is_head[:, None] & (column < width)[None, :])
    tl.store(log_total + v * heads + k, top + tl.log(total), mask=is_head)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(  # type: ignore[no-untyped-def]
    T, s, t, weight, kept, log_total, mean, dZ, first, target, number, dT, ds, dt, heads, width, SLOPE: tl.constexpr,
    WEIGHTED: tl.constexpr, DROPPED: tl.constexpr, K: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    u = tl.program_id(0).to(tl.int64)
    k, column, lane = tl.arange(0, K), tl.arange(0, D), tl.arange(0, EDGES)
    is_head = k < heads
    value = k[:, None] * width + column[None, :]  # [K, D], of a row
    is_value = is_head[:, None] & (column < width)[None, :]
    own = tl.load(s + u * heads + k, mask=is_head, other=0.0)
    row = tl.load(T + u * heads * width + value, mask=is_value, other=0.0)
    begin, stop = tl.load(first + u), tl.load(first + u + 1)
    of_row = tl.zeros([K, D], T.dtype.element_ty)
    of_score = tl.zeros([K], T.dtype.element_ty)
    at = begin
    while at < stop:
        is_edge = at + lane < stop
        there = is_edge[:, None] & is_head[None, :]
        v = tl.load(target + at + lane, mask=is_edge, other=0).to(tl.int64)
        place = v[:, None] * heads + k[None, :]
        before = own[None, :] + tl.load(t + place, mask=there, other=0.0)
        score = tl.where(before > 0, before, before * SLOPE)
        alpha = tl.where(there, tl.exp(score - tl.load(log_total + place, mask=there, other=0.0)), 0.0)
        if WEIGHTED or DROPPED:
            edge = tl.load(number + at + lane, mask=is_edge, other=0).to(tl.int64)
        if WEIGHTED:
            alpha *= tl.load(weight + edge, mask=is_edge, other=0.0)[:, None]
        dRow = tl.load(
            dZ + v[:, None, None] * (heads * width) + value[None, :, :],
            mask=is_edge[:, None, None] & is_value[None, :, :],
            other=0.0,
        )
        dAlpha = tl.sum(dRow * row[None, :, :], 2)
        used = alpha
        if DROPPED:
            factor = tl.load(kept + edge[:, None] * heads + k[None, :], mask=there, other=0.0)
            dAlpha *= factor
            used = alpha * factor
        of_row += tl.sum(dRow * used[:, :, None], 0)
        dScore = alpha * (dAlpha - tl.load(mean + place, mask=there, other=0.0))
        dScore = tl.where(before > 0, dScore, dScore * SLOPE)
        of_score += tl.sum(dScore, 0)
        tl.atomic_add(dt + place, dScore, mask=there)
        at += EDGES
    tl.store(dT + u * heads * width + value, of_row, mask=is_value)
    tl.store(ds + u * heads + k, of_score, mask=is_head)
