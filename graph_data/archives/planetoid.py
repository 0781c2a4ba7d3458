"""Planetoid's eight files (Yang, Cohen, Salakhutdinov, ICML 2016): ind.NAME.x, y, tx,
ty, allx, ally, graph and test.index.

Row i of ``tx`` and ``ty`` is the vertex on line i of test.index. The public split: rows of ``y`` train, the next 500
validate, and vertices of test.index test. A vertex in no file (citeseer has 15) has zero features, no label, and no
role.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.archives import plainpickle
from graph_data.archives.found import Found, check_within, graph_of, split_by
from graph_data.archives.sparsematrix import sparse_rows
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.sparse import Array

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
NUM_VALIDATION = 500
_NAME = re.compile(r"ind\.(.+)\.(?:x|y|tx|ty|allx|ally|graph|test\.index)")


def find(file: Path) -> Found | None:
    match = _NAME.fullmatch(file.name)
    if match is None:
        return None
    stem = f"ind.{match[1]}"
    return Found(match[1], tuple(file.with_name(f"{stem}.{part}") for part in PARTS), f"{stem}.*")


def load(found: Found, given: dict[str, str]) -> Graph:
    import scipy.sparse

    place = dict(zip(PARTS, found.files, strict=True))
    _, y, tx, ty, allx, ally = (_part(place[part], part) for part in PARTS[:6])
    tests = _test_index(place["test.index"])
    for rows, other, name in (
        (allx.shape[0], len(ally), "allx"),
        (tx.shape[0], len(ty), "tx"),
        (len(tests), len(ty), "tx"),
    ):
        if rows != other:
            raise DatasetError(f"{found.shown}: {name} or test.index has {rows} rows, its labels {other}")
    if allx.shape[1] != tx.shape[1] or ally.shape[1:] != ty.shape[1:] or ally.ndim != 2:
        raise DatasetError(f"{found.shown}: allx and tx, or ally and ty, are not equally wide")
    src, dst, num_lists = _edges(place["graph"])
    num_known = allx.shape[0]
    num_vertices = max(num_known, num_lists, int(tests.max(initial=-1)) + 1)
    check_within(np.concatenate([src, dst]), num_vertices, str(place["graph"]))
    if len(np.unique(tests)) < len(tests) or tests.min(initial=num_known) < num_known:
        raise DatasetError(f"{place['test.index']}: a vertex twice, or one below {num_known}, which allx has")
    order = np.full(num_vertices, num_known + len(tests))  # row of each vertex in allx, tx and a row of zeros
    order[:num_known], order[tests] = np.arange(num_known), num_known + np.arange(len(tests))
    zeros = scipy.sparse.csr_matrix((1, allx.shape[1]), dtype=allx.dtype)
    features = scipy.sparse.vstack([allx, tx, zeros]).tocsr()[order]
    marks = np.concatenate([ally, ty, np.zeros((1, ally.shape[1]), ally.dtype)])[order]
    train, val = np.arange(len(y)), np.arange(len(y), min(len(y) + NUM_VALIDATION, num_known))
    if (marks != 0).sum(axis=1).max(initial=0) > 1:
        raise DatasetError(
            f"{found.shown}: vertex {np.argmax((marks != 0).sum(axis=1))} has several classes, must have one"
        )
    labels = np.where(marks.any(axis=1), marks.argmax(axis=1), -1)
    split = split_by(num_vertices, train, val, tests, found.shown)
    notes = _isolated(found, order, num_known + len(tests))
    return graph_of(found, given, (src, dst, None), sparse_rows(features), labels, split, ally.shape[1], notes)


def _isolated(found: Found, order: Array, none: int) -> tuple[str, ...]:
    count = int((order == none).sum())
    return (
        (f"{found.shown}: {count} vertices are in no file: features of zeros, no label, in no split",) if count else ()
    )


def _part(file: Path, part: str) -> Any:
    value = plainpickle.read(file)
    return plainpickle.array(value, str(file)) if part.endswith("y") else plainpickle.matrix(value, str(file))


def _test_index(file: Path) -> Array:
    try:
        return np.array(file.read_text("ascii").split(), np.int64)
    except (ValueError, OverflowError, OSError):
        raise DatasetError(f"{file}: not readable, must be an integer a line") from None


def _edges(file: Path) -> tuple[Array, Array, int]:
    """src, dst and the number of lists. Each listed neighbour is a source, the vertex that lists it the target."""
    lists = plainpickle.read(file)
    if not isinstance(lists, dict) or not all(type(near) is list for near in lists.values()):
        raise DatasetError(f"{file}: must be a dict of lists of neighbours")
    try:
        counts = np.fromiter(map(len, lists.values()), np.int64, len(lists))
        dst = np.repeat(np.fromiter(lists, np.int64, len(lists)), counts)
        src = np.fromiter(chain.from_iterable(lists.values()), np.int64, len(dst))
    except (ValueError, TypeError, OverflowError):
        raise DatasetError(f"{file}: a vertex that is no integer") from None
    return src, dst, len(lists)
