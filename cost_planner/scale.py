"""Scale on paper: what a graph far too large for this machine would take of servers, links and quotas. Pure arithmetic.

    python -m cost_planner.scale [--environments 1000] [--json]

Sizes of messages come from the model's own program and memory from ``cost_planner.memory``, so they change with the
code; ``MEASURED`` holds what was measured on one machine and ``AWS`` what Amazon allows. docs/scale.md shows the
tables and reads them; a test compares.

Ghosts are an upper bound: the crossing edges of a partition are taken to come from remote vertices
drawn at random. Real ones share hubs and neighbourhoods. Of an epoch's time only the floor is computed:
what the busiest link alone needs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cost_planner import memory, reach
from siafu import models, views
from siafu.config import Config
from siafu.models import Model, ModelSpec
from siafu.pricing import cost
from siafu.pricing.prices import instance
from siafu.shards import FileEntry, Manifest, PartitionEntry, SplitSizes
from siafu.tasks import TENSOR_KINDS, Lane, Step

GB, GIB = 1e9, 2**30
#: Slots that never change, beside a program's: with ``lambda.keep_constants`` they travel once, not in every epoch.
CONSTANTS = frozenset({"H0", "label", "train", "vertex"})


@dataclass(frozen=True)
class Measured:
    """On 2 cores of an AMD EPYC (Zen 5), November 2026; descriptors counted in /proc of running members."""

    tasks_per_s: float = 12_200  # a graph server with 500 simulated workers, 64 KiB a task
    gather_ns_per_edge: float = 3.3  # of 64 columns, on 2 threads
    prepare_edges_per_s: float = 3.6e6  # from Parquet, streamed, under 6 GiB
    # and 1 per worker, 1 per invocation, 3 per other graph server, 2 per parameter server
    fds_of_graph_server: int = 36
    fds_of_param_server: int = 15  # and 1 per worker, 1 per graph server, 3 per other parameter server
    fds_of_worker: int = 16  # and 2 per parameter server


@dataclass(frozen=True)
class Aws:
    """Limits and rates to plan on."""

    lambda_bytes_per_s: float = 75e6  # of one environment, after a short burst; no published figure
    lambda_fds: int = 1024
    server_fds: int = 1024  # the soft limit that a process gets unless it asks for more
    new_environments_per_10_s: int = 1000  # of one function
    requests_per_s_per_environment: int = 10
    flow_gbps: float = 5.0  # of one TCP connection, outside a placement group
    s3_bytes_per_s: float = 0.5e9  # of one server that downloads its shard over several connections: an assumption
    # float32, of narrow products on an older core: an assumption, a third of what we measure
    flops_per_vcpu: float = 30e9
    mb_per_vcpu: float = 1769.0


MEASURED, AWS = Measured(), Aws()


@dataclass(frozen=True)
class Graph:
    name: str
    vertices: int
    edges: int  # directed: an undirected edge counts twice
    features: int
    classes: int
    hidden: int


#: As in Dorylus (OSDI'21), table 1 and its configuration files: random features and labels, two layers.
FRIENDSTER = Graph("Friendster", 65_600_000, 3_600_000_000, 32, 50, 48)


@dataclass(frozen=True)
class Setting:
    """A run on paper."""

    name: str
    graph: Graph = FRIENDSTER
    servers: int = 32
    param_servers: int = 4
    environments: int = 1000
    intervals: int = 100  # per graph server
    crossing: float = 0.5  # share of edges whose ends are on different servers
    shared: float = 1.0  # crossing edges of a partition that have one remote end, beside ends drawn at random
    graph_instance: str = "c5n.4xlarge"
    param_instance: str = "c5.xlarge"
    rows: str = "exact"

    @property
    def config(self) -> Config:
        return Config().replace(
            {
                "data.parts": self.servers,
                "servers.param_servers": self.param_servers,
                "train.intervals": self.intervals,
                "model.hidden": str(self.graph.hidden),
                "model.rows": self.rows,
                "lambda.on": "aws",
                "run.on": "aws",
                "servers.backend": "lambda",
                "lambda.count": math.ceil(self.environments / self.servers),
                "cloud.graph_instance": self.graph_instance,
                "cloud.param_instance": self.param_instance,
                "cloud.volume_gib": 50,
                "servers.threads": instance(self.graph_instance).vcpu,
                "train.mode": "async",
                "train.eval_every": 0,
            }
        )

    @property
    def ghosts(self) -> int:
        """Of one partition: distinct sources among its crossing edges."""
        if self.servers == 1:
            return 0
        remote = self.graph.vertices * (1 - 1 / self.servers)
        return int(drawn(self.crossing * self.graph.edges / self.servers, remote) / self.shared)

    @property
    def manifest(self) -> Manifest:
        graph, parts = self.graph, self.servers
        n, m, g = graph.vertices // parts, graph.edges // parts, self.ghosts
        sizes = {
            "in_indptr.npy": 8 * (n + 1),
            "in_indices.npy": 4 * m,
            "vertices.npy": 8 * n,
            "ghosts_in.npy": 12 * g,
            "degree.npy": 8 * (n + g),
            "features.npy": 4 * n * graph.features,
            "labels.npy": 8 * n,
            "split.npy": n,
        }
        files = {name: FileEntry(nbytes, "", 0) for name, nbytes in sizes.items()}
        entry = PartitionEntry(n, m, m, int(self.crossing * m), g, g, files)
        return Manifest(
            siafu="",
            name=graph.name,
            num_vertices=graph.vertices,
            num_edges=graph.edges,
            num_features=graph.features,
            num_classes=graph.classes,
            multilabel=False,
            directed=False,
            weighted=False,
            sparse_features=False,
            feature_norm="none",
            partitioner="",
            order="given",
            seed=0,
            num_partitions=parts,
            splits=(SplitSizes(int(0.66 * graph.vertices), int(0.1 * graph.vertices), 0),),
            cut_edges=int(self.crossing * graph.edges),
            partitions=(entry,) * parts,
        )


def drawn(times: float, remote: float) -> float:
    """Distinct ones of so many vertices, drawn at random so many times."""
    return remote * -math.expm1(-times / remote)


#: What docs/scale.md compares.
SETTINGS = (
    Setting("paper's servers, random cut", crossing=31 / 32),
    Setting("paper's servers, half the edges cut"),
    Setting("the same, bfloat16 rows", rows="bfloat16"),
    Setting("more network", graph_instance="c7gn.4xlarge", param_instance="c7gn.2xlarge"),
    Setting(
        "more network, bfloat16 rows", graph_instance="c7gn.4xlarge", param_instance="c7gn.2xlarge", rows="bfloat16"
    ),
)


@dataclass(frozen=True)
class Traffic:
    """Bytes per epoch of one graph server, training only: in and out are equal on average where peers talk."""

    ghosts: float  # from other graph servers, and as many to them
    down: float  # to workers
    up: float  # from workers
    constants: float  # to workers, once in a run
    gradients: float  # to each parameter server
    messages: int  # with ghosts' rows, sent; as many come in

    def busiest(self) -> float:
        """Of the two directions of the server's link."""
        return self.ghosts + max(self.down, self.up)


