"""Which order of vertices a graph gets, where the user leaves it to us: candidates, what they are worth, the pick.

1. "best" is the order with the least predicted time of a gather, among all that can be afforded.
2. "auto" is a cluster order: what asynchrony pays for edges between intervals is worth more than a cache miss. The
   order of the source replaces it only where it is predicted to be faster and crosses as few edges.
3. Whether an order can be afforded depends on counts alone, never on the clock: the same graph gets the same order.
4. Of several partitions, the one with most edges is judged, and all get its order.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from graph_data.locality import Locality, locality, sample_edges
from graph_data.orders import ORDERS, inners, order_vertices, ordered
from graph_data.tables import named
from siafu.graph import Graph, row_starts
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array

log = logging.getLogger(__name__)

CHOICES = ("auto", "best")
MAX_EDGES = {  # of a whole graph
    "metis": 20_000_000,  # peaks at 100 bytes an edge: 115 million took 17 s and 10.6 GiB
    "rcm": 2**31 - 1,  # scipy's indices
}
SECONDS_PER_MILLION_EDGES = {"metis": 0.4, "louvain": 0.2, "rcm": 0.03, "degree": 0.01}  # two cores
SLOWER_WITHOUT_LIBRARY = 20  # louvain's moves as array operations
AFFORDABLE_S = 300.0  # for all candidates together
CROSSING_SLACK = 0.02  # of the edges: what "auto" lets an order cross more than another


class Ordered(NamedTuple):
    name: str  # of ORDERS
    parts: list[Array]  # int64 [n] each, the vertices of every partition in local order
    scores: dict[str, dict[str, float]]  # of the candidates, by name; none if there was no choice


def choose_order(graph: Graph, owner: Array, name: str, seed: int) -> Ordered:
    """The vertices of each partition of a tidy graph, by the named order, "auto" or "best" (rules 1 to 4).

    Raises: ConfigError for an unknown name.
    """
    check_order(name)
    if name not in CHOICES:
        return Ordered(name, order_vertices(graph, owner, name, seed), {})
    partitions = inners(graph, owner, seed)
    judged = max(partitions, key=lambda inner: int(inner.row_lengths.sum()))
    sample = sample_edges(row_starts(graph.dst, graph.num_vertices), graph.src, judged.vertices, seed)
    found = {order: locality(sample, ordered(judged, order)) for order in candidates(name, graph.num_edges)}
    chosen = pick(found, CROSSING_SLACK if name == "auto" else 1.0)
    log.info("order %s: %s of %s", name, chosen, "; ".join(f"{key} {_line(value)}" for key, value in found.items()))
    scores = {key: {"cost": value.cost, "crossing": round(value.crossing, 4)} for key, value in found.items()}
    return Ordered(chosen, [ordered(inner, chosen) for inner in partitions], scores)


def check_order(name: str) -> None:
    """Raises: ConfigError for an unknown name."""
    if name not in CHOICES:
        named({**dict.fromkeys(CHOICES, ""), **ORDERS}, name, "order")


def candidates(name: str, num_edges: int) -> list[str]:
    """The orders that "auto" or "best" looks at, for a graph with that many edges; says what it cannot afford."""
    metis = num_edges <= MAX_EDGES["metis"]
    wanted = [*ORDERS] if name == "best" else ["metis+degree" if metis else "louvain+degree", "given"]
    left_s, taken, paid = AFFORDABLE_S, [], set()
    for order in sorted(wanted, key=lambda order: _seconds(order, num_edges)):
        base = order.partition("+")[0]  # the clusters of metis and metis+degree are found once
        seconds = 0.0 if base in paid else _seconds(order, num_edges)
        if num_edges > MAX_EDGES.get(base, num_edges) or seconds > left_s:
            log.info("order %s: %s is left out, %d edges are too many for it", name, order, num_edges)
            continue
        taken.append(order)
        paid.add(base)
        left_s -= seconds
    return [order for order in wanted if order in taken]


def pick(found: dict[str, Locality], slack: float) -> str:
    """The cheapest of the orders that cross at most ``slack`` more edges than the one that crosses fewest."""
    fewest = min(value.crossing for value in found.values())
    return min(
        (key for key, value in found.items() if value.crossing <= fewest + slack), key=lambda key: found[key].cost
    )


def _seconds(order: str, num_edges: int) -> float:
    base = order.partition("+")[0]
    slower = SLOWER_WITHOUT_LIBRARY if base == "louvain" and LIBRARY is None else 1
    return SECONDS_PER_MILLION_EDGES.get(base, 0.0) * slower * num_edges / 1e6


def _line(value: Locality) -> str:
    return f"cost {value.cost:.3f}, {value.crossing:.1%} of edges cross"
