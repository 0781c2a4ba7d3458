"""LINQS' two files: X.content (id, features, class; separated by blanks or tabs) and X.cites (the cited paper, the
citing one).

Vertices are numbered in the order of X.content; classes are words, in their alphabetical order. No split is published.
Citeseer cites papers that X.content does not have: such edges are left out, and a note says how many.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graph_data.archives.found import Found, graph_of
from graph_data.sources.textfile import MISSING
from siafu.errors import DatasetError
from siafu.graph import Graph

ENDS = (".content", ".cites")


def find(file: Path) -> Found | None:
    if file.suffix not in ENDS:
        return None
    return Found(file.stem, tuple(file.with_suffix(end) for end in ENDS), f"{file.stem}.content")


def load(found: Found, given: dict[str, str]) -> Graph:
    content, cites = found.files
    rows = _table(content)
    if not rows:
        raise DatasetError(f"{content}: is empty")
    for at, row in enumerate(rows):
        if len(row) != len(rows[0]) or len(row) < 3:
            raise DatasetError(f"{content}: line {at + 1}: {len(row)} columns, must be {max(3, len(rows[0]))}")
    number = {row[0]: at for at, row in enumerate(rows)}
    if len(number) < len(rows):
        raise DatasetError(f"{content}: an id twice ({len(rows)} lines, {len(number)} ids)")
    try:
        with np.errstate(over="ignore"):  # what is infinite then is refused by the check of the graph
            features = np.array([row[1:-1] for row in rows], np.float32)
    except ValueError:
        raise DatasetError(f"{content}: a feature that is no number") from None
    classes = [row[-1] for row in rows]
    words = sorted({word for word in classes if word not in MISSING})
    place = {word: number for number, word in enumerate(words)}
    labels = np.array([place.get(word, -1) for word in classes], np.int64)
    pairs = _table(cites)
    if any(len(pair) != 2 for pair in pairs):
        raise DatasetError(f"{cites}: a line without two ids")
    known = [(number[cited], number[citing]) for cited, citing in pairs if cited in number and citing in number]
    ends = np.array(known, np.int64).reshape(-1, 2)
    missing = len(pairs) - len(known)
    if pairs and not known:
        raise DatasetError(
            f"{cites}: none of its {len(pairs)} edges is between ids of {content.name}: they are like {pairs[0][0]!r}, "
            f"those of {content.name} like {rows[0][0]!r}"
        )
    note = f"{cites.name}: left out {missing} of {len(pairs)} edges, of ids that {content.name} does not have"
    return graph_of(
        found,
        given,
        (ends[:, 1], ends[:, 0], None),
        features,
        labels,
        classes=words,
        notes=(note,) if missing else (),
    )


def _table(file: Path) -> list[list[str]]:
    try:
        return [line.split() for line in file.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: not readable ({error})") from None