def traffic(setting: Setting) -> Traffic:
    """What the model's program moves."""
    config, n = setting.config, setting.graph.vertices // setting.servers
    model = models.kept(ModelSpec.of(config, setting.manifest))
    program = model.program(Lane.TRAIN)
    stored = 2 if config.model.rows == "bfloat16" else 4
    fixed, rows = CONSTANTS | program.constants, {"H0"} | program.constants
    train = model.spec.num_train / setting.graph.vertices

    def row_bytes(step: Step, slots: Iterable[str]) -> float:
        """Of a vertex, on average: rows of a task with the loss are those of training vertices."""
        share = views.share_of_loss(train) if "train" in step.reads else feeding if step.feeds_loss else 1.0
        return share * 4 * _width(model, [slot for slot in slots if slot not in fixed])

    feeding = views.share_that_feeds(reach.share_that_feeds(train, setting.graph.edges / setting.graph.vertices))
    edges = setting.manifest.partitions[0].cut_edges / max(1, setting.ghosts)
    published = [
        (step.publishes, reach.share_of_ghosts(step, train, edges)) for step in program.steps if step.publishes
    ]
    tensor = [step for step in program.steps if step.kind in TENSOR_KINDS]
    num_intervals = setting.servers * setting.intervals
    return Traffic(
        ghosts=setting.ghosts * stored * sum(model.width(slot) * share for slot, share in published),
        down=n * sum(row_bytes(step, step.reads) for step in tensor),
        up=n * sum(row_bytes(step, step.writes) for step in tensor),
        constants=n * 4 * _width(model, sorted({slot for step in tensor for slot in step.reads} & rows)),
        gradients=num_intervals * 4 * _num_weights(model) / setting.param_servers,
        messages=setting.intervals * (setting.servers - 1) * len(published),
    )


