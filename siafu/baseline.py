"""The settings of a GPU baseline: the section ``[baseline]`` of a run's config, and the table of methods.

A method is a program of ``gpu_baselines`` with its own default settings. Methods that differ only in their treatment of
halo rows share one program (``halo``): vanilla, PipeGCN, AdaQP and their combinations differ by settings alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from siafu import config as configs
from siafu import models
from siafu.config import Config
from siafu.errors import ConfigError, one_of
from siafu.setting import BYTES_PER_S, SECONDS, check_bounds, setting


class Method(NamedTuple):
    """A method: one line of ``METHODS``."""

    program: str  # "module:Class" in gpu_baselines.methods
    what: str  # in a list of methods
    sets: Mapping[str, Any]  # settings that it begins with instead of their defaults
    takes: frozenset[str]  # settings of [baseline] that it uses, besides COMMON
    partitions: Callable[[Baseline], int] = lambda b: b.ranks  # number of the graph's partitions


#: Variable of a rank's environment: the descriptor of the socket at MASTER_PORT, which rank 0 has inherited.
MEETING = "SIAFU_MEETING_FD"
#: Settings of [baseline] that every method uses.
COMMON = frozenset({"method", "ranks", "device", "transport", "timeout_s", "link_rate", "link_delay_s"})
_FULL = frozenset({"norm", "num_linear", "preaggregate"})
_HALO = _FULL | {
    "overlap",
    "depth",
    "smooth",
    "gamma",
    "correct",
    "scheme",
    "bits",
    "period",
    "warmup",
    "group_size",
    "balance",
    "feedback",
}
_PIPE = frozenset({"chunks", "groups", "freeze", "shuffle", "unbiased", "recover"})
_BATCH = frozenset({"subgraphs", "per_batch", "interval", "slow_rank", "slow_factor"})

METHODS: dict[str, Method] = {
    "vanilla": Method(
        "halo:HaloTraining", "partition-parallel: ranks exchange halo rows in every layer, and wait for them", {}, _HALO
    ),
    "pipegcn": Method(
        "halo:HaloTraining", "PipeGCN: halo rows of the epoch before, sent during compute", {"baseline.depth": 1}, _HALO
    ),
    "adaqp": Method(
        "halo:HaloTraining",
        "AdaQP: halo rows quantised to 2, 4 or 8 bits",
        {"baseline.scheme": "adaptive"},
        _HALO,
    ),
    "gnnpipe": Method(
        "gnnpipe:GNNPipe",
        "GNNPipe: each rank holds some layers; chunks of the graph pass through them",
        {},
        _PIPE,
        lambda b: (b.chunks or 4 * (b.ranks // b.groups)) * b.groups,
    ),
    "allreduce": Method(
        "allreduce:AllReduceGCN",
        "batches of random subgraphs; all ranks average their gradients",
        {"data.partitioner": "random"},
        _BATCH,
        lambda b: b.subgraphs,
    ),
    "gossip": Method(
        "gossip:GossipGCN",
        "batches of random subgraphs from a work pool; pairs of ranks average their gradients",
        {"data.partitioner": "random"},
        _BATCH | {"gossip"},
        lambda b: b.subgraphs,
    ),
    "cluster": Method(
        "allreduce:ClusterGCN",
        "Cluster-GCN on one worker",
        {"baseline.ranks": 1},
        _BATCH - {"interval"},
        lambda b: b.subgraphs,
    ),
    "sancus": Method(
        "sancus:Sancus",
        "SANCUS: after some epochs, rows are broadcast only in every second one",
        {},
        frozenset({"fresh", "every", "skip", "max_skips", "preaggregate"}),
    ),
    "cagnet": Method(
        "cagnet:Cagnet",
        "CAGNET: block rows are broadcast, 1D or 1.5D",
        {},
        frozenset({"replicas", "preaggregate"}),
        lambda b: b.ranks // b.replicas,
    ),
    "sampling": Method(
        "sampling:Sampling", "GraphSAGE mini-batches of sampled neighbourhoods", {}, frozenset({"fanouts", "batch"})
    ),
}
#: Models that baselines have layers of.
BASELINE_MODELS = ("gcn", "sage", "gat", "gcnii")


@dataclass(frozen=True)
class Baseline:
    method: str = setting("vanilla", "algorithm: see siafu baseline --help")
    ranks: int = setting(2, "number of processes; each uses a GPU if there is one", flag="ranks", metavar="R", least=1)
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "auto: cuda if there is a GPU", flag="device")
    transport: Literal["auto", "gloo", "nccl"] = setting(
        "auto", "auto: nccl if every rank has its own GPU, else gloo", flag="transport"
    )
    timeout_s: float = setting(
        20.0,
        "a rank counts as lost when others wait for it for this many seconds; ten minutes until the first epoch ends",
        flag="timeout_s",
        least=1,
        most=1_000_000,
    )
    link_rate: float = setting(
        0.0,
        "emulated bytes per second of each rank's link; 0: no limit",
        flag="link_rate",
        metavar="RATE",
        least=0,
        unit=BYTES_PER_S,
    )
    link_delay_s: float = setting(
        0.0, "emulated one-way delay of each link", flag="link_delay", metavar="TIME", least=0, unit=SECONDS
    )
    norm: Literal["model", "batch"] = setting(
        "model", "batch: normalise hidden layers over all vertices of all ranks (SyncBN)", flag="norm"
    )
    num_linear: int = setting(0, "gcn, sage: last layers without neighbours (PipeGCN's n_linear)", least=0)
    preaggregate: bool = setting(True, "aggregate the features once, before training")
    overlap: bool = setting(True, "aggregate a rank's own rows while halo rows are sent")
    depth: int = setting(0, "age of the halo rows and gradients that a rank uses, in epochs", flag="depth", least=0)
    smooth: Literal["none", "F", "G", "FG"] = setting(
        "none", "average late rows (F), late gradients (G), or both over epochs", flag="smooth"
    )
    gamma: float = setting(0.95, "share of the old average in a smoothed row", flag="gamma", least=0)
    correct: bool = setting(
        False,
        "correct the averages' bias towards zero, and use exact rows in the first epoch",
        flag="correct",
    )
    scheme: Literal["none", "fixed", "uniform", "adaptive"] = setting(
        "none", "how bits per value of halo rows are chosen; none: do not quantise", flag="scheme"
    )
    bits: int = setting(8, "scheme fixed: bits per value, 2, 4 or 8", flag="bits")
    period: int = setting(
        50,
        "schemes uniform, adaptive: epochs between two assignments of bits",
        flag="period",
        least=1,
    )
    warmup: int = setting(
        0,
        "scheme adaptive: epochs in 8 bits before the first assignment of bits; 0: baseline.period, as published",
        least=0,
    )
    group_size: int = setting(100, "scheme adaptive: rows that share one number of bits", least=1)
    balance: float = setting(
        0.5, "scheme adaptive: weight of variance against time (the paper's lambda)", least=0, most=1
    )
    feedback: bool = setting(False, "add a row's quantisation error to the next epoch's row", flag="feedback")
    chunks: int = setting(0, "gnnpipe: chunks of the graph; 0: four per stage", flag="chunks", least=0)
    groups: int = setting(1, "gnnpipe: graph-parallel ranks per stage", flag="groups", least=1)
    freeze: int = setting(23, "gnnpipe: epochs between snapshots of the history (the paper's alpha)", least=1)
    shuffle: bool = setting(True, "gnnpipe: draw a new order of chunks in every epoch")
    unbiased: bool = setting(True, "gnnpipe: count gradients between chunks twice, because half of them are left out")
    recover: bool = setting(False, "gnnpipe: detect a collapse of training, and continue from before it")
    subgraphs: int = setting(
        40, "allreduce, gossip, cluster: parts of the graph, from which batches are drawn", flag="subgraphs", least=1
    )
    per_batch: int = setting(
        0,
        "allreduce, gossip, cluster: subgraphs per batch, drawn in every epoch; 0: enough to mix the classes",
        flag="per_batch",
        metavar="Q",
        least=0,
    )
    interval: int = setting(1, "allreduce, gossip: batches between averages", flag="interval", least=1)
    gossip: Literal["v1", "v2"] = setting("v2", "gossip: fixed roles (v1) or a work pool (v2)", flag="gossip")
    slow_rank: int = setting(
        -1, "allreduce, gossip: rank that computes slow_factor times as long; -1: none", flag="slow_rank", least=-1
    )
    slow_factor: float = setting(3.0, "factor by which slow_rank computes more slowly", least=1)
    fresh: int = setting(50, "sancus: first epochs, in which no broadcast is skipped", least=0)
    every: int = setting(2, "sancus: afterwards, rows are broadcast once in this many epochs", least=1)
    skip: float = setting(
        0.0,
        "sancus: relative change below which rows are not broadcast again; 0: by baseline.fresh and every",
        least=0,
    )
    max_skips: int = setting(
        10, "sancus, with skip: changed rows are broadcast again after at most this many skips in a row", least=0
    )
    replicas: int = setting(1, "cagnet: ranks that hold the same rows (c of 1.5D); 1 is 1D", flag="replicas", least=1)
    fanouts: tuple[int, ...] = setting(
        (25, 10), "sampling: neighbours per vertex, the last layer's first", flag="fanouts", metavar="N[,…]"
    )
    batch: int = setting(1000, "sampling: training vertices per batch, over all ranks", flag="batch", least=1)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigError(f"baseline.method = {self.method}: {one_of(self.method, METHODS)}")
        check_bounds(self, "baseline")
        if self.bits not in (2, 4, 8):
            raise ConfigError(f"baseline.bits = {self.bits}: must be 2, 4 or 8")
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
        """Returns for settings that need another setting: name -> (whether that is set, a text that names it)."""
        changing, adaptive = self.scheme in ("uniform", "adaptive"), self.scheme == "adaptive"
        return {
            "gamma": (self.smooth != "none", "baseline.smooth = F, G or FG"),
            "bits": (self.scheme == "fixed", f"baseline.scheme = fixed, it is {self.scheme}"),
            "period": (changing, f"baseline.scheme = uniform or adaptive, it is {self.scheme}"),
            "group_size": (adaptive, f"baseline.scheme = adaptive, it is {self.scheme}"),
            "balance": (adaptive, f"baseline.scheme = adaptive, it is {self.scheme}"),
            "feedback": (self.scheme != "none", "baseline.scheme: nothing is quantised"),
            "fresh": (not self.skip, "baseline.skip = 0: rows are broadcast by their change"),
            "every": (not self.skip, "baseline.skip = 0: rows are broadcast by their change"),
            "max_skips": (self.skip > 0, "baseline.skip > 0: rows are broadcast by fresh and every"),
            "slow_factor": (self.slow_rank >= 0, "baseline.slow_rank: no rank is slow"),
        }


@dataclass(frozen=True)
class BaselineConfig(Config):
    """The config of a baseline's run, with one section more. Of servers, lambda and cloud it uses only what sets
    prices."""

    baseline: Baseline = field(default_factory=Baseline)

    def __post_init__(self) -> None:
        if self.model.name not in BASELINE_MODELS:
            raise ConfigError(
                f"model.name = {self.model.name}: baselines have only {', '.join(BASELINE_MODELS)}; use siafu train"
            )
        if self.data.task != "node":
            raise ConfigError(f"data.task = {self.data.task}: baselines predict vertices' labels alone")

    @property
    def partitions(self) -> int:
        """The number of parts that the graph is cut into: by method one per rank, chunk or subgraph."""
        return METHODS[self.baseline.method].partitions(self.baseline)


def load(path: str | Path) -> Config:
    """Reads the config in a TOML file: a ``BaselineConfig`` if it has the section ``[baseline]``, else a ``Config``."""
    sections = configs.sections_of(path)
    return (BaselineConfig if "baseline" in sections else Config).from_dict(sections)


def first_settings(method: str, model: str) -> dict[str, Any]:
    """Returns the settings that a method starts with instead of siafu's defaults. As published, rows are summed before
    they are transformed (``model.narrow`` is off)."""
    if method not in METHODS:
        raise ConfigError(f"baseline.method = {method}: {one_of(method, METHODS)}")
    wide = {"model.narrow": False} if "narrow" in models.named(model).takes else {}
    return {"baseline.method": method, **wide, **METHODS[method].sets}
