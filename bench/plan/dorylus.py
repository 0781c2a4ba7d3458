"""The clusters of Dorylus (Thorpe et al., OSDI 2021) in the simulator: what it says of their ratios, beside what they measured.

    python -m bench.plan.dorylus [--json]

Their code ran on their machines: nothing of it can be measured here, and what the paper does not say is assumed. All of that
is ``ASSUMED``, in words, and ``Machines``, in numbers, which are one set for all graphs, clusters and modes. Two of them, the
cost of a value that is gathered and of a value that is computed with, were chosen so that ``CHOSEN_BY`` come out; all other
ratios are predictions.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.plan.environments import Environments
from bench.plan.parts import LinkRate
from bench.plan.simulator import Plan, StepWork, simulated
from siafu.tasks import Kind, Program, Step

ASSUMED = (
    "Layer 0 is gathered in every epoch, and its aggregate sent to Lambdas forward and backward: siafu keeps both, Dorylus has no word of it.",
    "Aggregation before transformation, as the paper's equations have it; the widths are those of its public configurations.",
    "Servers have one thread per vCPU (the paper), two of which share a core; partitions are alike.",
    "Ghosts of a partition: its crossing edges' other ends, drawn at random, times one share for the neighbourhoods that they share.",
    "A Lambda is 0.11 vCPU (the paper) and computes beside its transfers; at 200 Mbit/s, the paper's figure for 100 of them.",
    "100 Lambdas per server, the paper's start of its autotuner, and 100 intervals.",
    "Links of servers: their burst, 25 Gbit/s of c5n and 10 of c5 (the paper), all the time: runs take less than half an hour.",
    "CPU only: tensor tasks on the servers' threads, no task kind overlaps another: its synchronous way of working.",
    "Epochs to the accuracy of pipe: the paper's ratios; 1 where it gives none (GAT).",
)  # fmt: skip


@dataclass(frozen=True)
class Machines:
    """Of one vCPU of their c5 and c5n."""

    edge_ns: float = 1.0  # gather: an edge
    value_ns: float = 1.2  # and a value of it
    copy_ns: float = 1.0  # scatter: a value, packed or unpacked
    flop_ns: float = 0.04
    element_ns: float = 3.0  # tensor tasks: a value of a vertex that is read or written
    score_ns: float = 10.0  # ApplyEdge: a value of an edge
    ghost_share: float = 0.4  # of the ghosts that random partitions would have
    task_s: float = 1e-3
    server_factor: float = 2.8  # tensor tasks on a server: times what they take on as much of a Lambda
    lambda_core: float = 0.11
    lambda_rate: float = 25e6  # bytes per second
    lambda_latency_s: float = 0.005


@dataclass(frozen=True)
class Graph:
    name: str
    vertices: float
    edges: float
    widths: tuple[int, int, int]


@dataclass(frozen=True)
class Cluster:
    graph: Graph
    servers: int
    vcpus: int
    gbps: float
    model: str = "gcn"


REDDIT_SMALL = Graph("Reddit-small", 232.9e3, 114.8e6, (602, 128, 41))
REDDIT_LARGE = Graph("Reddit-large", 1.1e6, 1.3e9, (301, 128, 50))
AMAZON = Graph("Amazon", 9.2e6, 313.9e6, (300, 64, 25))
FRIENDSTER = Graph("Friendster", 65.6e6, 3.6e9, (32, 48, 50))
#: (model, graph) -> servers of Table 3; their epochs' ratio to pipe's, and the mode that Table 4 has of it.
TABLE_4: dict[tuple[str, str], tuple[Cluster, str, float, float]] = {
    ("GCN", "Reddit-small"): (Cluster(REDDIT_SMALL, 2, 8, 10), "async", 1.00, 860.6 / 1005.4),
    ("GCN", "Reddit-large"): (Cluster(REDDIT_LARGE, 12, 8, 25), "pipe", 1.00, 1020.1 / 1290.5),
    ("GCN", "Amazon"): (Cluster(AMAZON, 8, 8, 25), "async", 1.09, 512.7 / 710.2),
    ("GCN", "Friendster"): (Cluster(FRIENDSTER, 32, 16, 25), "async", 1.08, 1133.3 / 1990.8),
    ("GAT", "Reddit-small"): (Cluster(REDDIT_SMALL, 10, 8, 10, "gat"), "async", 1.00, 496.3 / 1270.4),
    ("GAT", "Amazon"): (Cluster(AMAZON, 12, 8, 25, "gat"), "async", 1.00, 853.4 / 2092.7),
}
CHOSEN_BY = ("no-pipe / async, Amazon", "Lambdas / CPU, GCN Amazon", "Lambdas / CPU, GAT Amazon")
INTERVALS, LAMBDAS = 200, 100
EPOCHS = 4


@dataclass(frozen=True)
class Ratio:
    name: str
    measured: float
    simulated: float

    @property
    def off(self) -> float:
        return self.simulated / self.measured - 1


def ratios(machines: Machines) -> list[Ratio]:
    """All that the paper has."""
    amazon = TABLE_4["GCN", "Amazon"][0]

    def epoch_s(cluster: Cluster, mode: str, *, lambdas: bool = True) -> float:
        return simulated(plan_of(cluster, machines, mode, lambdas=lambdas), EPOCHS, Random(0)).epoch_s

    modes = {mode: epoch_s(amazon, mode) for mode in ("pipe", "async", "no-pipe")}
    found = [
        Ratio("async / pipe, Amazon", 0.85, modes["async"] / modes["pipe"]),
        Ratio("no-pipe / async, Amazon", 1.9, modes["no-pipe"] / modes["async"]),
    ]
    wide = {servers: replace(amazon, servers=servers, vcpus=16, gbps=25) for servers in (4, 8, 16)}
    spans = {servers: epoch_s(cluster, "async") for servers, cluster in wide.items()}
    alone = {servers: epoch_s(cluster, "no-pipe", lambdas=False) for servers, cluster in wide.items()}
    found += [
        Ratio("4 servers / 16, Amazon", 2.82, spans[4] / spans[16]),
        Ratio("Lambdas on 4 / CPU on 8, Amazon", 1.10, 1.09 * spans[4] / alone[8]),
        Ratio("Lambdas on 8 / CPU on 16, Amazon", 1.05, 1.09 * spans[8] / alone[16]),
    ]
    for (model, graph), (cluster, mode, epochs, measured) in TABLE_4.items():
        share = epochs * epoch_s(cluster, mode) / epoch_s(cluster, "no-pipe", lambdas=False)
        found.append(Ratio(f"Lambdas / CPU, {model} {graph}", measured, share))
    return found


def plan_of(cluster: Cluster, machines: Machines, mode: str, *, lambdas: bool = True) -> Plan:
    program, work = (_gat if cluster.model == "gat" else _gcn)(cluster, machines, lambdas=lambdas)
    environments = Environments(
        count=LAMBDAS, core=machines.lambda_core, link=LinkRate(machines.lambda_rate), latency_s=machines.lambda_latency_s, cold_s=0.0
    )  # fmt: skip
    return Plan(
        program, work, servers=cluster.servers, threads=cluster.vcpus, intervals=INTERVALS, mode=mode, freshness=0.0, ahead=1.0,
        link=LinkRate(cluster.gbps * 1e9 / 8), environments=environments if lambdas else None, exchange_s=0.0, update_s=0.01,
        cores=cluster.vcpus,
    )  # fmt: skip


class _Parts:
    """What the steps of one interval take."""

    def __init__(self, cluster: Cluster, machines: Machines, *, lambdas: bool):
        graph = cluster.graph
        self._machines, self._lambdas, self._servers = machines, lambdas, cluster.servers
        self._factor = 1.0 if lambdas else machines.server_factor
        self.n = graph.vertices / cluster.servers / INTERVALS
        self.e = graph.edges / cluster.servers / INTERVALS
        crossing, remote = 1 - 1 / cluster.servers, graph.vertices * (1 - 1 / cluster.servers)
        drawn = remote * (1 - (1 - 1 / remote) ** (crossing * graph.edges / cluster.servers))
        self._ghosts = machines.ghost_share * drawn / INTERVALS

    def gather(self, columns: int) -> StepWork:
        m = self._machines
        return StepWork(m.task_s + self.e * (m.edge_ns + columns * m.value_ns) * 1e-9)

    def scatter(self, columns: int) -> StepWork:
        m, nbytes = self._machines, 4 * columns * self._ghosts
        packed = m.task_s + 2 * self._ghosts * columns * m.copy_ns * 1e-9
        return StepWork(packed, peers=nbytes / max(1, self._servers - 1))

    def tensor(self, flops: float, reads: float, writes: float) -> StepWork:
        """flops, and values in and out, for each vertex."""
        m, n = self._machines, self.n
        seconds = m.task_s + n * (flops * m.flop_ns + (reads + writes) * m.element_ns) * 1e-9 * self._factor
        return StepWork(seconds, down=4 * n * reads * self._lambdas, up=4 * n * writes * self._lambdas)

    def edges(self, reads: float, writes: float) -> StepWork:
        """Values in and out for each edge."""
        m, e = self._machines, self.e
        seconds = m.task_s + e * (reads + writes) * m.score_ns * 1e-9 * self._factor
        return StepWork(seconds, down=4 * e * reads * self._lambdas, up=4 * e * writes * self._lambdas)


def _gcn(cluster: Cluster, machines: Machines, *, lambdas: bool) -> tuple[Program, list[StepWork]]:
    parts = _Parts(cluster, machines, lambdas=lambdas)
    f, h, c = cluster.graph.widths
    return _made([
        (Step(Kind.GA, 0, writes=("Z0",), gathers="H0"), parts.gather(f)),
        (Step(Kind.AV, 0, ("Z0",), ("H1",)), parts.tensor(2 * f * h, f, h)),
        (Step(Kind.SC, 0, ("H1",), publishes="H1"), parts.scatter(h)),
        (Step(Kind.GA, 1, writes=("Z1",), gathers="H1"), parts.gather(h)),
        (Step(Kind.AV, 1, ("Z1",), ("dZ1",), fused=True), parts.tensor(6 * h * c, h, h)),
        (Step(Kind.SC_B, 1, ("dZ1",), publishes="dZ1"), parts.scatter(h)),
        (Step(Kind.GA_B, 1, writes=("dH1",), gathers="dZ1"), parts.gather(h)),
        (Step(Kind.AV_B, 0, ("Z0", "dH1")), parts.tensor(4 * f * h, f + h, 0)),
    ])  # fmt: skip


def _gat(cluster: Cluster, machines: Machines, *, lambdas: bool) -> tuple[Program, list[StepWork]]:
    """One head: an edge's score of two values, and its coefficient of one."""
    parts = _Parts(cluster, machines, lambdas=lambdas)
    f, h, c = cluster.graph.widths
    return _made([
        (Step(Kind.AV, 0, ("H0",), ("T0",)), parts.tensor(2 * f * h, f, h)),
        (Step(Kind.SC, 0, ("T0",), publishes="T0"), parts.scatter(h)),
        (Step(Kind.AE, 0, writes=("E0",), gathers="T0"), parts.edges(2, 1)),
        (Step(Kind.GA, 0, writes=("Z0",), gathers="T0"), parts.gather(h)),
        (Step(Kind.AV, 1, ("Z0",), ("T1",)), parts.tensor(2 * h * c, h, c)),
        (Step(Kind.SC, 1, ("T1",), publishes="T1"), parts.scatter(c)),
        (Step(Kind.AE, 1, writes=("E1",), gathers="T1"), parts.edges(2, 1)),
        (Step(Kind.GA, 1, writes=("Z1",), gathers="T1"), parts.gather(c)),
        (Step(Kind.AV, 2, ("Z1",), ("dZ1",), fused=True), parts.tensor(4 * c, c, c)),
        (Step(Kind.SC_B, 1, ("dZ1",), publishes="dZ1"), parts.scatter(c)),
        (Step(Kind.AE_B, 1, writes=("dE1",), gathers="dZ1"), parts.edges(3, 2)),
        (Step(Kind.GA_B, 1, writes=("dT1",), gathers="dZ1"), parts.gather(c)),
        (Step(Kind.AV_B, 1, ("Z0", "dT1"), ("dZ0",)), parts.tensor(4 * h * c, h + c, h)),
        (Step(Kind.SC_B, 0, ("dZ0",), publishes="dZ0"), parts.scatter(h)),
        (Step(Kind.AE_B, 0, writes=("dE0",), gathers="dZ0"), parts.edges(3, 2)),
        (Step(Kind.GA_B, 0, writes=("dT0",), gathers="dZ0"), parts.gather(h)),
        (Step(Kind.AV_B, 0, ("H0", "dT0")), parts.tensor(2 * f * h, f + h, 0)),
    ])  # fmt: skip


def _made(steps: Sequence[tuple[Step, StepWork]]) -> tuple[Program, list[StepWork]]:
    with_update = [*steps, (Step(Kind.WU, 0), StepWork())]
    return Program(tuple(step for step, _ in with_update)), [work for _, work in with_update]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    machines = Machines()
    found = ratios(machines)
    if args.json:
        rows: list[dict[str, Any]] = [
            {**vars(one), "off": one.off, "chosen_by": one.name in CHOSEN_BY} for one in found
        ]
        print(
            json.dumps(
                {
                    "rows": rows,
                    "machines": vars(machines),
                    "assumed": ASSUMED,
                }
            )
        )
        return 0
    table = Table("ratio of times", "the paper", "simulated", "off", "")
    for one in found:
        note = "constants chosen by it" if one.name in CHOSEN_BY else ""
        table.add_row(one.name, f"{one.measured:.2f}", f"{one.simulated:.2f}", f"{one.off:+.0%}", note)
    Console(width=110).print(table)
    print("assumed:\n  " + "\n  ".join(ASSUMED))
    return 0


if __name__ == "__main__":
    sys.exit(main())
