"""Scale on paper: what a graph far too large for this machine would take of servers, links and quotas.

    python -m benchmarks.scale

docs/scale.md shows the tables and reads them; a test compares. Everything is the planner's
(``siafu plan --vertices 65.6M --edges 3.6B ...``), except that ghosts are an upper bound: the crossing edges of a
partition are taken to come from remote vertices drawn at random. Real ones share hubs and neighbourhoods.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cost_planner import memory
from cost_planner.memory import GIB
from cost_planner.plan import cores, graphs, quotas
from cost_planner.plan.asked import Asked
from cost_planner.plan.assumptions import EXAMINED_SERVERS
from cost_planner.plan.bounds import Floors
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.options import S3_BYTES_PER_S, Catalogue, Option
from cost_planner.plan.speeds import Speeds
from cost_planner.plan.work import Counts, constant_bytes
from siafu import models
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.pricing import cost
from siafu.tasks import TENSOR_KINDS

#: As in Dorylus (OSDI'21), table 1 and its configuration files: random features and labels, two layers.
SOURCE, HIDDEN = "synthetic:friendster", 48
SERVERS, PARAM_SERVERS, INTERVALS, LAMBDAS, MEMORY_MB = EXAMINED_SERVERS, 4, 100, 1000, 192
#: So many that the burst of a link hardly counts.
EPOCHS = 1000
#: From Parquet, streamed, under 6 GiB: measured on 2 cores of an AMD EPYC (Zen 5), November 2026.
PREPARE_EDGES_PER_S = 3.6e6


@dataclass(frozen=True)
class Setting:
    """A run on paper. ``cut``: share of the edges whose ends are on different servers, of very many."""

    name: str
    cut: float = 0.5 * SERVERS / (SERVERS - 1)
    rows: str = "exact"
    graph_instance: str = "c5n.4xlarge"
    param_instance: str = "c5.xlarge"

    @property
    def graph(self) -> graphs.Graph:
        found = graphs.of_source(Config().replace({"data.source": SOURCE}))
        return replace(found, name=self.name, cut=self.cut, shared=1.0)

    @property
    def option(self) -> Option:
        config = Config().replace(
            {
                "servers.param_servers": PARAM_SERVERS,
                "model.hidden": str(HIDDEN),
                "model.rows": self.rows,
                "cloud.param_instance": self.param_instance,
                "cloud.volume_gib": 50,
                "train.eval_every": 0,
            }
        )
        asked = Asked(
            config,
            self.graph,
            Epochs(EPOCHS),
            Speeds(),
            instances=[self.graph_instance],
            servers=[SERVERS],
            backends=["lambda"],
            modes=[("async", 0)],
            memories_mb=[MEMORY_MB],
            lambdas=LAMBDAS // SERVERS,
            intervals=INTERVALS,
            concurrency=LAMBDAS,
        )
        (found,) = Catalogue(asked).options
        return found


#: What docs/scale.md compares.
SETTINGS = (
    Setting("paper's servers, random cut", cut=1.0),
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

    @classmethod
    def of(cls, option: Option) -> Traffic:
        plan, work = option.in_pipe, option.in_pipe.work
        peers, down, up = (sum(getattr(one, name) for one in work) for name in ("peers", "down", "up"))
        return cls(plan.intervals * (plan.servers - 1) * peers, plan.intervals * down, plan.intervals * up)


def enough(option: Option) -> int:
    """Environments with which Lambda takes no longer than the slowest of the rest: more of them only cost."""
    share = cores.lambda_share(option.config.lambdas.memory_mb)
    return round(option.machines * Floors.of(option.in_pipe).enough(share))


def connections(option: Option, alive: int) -> dict[str, int]:
    """TCP connections at one member of each role; ``alive``: workers in the run, those that still leave included."""
    others, q, mine = option.machines - 1, option.param_servers, -(-alive // option.machines)
    return {
        # Both ways to peers; each worker, and the call that keeps it alive.
        "graph server": 2 * others + q + 1 + 2 * mine,
        "parameter server": option.machines + 2 * (q - 1) + 1 + alive,
        "worker": 1 + q,
    }


def once(setting: Setting) -> dict[str, float]:
    """What hardly differs between settings: calls, tasks, and what is done once in a run."""
    option, graph = setting.option, setting.graph
    plan, needed, manifest = option.in_pipe, quotas.needed(option), graph.manifest(SERVERS)
    steps = list(zip(plan.program.steps, plan.work, strict=True))
    tensor = sum(step.kind in TENSOR_KINDS for step in plan.program.steps)
    model = models.kept(ModelSpec.of(option.config, manifest))
    nbytes = sum(file.bytes for entry in manifest.partitions for file in entry.files.values())
    gradients = sum(work.weights for step, work in steps if step.has_gradient)
    return {
        "invocations per second: pulling until the deadline": needed["lambda_requests_per_s"]["needed"],
        "invocations per second: one per task": SERVERS * INTERVALS * tensor / option.floor_s,
        "invocations per second: allowed": needed["lambda_requests_per_s"]["allowed"],
        "seconds until all environments are there": needed["seconds_until_all_environments"],
        "tasks of an epoch per server": INTERVALS * len(steps),
        "of them tensor tasks": INTERVALS * tensor,
        "messages with ghosts' rows, per server and epoch, each way": INTERVALS
        * (SERVERS - 1)
        * sum(bool(step.publishes) for step in plan.program.steps),
        "MB of gradients to each parameter server, per epoch": SERVERS * INTERVALS * gradients / PARAM_SERVERS / 1e6,
        "GB of constants to the workers of a server, once": constant_bytes(option.config, model, Counts.of(manifest))
        / 1e9,
        "MB of memory that an environment fills, beside constants": option.memory_gib[memory.LAMBDAS] * GIB / 1e6,
        "shards: GB": nbytes / 1e9,
        "shards: minutes to prepare": graph.edges / PREPARE_EDGES_PER_S / 60,
        "shards: minutes to upload at 1 Gbps": nbytes / (1e9 / 8) / 60,
        "shards: seconds to download": nbytes / SERVERS / S3_BYTES_PER_S,
    }


def tables(settings: Sequence[Setting] = SETTINGS) -> str:
    """Everything as Markdown: what differs between settings, then what does not."""
    first, rows = settings[0].option, [_row(setting) for setting in settings]
    floors = settings[1].option.floors.by_resource()
    limits = []
    for name, count in ("connections", connections), ("open files", quotas.open_files):
        now, twice = (count(first, times * first.environments) for times in (1, 2))
        told = ", ".join(f"{role} {number:,}" for role, number in twice.items())
        limits.append([name, *(f"{number:,}" for number in now.values()), told])
    return "\n\n".join(
        [
            _markdown(list(rows[0]), [list(row.values()) for row in rows]),
            _markdown(["s/epoch at least", settings[1].name], [[name, f"{s:.2f}"] for name, s in floors.items()]),
            _markdown(["per member", *now, "the same with twice as many workers"], limits),
            _markdown(["once", settings[0].name], [[key, f"{value:,.1f}"] for key, value in once(settings[0]).items()]),
        ]
    )


def _row(setting: Setting) -> dict[str, str]:
    option, machine = setting.option, setting.option.machine
    moved, servers = Traffic.of(option), cost.standing(option.config).usd
    lambdas = cost.lambda_per_hour(option.config, option.environments)
    return {
        "setting": setting.name,
        "servers": f"{SERVERS} {machine.name}, {machine.network_baseline_gbps:g} Gbps",
        "ghosts M": f"{setting.graph.manifest(SERVERS).partitions[0].ghosts_in / 1e6:.1f}",
        "GiB": f"{option.memory_gib[memory.GRAPH_SERVERS]:.1f} of {machine.mem_gib:g}",
        "GB/epoch ghosts": f"{moved.ghosts / 1e9:.2f}",
        "Lambdas down": f"{moved.down / 1e9:.2f}",
        "up": f"{moved.up / 1e9:.2f}",
        "epoch s at least": f"{option.floor_s:.1f} ({option.floors.limit})",
        "Lambdas enough": f"{enough(option)}",
        "USD/h servers": f"{servers:.2f}",
        "Lambdas": f"{lambdas:.2f}",
        "USD/epoch": f"{(servers + lambdas) * option.floor_s / 3600:.3f}",
    }


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


def main() -> int:
    print(tables())
    return 0


if __name__ == "__main__":
    sys.exit(main())
