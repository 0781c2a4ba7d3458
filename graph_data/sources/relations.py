"""A random graph whose labels depend on the *types* of edges alone.

``typed?vertices=4000&relations=4&classes=4&degree=16&feature_noise=1.0&seed=0``. A vertex has a class c, which is its
label, and a kind k, which its features show; both of 0..classes-1, and one tells nothing of the other. Behind an edge
of relation r, a vertex of class c finds kind ``c + r`` (mod classes): so it does for both ends if it joins the groups
``(c, k)`` and ``(k - r, c + r)``. Relations are equally frequent, and if their number is a multiple of the classes, all
neighbours together show every kind alike: a model that does not tell relations apart can do no better than guess. Some
edges are noise, and some labels are wrong on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from graph_data.sources.beside import options_of
from graph_data.splits import by_share
from siafu.errors import DatasetError
from siafu.graph import MAX_EDGE_TYPES, Graph, pack_typed, unpack_typed
from siafu.sparse import Array

FEATURES = 16
SIGNAL = 2.5  # norm of a kind's mean, where the noise of one feature is 1
RANDOM_EDGES = 0.1  # share of the edges that join any two vertices
WRONG_LABELS = 0.05
SHARES = (0.6, 0.2)  # of the split; the rest is test


@dataclass(frozen=True)
class Options:
    vertices: int = 4000
    relations: int = 4
    classes: int = 4
    degree: int = 16  # edges of a vertex, on average
    feature_noise: float = 1.0
    seed: int = 0


def load(query: str) -> Graph:
    """The graph of these options; the same options give the same graph. Raises: DatasetError for impossible ones."""
    options = parse(query)
    n, classes = options.vertices, options.classes
    rng = np.random.default_rng(options.seed)
    c, k = rng.integers(0, classes, n), rng.integers(0, classes, n)  # [N]
    src, dst, kind = _edges(c, k, options, rng)
    means = rng.standard_normal((classes, FEATURES)) * (SIGNAL / np.sqrt(FEATURES))
    features = means[k] + options.feature_noise * rng.standard_normal((n, FEATURES))  # [N, F]
    wrong = rng.random(n) < WRONG_LABELS
    labels = np.where(wrong, rng.integers(0, classes, n), c)
    return Graph(
        name="typed",
        num_vertices=n,
        src=src,
        dst=dst,
        weight=None,
        features=features.astype(np.float32),
        labels=labels,
        num_classes=classes,
        split=by_share(n, *SHARES, options.seed),
        directed=False,
        edge_type=kind,
        num_edge_types=options.relations,
    )


def counts(query: str) -> tuple[int, int, int]:
    """Vertices, edges (both directions; at most) and features of the graph that ``load`` would make."""
    options = parse(query)
    return options.vertices, 2 * _per_relation(options) * options.relations, FEATURES


def parse(query: str) -> Options:
    _, given = options_of(f"synthetic:typed?{query}", [field.name for field in fields(Options)])
    try:
        options = Options(**{key: type(getattr(Options(), key))(value) for key, value in given.items()})
    except ValueError as error:
        raise DatasetError(f"synthetic:typed?{query}: {error}") from None
    if not (
        options.vertices >= 2 * options.classes**2
        and options.classes >= 2
        and 1 <= options.relations <= MAX_EDGE_TYPES
        and 1 <= options.degree <= options.vertices // 2
        and 0 <= options.feature_noise < np.inf
        and options.seed >= 0
    ):
        raise DatasetError(
            f"synthetic:typed?{query}: classes must be >= 2, vertices >= 2 classes^2, relations in "
            f"1..{MAX_EDGE_TYPES}, degree in 1..vertices/2, feature_noise and seed >= 0"
        )
    return options


def _per_relation(options: Options) -> int:
    return max(1, round(options.vertices * options.degree / 2 / options.relations))


def _edges(c: Array, k: Array, options: Options, rng: np.random.Generator) -> tuple[Array, Array, Array | None]:
    """Sources, targets and types, every edge in both directions; without loops and repetitions."""
    n, classes, types = options.vertices, options.classes, options.relations
    group = c * classes + k
    members = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[members], np.arange(classes**2 + 1))
    kind = np.repeat(np.arange(types), _per_relation(options))  # [E]
    one = rng.integers(0, n, len(kind))
    partner = (k[one] - kind) % classes * classes + (c[one] + kind) % classes
    first, size = starts[partner], starts[partner + 1] - starts[partner]
    place = first + (rng.random(len(kind)) * size).astype(np.int64)
    other = np.where(size > 0, members[np.minimum(place, n - 1)], one)  # an empty group: a loop
    anywhere = rng.random(len(kind)) < RANDOM_EDGES
    other[anywhere] = rng.integers(0, n, int(anywhere.sum()))
    apart = one != other
    one, other, kind = one[apart], other[apart], kind[apart].astype(np.uint16)
    keys = np.unique(pack_typed(np.maximum(one, other), np.minimum(one, other), kind, n, types))
    high, low, found = unpack_typed(keys, n, types)
    both = None if found is None else np.concatenate([found, found])
    return np.concatenate([low, high]), np.concatenate([high, low]), both