def _width(model: Model, slots: list[str]) -> int:
    return sum(model.width(slot) for slot in slots)


def _num_weights(model: Model) -> int:
    return sum(array.size for array in models.shapes(model.spec).values())


def connections(setting: Setting, *, alive: int | None = None) -> dict[str, int]:
    """TCP connections at one member of each role; ``alive``: workers in the run, those that still leave included."""
    alive = setting.environments if alive is None else alive
    mine = math.ceil(alive / setting.servers)
    others, q = setting.servers - 1, setting.param_servers
    return {
        "graph server": 2 * others
        + q
        + 1
        + 2 * mine,  # both ways to peers; each worker, and the call that keeps it alive
        "parameter server": setting.servers + 2 * (q - 1) + 1 + alive,
        "worker": 1 + q,
    }


def descriptors(setting: Setting, *, alive: int | None = None) -> dict[str, int]:
    """Open files of one member of each role, as counted in running ones."""
    alive = setting.environments if alive is None else alive
    mine, q = math.ceil(alive / setting.servers), setting.param_servers
    return {
        "graph server": MEASURED.fds_of_graph_server + 2 * mine + 3 * (setting.servers - 1) + 2 * q,
        "parameter server": MEASURED.fds_of_param_server + alive + setting.servers + 3 * (q - 1),
        "worker": MEASURED.fds_of_worker + 2 * q,
    }


def memory_gib(setting: Setting) -> dict[str, float]:
    """Of one member of each role, at the peak."""
    found = memory.predict(setting.config, setting.manifest, cores=instance(setting.graph_instance).vcpu)
    counts = memory.processes(setting.config, instance(setting.graph_instance).vcpu)
    return {role: nbytes / counts[role] / GIB for role, nbytes in found.by_role.items()}


def epoch_floor_s(setting: Setting) -> dict[str, float]:
    """What each thing alone needs for an epoch."""
    moved, found, graph = traffic(setting), instance(setting.graph_instance), setting.graph
    link = (found.network_baseline_gbps or 0.0) * GB / 8
    gathers = 2 * graph.edges / setting.servers  # layer 1 forward and backward: layer 0 is constant
    per_edge = MEASURED.gather_ns_per_edge * 1e-9 * graph.hidden / 64 * 2 / found.vcpu
    mine = setting.environments / setting.servers
    return {
        "server's link": moved.busiest() / link,
        "Lambdas' links": max(moved.down, moved.up) / (mine * AWS.lambda_bytes_per_s),
        "Lambdas' arithmetic": _flops(setting) / (mine * _vcpus(setting) * AWS.flops_per_vcpu),
        "gather": gathers * per_edge,
        "decisions": tasks(setting) / MEASURED.tasks_per_s,
    }


def _flops(setting: Setting) -> float:
    """Of one server's tensor tasks in an epoch, at most: forward, recomputed, and two
    products backward per weight and row."""
    model = models.kept(ModelSpec.of(setting.config, setting.manifest))
    return 8.0 * _num_weights(model) * setting.graph.vertices / setting.servers


def _vcpus(setting: Setting) -> float:
    """Of one environment."""
    return setting.config.lambdas.memory_mb / AWS.mb_per_vcpu


def environments_enough(setting: Setting) -> int:
    """With so many the Lambdas need no longer than the servers' links: more of them only cost."""
    floors = epoch_floor_s(setting)
    slowest = max(floors["Lambdas' links"], floors["Lambdas' arithmetic"])
    return math.ceil(setting.environments * slowest / floors["server's link"])


def tasks(setting: Setting) -> int:
    """Of one graph server in an epoch."""
    spec = ModelSpec.of(setting.config, setting.manifest)
    return setting.intervals * len(models.kept(spec).program(Lane.TRAIN))


def tensor_tasks(setting: Setting) -> int:
    program = models.kept(ModelSpec.of(setting.config, setting.manifest)).program(Lane.TRAIN)
    return setting.intervals * sum(step.kind in TENSOR_KINDS for step in program.steps)


def invocations(setting: Setting) -> dict[str, float]:
    """Per second, against what the service allows."""
    lambdas, epoch_s = setting.config.lambdas, max(epoch_floor_s(setting).values())
    return {
        "pulling until the deadline": setting.environments / (lambdas.timeout_s - lambdas.margin_s),
        "one per task": setting.servers * tensor_tasks(setting) / epoch_s,
        "allowed": float(AWS.requests_per_s_per_environment * setting.environments),
        "seconds until all are there": 10 * setting.environments / AWS.new_environments_per_10_s,
    }


