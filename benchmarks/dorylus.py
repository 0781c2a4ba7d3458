"""The clusters of Dorylus (Thorpe et al., OSDI 2021) in the simulator: what it says of their
ratios, beside what they measured.

    python -m benchmarks.dorylus [--json]

Their code ran on their machines: nothing of it can be measured here. What servers and Lambdas do comes from the
paper and from their public code (github.com/uclasystem/dorylus), which says what the paper does not: how many
Lambdas each graph had, which threads do what, which tensors travel, and what of the CPU-only variant runs on one
thread only. All that is taken for granted is ``ASSUMED``, in words. What is left are speeds, ``Machines``: one set
for all graphs, clusters, models and modes. Five of them were chosen by the eleven ratios themselves. So this shows
what the ratios are made of, and that one model has them all to within a fifth; that it would foretell other
clusters it does not show (docs/plan.md).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from rich.console import Console
from rich.table import Table

from cost_planner.plan.parts import LinkRate
from cost_planner.plan.simulated_run import Environments, Plan, StepWork
from cost_planner.plan.simulator import simulated
from siafu.pricing import cost
from siafu.tasks import TENSOR_KINDS, Kind, Program, Step

ASSUMED = (
    (
        "Clusters are Table 3's, with the paper's scale-out runs on 4, 8 and 16 c5n.4xlarge; widths, and Lambdas of "
        "each server, are those of the public code's run scripts (80 and 40 for Reddit-small GCN and GAT, 40 "
        "Reddit-large, 90 and 100 Amazon, 50 Friendster)."
    ),
    (
        "Each Lambda has one interval and a task is one invocation (the code), so a server has as many intervals as "
        "Lambdas. The autotuner rests."
    ),
    (
        "Layer 0 is gathered in every epoch; gathered rows go to Lambdas forward and again backward, with the "
        "pre-activation, which is kept on the servers (the code; the paper says that it is computed again). Attention: "
        "z, gradients and one value per edge travel; the loss is the servers'."
    ),
    (
        "With Lambdas: one gathering thread per vCPU; ghosts are received by a quarter as many, at least two; all "
        "bytes to and from Lambdas pass one thread (the code's ZeroMQ proxy). All of them share the vCPUs. Of the "
        "threads that receive, the processor time of all but one is counted as sending."
    ),
    (
        "CPU only (the code): one interval, nothing overlaps; all threads gather and multiply matrices, but one thread "
        "alone copies tensors, multiplies gradients by derivatives, sends ghosts, and fills what attention's backward "
        "makes of every edge (a row of the layer's width)."
    ),
    "Two vCPUs are one core: speeds are of a vCPU whose other half is busy. Partitions are alike; nobody straggles.",
    (
        "Ghosts of a partition: its crossing edges' other ends, drawn at random. The code partitions with METIS, which "
        "has fewer; the ratios asked for no fewer."
    ),
    (
        "A Lambda has 0.11 vCPU (the paper). Those of a server share 20 Gbit/s: 100 at 200 Mbit/s and at most 800 for "
        "one (the paper's figures)."
    ),
    (
        "Links of servers: their burst, 25 Gbit/s of c5n and 10 of c5 (the paper), all the time: runs "
        "take less than half an hour."
    ),
    (
        "The paper's 0.85 (async / pipe), 1.9 (no-pipe / async) and 2.82 (4 to 16 servers) are of epochs; times "
        "against the CPUs' hold epochs to one accuracy, async's 1.00, 1.09 and 1.08 times pipe's (the paper), and as "
        "many as pipe's where it gives none (GAT)."
    ),
    "Parameter servers and weights' way to them take next to no time.",
)
#: Speeds that were chosen so that the eleven ratios come out: least squares, then rounded. The others are the paper's,
#: or assumed; of these flop_ns, proxied_ns, latency_s and the random ghosts are near what a wider search had found.
CHOSEN = ("edge_ns", "value_ns", "element_ns", "row_ns", "score_ns")


@dataclass(frozen=True)
class Machines:
    """Of one vCPU of their c5 and c5n, and of their Lambdas."""

    edge_ns: float = 8.0  # gather: an edge
    value_ns: float = 0.4  # and a value of its other end; also a value of a ghost, copied
    element_ns: float = 8.0  # a value of a tensor that is made anew: its page, its arithmetic, its copies
    row_ns: float = 20.0  # a ghost's row, looked up
    score_ns: float = 1.65  # attention's backward: a value of an edge
    flop_ns: float = 0.025  # 40 Gflop/s: 40% of what AVX-512 could
    dot_ns: float = 1.3  # attention's forward: a value of an edge, added 4 cycles after the one before
    proxied_ns: float = 0.3  # a byte to or from a Lambda: 27 Gbit/s
    latency_s: float = 0.002  # of a Lambda's message, one way; a task has four or five
    lambda_core: float = 0.11
    lambda_rate: float = 100e6  # bytes per second, of one Lambda at most
    lambdas_rate: float = 2.5e9  # and of all of a server


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
    lambdas: int  # of a server
    model: str = "gcn"

    @property
    def receivers(self) -> int:
        """Threads of a server that take in ghosts."""
        return max(2, self.vcpus // 4)


REDDIT_SMALL = Graph("Reddit-small", 232.9e3, 114.8e6, (602, 128, 41))
REDDIT_LARGE = Graph("Reddit-large", 1.1e6, 1.3e9, (301, 128, 50))
AMAZON = Graph("Amazon", 9.2e6, 313.9e6, (300, 64, 25))
FRIENDSTER = Graph("Friendster", 65.6e6, 3.6e9, (32, 48, 50))
#: (model, graph) -> servers of Table 3; the mode that Table 4 has of it, its epochs' ratio to pipe's,
#: and Lambdas' time to the CPUs'.
TABLE_4: dict[tuple[str, str], tuple[Cluster, str, float, float]] = {
    ("GCN", "Reddit-small"): (Cluster(REDDIT_SMALL, 2, 8, 10, 80), "async", 1.00, 860.6 / 1005.4),
    ("GCN", "Reddit-large"): (Cluster(REDDIT_LARGE, 12, 8, 25, 40), "pipe", 1.00, 1020.1 / 1290.5),
    ("GCN", "Amazon"): (Cluster(AMAZON, 8, 8, 25, 90), "async", 1.09, 512.7 / 710.2),
    ("GCN", "Friendster"): (Cluster(FRIENDSTER, 32, 16, 25, 50), "async", 1.08, 1133.3 / 1990.8),
    ("GAT", "Reddit-small"): (Cluster(REDDIT_SMALL, 10, 8, 10, 40, "gat"), "async", 1.00, 496.3 / 1270.4),
    ("GAT", "Amazon"): (Cluster(AMAZON, 12, 8, 25, 100, "gat"), "async", 1.00, 853.4 / 2092.7),
}
EPOCHS = 3
#: AWS's unit of a Lambda's time until December 2020; the paper was submitted in that month.
BILLED_S = 0.1
#: "0.11 vCPU": 192 of the 1,769 MB of a whole one.
LAMBDA_MB = 192


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

    def epoch_s(cluster: Cluster, mode: str) -> float:
        return simulated(plan_of(cluster, machines, mode), EPOCHS, Random(0)).epoch_s

    modes = {mode: epoch_s(amazon, mode) for mode in ("pipe", "async", "no-pipe")}
    found = [
        Ratio("async / pipe, Amazon", 0.85, modes["async"] / modes["pipe"]),
        Ratio("no-pipe / async, Amazon", 1.9, modes["no-pipe"] / modes["async"]),
    ]
    wide = {servers: replace(amazon, servers=servers, vcpus=16) for servers in (4, 8, 16)}
    spans = {servers: epoch_s(cluster, "async") for servers, cluster in wide.items()}
    alone = {servers: cpu_epoch_s(cluster, machines) for servers, cluster in wide.items()}
    found += [
        Ratio("4 servers / 16, Amazon", 2.82, spans[4] / spans[16]),
        Ratio("Lambdas on 4 / CPU on 8, Amazon", 1.10, 1.09 * spans[4] / alone[8]),
        Ratio("Lambdas on 8 / CPU on 16, Amazon", 1.05, 1.09 * spans[8] / alone[16]),
    ]
    for (model, graph), (cluster, mode, epochs, measured) in TABLE_4.items():
        with_lambdas = modes[mode] if cluster == amazon else epoch_s(cluster, mode)
        share = epochs * with_lambdas / cpu_epoch_s(cluster, machines)
        found.append(Ratio(f"Lambdas / CPU, {model} {graph}", measured, share))
    return found


def plan_of(cluster: Cluster, machines: Machines, mode: str) -> Plan:
    """With Lambdas."""
    m, steps = machines, _steps(_WithLambdas(cluster, machines), cluster)
    rate = min(m.lambda_rate, m.lambdas_rate / cluster.lambdas)
    environments = Environments(
        count=cluster.lambdas, core=m.lambda_core, link=LinkRate(rate), latency_s=m.latency_s, cold_s=0.0, prefetch=1
    )
    return Plan(
        Program(tuple(step for step, _ in steps)),
        [work for _, work in steps],
        servers=cluster.servers,
        threads=cluster.vcpus,
        intervals=cluster.lambdas,
        mode=mode,
        freshness=0.0,
        ahead=1.0,
        link=LinkRate(cluster.gbps * 1e9 / 8),
        environments=environments,
        exchange_s=0.0,
        update_s=0.01,
        cores=cluster.vcpus,
    )


def lambda_usd(cluster: Cluster, machines: Machines, mode: str, seconds: float) -> float:
    """US dollars of the Lambdas of a run that takes so long, at today's prices of x86_64: it has as many epochs as are
    simulated in that time. A task is an invocation, billed from when its first byte leaves the server to when its last
    one has come: four messages, its bytes at its own rate, and its arithmetic."""
    plan = plan_of(cluster, machines, mode)
    environments, tasks = plan.environments, cluster.servers * cluster.lambdas
    assert environments is not None
    billed_s, requests = 0.0, 0
    for step, work in zip(plan.program.steps, plan.work, strict=True):
        if step.kind in TENSOR_KINDS:
            travels_s = (work.down + work.up) / environments.link.bytes_per_s + 4 * environments.latency_s
            billed_s += BILLED_S * math.ceil((work.seconds / environments.core + travels_s) / BILLED_S)
            requests += 1
    epochs = seconds / simulated(plan, EPOCHS, Random(0)).epoch_s
    gb_s = cost.memory_gb_s(billed_s * tasks * epochs, LAMBDA_MB)
    return cost.lambda_usd(requests * tasks * epochs, gb_s, "x86_64")


def cpu_epoch_s(cluster: Cluster, machines: Machines) -> float:
    """CPU only: a sum, since nothing overlaps."""
    return sum(work.seconds for _, work in _steps(_Alone(cluster, machines), cluster))


class _Parts:
    """What the steps of an interval take. ``shared`` of them is done by so many threads at once; the rest by one."""

    def __init__(self, cluster: Cluster, machines: Machines, *, intervals: int, shared: int):
        graph = cluster.graph
        self._cluster, self._machines, self._shared = cluster, machines, shared
        self.n = graph.vertices / cluster.servers / intervals
        self.e = graph.edges / cluster.servers / intervals
        crossing, remote = 1 - 1 / cluster.servers, graph.vertices * (1 - 1 / cluster.servers)
        drawn = -remote * math.expm1(-crossing * graph.edges / cluster.servers / remote)
        self._ghosts = drawn / intervals

    def gather(self, columns: int, times: int = 1) -> StepWork:
        m = self._machines
        return StepWork(times * self.e * (m.edge_ns + columns * m.value_ns) * 1e-9 / self._shared)

    def scatter(self, columns: int) -> StepWork:
        """Every ghost is looked up and copied by its owner and by who has it."""
        m = self._machines
        return self._scattered(self._ghosts * (m.row_ns + columns * m.value_ns) * 1e-9, 4 * columns * self._ghosts)

    def tensor(self, flops: float, made: tuple[float, float], travels: tuple[float, float]) -> StepWork:
        """For each vertex: flops; values made by one thread and by all, of the CPU-only
        variant; values to a Lambda and back."""
        m, (alone, shared) = self._machines, made
        seconds = flops * m.flop_ns / self._shared + (alone + shared / self._shared) * m.element_ns
        return self._computed(self.n * seconds * 1e-9, self.n * travels[0], self.n * travels[1])

    def scores(self, columns: int) -> StepWork:
        m, e = self._machines, self.e
        seconds = e * (columns * m.dot_ns / self._shared + 3 * m.element_ns) * 1e-9
        return self._computed(seconds, self.n * (columns + 2), 2 * e)

    def scores_backward(self, columns: int) -> StepWork:
        e = self.e
        return self._computed(e * columns * self._machines.score_ns * 1e-9, self.n * (2 * columns + 2) + e, e)

    def _scattered(self, seconds: float, nbytes: float) -> StepWork:
        raise NotImplementedError

    def _computed(self, seconds: float, down: float, up: float) -> StepWork:
        raise NotImplementedError


class _Alone(_Parts):
    """CPU only: seconds are those of the clock."""

    def __init__(self, cluster: Cluster, machines: Machines):
        super().__init__(cluster, machines, intervals=1, shared=cluster.vcpus)

    def _scattered(self, seconds: float, nbytes: float) -> StepWork:
        """Sending, by one thread; ZeroMQ's one thread, both ways; the link: at once."""
        passed = 2 * nbytes * self._machines.proxied_ns * 1e-9
        return StepWork(max(seconds, passed, nbytes / (self._cluster.gbps * 1e9 / 8)))

    def _computed(self, seconds: float, down: float, up: float) -> StepWork:
        return StepWork(seconds)


