"""Chooses the vertex order of ``auto``: candidates, their scores, the best.

1. The default is a cluster order: fewer edges between intervals are worth more to asynchrony than fewer cache misses.
   The source's order replaces it only if that is predicted to be faster and crosses as few edges.
2. Whether cluster orders are affordable depends on counts alone, never on the clock: the same graph gets the same
   order.
3. Of several partitions, only the one with most edges is measured, and all get its order.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from graph_data.locality import Locality, locality, sample_edges
from graph_data.orders import ORDERS, inners, order_vertices, ordered
from siafu.graph import Graph, row_starts
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array
from siafu.table import named

log = logging.getLogger(__name__)

AUTO = "auto"
#: Of a whole graph. METIS peaks at 100 bytes an edge: 115 million took 17 s and 10.6 GiB.
MAX_METIS_EDGES = 20_000_000
#: Louvain takes 0.2 s for a million on two cores: five minutes. Without the library, its moves are array operations.
MAX_LOUVAIN_EDGES, SLOWER_WITHOUT_LIBRARY = 1_500_000_000, 20
CROSSING_SLACK = 0.02  # of the edges: what an order may cross more than another


class Ordered(NamedTuple):
    name: str  # of ORDERS
    parts: list[Array]  # int64 [n] each, the vertices of every partition in local order
    scores: dict[str, dict[str, float]]  # of the candidates, by name; none if there was no choice


def choose_order(graph: Graph, owner: Array, name: str, seed: int) -> Ordered:
    """The vertices of each partition of a tidy graph, by the named order or "auto" (rules 1 to 3).

    Raises: ConfigError for an unknown name.
    """
    check_order(name)
    if name != AUTO:
        return Ordered(name, order_vertices(graph, owner, name, seed), {})
    partitions = inners(graph, owner, seed)
    judged = max(partitions, key=lambda inner: int(inner.row_lengths.sum()))
    sample = sample_edges(row_starts(graph.dst, graph.num_vertices), graph.src, judged.vertices, seed)
    found = {order: locality(sample, ordered(judged, order)) for order in candidates(graph.num_edges)}
    chosen = pick(found)
    log.info("order %s: %s of %s", name, chosen, "; ".join(f"{key} {_line(value)}" for key, value in found.items()))
    scores = {key: {"cost": value.cost, "crossing": round(value.crossing, 4)} for key, value in found.items()}
    return Ordered(chosen, [ordered(inner, chosen) for inner in partitions], scores)


def check_order(name: str) -> None:
    """Raises: ConfigError for an unknown name."""
    if name != AUTO:
        named({AUTO: "", **ORDERS}, name, "order")


def candidates(num_edges: int) -> list[str]:
    """The orders that "auto" compares, for a graph with that many edges."""
    if num_edges <= MAX_METIS_EDGES:
        return ["metis+degree", "given"]
    if num_edges <= MAX_LOUVAIN_EDGES // (SLOWER_WITHOUT_LIBRARY if LIBRARY is None else 1):
        return ["louvain+degree", "given"]
    log.info("order auto: given, %d edges are too many to look for communities", num_edges)
    return ["given"]


def pick(found: dict[str, Locality]) -> str:
    """The cheapest of the orders whose crossing edges exceed the fewest by at most ``CROSSING_SLACK``."""
    fewest = min(value.crossing for value in found.values())
    return min(
        (key for key, value in found.items() if value.crossing <= fewest + CROSSING_SLACK),
        key=lambda key: found[key].cost,
    )


def _line(value: Locality) -> str:
    return f"cost {value.cost:.3f}, {value.crossing:.1%} of edges cross"
