"""Options of a source; features and splits that a user gives, by vertex number, with a graph whose own files lack
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from graph_data.sources import ids, vertexfiles
from graph_data.sources.columns import path_and_options
from graph_data.sources.randomrows import random_width
from siafu.errors import DatasetError
from siafu.sparse import Array

#: Options of every file or object of a whole graph -> those of from_arrays.
TOLD = ("features", "target")


def options_of(argument: str, options: Sequence[str], kind: str = "") -> tuple[str, dict[str, str]]:
    """The path and the options of PATH[?KEY=VALUE&...]. ``kind``: "bsnap:", if messages must name it.

    Raises: DatasetError for an option that is not one of these, or that is there twice.
    """
    path, query = path_and_options(argument)
    pairs = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
    given = dict(pairs)
    for number, (key, _) in enumerate(pairs):
        if any(key == other for other, _ in pairs[:number]):
            raise DatasetError(f"{kind}{path} has the option {key!r} twice: keep one of them")
        if key not in options:
            raise DatasetError(f"{kind}{path} has no option {key!r}, only {', '.join(options)}")
    return path, given


def features_of(text: str, num_vertices: int) -> Any:
    """Rows [N, F] of a .npy or .npz file, a table by vertex number, or ``random:F``; rows of a .npy file stay on
    disk."""
    return vertexfiles.features(text, _table(text), num_vertices, _by_number(num_vertices), None, None)


def named_columns(text: str) -> tuple[str, ...] | None:
    """Names of these features' columns, if they are a table's and have names."""
    return vertexfiles.feature_names(_table(text)) or None


def _table(text: str) -> vertexfiles.Table | None:
    return None if not text or random_width(text) or vertexfiles.is_by_number(text) else vertexfiles.table(text)


def split_of(text: str | None, num_vertices: int) -> Array:
    """uint8 [N, S] of a .npy file, or of a table by vertex number; without a file, no split."""
    if not text:
        return np.zeros((num_vertices, 0), np.uint8)
    rows = None if vertexfiles.is_by_number(text) else vertexfiles.table(text)
    return vertexfiles.split(text, rows, num_vertices, _by_number(num_vertices), None)[0]


def _by_number(num_vertices: int) -> Any:
    return ids.kind_of(None, "auto", num_vertices)
