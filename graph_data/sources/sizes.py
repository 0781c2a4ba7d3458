"""The sizes of a source, found without reading it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKED = 3  # bytes in memory of a byte of compressed text


@dataclass(frozen=True)
class Sizes:
    """The sizes of a source, as far as known without reading it."""

    num_vertices: int
    num_edges: int  # as listed
    feature_bytes: int
    weighted: bool = False
    mirrored: bool = False  # both directions of an edge are listed
    text: bool = False


#: Of what is made, and says nothing: a small graph.
SMALL = Sizes(2000, 40_000, 1 << 20)


def guessed(files: Sequence[Path]) -> Sizes:
    """Sizes of files whose beginning does not tell: half of the bytes count as features, the rest as edges."""
    nbytes = sum((PACKED if file.suffix == ".gz" else 1) * file.stat().st_size for file in files)
    return Sizes(nbytes // 1000, nbytes // 32, nbytes // 2)
