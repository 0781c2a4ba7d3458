"""Features and splits that a user gives with a graph whose own files lack them, or have others: as for edge lists, by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from datasets.sources import ids, vertexfiles
from datasets.sources.randomrows import random_width
from siafu.sparse import Array


def features_of(text: str, num_vertices: int) -> Any:
    """Rows [N, F] of a .npy or .npz file, a table by vertex number, or ``random:F``; those of a .npy file stay on disk."""
    rows = None if random_width(text) or vertexfiles.is_by_number(text) else vertexfiles.table(text)
    return vertexfiles.features(text, rows, num_vertices, _by_number(num_vertices), None, None)


def split_of(text: str | None, num_vertices: int) -> Array:
    """uint8 [N, S] of a .npy file, or a table by vertex number; no split if there is none."""
    if not text:
        return np.zeros((num_vertices, 0), np.uint8)
    rows = None if vertexfiles.is_by_number(text) else vertexfiles.table(text)
    return vertexfiles.split(text, rows, num_vertices, _by_number(num_vertices), None)


def _by_number(num_vertices: int) -> Any:
    return ids.kind_of(None, "auto", num_vertices)
