"""The options of a plan: backend x instance type x servers x mode x Lambdas, each with a lower bound of its epoch.

1. Options that do not fit are dropped, and counted by reason: memory of a graph server (``cost_planner.memory``, nine
   tenths of the machine's), of its GPU (``card_memory``), of a parameter server, of an environment. For a graph that
   nobody has partitioned the cut is assumed: an option stays if it fits with ``LOW_CUT``, and says so
   (``needs_low_cut``).
2. A server has as many intervals as ``cost_planner.plan.fitted`` says.
3. Three numbers of environments per server are tried, within the account's concurrency: as many as take no longer than
   the slowest other resource, half, and twice as many.
4. There are so many parameter servers that they are not the slowest resource.
5. Machines with one GPU are tried with the backend gpu, those without a GPU with the others. The baseline vanilla takes
   all GPUs of one machine, the only machine that it rents.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cost_planner import memory
from cost_planner.plan import card_memory, cards, cores, vanilla
from cost_planner.plan.asked import Asked, Backend
from cost_planner.plan.bounds import INTO, OUT, PARAM, PROCESSORS, Floors
from cost_planner.plan.cards import CARD_ERROR, EDGE_BYTES, Card
from cost_planner.plan.fitted import Fitted
from cost_planner.plan.graphs import LOW_CUT
from cost_planner.plan.parts import LinkRate
from cost_planner.plan.simulated_run import Environments, Plan
from cost_planner.plan.work import plan_of
from siafu.config import KEPT_SHARE, Config
from siafu.models import ModelSpec
from siafu.pricing import prices
from siafu.pricing.prices import Instance

SERVERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
#: Looked at where fewer hold the graph barely, or not: up to so many times the least that do.
MANY_SERVERS, TIMES_LEAST = (96, 128, 192, 256), 4
PARAM_SERVERS = (1, 2, 4, 8)
OF_ENOUGH = (0.5, 1.0, 2.0)
#: Parts with fewer vertices than this are more waiting than work.
LEAST_VERTICES = 64
#: Of a machine's memory that a run may take.
USABLE = 0.9
#: Of an option's ``memory_gib``, beside the roles.
CARD = "GPU"
CARD_TOO_SMALL, UNKNOWN_CARD = (
    "a GPU has too little memory",
    "a GPU of which nothing is known (cost_planner/plan/cards.csv)",
)
#: From machines that are there to roles that have said hello.
START_S = 10.0
#: Of one server that downloads its shard over several connections: an assumption.
S3_BYTES_PER_S = 0.5e9


@dataclass(frozen=True, eq=False)
class Option:
    machine: Instance
    config: Config
    in_pipe: Plan  # the run in pipe mode; ``plan`` is that in its own
    floors: Floors
    epochs: int
    setup_s: float
    memory_gib: dict[str, float]  # of one process of each role, and on one ``CARD``
    backend: Backend
    card: Card | None = None  # of each server, or rank
    needs_low_cut: bool = False  # too large with the assumed cut, on which its time and price rest

    @property
    def kind(self) -> tuple[str, str, int]:
        """Backend, mode and staleness. A baseline's mode is "", though it runs as pipe does."""
        train = self.config.train
        return (self.backend, "", 0) if self.backend == "vanilla" else (self.backend, train.mode, train.staleness)

    @property
    def error(self) -> float:
        """Relative error of times that a GPU adds to the errors of calibration and cores."""
        return CARD_ERROR if self.card else 0.0

    @property
    def mode(self) -> str:
        return self.in_pipe.mode if self.backend == "vanilla" else self.config.train.mode

    @property
    def plan(self) -> Plan:
        if self.backend == "vanilla":
            return self.in_pipe
        return replace(self.in_pipe, mode=self.mode, staleness=self.config.train.staleness)

    @property
    def name(self) -> str:
        backend, mode, staleness = self.kind
        return f"{backend} {mode}{f' s={staleness}' if mode == 'async' else ''}".rstrip()

    @property
    def machines(self) -> int:
        """Number of machines with graph servers; 1 for a baseline, however many ranks."""
        return 1 if self.backend == "vanilla" else self.in_pipe.servers

    @property
    def environments(self) -> int:
        """Environments of all servers; with the autotuner, those at the start."""
        found = self.in_pipe.environments
        each = 0 if found is None else found.count or min(self.in_pipe.intervals, found.most)
        return each * self.in_pipe.servers

    @property
    def param_servers(self) -> int:
        return 0 if self.backend == "vanilla" else self.config.servers.param_servers

    @property
    def vcpus_by_type(self) -> Counter[str]:
        """vCPUs of all its EC2 machines, by type."""
        param = prices.instance(self.config.cloud.param_instance, self.config.lambdas.region)
        found = Counter({self.machine.name: self.machines * self.machine.vcpu})
        found[param.name] += self.param_servers * param.vcpu
        return found

    @property
    def vcpus(self) -> int:
        return self.vcpus_by_type.total()

    @property
    def floor_s(self) -> float:
        return self.floors.epoch_s(self.mode)