class _WithLambdas(_Parts):
    def __init__(self, cluster: Cluster, machines: Machines):
        super().__init__(cluster, machines, intervals=cluster.lambdas, shared=1)

    def _scattered(self, seconds: float, nbytes: float) -> StepWork:
        receivers, others = self._cluster.receivers, max(1, self._cluster.servers - 1)
        sent = seconds * (2 - 1 / receivers)  # with the processor time of all receivers but one
        return StepWork(sent, peers=nbytes / others, pasted=seconds / receivers / others)

    def _computed(self, seconds: float, down: float, up: float) -> StepWork:
        return StepWork(seconds, down=4 * down, up=4 * up, io=4 * (down + up) * self._machines.proxied_ns * 1e-9)


def _steps(parts: _Parts, cluster: Cluster) -> list[tuple[Step, StepWork]]:
    steps = _gat if cluster.model == "gat" else _gcn
    return [*steps(parts, *cluster.graph.widths), (Step(Kind.WU, 0), StepWork())]


def _gcn(parts: _Parts, f: int, h: int, c: int) -> list[tuple[Step, StepWork]]:
    """AV0 keeps Z and H. AV'0 has Z's derivative, and on Lambdas a gradient that nobody reads."""
    backward = 2 * f * h * (2 if isinstance(parts, _WithLambdas) else 1)
    return [
        (Step(Kind.GA, 0, writes=("Z0",), gathers="H0"), parts.gather(f)),
        (Step(Kind.AV, 0, ("Z0",), ("H1",)), parts.tensor(2 * f * h, (2 * h, h), (f, 2 * h))),
        (Step(Kind.SC, 0, ("H1",), publishes="H1"), parts.scatter(h)),
        (Step(Kind.GA, 1, writes=("Z1",), gathers="H1"), parts.gather(h)),
        (Step(Kind.AV, 1, ("Z1",), ("dZ1",), fused=True), parts.tensor(6 * h * c, (1.5 * c + h, 3 * c), (h + c, h))),
        (Step(Kind.SC_B, 1, ("dZ1",), publishes="dZ1"), parts.scatter(h)),
        (Step(Kind.GA_B, 1, writes=("dH1",), gathers="dZ1"), parts.gather(h)),
        (Step(Kind.AV_B, 0, ("Z0", "dH1")), parts.tensor(backward, (h, 2 * h), (f + 2 * h, 0))),
    ]


