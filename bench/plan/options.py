"""The ways a graph may be trained: backend x instance type x servers x mode x Lambdas, and of each what an epoch takes at least.

1. What does not fit is dropped, and counted by reason: memory of a graph server (``bench.memory``, nine tenths of the
   machine's), of a parameter server, of an environment.
2. An interval has ``ROWS`` rows where the graph has so many; a server has ``LEAST`` to ``MOST`` intervals.
3. Environments of a server: as many as take no longer than the slowest of the rest, half, and twice as many; within the
   account's concurrency.
4. There are as many parameter servers as are needed for them not to be what is slowest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench import memory, prices
from bench.plan import cores
from bench.plan.bounds import INTO, OUT, PARAM, PROCESSORS, Floors
from bench.plan.environments import Environments
from bench.plan.epochs import Epochs
from bench.plan.graphs import Graph
from bench.plan.parts import LinkRate
from bench.plan.simulator import Plan
from bench.plan.work import Counts, Speeds, plan_of
from bench.prices import Instance
from bench.scale import AWS, GIB
from graph_server.sizing import CORE_MB
from siafu.config import Config, Train
from siafu.models import ModelSpec
from siafu.shards import Manifest

SERVERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
#: Looked at where fewer hold the graph barely, or not: up to so many times the least that do.
MANY_SERVERS, TIMES_LEAST = (96, 128, 192, 256), 4
PARAM_SERVERS = (1, 2, 4, 8)
Backend = Literal["cpu", "lambda"]
Mode = Literal["pipe", "async", "no-pipe"]
BACKENDS: tuple[Backend, ...] = ("cpu", "lambda")
MODES: tuple[tuple[Mode, int], ...] = (("pipe", 0), ("async", 0), ("async", 1), ("no-pipe", 0))
MEMORIES_MB = (192, 512, 1024, 1769)
OF_ENOUGH = (0.5, 1.0, 2.0)
ROWS, LEAST, MOST = 20_000, 16, 64
#: Parts with fewer vertices than this are more waiting than work.
LEAST_VERTICES = 64
#: Of a machine's memory that a run may take.
USABLE = 0.9
#: An account's environments at once in a region, unless it has asked for more.
CONCURRENCY = 1000
#: From machines that are there to roles that have said hello.
START_S = 10.0


@dataclass(frozen=True)
class Asked:
    """What the user holds fixed; None: everything is tried."""

    config: Config
    graph: Graph
    epochs: Epochs
    speeds: Speeds
    instances: Sequence[str] | None = None
    servers: Sequence[int] | None = None
    backends: Sequence[Backend] = BACKENDS
    modes: Sequence[tuple[Mode, int]] = MODES
    memories_mb: Sequence[int] = MEMORIES_MB
    lambdas: int | None = None  # of a server; 0: the autotuner's
    intervals: int | None = None
    concurrency: int = CONCURRENCY


@dataclass(frozen=True, eq=False)
class Option:
    machine: Instance
    config: Config
    in_pipe: Plan  # the run in pipe mode; ``plan`` is that in its own
    floors: Floors
    epochs: int
    setup_s: float
    memory_gib: dict[str, float]  # of one process of each role

    @property
    def kind(self) -> tuple[str, str, int]:
        train = self.config.train
        return self.config.servers.backend, train.mode, train.staleness

    @property
    def plan(self) -> Plan:
        return replace(self.in_pipe, mode=self.config.train.mode, staleness=self.config.train.staleness)

    @property
    def name(self) -> str:
        backend, mode, staleness = self.kind
        return f"{backend} {mode}{f' s={staleness}' if mode == 'async' else ''}"

    @property
    def environments(self) -> int:
        """Of all servers; where the autotuner decides, those it begins with."""
        found = self.in_pipe.environments
        each = 0 if found is None else found.count or min(self.in_pipe.intervals, found.most)
        return each * self.in_pipe.servers

    @property
    def floor_s(self) -> float:
        return self.floors.epoch_s(self.config.train.mode)


class Catalogue:
    """All options that fit, in ``options``; ``dropped`` counts the others by reason. ConfigError for an instance type that is
    none; PriceUnknown."""

    def __init__(self, asked: Asked):
        self.asked = asked
        # All mutable state:
        self.dropped: Counter[str] = Counter()
        self._fitted: dict[tuple[int, str, int], _Fitted] = {}
        self.options = self._all(asked.servers or SERVERS)
        if asked.servers is None:
            least = min((option.in_pipe.servers for option in self.options), default=MANY_SERVERS[-1])
            self.options += self._all([count for count in MANY_SERVERS if count <= TIMES_LEAST * least])

    def _all(self, counts: Sequence[int]) -> list[Option]:
        if self.asked.servers is None:
            most = max(1, self.asked.graph.vertices // LEAST_VERTICES)
            counts = [count for count in counts if count <= most]
        return [
            option for machine in self._machines() for servers in counts for backend in self.asked.backends
            for option in self._of_machine(machine, servers, backend)
        ]  # fmt: skip

    @property
    def why_nothing_fits(self) -> str:
        least = min(self._fitted.values(), key=lambda one: one.memory_gib[memory.GRAPH_SERVERS], default=None)
        if least is None:
            return "the graph has too few vertices"
        gib, servers = least.memory_gib[memory.GRAPH_SERVERS], least.config.data.parts
        largest = max((machine.mem_gib for machine in self._machines()), default=0.0)
        if gib <= USABLE * largest:
            return "; ".join(reason for reason, _ in self.dropped.most_common())
        return (
            f"a graph server would hold at least {gib:.0f} GiB ({servers} servers), the largest machine has {largest:g}; "
            "model.rows=bfloat16 and a better cut (--cut) take less"
        )

    def memory_of_one(self) -> float:
        """GiB that one server with all of the graph would hold."""
        return self._fit(1, "cpu", 1).memory_gib[memory.GRAPH_SERVERS]

    def _machines(self) -> list[Instance]:
        region = self.asked.config.lambdas.region
        if self.asked.instances:
            return [prices.instance(name, region) for name in self.asked.instances]
        found = [machine for machine in prices.instances(region) if not machine.gpu]
        steady = [machine for machine in found if cores.family(machine) not in cores.BURSTABLE]
        self.dropped["paid for in CPU credits"] = len(found) - len(steady)
        return steady

    def _of_machine(self, machine: Instance, servers: int, backend: Backend) -> Iterator[Option]:
        """Every mode and number of environments of so many machines."""
        asked, threads = self.asked, cores.threads_of(machine)
        fitted = self._fit(servers, backend, threads)
        if (reason := self._too_small(machine, fitted)) is not None:
            self.dropped[reason] += len(asked.modes)
            return
        speed = cores.cores_of(machine).speed
        plan = self._plan(machine, fitted, threads, asked.speeds.scaled(1 / speed))
        floors = Floors.of(plan)
        cloud = replace(fitted.config.cloud, graph_instance=machine.name)
        roles = replace(fitted.config.servers, param_servers=plan.param_servers)
        for memory_mb, count in self._environments(fitted, floors, servers, speed) if plan.environments else [(0, 0)]:
            lambdas, mine, found = fitted.config.lambdas, plan, floors
            if plan.environments:
                core = memory_mb / CORE_MB / speed
                kind = replace(plan.environments, count=count, core=core, most=asked.concurrency // servers)
                mine, found = replace(plan, environments=kind), floors.with_environments(count or plan.intervals, core)
                lambdas = replace(lambdas, count=count, memory_mb=memory_mb)
            config, at_first = (
                replace(fitted.config, lambdas=lambdas, cloud=cloud, servers=roles),
                _setup_s(asked, mine, fitted),
            )
            for train in fitted.trains:
                epochs = asked.epochs.of(train.mode, train.staleness)
                told = replace(config, train=replace(train, epochs=epochs))
                yield Option(machine, told, mine, found, epochs, at_first, fitted.memory_gib)

    def _fit(self, servers: int, backend: Backend, threads: int) -> _Fitted:
        """The config of so many servers and their shards on paper."""
        key = servers, backend, threads
        if key not in self._fitted:
            self._fitted[key] = _Fitted.of(self.asked, *key)
        return self._fitted[key]

    def _too_small(self, machine: Instance, fitted: _Fitted) -> str | None:
        cloud, needed = fitted.config.cloud, fitted.memory_gib
        param = prices.instance(cloud.param_instance, fitted.config.lambdas.region)
        if needed[memory.GRAPH_SERVERS] > USABLE * machine.mem_gib:
            return "a graph server needs more memory than there is"
        if needed[memory.PARAM_SERVERS] > USABLE * param.mem_gib:
            return "a parameter server needs more memory than there is"
        return None

    def _plan(self, machine: Instance, fitted: _Fitted, threads: int, speeds: Speeds) -> Plan:
        """With the rate that the machine's link has over all of the run, and enough parameter servers (rule 4)."""
        config, manifest = fitted.config, fitted.manifest
        kind = Environments(count=1) if config.servers.backend == "lambda" else None
        plan = plan_of(
            config, ModelSpec.of(config, manifest), fitted.counts, speeds, threads=threads, link=LinkRate(1.0),
            environments=kind,
        )  # fmt: skip
        table = Floors.of(plan).table.sum(axis=0)
        nbytes = float(table[[OUT, INTO]].max()) * self.asked.epochs.of("pipe", 0)
        connections = plan.servers - 1 + (plan.intervals if kind else 0)
        count = next((n for n in PARAM_SERVERS if table[PARAM] / n <= table[:PROCESSORS].max()), PARAM_SERVERS[-1])
        count = max(plan.param_servers, count)
        return replace(plan, link=cores.link_of(machine, nbytes, connections=connections), param_servers=count)

    def _environments(self, fitted: _Fitted, floors: Floors, servers: int, speed: float) -> Iterator[tuple[int, int]]:
        """Memory of an environment and their number at a server: what is worth looking at."""
        asked = self.asked
        most = min(asked.concurrency // servers, floors.intervals)
        if not most:
            self.dropped["fewer environments than servers"] += len(asked.modes)
            return
        for memory_mb in asked.memories_mb:
            # A quarter is for rows that never change, of which it keeps as many as there is room for.
            if fitted.memory_gib[memory.LAMBDAS] * 1024 > 0.75 * memory_mb:
                self.dropped["an environment needs more memory than it has"] += len(asked.modes)
            elif asked.lambdas is not None:
                yield memory_mb, min(asked.lambdas, most)
            else:
                enough = floors.enough(memory_mb / CORE_MB / speed)
                for count in sorted({min(most, max(1, round(share * enough))) for share in OF_ENOUGH}):
                    yield memory_mb, count


@dataclass(frozen=True, eq=False)
class _Fitted:
    """So many servers with so many threads: their config, their shards on paper, what they hold."""

    config: Config
    manifest: Manifest
    counts: Counts
    shard_bytes: int  # of the largest shard
    memory_gib: dict[str, float]  # of one process of each role
    trains: tuple[Train, ...]  # of the modes that are asked for

    @classmethod
    def of(cls, asked: Asked, servers: int, backend: Backend, threads: int) -> _Fitted:
        base, manifest = asked.config, asked.graph.manifest(servers)
        each = asked.graph.vertices // servers
        largest = max(manifest.partitions, key=lambda entry: entry.in_edges + entry.ghosts_in)
        shard_bytes = sum(file.bytes for file in largest.files.values())
        intervals = asked.intervals or min(MOST, max(LEAST, each // ROWS))
        train = replace(base.train, intervals=max(1, min(intervals, each)), staleness=0, mode="pipe")
        config = replace(
            base, data=replace(base.data, parts=servers), servers=replace(base.servers, backend=backend, threads=threads),
            run=replace(base.run, on="aws"), lambdas=replace(base.lambdas, on="aws"), train=train,
            cloud=replace(base.cloud, volume_gib=max(base.cloud.volume_gib, math.ceil(2 * shard_bytes / GIB))),
        )  # fmt: skip
        trains = tuple(replace(train, mode=mode, staleness=staleness) for mode, staleness in asked.modes)
        gib = _memory_gib(config, replace(manifest, partitions=(largest,)), threads)
        return cls(config, manifest, Counts.of(manifest), shard_bytes, gib, trains)


def _memory_gib(config: Config, largest: Manifest, threads: int) -> dict[str, float]:
    """Of one process of each role; the manifest is of one part alone. Environments hold as many rows that never change as they
    have room for: none are counted."""
    bare = replace(config, lambdas=replace(config.lambdas, count=1, keep_constants=False))
    processes, found = memory.processes(bare, threads), Counter[str]()
    for part in memory.predict(bare, largest, cores=threads).parts:
        of_all = part.role != memory.GRAPH_SERVERS or part.name in ("interpreters", "shared libraries")
        found[part.role] += part.nbytes / (processes[part.role] if of_all else 1) / GIB  # type: ignore[assignment]
    return dict(found)


def _setup_s(asked: Asked, plan: Plan, fitted: _Fitted) -> float:
    """Before the first epoch: roles start, shards come from S3, ghosts' features and layer 0's aggregate, and its rows to
    environments."""
    counts, speeds, width = fitted.counts, asked.speeds, fitted.manifest.num_features
    features = counts.ghosts * width * 4 / plan.link.bytes_per_s
    gather = counts.edges * (speeds.edge_ns + width * speeds.value_ns) * 1e-9 / plan.threads
    constants = 0.0
    if (kind := plan.environments) is not None:
        rate = min(plan.link.bytes_per_s, (kind.count or plan.intervals) * kind.link.bytes_per_s)
        constants = counts.vertices * width * 4 / rate
    return START_S + fitted.shard_bytes / AWS.s3_bytes_per_s + features + gather + constants