class Catalogue:
    """All options that fit, in ``options``; ``dropped`` counts the others by reason. ConfigError for an unknown
    instance type; PriceUnknown."""

    def __init__(self, asked: Asked):
        self.asked = asked
        # All mutable state:
        self.dropped: Counter[str] = Counter()
        self._fitted: dict[tuple[int, str, int], Fitted] = {}
        self._fitted_low: dict[tuple[int, str, int], Fitted] = {}
        self.options = self._all(asked.servers or SERVERS)
        if asked.servers is None:
            fitting = (option.in_pipe.servers for option in self.options if not option.needs_low_cut)
            least = min(fitting, default=MANY_SERVERS[-1])
            self.options += self._all([count for count in MANY_SERVERS if count <= TIMES_LEAST * least])
        allowed = [option for option in self.options if option.vcpus <= asked.max_vcpus]
        if beyond := len(self.options) - len(allowed):
            self.dropped["more vCPUs than --max-vcpus"] = beyond
        self.options = allowed

    def _all(self, counts: Sequence[int]) -> list[Option]:
        if self.asked.servers is None:
            most = max(1, self.asked.graph.vertices // LEAST_VERTICES)
            counts = [count for count in counts if count <= most]
        found = [
            option
            for machine in self._machines()
            for servers in counts
            for backend in self.asked.backends
            if backend != "vanilla" and _suits(machine, backend)
            for option in self._of_machine(machine, servers, backend)
        ]
        if "vanilla" in self.asked.backends and vanilla.suits(self.asked.config):
            found += [
                o for machine in self._machines() if cards.count_of(machine) in counts for o in self._vanilla(machine)
            ]
        return found

    @property
    def why_nothing_fits(self) -> str:
        pairs = [(machine, backend) for machine in self._machines() for backend in self.asked.backends]
        suited = [machine for machine, backend in pairs if _suits(machine, backend)]
        if not suited:
            return "machines with a GPU are for --backend gpu and vanilla, those without for cpu and lambda"
        fitted = [one for (_, backend, _), one in self._fitted.items() if backend in ("cpu", "lambda")]
        least = min(fitted, key=lambda one: one.memory_gib[memory.GRAPH_SERVERS], default=None)
        if not self._fitted:
            return "the graph has too few vertices"
        largest = max((machine.mem_gib for machine in suited if not machine.gpu), default=0.0)
        if least is None or (gib := least.memory_gib[memory.GRAPH_SERVERS]) <= USABLE * largest:
            return "; ".join(reason for reason, count in self.dropped.most_common() if count)
        servers = least.config.data.parts
        return (
            f"a graph server would hold at least {gib:.0f} GiB ({servers} servers), the largest machine has "
            f"{largest:g}; {self._fits_if_cut(servers, USABLE * largest)}"
        )

    def _fits_if_cut(self, servers: int, gib: float) -> str:
        """Advice to a user whose graph server has too little memory."""
        graph, less = self.asked.graph, "model.rows=bfloat16 takes less"

        def held(cut: float) -> float:
            asked = replace(self.asked, graph=replace(graph, cut=cut))
            backends = [name for name in asked.backends if name in ("cpu", "lambda")]
            return min(Fitted.of(asked, servers, name, 1).memory_gib[memory.GRAPH_SERVERS] for name in backends)

        cuts = [step / 100 for step in range(1, 100) if step / 100 < graph.cut]
        fitting = bisect_left(cuts, True, key=lambda cut: held(cut) > gib) if graph.cut_is_assumed else 0
        if not fitting:
            return less
        return f"it fits if at most {cuts[fitting - 1]:g} of the edges cross, not {graph.cut:g} (--cut); {less}"

    def card_of_one(self) -> float:
        """GiB that a single GPU with the whole graph would hold, in the baseline that uses no host memory."""
        return cards.gib(card_memory.of_rank(*self._fit(1, "vanilla", 1).largest))

    def _machines(self) -> list[Instance]:
        region = self.asked.config.lambdas.region
        if self.asked.instances:
            return [prices.instance(name, region) for name in self.asked.instances]
        found = prices.instances(region)
        unfit = {"paid for in CPU credits": cores.BURSTABLE, "no torch for its GPU on Arm": cards.NO_TORCH}
        for reason, families in unfit.items():
            self.dropped[reason] = sum(cores.family(machine) in families for machine in found)
            found = [machine for machine in found if cores.family(machine) not in families]
        return found

    def _of_machine(self, machine: Instance, servers: int, backend: Backend) -> Iterator[Option]:
        """Options with ``servers`` machines of this type: every mode and number of environments."""
        asked, threads, card = self.asked, cores.threads_of(machine), cards.card_of(machine)
        fitted, low = self._fit(servers, backend, threads), self._fit_low(servers, backend, threads)
        memory_gib = _held(fitted, threads, card)
        reason = self._too_small(machine, memory_gib, fitted.config, card)
        if reason and self._too_small(machine, _held(low, threads, card), fitted.config, card):
            self.dropped[reason] += len(asked.modes)
            return
        plan = self._plan(machine, fitted, threads, card)
        floors = Floors.of(plan)
        cloud = replace(fitted.config.cloud, graph_instance=machine.name)
        roles = replace(fitted.config.servers, param_servers=plan.param_servers)
        for memory_mb, count in self._environments(low, floors, servers) if plan.environments else [(0, 0)]:
            lambdas, mine, found = fitted.config.lambdas, plan, floors
            if plan.environments:
                core = cores.lambda_share(memory_mb)
                most = asked.concurrency // servers
                kind = replace(plan.environments, count=count, core=core, most=most, memory_mb=memory_mb)
                mine, found = plan.with_environments(kind), floors.with_environments(count or plan.intervals, core)
                lambdas = replace(lambdas, count=count, memory_mb=memory_mb)
            config = replace(fitted.config, lambdas=lambdas, cloud=cloud, servers=roles)
            at_first = _setup_s(asked, mine, fitted, machine, card)
            for train in fitted.trains:
                told = replace(config, train=train)
                needs_low_cut = bool(reason) or (bool(memory_mb) and not _fits_environment(fitted, memory_mb))
                yield Option(
                    machine, told, mine, found, train.epochs, at_first, memory_gib, backend, card, needs_low_cut
                )

    def _vanilla(self, machine: Instance) -> Iterator[Option]:
        """The baseline on all GPUs of the machine. The host's memory is not checked: it is released once data is on the
        cards."""
        asked, ranks, card = self.asked, cards.count_of(machine), cards.card_of(machine)
        if card is None:
            self.dropped[UNKNOWN_CARD] += 1
            return
        fitted = self._fit(ranks, "vanilla", 1)
        needed, least = (
            cards.gib(card_memory.of_rank(*one.largest)) for one in (fitted, self._fit_low(ranks, "vanilla", 1))
        )
        if least > USABLE * card.memory_gib:
            self.dropped[CARD_TOO_SMALL] += 1
            return
        needs_low_cut = needed > USABLE * card.memory_gib
        plan = vanilla.plan_of(asked.config, ModelSpec.of(asked.config, fitted.manifest), fitted.counts, card)
        base, epochs = asked.config, asked.epochs.of("pipe", 0)
        config = replace(
            base,
            cloud=replace(base.cloud, gpu_instance=machine.name),
            data=replace(base.data, parts=ranks),
            train=replace(base.train, epochs=epochs),
        )
        nbytes = ranks * fitted.shard_bytes
        setup_s = START_S + cards.START_S + nbytes / S3_BYTES_PER_S + card.copy_s(fitted.shard_bytes)
        floors, memory_gib = Floors.of(plan), {CARD: needed}
        yield Option(machine, config, plan, floors, epochs, setup_s, memory_gib, "vanilla", card, needs_low_cut)

    def _fit(self, servers: int, backend: Backend, threads: int) -> Fitted:
        """The config of this many servers, and estimated shards."""
        key = servers, backend, threads
        if key not in self._fitted:
            self._fitted[key] = Fitted.of(self.asked, *key)
        return self._fitted[key]

    def _fit_low(self, servers: int, backend: Backend, threads: int) -> Fitted:
        """``_fit`` with the lowest cut that the graph may have; as ``_fit`` if its cut is known."""
        if not self.asked.graph.cut_is_assumed or self.asked.graph.cut <= LOW_CUT:
            return self._fit(servers, backend, threads)
        key = servers, backend, threads
        if key not in self._fitted_low:
            low = replace(self.asked, graph=replace(self.asked.graph, cut=LOW_CUT))
            self._fitted_low[key] = Fitted.of(low, *key)
        return self._fitted_low[key]

    def _too_small(self, machine: Instance, needed: dict[str, float], config: Config, card: Card | None) -> str | None:
        param = prices.instance(config.cloud.param_instance, config.lambdas.region)
        if machine.gpu and cards.count_of(machine) > 1:
            return "several GPUs, of which a graph server uses one"
        if machine.gpu and card is None:
            return UNKNOWN_CARD
        if card is not None and needed[CARD] > USABLE * card.memory_gib:
            return CARD_TOO_SMALL
        if needed[memory.GRAPH_SERVERS] > USABLE * machine.mem_gib:
            return "a graph server needs more memory than there is"
        if needed[memory.PARAM_SERVERS] > USABLE * param.mem_gib:
            return "a parameter server needs more memory than there is"
        return None

    def _plan(self, machine: Instance, fitted: Fitted, threads: int, card: Card | None) -> Plan:
        """The plan with the link's mean rate over the whole run, and enough parameter servers (rule 4)."""
        config, manifest, calibrated = fitted.config, fitted.manifest, self.asked.speeds
        # One with room for everything, until their number and memory are chosen.
        kind = Environments(count=1, memory_mb=sys.maxsize) if config.servers.backend == "lambda" else None
        plan = plan_of(
            config,
            ModelSpec.of(config, manifest),
            fitted.counts,
            cores.cores_of(machine).speeds(calibrated),
            threads=threads,
            link=LinkRate(1.0),
            environments=kind,
            there=cores.of_lambda(config.cloud.arch).speeds(calibrated),
            bandwidth=cores.memory_of(machine, self.asked.random_share),
            card=card,
        )
        table = Floors.of(plan).table.sum(axis=0)
        nbytes = float(table[[OUT, INTO]].max()) * self.asked.epochs.of("pipe", 0)
        connections = plan.servers - 1 + (plan.intervals if kind else 0)
        count = next((n for n in PARAM_SERVERS if table[PARAM] / n <= table[:PROCESSORS].max()), PARAM_SERVERS[-1])
        count = max(plan.param_servers, count)
        return replace(plan, link=cores.link_of(machine, nbytes, connections=connections), param_servers=count)

    def _environments(self, fitted: Fitted, floors: Floors, servers: int) -> Iterator[tuple[int, int]]:
        """Promising pairs of an environment's memory and their number per server."""
        asked = self.asked
        most = min(asked.concurrency // servers, floors.intervals)
        if not most:
            self.dropped["fewer environments than servers"] += len(asked.modes)
            return
        for memory_mb in asked.memories_mb:
            if not _fits_environment(fitted, memory_mb):
                self.dropped["an environment needs more memory than it has"] += len(asked.modes)
            elif asked.lambdas is not None:
                yield memory_mb, min(asked.lambdas, most)
            else:
                enough = floors.enough(cores.lambda_share(memory_mb))
                for count in sorted({min(most, max(1, round(share * enough))) for share in OF_ENOUGH}):
                    yield memory_mb, count


def _suits(machine: Instance, backend: Backend) -> bool:
    """Whether the backend runs on the machine: rule 5."""
    return bool(machine.gpu) == (backend in ("gpu", "vanilla"))


def _held(fitted: Fitted, threads: int, card: Card | None) -> dict[str, float]:
    """GiB of one process of each role, and of a graph server's card."""
    if card is None:
        return fitted.memory_gib
    return fitted.memory_gib | {CARD: cards.gib(card_memory.of_graph_server(*fitted.largest, threads, card))}


def _fits_environment(fitted: Fitted, memory_mb: int) -> bool:
    """Whether an environment has enough memory. A share of it is reserved for constant rows, as many as fit."""
    return fitted.memory_gib[memory.LAMBDAS] * 1024 <= (1 - KEPT_SHARE) * memory_mb


def _setup_s(asked: Asked, plan: Plan, fitted: Fitted, machine: Instance, card: Card | None) -> float:
    """Seconds before the first epoch. Roles start; shards come from S3; ghosts' features and layer 0's aggregate (of
    each lane, if training is inductive) are made. Environments get their rows, or the GPU its edges."""
    counts, speeds, width = fitted.counts, asked.speeds, fitted.manifest.num_features
    features = counts.ghosts * width * 4 / plan.link.bytes_per_s
    memory, table_rows = cores.memory_of(machine, asked.random_share), counts.vertices + counts.ghosts
    edges = [counts.edges, *([counts.edges * counts.among] if counts.among is not None else [])]
    moved = sum(memory.gathered(one, counts.vertices, table_rows, width * 4, width * 4) for one in edges)
    gather = sum(edges) * width * (speeds.value_ns + speeds.missed_ns) * 1e-9 / plan.threads
    gather = max(gather, moved / memory.bytes_per_s)
    constants = cards.START_S + card.copy_s(counts.edges * EDGE_BYTES) if card else 0.0
    if (kind := plan.environments) is not None:
        rate = min(plan.link.bytes_per_s, (kind.count or plan.intervals) * kind.link.bytes_per_s)
        constants = counts.vertices * width * 4 / rate
    return START_S + fitted.shard_bytes / S3_BYTES_PER_S + features + gather + constants
