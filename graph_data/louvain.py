"""Communities within communities (Louvain: Blondel et al., J. Stat. Mech. 2008), laid
out like the leaves of their tree.

Rounds of moves and contractions, each linear in the edges: this orders graphs that METIS cannot hold.
Modularity does not see communities that are small beside the whole (Fortunato & Barthelemy, PNAS 2007), so
each one is searched again, alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from siafu import allotment
from siafu.kernels.order import move_labels
from siafu.sparse import Array

MAX_ROUNDS = 6  # per level; later ones move little
STILL = 0.02  # of the vertices: a level ends with the round that moves fewer
MAX_DEPTH = 3  # communities in communities
SMALL = 1024  # vertices: a community that is not searched again; or a 64th of all, if that is fewer


class Level(NamedTuple):
    """A symmetric graph. A vertex of a later level is a community of the level before; its inner edges are one
    self-loop."""

    indptr: Array  # int64 [n + 1]
    indices: Array  # int32 [m]
    weight: Array | None  # int64 [m]; None: every edge weighs 1


def nested_communities(indptr: Array, indices: Array) -> Array:
    """The community of every vertex, int64 [n], of a symmetric CSR graph. Communities inside a common larger one have
    adjacent numbers."""
    n = len(indptr) - 1
    small = min(SMALL, n // 64)
    within = np.zeros(n, np.int64)  # [n]
    for _ in range(MAX_DEPTH):
        searched = np.bincount(within, minlength=1)[within] > small  # [n]
        if not searched.any():
            break
        indptr, indices = _inner(indptr, indices, np.where(searched, within, -1))
        label = np.where(searched, _communities(indptr, indices, within), 0)
        within = np.unique(within * max(1, n) + label, return_inverse=True)[1]
    return within


def _inner(indptr: Array, indices: Array, group: Array) -> tuple[Array, Array]:
    """The edges inside groups; a vertex of group -1 loses all its edges."""
    if (group == 0).all():
        return indptr, indices
    inside = group[indices] == np.repeat(group, np.diff(indptr))  # [m]
    inside &= np.repeat(group >= 0, np.diff(indptr))
    starts = np.zeros(len(inside) + 1, np.int64)
    np.cumsum(inside, out=starts[1:])
    return starts[indptr], indices[inside]


def _communities(indptr: Array, indices: Array, within: Array) -> Array:
    """Louvain inside each group of ``within``, int32 [N]; no edge leaves a group."""
    level = Level(indptr, indices.astype(np.int32, copy=False), None)
    label = np.arange(len(within), dtype=np.int32)
    while True:
        joined = _labels_of(level, within)
        label = joined[label]
        k = int(joined.max(initial=-1)) + 1
        if k == len(joined):  # nothing joined anything
            return label
        level = _contracted(level, joined)
        representative = np.empty(k, within.dtype)
        representative[joined] = within
        within = representative


def _labels_of(level: Level, within: Array) -> Array:
    """Communities of one level, int32 [n], numbered without gaps."""
    n = len(level.indptr) - 1
    degree = np.diff(level.indptr)  # [n]
    if level.weight is not None:
        degree = np.add.reduceat(np.append(level.weight, 0), level.indptr[:-1]) * (degree > 0)
    total = np.bincount(within, degree).astype(np.int64)[within]  # [n]
    label, volume = np.arange(n, dtype=np.int32), degree.copy()
    for _ in range(MAX_ROUNDS):
        if move_labels(*level, degree, total, label, volume, allotment.cores()) < STILL * n:
            break
    return np.unique(label, return_inverse=True)[1].astype(np.int32)


def _contracted(level: Level, label: Array) -> Level:
    from scipy.sparse import csr_matrix  # slow to load, and few graphs come here

    n, k = len(label), int(label.max()) + 1
    weight = np.ones(len(level.indices), np.int32) if level.weight is None else level.weight
    columns = csr_matrix((weight, label[level.indices], level.indptr), shape=(n, k))  # [n, k], with repeated columns
    order = np.argsort(label, kind="stable").astype(np.int32)
    members = csr_matrix((np.ones(n, np.int64), order, np.searchsorted(label[order], np.arange(k + 1))), shape=(k, n))
    joined = members @ columns  # [k, k]
    return Level(joined.indptr.astype(np.int64), joined.indices.astype(np.int32), joined.data.astype(np.int64))
