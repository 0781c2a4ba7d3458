"""Random features for a graph that has none, only on the user's request."""

from __future__ import annotations

import re

import numpy as np

from siafu.errors import DatasetError
from siafu.sparse import Array

RANDOM_WIDTH = 32  # of "random"
RANDOM_ROWS = 1 << 14  # random rows drawn with one generator


class RandomRows:
    """Standard normal features for a graph without features, float16 [N, F]; made when read, always the same."""

    dtype = np.dtype(np.float16)
    ndim = 2

    def __init__(self, num_rows: int, width: int) -> None:
        self.shape = (num_rows, width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(len(self))
        first = start - start % RANDOM_ROWS
        drawn = [self._draw(block) for block in range(first, stop, RANDOM_ROWS)]
        joined = np.concatenate([np.empty((0, self.shape[1]), np.float16), *drawn])
        return joined[start - first : max(start, stop) - first]

    def _draw(self, first: int) -> Array:
        rng = np.random.default_rng([first, self.shape[1]])
        return rng.standard_normal((RANDOM_ROWS, self.shape[1]), np.float32).astype(np.float16)


def random_width(text: str) -> int | None:
    """F of "random" or "random:F"; None for anything else."""
    match = re.fullmatch(r"random(?::([1-9]\d{0,5}))?", text)
    return (int(match[1]) if match[1] else RANDOM_WIDTH) if match else None


def no_features(name: str) -> DatasetError:
    """The error for a graph without features: random ones are never a default."""
    return DatasetError(
        f"{name}: has no features: name a file of them, or say random:{RANDOM_WIDTH} for {RANDOM_WIDTH} random ones "
        f"per vertex (--features random:{RANDOM_WIDTH}, SOURCE?features=random:{RANDOM_WIDTH}, in Python "
        f"features='random:{RANDOM_WIDTH}')"
    )
