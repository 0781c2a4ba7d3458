"""Edges that lead anywhere, given to every kernel that walks along edges: it refuses them, or they were good.

``python -m tests.siafu.kernels.wild_edges LIBRARY`` drives another build of the kernels: test_wild_edges.py makes one
with sanitizers, which end the process at the first byte that is read where there is none.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from siafu import kernels
from siafu.kernels import Records, attend, attend_backward, attend_given, edge_dot, gather, rows_gradient
from siafu.kernels.order import move_labels
from siafu.ops import edge_key
from siafu.sparse import Array, Edges

HUB = 17_000  # edges of a row that threads share: gather.hpp, attention.cpp
WIDTHS = ((1, 1), (1, 16), (3, 5), (2, 41), (8, 64))  # heads x width

Change = Callable[[np.random.Generator, Array, Array], None]


def put(which: int, value: int) -> Change:
    """One value somewhere: of the row pointers (0) or the columns (1)."""

    def change(rng: np.random.Generator, *arrays: Array) -> None:
        arrays[which][rng.integers(len(arrays[which]))] = value

    return change


def shuffle(which: int) -> Change:
    return lambda rng, *arrays: rng.shuffle(arrays[which])


CHANGES: dict[str, Change] = {
    "none": lambda rng, indptr, indices: None,
    **{f"a row pointer of {value}": put(0, value) for value in (-1, 0, 3, 10**6, -(2**63), 2**63 - 1)},
    **{f"a column of {value}": put(1, value) for value in (-1, 0, 46, 47, 10**6, -(2**31), 2**31 - 1)},
    "row pointers in any order": shuffle(0),
    "columns in any order": shuffle(1),
}


def problems(n: int = 40, g: int = 7) -> Iterator[tuple[str, Edges, bool]]:
    """What was changed, the edges, and whether they are good."""
    for seed, (name, change) in enumerate(CHANGES.items()):
        for hub in (0, HUB):
            rng = np.random.default_rng(seed)
            degree = rng.integers(0, 12, n)
            degree[3] = hub or degree[3]
            indptr = np.append(0, np.cumsum(degree)).astype(np.int64)
            indices = np.concatenate([np.sort(rng.integers(0, n + g, d)) for d in degree]).astype(np.int32)
            change(rng, indptr, indices)
            rises = indptr[0] >= 0 and indptr[-1] <= len(indices) and bool((indptr[1:] >= indptr[:-1]).all())
            found = indices[indptr[0] : indptr[-1]] if rises else indices
            inside = rises and bool(((found >= 0) & (found < n + g)).all())
            yield f"{name}, hub of {hub}", Edges(indptr, indices, None), inside


def drive() -> Counter[str]:
    """How many calls were answered, and how many refused. AssertionError if one was that should not have been."""
    counted: Counter[str] = Counter()
    for name, edges, inside in problems():
        for heads, width in WIDTHS:
            for kernel, call, good in _calls(edges, heads, width, inside):
                try:
                    call()
                    answered = True
                except ValueError:
                    answered = False
                assert answered == good, f"{kernel} {heads}x{width}: {name}: {'answered' if answered else 'refused'}"
                counted["answered" if answered else "refused"] += 1
    return counted


def _calls(
    edges: Edges, heads: int, width: int, inside: bool, n: int = 40, g: int = 7
) -> Iterator[tuple[str, Callable[[], object], bool]]:
    wide, rng = heads * width, np.random.default_rng(0)
    H = rng.random((n + g, wide), np.float32)
    yield "gather", lambda: gather(edges, 0, n, H, threads=2), inside
    dropout = kernels.EdgeDropout(0.5, edge_key(1, 2, 3), np.arange(n + g))
    scores, own = rng.random((n + g, heads), np.float32), rng.random((n, heads), np.float32)

    def records(num_scores: int) -> Records:
        made = Records(n + g, heads, width, num_scores=num_scores)
        made.write(slice(None), H, *([scores] * num_scores))
        return made

    one, three = records(1), records(3)
    for mask in (None, dropout):
        options = {"dropout": mask, "threads": 2}
        yield "attend", lambda options=options: attend(edges, 0, n, one, own, **options), inside
        yield (
            "attend_backward",
            lambda options=options: attend_backward(edges, 0, n, three, H[:n], own, **options),
            inside,
        )
    size = int(edges.indptr[n]) - int(edges.indptr[0])
    if 0 <= size <= 10**6:  # else there are no coefficients of that shape to be given
        alpha = rng.random((size, heads), np.float32)
        total = np.zeros((n, heads), np.float32)
        yield "attend_given", lambda: attend_given(edges, 0, n, one, alpha, total), inside
        yield "rows_gradient", lambda: rows_gradient(edges, 0, n, three, alpha), inside
        yield "edge_dot", lambda: edge_dot(edges, 0, n, H[:n], three), inside
    if (heads, width) == WIDTHS[0]:
        yield "move_labels", lambda: _moved(edges, n + g), inside


def _moved(edges: Edges, n: int) -> int:
    indptr = np.append(edges.indptr, np.full(n - len(edges.indptr) + 1, edges.indptr[-1]))
    ones = np.ones(n, np.int64)
    return move_labels(indptr, edges.indices, None, ones, ones, np.arange(n, dtype=np.int32), ones.copy(), 2)


def main(library: str) -> None:
    native = ctypes.CDLL(library)
    native.siafu_move_labels.restype = ctypes.c_int64
    for module in list(sys.modules.values()):
        if module.__name__.startswith("siafu.kernels.") and hasattr(module, "LIBRARY"):
            module.LIBRARY = native  # type: ignore[attr-defined]
    print(dict(drive()))


if __name__ == "__main__":
    main(sys.argv[1])
