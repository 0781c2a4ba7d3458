"""Splits edges for link prediction: holds some out, and sets pairs that are no edge against them.

1. An undirected edge is one unit: both its directions are for training, or both for validation, or both for test, at
   random. Numbers of held-out edges are exactly the given shares, to one edge.
2. Messages use only training edges, in both directions. So do degrees.
3. Training pairs are the training edges and a pool of false ones, ``negatives`` times as many: random pairs, each once.
   They stand in both directions, since the server of either end computes the score and takes its own row's gradient.
4. A held-out edge stands once, as an in-edge of one of its ends, drawn at random: v ranks it among ``eval_negatives``
   false ones, w -> v with random w. Those of one v and role are shared by all held-out edges that v ranks.
5. No false edge is an edge of the whole graph, whatever its role, and none for evaluation is in the training pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from siafu.errors import ConfigError, DatasetError
from siafu.graph import (
    MESSAGE,
    NUM_LINK_TYPES,
    TEST_NEGATIVE,
    TEST_PAIR,
    TRAIN_NEGATIVE,
    TRAIN_PAIR,
    VAL_NEGATIVE,
    VAL_PAIR,
    Graph,
    each_once,
    pack,
    pack_typed,
    unpack,
    unpack_typed,
)
from siafu.sparse import Array

Rng = np.random.Generator

MAX_DRAWS = 1 << 22  # pairs that are drawn together


@dataclass(frozen=True)
class Shares:
    """Shares of edges to hold out, and numbers of false edges beside true ones."""

    val: float  # of all edges
    test: float
    negatives: int  # per training edge
    eval_negatives: int  # per vertex that ranks held-out edges, and role

    def check(self) -> None:
        """Raises: ConfigError for shares that are possible for no graph."""
        if not (min(self.val, self.test) >= 0 and self.val + self.test < 1):
            raise ConfigError(f"val_edges {self.val:g} and test_edges {self.test:g}: must be >= 0, and together < 1")
        if self.negatives < 1 or self.eval_negatives < 1:
            raise ConfigError(f"negatives {self.negatives} and eval_negatives {self.eval_negatives}: must be >= 1")


def messages(graph: Graph) -> Graph:
    """The training edges alone, without types: the graph that a partitioner or an order sees."""
    assert graph.edge_type is not None
    chosen = graph.edge_type == MESSAGE
    weight = None if graph.weight is None else graph.weight[chosen]
    return replace(
        graph,
        src=graph.src[chosen],
        dst=graph.dst[chosen],
        weight=weight,
        edge_type=None,
        num_edge_types=1,
        directed=False,
    )


def hold_out(graph: Graph, shares: Shares, seed: int) -> Graph:
    """The tidy undirected ``graph`` as a directed one of typed edges (rules 1 to 5), sorted by (dst, src, type).

    Raises: DatasetError for a graph that has too few edges or a type for each; ConfigError for more false edges than
    there can be.
    """
    if graph.edge_type is not None:
        raise DatasetError(f"{graph.name}: its edges have {graph.num_edge_types} types, task link predicts one")
    n = graph.num_vertices
    if n * n * NUM_LINK_TYPES >= 2**63:
        raise DatasetError(f"{graph.name}: {n} vertices, must be < 2^30 to predict edges")
    rng = np.random.default_rng(seed)
    once = graph.dst > graph.src
    edges = pack(graph.dst[once], graph.src[once], n)  # sorted
    roles = _roles(graph.name, len(edges), shares, rng)  # TRAIN_PAIR, VAL_PAIR or TEST_PAIR of each
    training = edges[roles == TRAIN_PAIR]
    pool = _false_pairs(graph.name, edges, shares.negatives * len(training), n, rng)
    parts = [*_both_ways(training, MESSAGE, n), *_both_ways(training, TRAIN_PAIR, n)]
    parts += _both_ways(pool, TRAIN_NEGATIVE, n)
    taken = np.sort(np.concatenate([pack(part.dst, part.src, n) for part in (*_both_ways(edges, 0, n), *parts[-2:])]))
    for role, negative in ((VAL_PAIR, VAL_NEGATIVE), (TEST_PAIR, TEST_NEGATIVE)):
        high, low = unpack(edges[roles == role], n)
        flipped = rng.random(len(high)) < 0.5
        target, source = np.where(flipped, low, high), np.where(flipped, high, low)
        parts.append(_Part(source, target, role))
        parts.append(_ranked_against(graph.name, target, taken, shares.eval_negatives, negative, n, rng))
    keys = np.concatenate([pack_typed(p.dst, p.src, np.uint16(p.kind), n, NUM_LINK_TYPES) for p in parts])  # type: ignore[arg-type]
    weight = None
    if graph.weight is None:
        keys.sort()
    else:
        of_edge = graph.weight[once][roles == TRAIN_PAIR]
        order = np.argsort(keys)
        ones = np.ones(len(keys) - 2 * len(of_edge), np.float32)  # pairs are not gathered along
        keys, weight = keys[order], np.concatenate([of_edge, of_edge, ones])[order]
    dst, src, kind = unpack_typed(keys, n, NUM_LINK_TYPES)
    return replace(graph, src=src, dst=dst, weight=weight, edge_type=kind, num_edge_types=NUM_LINK_TYPES, directed=True)


def counts_line(graph: Graph) -> str:
    """A line for the user on the edges in a graph of ``hold_out``."""
    assert graph.edge_type is not None
    counts = np.bincount(graph.edge_type, minlength=NUM_LINK_TYPES)
    return (
        f"links: {counts[TRAIN_PAIR] // 2:,} training edges and {counts[TRAIN_NEGATIVE] // 2:,} false ones; "
        f"{counts[VAL_PAIR]:,} validation edges and {counts[VAL_NEGATIVE]:,} false ones; "
        f"{counts[TEST_PAIR]:,} test edges and {counts[TEST_NEGATIVE]:,} false ones"
    )


@dataclass(frozen=True, eq=False)
class _Part:
    src: Array
    dst: Array
    kind: int


def _both_ways(keys: Array, kind: int, n: int) -> list[_Part]:
    high, low = unpack(keys, n)
    return [_Part(low, high, kind), _Part(high, low, kind)]


def _roles(name: str, count: int, shares: Shares, rng: Rng) -> Array:
    num_val, num_test = round(shares.val * count), round(shares.test * count)
    for what, share, held in (("validation", shares.val, num_val), ("test", shares.test, num_test)):
        if share and not held:
            raise DatasetError(f"{name}: {count} undirected edges, too few to hold out {share:g} of them for {what}")
    if num_val + num_test >= count:
        raise DatasetError(f"{name}: {count} undirected edges, of which none is left for training")
    roles = np.full(count, TRAIN_PAIR, np.uint8)
    order = rng.permutation(count)
    roles[order[:num_test]] = TEST_PAIR
    roles[order[num_test : num_test + num_val]] = VAL_PAIR
    return roles


# --- false edges ------------------------------------------------------------------------------------------------------


def _false_pairs(name: str, edges: Array, count: int, n: int, rng: Rng) -> Array:
    """Keys ``high * n + low`` of ``count`` pairs of vertices without an edge, uniform among all such sets; sorted."""
    pairs = n * (n - 1) // 2
    free = pairs - len(edges)
    if count > free:
        raise ConfigError(
            f"{name}: {count:,} false training edges are asked for (negatives per training edge), but only {free:,} "
            "pairs of vertices are no edge"
        )
    found = np.empty(0, np.int64)
    while len(found) < count:  # pairs that were drawn before are lost: draw until there are enough
        wanted = (count - len(found)) * pairs // (free - len(found)) + 16
        blocks = [found]
        for start in range(0, wanted, MAX_DRAWS):
            draws = min(MAX_DRAWS, wanted - start)
            one, other = rng.integers(0, n, draws), rng.integers(0, n - 1, draws)
            other += other >= one  # any other vertex
            keys = each_once(pack(np.maximum(one, other), np.minimum(one, other), n))
            blocks.append(keys[_absent(keys, edges)])
        found = each_once(np.concatenate(blocks))
    kept = np.ones(len(found), bool)
    kept[rng.choice(len(found), len(found) - count, replace=False)] = False
    return found[kept]


def _ranked_against(name: str, targets: Array, taken: Array, count: int, kind: int, n: int, rng: Rng) -> _Part:
    """``count`` false edges w -> v for every v of ``targets``, uniform among all such sets.

    ``taken``: keys ``v * n + w`` of the pairs that may not be drawn, in both directions, sorted.
    """
    ranking = np.unique(targets).astype(np.int64)
    first = np.searchsorted(taken, np.stack([ranking, ranking + 1]) * n)  # [2, ranking]
    free = n - 1 - (first[1] - first[0])
    if (free < count).any():
        v = int(np.argmax(free < count))
        raise ConfigError(
            f"{name}: eval_negatives = {count}, but vertex {ranking[v]} has only {free[v]} other vertices that it has "
            "neither an edge nor a false training edge with"
        )
    found = [np.empty(0, np.int64)]
    for block in _blocks(free, count, n):
        near = taken[first[0, block][0] : first[1, block][-1]]
        found.append(_false_sources(ranking[block], free[block], near, count, n, rng))
    dst, src = unpack(np.concatenate(found), n)
    return _Part(src, dst, kind)


def _false_sources(rows: Array, free: Array, taken: Array, count: int, n: int, rng: Rng) -> Array:
    """``count`` keys ``v * n + w`` for each v of ``rows``, which has ``free`` possible sources w; sorted."""
    found = np.empty(0, np.int64)
    missing = np.full(len(rows), count)
    while missing.any():
        draws = -(-missing * n // np.maximum(1, free - count + missing)) + 2 * (missing > 0)
        v = np.repeat(rows, draws)
        keys = each_once(pack(v, rng.integers(0, n, len(v)), n))
        keys = keys[(keys % (n + 1) != 0) & _absent(keys, taken) & _absent(keys, found)]  # v * n + v is a loop
        row = np.searchsorted(rows, keys // n)
        shuffled = np.argsort(row + rng.random(len(row)))  # inside each row
        row = row[shuffled]
        chosen = np.arange(len(row)) - np.searchsorted(row, row) < missing[row]
        missing -= np.bincount(row[chosen], minlength=len(rows))
        found = np.sort(np.concatenate([found, keys[shuffled[chosen]]]))
    return found


def _blocks(free: Array, count: int, n: int) -> Iterator[slice]:
    """Slices of vertices that draw about MAX_DRAWS sources at first."""
    ends = np.cumsum(count * n // free + 2)
    start = 0
    while start < len(free):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + MAX_DRAWS, side="right")))
        yield slice(start, stop)
        start = stop


def _absent(keys: Array, among: Array) -> Array:
    """Whether each key is missing from ``among``, bool [k]. Both are sorted, so that the search stays in the cache."""
    if not len(among):
        return np.ones(len(keys), bool)
    place = np.minimum(np.searchsorted(among, keys), len(among) - 1)
    absent: Array = among[place] != keys
    return absent