def shards(setting: Setting) -> dict[str, float]:
    """How they come to be, and to the servers."""
    nbytes = sum(file.bytes for entry in setting.manifest.partitions for file in entry.files.values())
    return {
        "GB": nbytes / GB,
        "minutes to prepare": setting.graph.edges / MEASURED.prepare_edges_per_s / 60,
        "minutes to upload at 1 Gbps": nbytes / (GB / 8) / 60,
        "seconds to download": nbytes / setting.servers / AWS.s3_bytes_per_s,
    }


def usd_per_hour(setting: Setting) -> dict[str, float]:
    """With all environments at work."""
    parts = cost.per_hour(setting.config)
    return {**parts, "lambda": cost.lambda_per_hour(setting.config, setting.environments)}


def tables(settings: Sequence[Setting] = SETTINGS) -> str:
    """Everything as Markdown: what differs between settings, then what does not."""
    first = settings[0]
    rows = [_row(setting) for setting in settings]
    limits = [
        ["connections", *_limits(first, connections)],
        ["open files", *_limits(first, descriptors)],
    ]
    calls = invocations(first)
    once = [
        [name, f"{value:,.1f}"]
        for name, value in {
            **{f"invocations per second: {name}": value for name, value in list(calls.items())[:3]},
            "seconds until all environments are there": calls["seconds until all are there"],
            "tasks of an epoch per server": tasks(first),
            "of them tensor tasks": tensor_tasks(first),
            "messages with ghosts' rows, per server and epoch, each way": traffic(first).messages,
            "MB of gradients to each parameter server, per epoch": traffic(first).gradients / 1e6,
            "GB of constants to the workers of a server, once": traffic(first).constants / GB,
            "MB of memory that an environment fills": 1024 * memory_gib(first)[memory.LAMBDAS],
            **{f"shards: {name}": value for name, value in shards(first).items()},
        }.items()
    ]
    return "\n\n".join(
        [
            _markdown(list(rows[0]), [list(row.values()) for row in rows]),
            _markdown(["per member", *connections(first), "the same with twice as many workers"], limits),
            _markdown(["once", first.name], once),
        ]
    )


def _row(setting: Setting) -> dict[str, str]:
    found, moved, floors = instance(setting.graph_instance), traffic(setting), epoch_floor_s(setting)
    slowest = max(floors, key=lambda name: floors[name])
    money = usd_per_hour(setting)
    total = sum(money.values())
    return {
        "setting": setting.name,
        "servers": f"{setting.servers} {found.name}, {found.network_baseline_gbps:g} Gbps",
        "ghosts M": f"{setting.ghosts / 1e6:.1f}",
        "GiB": f"{memory_gib(setting)[memory.GRAPH_SERVERS]:.1f} of {found.mem_gib:g}",
        "GB/epoch ghosts": f"{moved.ghosts / GB:.2f}",
        "Lambdas down": f"{moved.down / GB:.2f}",
        "up": f"{moved.up / GB:.2f}",
        "epoch s at least": f"{floors[slowest]:.1f} ({slowest})",
        "Lambdas enough": f"{environments_enough(setting)}",
        "USD/h servers": f"{total - money['lambda']:.2f}",
        "Lambdas": f"{money['lambda']:.2f}",
        "USD/epoch": f"{total * floors[slowest] / 3600:.3f}",
    }


def _limits(setting: Setting, count: Any) -> list[str]:
    now, twice = count(setting), count(setting, alive=2 * setting.environments)
    return [*(f"{value:,}" for value in now.values()), ", ".join(f"{name} {value:,}" for name, value in twice.items())]


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=int, default=SETTINGS[0].environments)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    settings = [replace(setting, environments=args.environments) for setting in SETTINGS]
    if not args.json:
        print(tables(settings))
        return 0
    whole = {
        setting.name: {
            "ghosts": setting.ghosts,
            "traffic": vars(traffic(setting)),
            "memory_gib": memory_gib(setting),
            "epoch_floor_s": epoch_floor_s(setting),
            "usd_per_hour": usd_per_hour(setting),
            "connections": connections(setting),
            "descriptors": descriptors(setting),
            "invocations": invocations(setting),
            "shards": shards(setting),
        }
        for setting in settings
    }
    print(json.dumps(whole))
    return 0


if __name__ == "__main__":
    sys.exit(main())
