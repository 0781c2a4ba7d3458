"""Random graphs of the shape of the published ones, for which nothing has to be downloaded.

``NAME?scale=0.05&seed=1&feature_noise=1.0``: a degree-corrected block model (Karrer & Newman, Phys. Rev. E 2011) with
two planted levels, classes and communities inside them. Vertex ids are shuffled: they tell nothing about either.

An edge stays inside the community of its first vertex, inside its class, or goes anywhere, with the family's shares. A
small ``scale`` keeps the average degree, so it makes blocks denser; shares are then lowered so that at most half of the
pairs of a block are edges. Features are the class's mean, plus half as much of the community's, plus noise
that is too strong to tell classes from one vertex, but not from its neighbourhood. Some labels are wrong on purpose, so
that no model reaches 100 percent.

``typed?...`` is another graph: its edges have types (``graph_data.sources.relations``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graph_data.sources import relations
from graph_data.sources.beside import options_of
from graph_data.sources.sizes import Sizes
from graph_data.splits import by_share
from siafu import allotment
from siafu.errors import DatasetError
from siafu.graph import Graph, id_dtype, pack, unpack
from siafu.sparse import Array

Rng = np.random.Generator


@dataclass(frozen=True)
class Family:
    """Counts of a published graph, and the structure that we plant in it."""

    num_vertices: int
    num_edges: int  # CSR entries: an undirected edge counts twice
    num_features: int
    num_classes: int
    skew: float  # Pareto exponent of the expected degrees; lower has larger hubs
    in_community: float  # share of edges inside a community
    in_class: float  # share of edges inside a class, drawn without regard to communities
    community: int  # vertices in a community
    signal: float  # norm of a class's mean, where the noise of one feature is 1
    train: float  # shares of the split; the rest is test
    val: float


FAMILIES = {  # the counts are those of Dorylus, table 1, and of OGB (Hu et al., NeurIPS 2020) for ogbn-products
    # vertices, edges, features, classes, skew, in_community, in_class, community, signal, train, val
    "reddit-small": Family(232_965, 114_615_892, 602, 41, 2.0, 0.10, 0.30, 1000, 2.5, 0.66, 0.10),
    "reddit-large": Family(1_100_000, 1_300_000_000, 301, 50, 2.0, 0.10, 0.30, 2000, 2.5, 0.66, 0.10),
    "amazon": Family(9_200_000, 313_900_000, 300, 25, 2.1, 0.30, 0.30, 1000, 2.5, 0.66, 0.10),
    "friendster": Family(65_600_000, 3_600_000_000, 32, 50, 2.3, 0.25, 0.25, 1000, 2.5, 0.66, 0.10),
    "ogbn-products": Family(2_449_029, 123_718_280, 100, 47, 2.1, 0.30, 0.30, 1000, 2.5, 0.08, 0.016),
}

TYPED = "typed"
FLAGS = ()  # it is made, not read

WRONG_LABELS = 0.05  # share of vertices whose label is drawn at random
MAX_BLOCK_DENSITY = 0.5  # of the pairs inside a class or community
MAX_DENSITY = 1 / 8  # of all pairs: caps the average degree of a very small scale
STUBS_PER_VERTEX, MIN_STUBS, MAX_STUBS = 24, 1 << 20, 1 << 27
DRAWS = 1 << 23  # pairs drawn together
FEATURE_ROWS = 1 << 14  # feature rows drawn together
BYTES_PER_EDGE = 32  # measured peak of generating and preparing, per CSR entry


def load(argument: str) -> Graph:
    """The named family's graph; the same argument gives the same graph.

    Raises: DatasetError for an unknown name or option, or if the graph cannot fit this machine's memory.
    """
    if argument.partition("?")[0] == TYPED:
        return relations.load(argument.partition("?")[2])
    name, family, seed, noise = _parse(argument)
    _check_memory(argument, family)
    rng = np.random.default_rng(seed)
    n, classes = family.num_vertices, family.num_classes
    planted = np.sort(rng.choice(classes, n, p=rng.dirichlet(np.full(classes, 3.0)))).astype(np.int32)  # [N]
    keys = _pairs(family, planted, rng)
    label = rng.permutation(n).astype(id_dtype(n))  # block order -> vertex id
    low, high = unpack(keys, n)
    del keys
    low, high = label[low], label[high]
    member = np.empty(n, np.int64)  # vertex id -> place in block order
    member[label] = np.arange(n)
    labels = planted[member].astype(np.int64)
    wrong = rng.random(n) < WRONG_LABELS
    labels[wrong] = rng.integers(0, classes, int(wrong.sum()))
    return Graph(
        name=name,
        num_vertices=n,
        src=np.concatenate([low, high]),
        dst=np.concatenate([high, low]),
        weight=None,
        features=_features(family, planted[member], member // family.community, noise, rng),
        labels=labels,
        num_classes=classes,
        split=by_share(n, family.train, family.val, seed),
        directed=False,
    )


def sizes(argument: str) -> Sizes:
    n, edges, width = counts(argument)
    return Sizes(n, edges, 4 * n * width, mirrored=True)


def counts(argument: str) -> tuple[int, int, int]:
    """Vertices, edges (both directions) and features of the graph that ``load`` would make."""
    if argument.partition("?")[0] == TYPED:
        return relations.counts(argument.partition("?")[2])
    family = _parse(argument)[1]
    return family.num_vertices, family.num_edges, family.num_features


def _parse(argument: str) -> tuple[str, Family, int, float]:
    name = argument.partition("?")[0]
    if name not in FAMILIES:
        raise DatasetError(f"synthetic graph {name!r} is not one of {', '.join((*FAMILIES, TYPED))}")
    options = {"scale": "1", "seed": "0", "feature_noise": "1"}
    options |= options_of(f"synthetic:{argument}", list(options))[1]
    try:
        scale, seed, noise = float(options["scale"]), int(options["seed"]), float(options["feature_noise"])
    except ValueError as error:
        raise DatasetError(f"synthetic:{argument}: {error}") from None
    if not 0 < scale < np.inf or seed < 0 or not 0 <= noise < np.inf:
        raise DatasetError(f"synthetic:{argument}: scale must be > 0, seed >= 0, feature_noise >= 0")
    return name, _scaled(FAMILIES[name], scale), seed, noise


def _scaled(family: Family, scale: float) -> Family:
    """The family with fewer vertices, the same average degree where density allows, and blocks that can hold it."""
    n = max(2 * family.num_classes, round(family.num_vertices * scale))
    num_edges = round(min(n * family.num_edges / family.num_vertices, n * n * MAX_DENSITY)) // 2 * 2
    degree, in_one_class = num_edges / n, n / family.num_classes
    community = max(2, min(family.community, round(in_one_class / 4)))
    return replace(
        family,
        num_vertices=n,
        num_edges=num_edges,
        community=community,
        in_community=min(family.in_community, MAX_BLOCK_DENSITY * community / degree),
        in_class=min(family.in_class, MAX_BLOCK_DENSITY * in_one_class / degree),
    )


def _check_memory(argument: str, family: Family) -> None:
    need = BYTES_PER_EDGE * family.num_edges + 8 * family.num_vertices * family.num_features
    have = allotment.memory_bytes()
    if need > have:
        raise DatasetError(
            f"synthetic:{argument} takes about {need / 2**30:.0f} GiB to make, this machine has {have / 2**30:.0f}: "
            "lower its scale"
        )


# --- edges ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Blocks:
    """How often each vertex is drawn, and from which blocks; vertices are numbered in block order."""

    stubs: Array  # [K] vertices, each as often as its expected degree tells: a uniform draw of a stub picks by degree
    class_of: Array  # int32 [N]
    first_of_class: Array  # int64 [C + 1], in stubs
    first_of_community: Array  # int64 [communities + 1], in stubs


def _pairs(family: Family, planted: Array, rng: Rng) -> Array:
    """Distinct unordered pairs of vertices, numbered in block order, as sorted keys ``low * n + high``."""
    n, wanted = family.num_vertices, family.num_edges // 2
    stubs = _stubs(family, rng)
    starts = np.searchsorted(stubs, np.arange(n + 1)).astype(np.int64)  # [N + 1], first stub of each vertex
    first_of_class = starts[np.searchsorted(planted, np.arange(family.num_classes + 1))]
    first_of_community = starts[np.append(np.arange(0, n, family.community), n)]
    blocks = Blocks(stubs, planted, first_of_class, first_of_community)
    keys = np.empty(0, np.int64)
    while len(keys) < wanted:  # pairs that were drawn before are lost: draw until there are enough
        missing = int((wanted - len(keys)) * 1.12) + 1000
        counts = [min(DRAWS, missing - start) for start in range(0, missing, DRAWS)]
        keys = np.concatenate([keys, *(_draw(family, blocks, count, rng) for count in counts)])
        keys.sort()
        keys = keys[np.append(True, keys[1:] != keys[:-1])]
    kept = np.ones(len(keys), bool)
    kept[rng.choice(len(keys), len(keys) - wanted, replace=False)] = False
    return keys[kept]


def _stubs(family: Family, rng: Rng) -> Array:
    """Vertices in block order, each repeated in proportion to its expected degree."""
    n = family.num_vertices
    weight = rng.pareto(family.skew, n) + 0.3  # [N]
    weight = np.minimum(weight, np.quantile(weight, 0.9995))
    weight = np.minimum(weight, weight.mean() * max(1.0, n * n / (4 * family.num_edges)))  # no hub above a quarter of n
    total = min(MAX_STUBS, max(MIN_STUBS, STUBS_PER_VERTEX * n))
    ends = np.floor(np.cumsum(weight) * (total / weight.sum())).astype(np.int64)
    return np.repeat(np.arange(n, dtype=id_dtype(n)), np.diff(ends, prepend=0))


def _draw(family: Family, blocks: Blocks, count: int, rng: Rng) -> Array:
    """Keys of ``count`` random pairs, without loops."""
    first = blocks.stubs[rng.integers(0, len(blocks.stubs), count)]
    kind = rng.random(count, dtype=np.float32)
    begin, end = np.zeros(count, np.int64), np.full(count, len(blocks.stubs))  # where the second vertex is drawn from
    inside = kind < family.in_community + family.in_class
    block = blocks.class_of[first[inside]]
    begin[inside], end[inside] = blocks.first_of_class[block], blocks.first_of_class[block + 1]
    inside = kind < family.in_community
    block = first[inside] // family.community
    begin[inside], end[inside] = blocks.first_of_community[block], blocks.first_of_community[block + 1]
    second = blocks.stubs[begin + (rng.random(count) * (end - begin)).astype(np.int64)]
    apart = first != second
    return pack(np.minimum(first, second)[apart], np.maximum(first, second)[apart], family.num_vertices)


# --- features ---------------------------------------------------------------------------------------------------------


def _features(family: Family, planted: Array, community: Array, noise: float, rng: Rng) -> Array:
    """Class mean + community mean + noise, float32 [N, F]; drawn a block of rows at a time."""
    width = family.num_features
    class_mean = _means(family.num_classes, width, family.signal, rng)
    community_mean = _means(int(community.max()) + 1, width, family.signal / 2, rng)
    out = np.empty((len(planted), width), np.float32)  # [N, F]
    for start in range(0, len(out), FEATURE_ROWS):
        block = out[start : start + FEATURE_ROWS]
        rng.standard_normal(dtype=np.float32, out=block)
        block *= np.float32(noise)
        block += class_mean[planted[start : start + FEATURE_ROWS]]
        block += community_mean[community[start : start + FEATURE_ROWS]]
    return out


def _means(count: int, width: int, norm: float, rng: Rng) -> Array:
    """``count`` random directions of about this norm, float32 [count, width]."""
    means: Array = rng.standard_normal((count, width), dtype=np.float32)
    means *= np.float32(norm / np.sqrt(width))
    return means
