"""MatrixMarket's coordinate files, NAME.mtx or .mtx.gz: an adjacency matrix and nothing else.

    FILE.mtx?features=FILE|random:F[&labels=FILE&split=FILE&target=KIND]    files of vertices, by their numbers

Row i, column j is the edge from vertex i - 1 to j - 1, and back if the matrix is symmetric.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from graph_data.archives.found import Found, graph_of
from graph_data.archives.sparsematrix import edges, square
from graph_data.sources import ids, vertexfiles
from graph_data.sources.beside import features_of, split_of
from graph_data.sources.randomrows import no_features
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.npy import DEFLATE

OPTIONS = ("features", "labels", "split", "target")
BANNER = b"%%MatrixMarket"
ENDS = (".mtx", ".mtx.gz")
ENTRY_BYTES = 4  # of the shortest: "1 1" and the end of its line
ISOLATED = 1 << 24  # vertices that need no bytes of the file


def find(file: Path) -> Found | None:
    end = next((end for end in ENDS if file.name.endswith(end)), "")
    return Found(file.name.removesuffix(end), (file,), file.name) if end else None


def load(found: Found, given: dict[str, str]) -> Graph:
    import scipy.io

    file = found.files[0]
    _check_size(file)
    if not given.get("features"):
        raise no_features(str(file))
    try:
        matrix = square(scipy.io.mmread(file))
    except (ValueError, OverflowError, OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{file}: not readable as MatrixMarket ({str(error)[:120]})") from None
    num_vertices = matrix.shape[0]
    labels = vertexfiles.Labels(np.full(num_vertices, -1, np.int64))
    if text := given.get("labels", ""):
        rows = None if vertexfiles.is_by_number(text) else vertexfiles.table(text)
        by_number = ids.kind_of(None, "auto", num_vertices)
        labels = vertexfiles.labels(text, rows, num_vertices, by_number, None, given.get("target", "auto"))
    features, split = features_of(given["features"], num_vertices)[:], split_of(given.get("split"), num_vertices)
    return graph_of(
        found, given, edges(matrix), features, labels.values, split, labels.names or labels.num_classes, labels.notes
    )


def _check_size(file: Path) -> None:
    """Raises: DatasetError for a file that says that it has more entries than bytes, or is no coordinate matrix of numbers."""
    nbytes = file.stat().st_size * (DEFLATE if file.name.endswith(".gz") else 1)
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream:
            words = stream.readline(1024).lower().split()
            line = stream.readline(1 << 16)
            while line.startswith(b"%") or (line and not line.strip()):
                line = stream.readline(1 << 16)
        sizes = [int(word) for word in line.split()]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DatasetError(f"{file}: not readable as MatrixMarket ({error})") from None
    if len(words) != 5 or words[0] != BANNER.lower() or words[2] != b"coordinate" or words[3] == b"complex":
        raise DatasetError(f"{file}: not a MatrixMarket file of coordinates and of pattern, integer or real values")
    if len(sizes) != 3 or min(sizes) < 0 or sizes[2] * ENTRY_BYTES > nbytes or max(sizes[:2]) > max(ISOLATED, nbytes):
        raise DatasetError(
            f"{file}: says that it is of {line.decode('latin1').strip()[:60]}, with {nbytes} bytes at most"
        )