def _gat(parts: _Parts, f: int, h: int, c: int) -> list[tuple[Step, StepWork]]:
    """One head. GA' gathers gradients along reversed edges and rows along the others."""
    return [
        (Step(Kind.AV, 0, ("H0",), ("T0",)), parts.tensor(2 * f * h, (h, 0), (f, h))),
        (Step(Kind.SC, 0, ("T0",), publishes="T0"), parts.scatter(h)),
        (Step(Kind.AE, 0, writes=("E0",), gathers="T0"), parts.scores(h)),
        (Step(Kind.GA, 0, writes=("Z0",), gathers="T0"), parts.gather(h)),
        (Step(Kind.AV, 1, ("Z0",), ("T1",)), parts.tensor(2 * h * c, (c, 0), (h, c))),
        (Step(Kind.SC, 1, ("T1",), publishes="T1"), parts.scatter(c)),
        (Step(Kind.AE, 1, writes=("E1",), gathers="T1"), parts.scores(c)),
        (Step(Kind.GA, 1, writes=("dZ1",), gathers="T1"), parts.gather(c)),
        (Step(Kind.SC_B, 1, ("dZ1",), publishes="dZ1"), parts.scatter(c)),
        (Step(Kind.AE_B, 1, writes=("dE1",), gathers="dZ1"), parts.scores_backward(c)),
        (Step(Kind.GA_B, 1, writes=("dT1",), gathers="dZ1"), parts.gather(c, times=2)),
        (Step(Kind.AV_B, 1, ("Z0", "dT1"), ("dZ0",)), parts.tensor(4 * h * c, (h, 0), (h + c, h))),
        (Step(Kind.SC_B, 0, ("dZ0",), publishes="dZ0"), parts.scatter(h)),
        (Step(Kind.AE_B, 0, writes=("dE0",), gathers="dZ0"), parts.scores_backward(h)),
        (Step(Kind.GA_B, 0, writes=("dT0",), gathers="dZ0"), parts.gather(h, times=2)),
        (Step(Kind.AV_B, 0, ("H0", "dT0")), parts.tensor(2 * f * h, (0, 0), (f + h, 0))),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    machines = Machines()
    found = ratios(machines)
    if args.json:
        rows = [{**vars(one), "off": one.off} for one in found]
        print(json.dumps({"rows": rows, "machines": vars(machines), "chosen": CHOSEN, "assumed": ASSUMED}))
        return 0
    table = Table("ratio of times", "the paper", "simulated", "off")
    for one in found:
        table.add_row(one.name, f"{one.measured:.2f}", f"{one.simulated:.2f}", f"{one.off:+.0%}")
    Console(width=110).print(table)
    speeds = ", ".join(f"{name} {getattr(machines, name):g}" for name in CHOSEN)
    print(f"chosen by these ratios, one set for all: {speeds}")
    print("assumed:\n  " + "\n  ".join(ASSUMED))
    return 0


if __name__ == "__main__":
    sys.exit(main())
