"""What a GPU baseline is asked for: the section ``[baseline]`` beside those of a run, and the table of methods.

A method is a program of ``gpu_baselines`` and what it sets by itself. Methods that only treat halo rows differently are
one program (``halo``): vanilla, PipeGCN and AdaQP are points in one space, and whatever lies between them is a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from siafu import config as configs
from siafu import models
from siafu.config import Config, at_least
from siafu.errors import ConfigError


class Method(NamedTuple):
    """One line of the table."""

    program: str  # "module:Class" in gpu_baselines.methods
    what: str  # in a list of methods
    sets: Mapping[str, Any]  # settings that it begins with instead of their defaults
    takes: frozenset[str]  # settings of [baseline] that it uses, besides COMMON


#: Variable of a rank's environment: the descriptor of the socket at MASTER_PORT, which rank 0 has inherited.
MEETING = "SIAFU_MEETING_FD"
#: Settings of [baseline] that every method uses.
COMMON = frozenset({"method", "ranks", "device", "transport", "timeout_s", "link_rate", "link_delay_s"})
_FULL = frozenset({"norm", "preaggregate"})
_HALO = _FULL | {
    "overlap",
    "depth",
    "smooth",
    "gamma",
    "correct",
    "scheme",
    "bits",
    "period",
    "group_size",
    "balance",
    "solver",
    "feedback",
}
_PIPE = frozenset({"chunks", "groups", "freeze", "shuffle", "unbiased", "recover"})
_BATCH = frozenset({"subgraphs", "interval", "slow_rank", "slow_factor"})

METHODS: dict[str, Method] = {
    "vanilla": Method(
        "halo:HaloTraining", "partition-parallel: halo rows travel in every layer, and all wait", {}, _HALO
    ),
    "pipegcn": Method(
        "halo:HaloTraining", "PipeGCN: halo rows one epoch late, hidden behind compute", {"baseline.depth": 1}, _HALO
    ),
    "adaqp": Method(
        "halo:HaloTraining",
        "AdaQP: halo rows in 2, 4 or 8 bits, chosen for each",
        {"baseline.scheme": "adaptive"},
        _HALO,
    ),
    "gnnpipe": Method(
        "gnnpipe:GNNPipe", "GNNPipe: each rank holds layers, chunks of the graph flow through", {}, _PIPE
    ),
    "allreduce": Method("allreduce:AllReduceGCN", "Cluster-GCN batches, gradients averaged among all", {}, _BATCH),
    "gossip": Method(
        "gossip:GossipGCN", "Cluster-GCN batches from a work pool, gradients averaged in pairs", {}, _BATCH | {"gossip"}
    ),
    "cluster": Method(
        "allreduce:ClusterGCN", "Cluster-GCN on one worker", {"baseline.ranks": 1}, _BATCH - {"interval"}
    ),
    "sancus": Method(
        "sancus:Sancus",
        "SANCUS: rows are broadcast only once they have changed enough",
        {},
        frozenset({"skip", "max_skips", "preaggregate"}),
    ),
    "cagnet": Method(
        "cagnet:Cagnet", "CAGNET: block rows are broadcast, 1D or 1.5D", {}, frozenset({"replicas", "preaggregate"})
    ),
    "sampling": Method(
        "sampling:Sampling", "GraphSAGE mini-batches of sampled neighbourhoods", {}, frozenset({"fanouts", "batch"})
    ),
}
#: Models that baselines have layers of.
BASELINE_MODELS = ("gcn", "sage", "gat", "gcnii")


@dataclass(frozen=True)
class Baseline:
    method: str = "vanilla"  # see siafu baseline --help
    ranks: int = 2  # processes, each with a GPU where there are any
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: cuda where there is one
    transport: Literal["auto", "gloo", "nccl"] = "auto"  # auto: nccl where every rank has a GPU of its own, else gloo
    timeout_s: float = 20.0  # a rank that others wait for so long is lost
    link_rate: float = 0.0  # bytes per second of each rank's link, emulated; 0: as fast as it is
    link_delay_s: float = 0.0  # one way, emulated
    norm: Literal["model", "batch"] = "model"  # batch: normalise hidden layers over all vertices of all ranks (SyncBN)
    preaggregate: bool = True  # sum the features' neighbours once, before training
    overlap: bool = True  # sum inner edges while halo rows travel
    depth: int = 0  # epochs that halo rows and their gradients are late
    smooth: Literal["none", "F", "G", "FG"] = "none"  # late rows (F), late gradients (G): average over epochs
    gamma: float = 0.95  # share of the old average in a smoothed row
    correct: bool = False  # divide a smoothed row by the share that is no zero of the start, and fetch the first rows
    scheme: Literal["none", "fixed", "uniform", "adaptive"] = "none"  # bits per value of halo rows; none: as they are
    bits: int = 8  # scheme fixed: 2, 4 or 8
    period: int = 50  # schemes uniform, adaptive: epochs between two assignments
    group_size: int = 100  # schemes uniform, adaptive: rows that get one width together
    balance: float = 0.5  # scheme adaptive: weight of the variance against the time (lambda of the paper)
    solver: Literal["exact", "milp"] = (
        "exact"  # scheme adaptive: our dynamic programme, or HiGHS; both give the optimum
    )
    feedback: bool = False  # add what quantising lost of a row to the next epoch's
    chunks: int = 0  # gnnpipe: chunks of the graph; 0: four for each stage
    groups: int = 1  # gnnpipe: graph-parallel ranks in each stage
    freeze: int = 23  # gnnpipe: epochs between two snapshots of the history (alpha of the paper)
    shuffle: bool = True  # gnnpipe: chunks in a new order in every epoch
    unbiased: bool = True  # gnnpipe: gradients between chunks count twice, as half of them are left out
    recover: bool = True  # gnnpipe: notice that training has collapsed, and go on from before it
    subgraphs: int = 40  # allreduce, gossip, cluster: parts of the graph, each of them a batch
    interval: int = 1  # allreduce, gossip: batches between two averages
    gossip: Literal["v1", "v2"] = "v2"  # gossip: fixed roles, or a work pool
    slow_rank: int = -1  # allreduce, gossip: this rank computes slow_factor times as long; -1: none
    slow_factor: float = 3.0  # how much longer
    skip: float = 0.05  # sancus: relative change below which rows are not broadcast again
    max_skips: int = 10  # sancus: broadcasts in a row that a rank skips at most, of rows that have changed
    replicas: int = 1  # cagnet: ranks that hold the same rows (c of 1.5D); 1: 1D
    fanouts: tuple[int, ...] = (25, 10)  # sampling: neighbours of a vertex, the last layer's first
    batch: int = 1000  # sampling: training vertices of a batch, over all ranks

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"baseline.method = {self.method}: must be one of {', '.join(METHODS)}")
        at_least(
            self,
            ranks=1,
            timeout_s=1,
            link_rate=0,
            link_delay_s=0,
            depth=0,
            gamma=0,
            period=1,
            group_size=1,
            balance=0,
            chunks=0,
            groups=1,
            freeze=1,
            subgraphs=1,
            interval=1,
            slow_rank=-1,
            slow_factor=1,
            skip=0,
            max_skips=0,
            replicas=1,
            batch=1,
        )
        if not self.timeout_s <= 1e6:
            raise ConfigError(f"baseline.timeout_s = {self.timeout_s}: must be <= 1e6")
        if self.bits not in (2, 4, 8):
            raise ConfigError(f"baseline.bits = {self.bits}: must be 2, 4 or 8")
        if not self.balance <= 1:
            raise ConfigError(f"baseline.balance = {self.balance}: must be <= 1")
        if not self.gamma < 1:
            raise ConfigError(f"baseline.gamma = {self.gamma}: must be < 1, or no row ever comes in")
        if self.smooth != "none" and not self.depth:
            raise ConfigError(f"baseline.smooth = {self.smooth}: needs baseline.depth >= 1, nothing else is late")
        if self.correct and not self.depth:
            raise ConfigError("baseline.correct = true: needs baseline.depth >= 1, nothing else is late")
        if self.ranks % self.groups:
            raise ConfigError(f"baseline.groups = {self.groups}: must divide baseline.ranks = {self.ranks}")
        if self.ranks % self.replicas:
            raise ConfigError(f"baseline.replicas = {self.replicas}: must divide baseline.ranks = {self.ranks}")
        if any(fanout < 1 for fanout in self.fanouts) or not self.fanouts:
            raise ConfigError(f"baseline.fanouts = {list(self.fanouts)}: must be >= 1")
        default = Baseline.__dataclass_fields__
        used = COMMON | METHODS[self.method].takes
        for name, spec in default.items():
            if name not in used and getattr(self, name) != spec.default:
                raise ConfigError(f"baseline.{name} = {getattr(self, name)}: {self.method} does not use it")
        for name, (is_used, needs) in self._used_with().items():
            if not is_used and getattr(self, name) != default[name].default:
                raise ConfigError(f"baseline.{name} = {getattr(self, name)}: needs {needs}")

    def _used_with(self) -> dict[str, tuple[bool, str]]:
        """Settings that mean nothing without another one: whether that is so, and which one."""
        changing, adaptive = self.scheme in ("uniform", "adaptive"), self.scheme == "adaptive"
        return {
            "gamma": (self.smooth != "none", "baseline.smooth = F, G or FG"),
            "bits": (self.scheme == "fixed", f"baseline.scheme = fixed, it is {self.scheme}"),
            "period": (changing, f"baseline.scheme = uniform or adaptive, it is {self.scheme}"),
            "group_size": (changing, f"baseline.scheme = uniform or adaptive, it is {self.scheme}"),
            "balance": (adaptive, f"baseline.scheme = adaptive, it is {self.scheme}"),
            "solver": (adaptive, f"baseline.scheme = adaptive, it is {self.scheme}"),
            "feedback": (self.scheme != "none", "baseline.scheme: nothing is quantised"),
            "slow_factor": (self.slow_rank >= 0, "baseline.slow_rank: no rank is slow"),
        }


@dataclass(frozen=True)
class BaselineConfig(Config):
    """A baseline's run: a config with one section more, of which servers, lambda and cloud are not read."""

    baseline: Baseline = field(default_factory=Baseline)

    def __post_init__(self) -> None:
        if self.model.name not in BASELINE_MODELS:
            raise ConfigError(
                f"model.name = {self.model.name}: baselines have {', '.join(BASELINE_MODELS)}; siafu train has it"
            )
        if self.data.task != "node":
            raise ConfigError(f"data.task = {self.data.task}: baselines predict vertices' labels alone")

    @property
    def partitions(self) -> int:
        """Parts that the graph is cut into: what the method takes for a rank, a chunk or a batch."""
        b = self.baseline
        if b.method == "gnnpipe":
            return (b.chunks or 4 * (b.ranks // b.groups)) * b.groups
        if "subgraphs" in METHODS[b.method].takes:
            return b.subgraphs
        return b.ranks // b.replicas if b.method == "cagnet" else b.ranks


def load(path: str | Path) -> Config:
    """The config in a TOML file: a baseline's where it has that section, else one of graph servers."""
    sections = configs.sections_of(path)
    return (BaselineConfig if "baseline" in sections else Config).from_dict(sections)


def first_settings(method: str, model: str) -> dict[str, Any]:
    """What a method begins with instead of siafu's defaults. As published, rows are
    summed before they are transformed."""
    if method not in METHODS:
        raise ConfigError(f"baseline.method = {method}: must be one of {', '.join(METHODS)}")
    wide = {"model.narrow": False} if "narrow" in models.named(model).takes else {}
    return {"baseline.method": method, **wide, **METHODS[method].sets}
