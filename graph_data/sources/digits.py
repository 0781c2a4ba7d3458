"""The default data set: scikit-learn's 1,797 images of handwritten digits as a graph of look-alikes.

The images come with scikit-learn (UCI optical recognition of handwritten digits, test set), so nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from graph_data.splits import by_share
from siafu.errors import DatasetError
from siafu.graph import Graph
from siafu.sparse import Array

FLAGS = ()  # it is made, not read
NEIGHBOURS = 10
TRAIN_SHARE, VAL_SHARE = 0.3, 0.2
SPLIT_SEED = 0
WHITE = 16  # pixels are 0..16


def load(argument: str) -> Graph:
    """1,797 vertices, 64 features in [0, 1], 10 classes, mutual nearest neighbours, a fixed 30/20/50 percent split."""
    if argument:
        raise DatasetError(f"digits takes no argument, got {argument!r}")
    images = _images()
    pixels, labels = images[:, :-1].astype(np.float32), images[:, -1].astype(np.int64)
    src, dst = _mutual_neighbours(pixels, NEIGHBOURS)
    return Graph(
        name="digits",
        num_vertices=len(pixels),
        src=src,
        dst=dst,
        weight=None,
        features=pixels / WHITE,
        labels=labels,
        num_classes=10,
        split=by_share(len(pixels), TRAIN_SHARE, VAL_SHARE, SPLIT_SEED),
        directed=False,
    )


def _images() -> Array:
    """[1797, 65], integers: an image's pixels, and its digit."""
    spec = importlib.util.find_spec("sklearn")
    file = spec and spec.origin and Path(spec.origin).with_name("datasets") / "data" / "digits.csv.gz"
    if file and file.is_file():  # so a first run need not import scikit-learn, which takes two seconds of a processor
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    images = load_digits()
    return np.column_stack([images.data, images.target])


def _mutual_neighbours(points: Array, k: int) -> tuple[Array, Array]:
    """Edges between points that are among each other's k nearest, in both directions.

    Squared distances of such small integers are exact in float32, and ties go to the lower id: every machine gets the
    same graph.
    """
    square = (points**2).sum(axis=1)  # [N]
    distance = square[:, None] + square[None, :] - 2 * points @ points.T  # [N, N]
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :k]
    near = np.zeros(distance.shape, bool)
    near[np.arange(len(points))[:, None], nearest] = True
    src, dst = np.nonzero(near & near.T)
    return src, dst
