"""MatrixMarket's coordinate files, NAME.mtx or .mtx.gz: an adjacency matrix and nothing else.

    FILE.mtx?features=FILE|random:F[&labels=FILE&split=FILE&target=KIND]    files of vertices, by their numbers

Row i, column j is the edge from vertex i - 1 to j - 1, and back if the matrix is symmetric.
"""

from __future__ import annotations

import gzip
import warnings
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graph_data.archives.found import Found, graph_of
from graph_data.archives.sparsematrix import csr, edges, square
from graph_data.sources import ids, vertexfiles
from graph_data.sources.beside import features_of, split_of
from graph_data.sources.randomrows import no_features, random_width
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.npy import DEFLATE

OPTIONS = ("features", "labels", "split", "target")
BANNER = b"%%MatrixMarket"
ENDS = (".mtx", ".mtx.gz")
ENTRY_BYTES = 4  # of the shortest: "1 1" and the end of its line
LONGEST = 1 << 16  # bytes of a line above the entries
ISOLATED = 1 << 24  # vertices that need no bytes of the file


def find(file: Path) -> Found | None:
    end = next((end for end in ENDS if file.name.endswith(end)), "")
    return Found(file.name.removesuffix(end), (file,), file.name) if end else None


def load(found: Found, given: dict[str, str]) -> Graph:
    file = found.files[0]
    if not given.get("features"):
        raise no_features(str(file))
    matrix = square(_matrix(file))
    num_vertices = matrix.shape[0]
    tables = [
        text for key in ("features", "labels", "split") if (text := given.get(key, "")) and random_width(text) is None
    ]
    labels = vertexfiles.Labels(np.full(num_vertices, -1, np.int64))
    if text := given.get("labels", ""):
        rows = None if vertexfiles.is_by_number(text) else vertexfiles.table(text)
        by_number = ids.kind_of(None, "auto", num_vertices)
        labels = vertexfiles.labels(text, rows, num_vertices, by_number, None, given.get("target", "auto"))
    notes = (
        (*labels.notes, f"{found.shown}: row 1 of the matrix is vertex 0, as files of vertices number them")
        if tables
        else labels.notes
    )
    features, split = features_of(given["features"], num_vertices)[:], split_of(given.get("split"), num_vertices)
    return graph_of(
        found, given, edges(matrix), features, labels.values, split, labels.names or labels.num_classes, notes
    )


def _matrix(file: Path) -> Any:
    """The matrix as csr, read by NumPy's text reader: SciPy's (1.17) dies of SIGSEGV if other bytes follow a number.

    Raises: DatasetError for a file that is no coordinate matrix of numbers, or says
    that it has more entries than bytes.
    """
    nbytes = file.stat().st_size * (DEFLATE if file.name.endswith(".gz") else 1)
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream, warnings.catch_warnings():
            kind = _kind(stream.readline(LONGEST).lower().split())
            line = stream.readline(LONGEST)
            while line.startswith(b"%") or (line and not line.strip()):
                line = stream.readline(LONGEST)
            sizes = [int(word) for word in line.split()]
            if (
                len(sizes) != 3
                or min(sizes) < 0
                or sizes[2] * ENTRY_BYTES > nbytes
                or max(sizes[:2]) > max(ISOLATED, nbytes)
            ):
                raise ValueError(
                    f"it says that it is of {line.decode('latin1').strip()[:60]}, with {nbytes} bytes at most"
                )
            warnings.simplefilter("ignore", UserWarning)  # of nothing to read, which is counted below
            entries = (
                np.loadtxt(stream, kind.dtype, comments="%", ndmin=1, encoding="latin1")
                if sizes[2]
                else np.empty(0, kind.dtype)
            )
    except (OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        raise DatasetError(f"{file}: not readable as MatrixMarket ({str(error)[:120]})") from None
    if len(entries) != sizes[2]:
        raise DatasetError(f"{file}: has {len(entries)} entries, and says that it has {sizes[2]}")
    row, col = entries["row"] - 1, entries["col"] - 1
    data = entries["value"] if kind.valued else np.ones(len(row))
    if kind.mirrored:
        off = row != col
        row, col = np.concatenate([row, col[off]]), np.concatenate([col, row[off]])
        data = np.concatenate([data, kind.mirrored * data[off]])
    made = csr("coo", {"data": data, "row": row, "col": col, "shape": tuple(sizes[:2])})
    if not kind.valued:
        made.data[:] = 1  # an entry that is there twice weighs nothing: a pattern has no values
    return made


class Kind(NamedTuple):
    valued: bool
    mirrored: int  # what an entry below the diagonal weighs above it: 1, or -1, or 0 if the matrix lists both

    @property
    def dtype(self) -> Any:
        return [("row", np.int64), ("col", np.int64), *([("value", np.float64)] if self.valued else [])]


def _kind(banner: list[bytes]) -> Kind:
    """Raises: ValueError."""
    if len(banner) == 5 and banner[:3] == [BANNER.lower(), b"matrix", b"coordinate"]:
        mirrored = {b"general": 0, b"symmetric": 1, b"skew-symmetric": -1}.get(banner[4])
        if mirrored is not None and banner[3] in (b"pattern", b"integer", b"real"):
            return Kind(banner[3] != b"pattern", mirrored)
    raise ValueError("not a matrix of coordinates and of pattern, integer or real values")
