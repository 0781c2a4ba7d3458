"""Rows that attention gathers, each stored beside its scores: reading a score costs no cache line of its own."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from siafu.kernels.caches import L3_BYTES, LINE_BYTES
from siafu.kernels.rows import huge_zeros, to_bfloat16
from siafu.ops import from_bfloat16
from siafu.sparse import Array

Dtype = Literal["float32", "bfloat16", "float64"]
STORED: Final[dict[str, type]] = {"float32": np.float32, "bfloat16": np.uint16, "float64": np.float64}
#: Scores lie in a table of their own while it fills no more of the last-level cache.
SCORES_SHARE = 0.5


class Records:
    """``num_rows`` rows of ``heads * width`` values, each with ``num_scores`` scores per
    head; zero until they are written.

    dtype: of the rows; scores are float32 (float64 with float64, which numpy computes: for tests).
    Several threads may write different rows at once. Raises: ValueError for a shape or dtype that there is not.
    """

    def __init__(
        self,
        num_rows: int,
        heads: int,
        width: int,
        *,
        num_scores: int = 1,
        dtype: Dtype = "float32",
        beside: bool | None = None,
    ):
        if dtype not in STORED:
            raise ValueError(f"records of {dtype!r}, must be one of {', '.join(STORED)}")
        if min(num_rows, num_scores) < 0 or min(heads, width) < 1:
            raise ValueError(f"records of {num_rows} rows, {heads} heads x {width}, {num_scores} scores")
        self.num_rows, self.heads, self.width, self.num_scores, self.dtype = num_rows, heads, width, num_scores, dtype
        stored, real = np.dtype(STORED[dtype]), self.real
        row = -(-self.columns * stored.itemsize // real.itemsize) * real.itemsize  # bytes
        scores = num_scores * heads * real.itemsize
        if beside is None:
            free = _whole_lines(row + scores) == _whole_lines(row)
            beside = free or num_rows * scores > SCORES_SHARE * L3_BYTES
        self.beside = beside  # whether scores lie in the rows' memory
        self.row_bytes = _whole_lines(row + scores * beside)  # from one row to the next
        self.score_bytes = self.row_bytes if beside else scores
        memory = huge_zeros((num_rows, self.row_bytes), np.dtype(np.uint8))
        apart = memory[:, row:] if beside else huge_zeros((num_rows, scores), np.dtype(np.uint8))
        self.memory = memory[:, : self.columns * stored.itemsize].view(stored)  # [N, heads * width]
        self.scores = apart[:, :scores].view(real).reshape(num_rows, num_scores, heads)  # a view of either

    @classmethod
    def of(cls, rows: Array, *scores: Array, heads: int) -> Records:
        """``rows`` [N, heads * width] (uint16: bfloat16's bits) as they lie, not copied; the scores [N, heads] are."""
        names: dict[Any, Dtype] = {np.dtype(np.float32): "float32", np.dtype(np.uint16): "bfloat16"}
        names[np.dtype(np.float64)] = "float64"
        if rows.ndim != 2 or rows.dtype not in names or rows.shape[1] % heads or not rows.shape[1]:
            raise ValueError(f"rows {rows.dtype} {rows.shape}, must be float32, float64 or uint16 [N, {heads} x width]")
        width, dtype = rows.shape[1] // heads, names[rows.dtype]
        made = cls(0, heads, width, num_scores=len(scores), dtype=dtype, beside=False)
        made.num_rows, made.memory, made.row_bytes = (
            len(rows),
            np.ascontiguousarray(rows),
            rows.shape[1] * rows.itemsize,
        )
        made.scores = np.zeros((len(rows), len(scores), heads), made.real)
        for kind, score in enumerate(scores):
            check(score, (len(rows), heads), "scores")
            made.scores[:, kind] = score
        return made

    @property
    def real(self) -> np.dtype[Any]:
        """Of scores, and of what is computed."""
        return np.dtype(np.float64 if self.dtype == "float64" else np.float32)

    @property
    def columns(self) -> int:
        return self.heads * self.width

    @property
    def nbytes(self) -> int:
        return self.num_rows * (self.row_bytes + self.score_bytes * (not self.beside))

    def write(self, place: slice | Array, rows: Array, *scores: Array) -> None:
        """Rows [k, heads * width] and their scores [k, heads] to where ``place`` says: a slice, or row numbers."""
        if len(scores) != self.num_scores:
            raise ValueError(f"{len(scores)} scores, must be {self.num_scores}")
        if rows.ndim != 2 or rows.shape[1] != self.columns:
            raise ValueError(f"rows {rows.shape}, must be [k, {self.columns}]")
        for score in scores:
            check(score, (len(rows), self.heads), "scores")
        self.memory[place] = to_bfloat16(rows) if self.dtype == "bfloat16" and rows.dtype != np.uint16 else rows
        for kind, score in enumerate(scores):
            self.scores[place, kind] = score

    def rows(self) -> Array:
        """A copy: [N, heads * width], float32 or float64."""
        return from_bfloat16(np.ascontiguousarray(self.memory)) if self.dtype == "bfloat16" else self.memory.copy()


def check(array: Array, shape: tuple[int, ...], name: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} {array.shape}, must be {shape}")


def _whole_lines(nbytes: int) -> int:
    """Rounded up, so that no row touches a cache line more than it needs: to a power of two, or to whole lines."""
    return min(1 << max(nbytes - 1, 0).bit_length(), -(-nbytes // LINE_BYTES) * LINE_BYTES) if nbytes else 0
