"""The inner loop of the louvain order (``graph_data.louvain``), for which array operations are slow."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from siafu.kernels.library import LIBRARY

Array = npt.NDArray[Any]

BLOCKS: Final = 16  # blocks of a round: if too many vertices decide at once, neighbours swap labels for ever
PRECISION_BITS: Final = 26  # of volumes in a score: votes x total stays below 2^63


class _Moves(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in ("indptr", "indices", "weight", "degree", "total", "label", "volume", "next")
        ),
        *((name, ctypes.c_int64) for name in ("n", "num_edges", "blocks", "shift", "threads", "block")),
    )


def move_labels(
    indptr: Array,
    indices: Array,
    weight: Array | None,
    degree: Array,
    total: Array,
    label: Array,
    volume: Array,
    threads: int = 1,
) -> int:
    """Does one round of Louvain moves (Blondel et al. 2008): every vertex takes the label that gains most modularity.

    CSR of a symmetric graph: indptr int64 [n + 1], indices int32 [m], weight int64 [m] or None for ones. ``degree``,
    int64 [n]: sums of each row's weights; ``total``, int64 [n]: sums of the degrees of all vertices that the vertex is
    compared with. Changes ``label``, int32 [n], and ``volume``, int64 [n], the sums of degrees by label. The vertices
    of a block (v modulo BLOCKS) decide at once, so the result does not depend on threads. Returns the number of
    vertices with a new label. Raises: ValueError if an entry of the CSR or a label is out of range.
    """
    shift = max(0, int(total.max(initial=0)).bit_length() - PRECISION_BITS)
    if LIBRARY is None:
        return sum(_move_block(b, indptr, indices, weight, degree, total, label, volume, shift) for b in range(BLOCKS))
    following = np.empty_like(label)
    arrays = (indptr, indices, weight, degree, total, label, volume, following)
    call = _Moves(
        *(None if a is None else a.ctypes.data for a in arrays), len(label), len(indices), BLOCKS, shift, threads
    )
    LIBRARY.siafu_move_labels.restype = ctypes.c_int64
    moved = int(LIBRARY.siafu_move_labels(ctypes.byref(call)))
    if moved < 0:
        raise ValueError("row pointers fall or lead beyond the edges, or a column or label is no vertex")
    return moved


# --- without a compiled library ---------------------------------------------------------------------------------------


def _move_block(
    block: int,
    indptr: Array,
    indices: Array,
    weight: Array | None,
    degree: Array,
    total: Array,
    label: Array,
    volume: Array,
    shift: int,
) -> int:
    """Moves the vertices ``block, block + BLOCKS, ...``; see ``move_labels``. Returns the number of new labels."""
    n = len(label)
    rows = np.arange(block, n, BLOCKS)
    counts = indptr[rows + 1] - indptr[rows]
    row = np.repeat(np.arange(len(rows)), counts)  # [entries]
    position = np.arange(len(row)) + np.repeat(indptr[rows] - np.cumsum(counts) + counts, counts)
    apart = indices[position] != rows[row]
    row, position = row[apart], position[apart]
    keys = np.concatenate([row * n + label[indices[position]], np.arange(len(rows)) * n + label[rows]])
    votes = np.ones(len(position), np.int64) if weight is None else weight[position]
    keys, which = np.unique(keys, return_inverse=True)
    count = np.zeros(len(keys), np.int64)
    np.add.at(count, which, np.concatenate([votes, np.zeros(len(rows), np.int64)]))
    row, candidate = keys // n, keys % n
    own = candidate == label[rows[row]]
    others = volume[candidate] - np.where(own, degree[rows[row]], 0)
    score = count * (total[rows[row]] >> shift) - degree[rows[row]] * (others >> shift)
    best = np.lexsort((candidate, ~own, -score, row))[np.searchsorted(row, np.arange(len(rows)))]
    chosen = candidate[best].astype(label.dtype)
    moved = chosen != label[rows]
    np.subtract.at(volume, label[rows], degree[rows])
    np.add.at(volume, chosen, degree[rows])
    label[rows] = chosen
    return int(moved.sum())
