"""The configuration of a run: one TOML file, frozen dataclasses, every value checked on construction.

Defaults < TOML < ``--set section.key=value`` and the command line's flags. An unknown key is an error. A field's
comment (the text after ``#``) is its help on the command line. The resolved config goes into the run directory, and its
digest into every handshake: two roles that disagree on it refuse each other.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import inspect
import json
import math
import os
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from siafu.errors import ConfigError
from siafu.places import PLACES, Place, Where

if typing.TYPE_CHECKING:
    import tomllib
    from typing_extensions import Self
else:
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib


#: Of ``[data]``: what may change while a run goes on, since it trains on the same edges,
#: features, labels and splits after it.
REPARTITIONS = frozenset({"parts", "partitioner", "order", "cache_dir", "keep_aggregate"})


@dataclass(frozen=True)
class Data:
    source: str = "digits"  # digits, synthetic:NAME?scale=S, a .npz file, a name in $SIAFU_DATA, or prepared shards
    parts: int = 1  # partitions = graph servers
    partitioner: str = "metis"  # how vertices are spread over graph servers: see siafu prepare --help
    order: str = "auto"  # vertex order in a partition, of which intervals are slices: see siafu prepare --help
    directed: bool = False  # keep edge directions instead of making the graph symmetric
    feature_norm: Literal["none", "row", "standard"] = "none"  # row: each row sums to 1; standard: z-score per column
    split: int = 0  # which of the graph's splits
    seed: int = 0  # of the partitioner, and of the split where the source has none
    train_per_class: int = 20  # where the source has no split
    val_per_class: int = 30  # where the source has no split
    cache_dir: str = ""  # where prepared shards are kept; empty: $XDG_CACHE_HOME/siafu, or ~/.cache/siafu
    keep_aggregate: bool = True  # keep layer 0's aggregate with the shards, for the runs to come
    task: Literal["node", "link"] = "node"  # what is predicted: vertices' labels, or edges that are held out
    inductive: bool = False  # train on the edges among training vertices alone, evaluate on the whole graph
    val_edges: float = 0.05  # task link: share of edges held out for validation
    test_edges: float = 0.1  # task link: share of edges held out for test
    negatives: int = 8  # task link: pool of false edges per training edge; an epoch draws one of them each
    eval_negatives: int = 100  # task link: false edges that a held-out edge is ranked among

    def __post_init__(self) -> None:
        at_least(
            self,
            parts=1,
            split=0,
            seed=0,
            train_per_class=1,
            val_per_class=0,
            val_edges=0,
            test_edges=0,
            negatives=1,
            eval_negatives=1,
        )
        if not self.val_edges + self.test_edges < 1:
            raise ConfigError(f"data.val_edges + data.test_edges = {self.val_edges + self.test_edges:g}: must be < 1")
        if self.inductive and self.task == "link":
            raise ConfigError("data.inductive: is for task node; task link always trains without the held-out edges")


@dataclass(frozen=True)
class Model:
    name: str = "gcn"  # gcn, sage, gat, gin, gcnii, appnp, sgc or rgcn
    layers: int = 2  # graph layers
    hidden: tuple[int, ...] = (16,)  # width of hidden layers: one number for all, or one per hidden layer
    activation: Literal["relu", "tanh", "elu"] = "relu"  # of hidden layers
    bias: bool = True  # whether layers add a bias
    dropout: float = 0.0  # share of a layer's gathered inputs set to zero while training
    norm: Literal["none", "layer"] = "none"  # layer: LayerNorm before the activation of hidden layers
    init: Literal["xavier", "he"] = "xavier"  # distribution of the first weights
    heads: int = 8  # gat: attention heads of a hidden layer, side by side in its width
    out_heads: int = 1  # gat: attention heads of the last layer, averaged
    attn_dropout: float = 0.0  # gat: share of attention coefficients set to zero while training
    slope: float = 0.2  # gat: of LeakyReLU below zero
    residual: bool = False  # add a layer's input before its activation: itself where widths agree, else times a weight
    jump: Literal["none", "cat", "max", "sum"] = "none"  # the last stage reads every hidden layer: jumping knowledge
    alpha: float = 0.1  # gcnii, appnp: share of the first representation in every propagation
    theta: float = 0.5  # gcnii: lambda of the paper, beta_l = ln(theta / l + 1)
    hops: int = 10  # appnp, sgc: propagations
    eps: float = 0.0  # gin: first weight of the vertex's own row, beyond 1
    train_eps: bool = False  # gin: whether that is learnt
    bases: int = 0  # rgcn: matrices that all relations share; 0: one for each relation
    decoder: Literal["dot", "mlp"] = "dot"  # task link: how two embeddings become a score
    outputs: int = 0  # width of the last layer; 0: as many as the graph has classes
    narrow: bool = True  # transform before gathering where a layer's output is narrower than its input
    rows: Literal["exact", "bfloat16"] = "exact"  # storage of gathered rows; exact: that of model.dtype
    dtype: Literal["float32", "float64"] = "float32"  # of weights, activations and gradients

    def __post_init__(self) -> None:
        at_least(self, layers=1)
        if any(width < 1 for width in self.hidden) or not self.hidden:
            raise ConfigError(f"model.hidden = {list(self.hidden)}: widths must be >= 1")
        if len(self.hidden) not in (1, self.num_hidden):
            named = "model.layers" if self.num_hidden == self.layers else "model.layers - 1"
            raise ConfigError(f"model.hidden = {list(self.hidden)}: must be one width or {named} = {self.num_hidden}")
        if self.rows == "bfloat16" and self.dtype != "float32":
            raise ConfigError(f"model.rows = bfloat16 needs model.dtype = float32, not {self.dtype}")
        at_least(self, outputs=0, heads=1, out_heads=1, slope=0, alpha=0, theta=0, hops=1, bases=0)
        for key in ("dropout", "attn_dropout"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(f"model.{key} = {getattr(self, key)}: must be >= 0 and < 1")
        if not self.alpha <= 1:
            raise ConfigError(f"model.alpha = {self.alpha}: must be <= 1")

    @property
    def widths(self) -> tuple[int, ...]:
        """Outputs of the hidden layers."""
        return self.hidden * self.num_hidden if len(self.hidden) == 1 else self.hidden

    @property
    def num_hidden(self) -> int:
        """All but the last layer; with jumping knowledge that too, and one more stage gives the classes."""
        return self.layers if self.jump != "none" else self.layers - 1


@dataclass(frozen=True)
class Train:
    epochs: int = 200  # passes over the graph, at most; 0: only evaluate the first weights
    lr: float = 0.01  # learning rate
    optimizer: Literal["adam", "sgd"] = "adam"  # what steps the weights, once per epoch
    momentum: float = 0.9  # of sgd
    weight_decay: float = 0.0  # L2 penalty added to the gradient, as torch.optim does
    weight_decay_rest: float = -1.0  # of the weights that the model's paper decays otherwise; -1: the same
    clip_norm: float = 0.0  # longest gradient, over all weights, that is stepped with; 0: any
    label_smoothing: float = 0.0  # share of a label spread evenly over all classes, while training
    warm_start: str = ""  # model.safetensors, or a run, whose weights are the first ones; empty: drawn from the seed
    schedule: Literal["constant", "cosine", "step"] = "constant"  # of the learning rate
    step_epochs: int = 50  # schedule step: epochs between two drops
    step_factor: float = 0.5  # schedule step: factor of a drop
    seed: int = 0  # of initial weights and dropout masks
    mode: Literal["no-pipe", "pipe", "async"] = "pipe"  # how far steps may overlap; async: gathers stale rows
    staleness: int = 0  # async: epochs that an interval may be ahead of the slowest one
    intervals: int = 0  # per graph server; 0: up to 16, as many as there is work for (run_coordinator.intervals)
    ahead: float = 0.125  # async, staleness > 0: share of intervals that may be ahead of the slowest epoch; 0: none
    freshness: float = 0.9  # async: share of an interval's crossing edges that must be of this epoch before it gathers
    stale_gradients: Literal["use", "drop", "smooth"] = "use"  # async: gradient rows not refreshed in this epoch
    stale_rows: Literal["use", "smooth", "freeze"] = "use"  # async: activation rows not refreshed in this epoch
    smoothing: float = 0.5  # share of the old value in smoothed rows (PipeGCN's gamma)
    freeze_epochs: int = 23  # stale_rows freeze: epochs between two snapshots (GNNPipe's alpha)
    stale_lr: float = 0.0  # async: learning rate / (1 + stale_lr * share of stale rows read)
    warmup_epochs: int = 1  # async: first epochs run as pipe, so that there is something to be stale
    eval_every: int = -1  # epochs between evaluations; 0: only the last; -1: 1, 10 on large graphs (siafu.evaluation)
    target_acc: float = 0.0  # stop when validation accuracy reaches it; 0: never
    patience: int = 0  # stop after so many evaluations (not epochs) without a better one; 0: never
    stop_on: Literal["score", "loss", "both"] = "score"  # of validation: what patience and the best epoch go by

    def __post_init__(self) -> None:
        at_least(
            self,
            epochs=0,
            lr=0,
            momentum=0,
            weight_decay=0,
            step_epochs=1,
            step_factor=0,
            seed=0,
            staleness=0,
            intervals=0,
            ahead=0,
            freshness=0,
            smoothing=0,
            freeze_epochs=1,
            stale_lr=0,
            warmup_epochs=0,
            eval_every=-1,
            target_acc=0,
            patience=0,
            weight_decay_rest=-1,
            clip_norm=0,
            label_smoothing=0,
        )
        for key in ("momentum", "ahead", "freshness", "smoothing", "target_acc", "label_smoothing"):
            if not getattr(self, key) <= 1:
                raise ConfigError(f"train.{key} = {getattr(self, key)}: must be <= 1")
        if self.staleness and self.mode != "async":
            raise ConfigError(f"train.staleness = {self.staleness} needs train.mode = async, not {self.mode}")
        if self.staleness and (self.stale_gradients, self.stale_rows) != ("use", "use"):
            raise ConfigError(
                "train.stale_gradients and train.stale_rows need train.staleness = 0: beyond, one epoch's stale "
                "row is another's fresh one"
            )


@dataclass(frozen=True)
class Servers:
    param_servers: int = 1  # processes that hold the weights
    backend: Literal["auto", "lambda", "cpu", "gpu"] = "auto"  # where tasks run; auto: cpu; lambda if lambda.* is set
    device: Literal["auto", "cuda", "cpu"] = "auto"  # backend gpu: cpu does without a GPU, for tests; auto: as cuda
    threads: int = 0  # graph threads per graph server; 0: cores / graph servers on the machine, at least 1
    listen: str = "127.0.0.1"  # address that every role binds; a host that knows its machines' own overrides it
    ports: str = ""  # range of ports that roles bind, such as 7000-7099; empty: any free one
    start_timeout_s: float = 60.0  # until every role has said hello
    heartbeat_s: float = 1.0  # between two signs of life of a role
    silence_s: float = 30.0  # a role that says nothing for so long is lost
    security: Literal["auto", "curve", "none"] = "auto"  # encryption and keys on every link; auto: off this machine
    stall_s: float = 1800.0  # a run in which nothing gets done for so long is given up

    def __post_init__(self) -> None:
        _ = self.port_range
        at_least(self, param_servers=1, threads=0, start_timeout_s=0.1, heartbeat_s=0.01, silence_s=0.1, stall_s=1)
        if not self.heartbeat_s < self.silence_s:
            raise ConfigError(
                f"servers.heartbeat_s = {self.heartbeat_s}: must be < servers.silence_s = {self.silence_s}"
            )

    @property
    def port_range(self) -> tuple[int, int] | None:
        """First and last port that a role may bind; None for any."""
        if not self.ports:
            return None
        found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", self.ports)
        first, last = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1024 <= first <= last <= 65535:
            raise ConfigError(f"servers.ports = {self.ports!r}: must be FIRST-LAST, both of 1024 to 65535")
        return first, last


@dataclass(frozen=True)
class Lambda:
    count: int = 0  # environments per graph server; 0: as many as the autotuner finds worth it
    memory_mb: int = 192  # of an environment; its share of a core and its price follow
    on: Where = "local"  # where they run
    function: str = "siafu"  # localstack, aws: the function's name
    endpoint: str = ""  # URL that invocations are sent to; empty: one of our own, or AWS's
    region: str = "us-east-1"  # of the function
    callback_host: str = ""  # what functions dial instead of servers.listen, where that is not what they can reach
    timeout_s: float = 900.0  # Lambda's own limit on one invocation
    margin_s: float = 10.0  # a worker takes no new task when less is left of its invocation
    idle_s: float = 2.0  # a worker leaves after so long without a task
    task_timeout_s: float = 10.0  # a task unanswered for so long goes to another worker too, until others are timed
    relaunch_factor: float = 3.0  # then: when it takes so many times as long as others of its kind
    relaunch_quantile: float = 0.95  # which of their times that is a multiple of
    relaunches: int = 10  # of one task, before the run fails
    refused_s: float = 300.0  # a server with no worker, whose every invocation is refused for so long, gives up
    handler: str = "lambda_funcs.handler.handler"  # module.function that an environment runs
    fuse: bool = True  # last ApplyVertex, loss and its backward in one task
    rematerialise: Literal["auto", "always", "never"] = "auto"  # backward recomputes activations; auto: over a network
    stream: bool = True  # send inputs in halves, computing on the first while the second travels
    keep_constants: bool = True  # workers keep rows that never change, and get their intervals again
    prefetch: int = 0  # tasks a worker holds at once: one computing, the rest on their way; 0: as many as pay
    proxy: str = ""  # SOCKS5 proxy host:port that workers dial through
    apply_edge: Literal["auto", "lambda", "server"] = "auto"  # where ApplyEdge runs; auto: where it is measured faster

    def __post_init__(self) -> None:
        at_least(
            self,
            count=0,
            memory_mb=128,
            timeout_s=1,
            margin_s=0,
            idle_s=0.01,
            task_timeout_s=0.01,
            relaunches=0,
            prefetch=0,
            relaunch_factor=1,
            relaunch_quantile=0.01,
            refused_s=1,
        )
        if self.relaunch_quantile > 1:
            raise ConfigError(f"lambda.relaunch_quantile = {self.relaunch_quantile}: must be <= 1")
        if self.memory_mb > 10_240:
            raise ConfigError(f"lambda.memory_mb = {self.memory_mb}: Lambda's limit is 10240")
        if self.timeout_s > 900:
            raise ConfigError(f"lambda.timeout_s = {self.timeout_s}: Lambda's limit is 900")
        if not self.margin_s < self.timeout_s:
            raise ConfigError(f"lambda.margin_s = {self.margin_s}: must be < lambda.timeout_s = {self.timeout_s}")

    @property
    def place(self) -> Place:
        return PLACES[self.on]


@dataclass(frozen=True)
class Run:
    dir: str = ""  # run directory; empty: runs/<date>-<name>
    trace: bool = False  # write every task's start and end to trace-<server>.jsonl
    checkpoint_every: int = 0  # epochs between checkpoints; 0: by checkpoint_seconds alone
    checkpoint_seconds: float = 300.0  # between checkpoints, at most; 0: by checkpoint_every alone
    keep: int = 3  # newest checkpoints that are kept
    checkpoint_to: str = ""  # s3://bucket/prefix that checkpoints are copied to; empty: nowhere
    restarts: int = 3  # failures in a row, without an epoch between them, that a run starts again from; 0: it ends
    on_nan: Literal["stop", "skip"] = "stop"  # a gradient with NaN or infinity ends the run, or the step is left out
    on: Literal["local", "ray", "aws"] = "local"  # where the servers run: this machine, a Ray cluster, siafu deploy's
    budget_usd: float = 0.0  # stop, with a checkpoint, before the run costs more; 0: no limit
    max_seconds: float = 0.0  # stop, with a checkpoint, after so long; 0: no limit
    loggers: tuple[str, ...] = ()  # who else is told of epochs: tensorboard, mlflow, wandb (offline)
    write: str = ""  # siafu predict: slot of the evaluation whose rows servers write to RUN/rows; empty: none

    def __post_init__(self) -> None:
        at_least(self, checkpoint_every=0, checkpoint_seconds=0, keep=1, restarts=0, budget_usd=0, max_seconds=0)
        if self.checkpoint_to and not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+(/.*)?", self.checkpoint_to):
            raise ConfigError(f"run.checkpoint_to = {self.checkpoint_to!r}: must be s3://BUCKET/PREFIX")


@dataclass(frozen=True)
class Cloud:
    name: str = "siafu"  # of the deployment: it begins the names of its stacks, and every resource carries it as a tag
    graph_instance: str = "c7g.2xlarge"  # EC2 type of graph servers, one per partition
    param_instance: str = "c7g.xlarge"  # EC2 type of parameter servers
    gpu_instance: str = ""  # EC2 type of one machine for the GPU baselines; empty: none
    spot: bool = False  # buy servers on the spot market
    volume_gib: int = 50  # disk of each server
    zone: str = ""  # availability zone of everything; empty: the region's first that has all it needs
    shell: bool = False  # let Session Manager reach servers: one more endpoint
    arch: Literal["arm64", "x86_64"] = "arm64"  # of the function
    reserved: int = 100  # environments that the account keeps for the function, and the most it may have; 0: none kept
    ttl_hours: float = 12.0  # after so long the deployment removes itself, whoever is still there
    monthly_usd: float = 100.0  # AWS Budgets warns cloud.email of shares of it
    email: str = ""  # who is told of alarms and of the account's bill; empty: nobody, and there is no budget
    bucket: str = ""  # of a deployment that siafu deploy has not made; empty: its own data bucket
    ray_address: str = "auto"  # run.on = ray: the cluster's address

    def __post_init__(self) -> None:
        at_least(self, reserved=0, volume_gib=20, ttl_hours=0.1, monthly_usd=0)
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", self.name):
            raise ConfigError(f"cloud.name = {self.name!r}: must be 1 to 31 of a-z, 0-9 and -, a letter first")


@dataclass(frozen=True)
class Config:
    """A whole run. Sections are attributes, but for ``lambda``, which Python keeps for itself: ``lambdas``."""

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    train: Train = field(default_factory=Train)
    servers: Servers = field(default_factory=Servers)
    lambdas: Lambda = field(default_factory=Lambda)
    run: Run = field(default_factory=Run)
    cloud: Cloud = field(default_factory=Cloud)

    @property
    def overlaps(self) -> bool:
        """Whether anything may be under way beside anything else: not in no-pipe, not even inside a worker."""
        return self.train.mode != "no-pipe"

    @property
    def rematerialises(self) -> bool:
        """Whether backward recomputes activations instead of fetching what forward sent home. A row of
        128 costs a Lambda 1.5 µs to compute from 602 features, 14 µs to fetch at its 75 MB/s, and 0.5
        µs through this machine's memory."""
        if self.servers.backend != "lambda":
            return False  # nothing is fetched
        if self.lambdas.rematerialise == "auto":
            return not self.lambdas.place.same_machine or bool(self.lambdas.proxy)
        return self.lambdas.rematerialise == "always"

    @cached_property
    def digest(self) -> str:
        """16 hex digits over every value; equal on all roles of a run."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, dict[str, Any]]:
        return {_section_name(f.name): dataclasses.asdict(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, sections: Mapping[str, Any]) -> Self:
        """Raises ConfigError naming the key, the value and what is allowed."""
        known = {_section_name(f.name): f for f in dataclasses.fields(cls)}
        for name in sections:
            if name not in known:
                raise ConfigError(f"[{name}]: unknown section, must be one of {', '.join(known)}")
        made = {}
        for name, spec in known.items():
            values = sections.get(name, {})
            if not isinstance(values, Mapping):
                raise ConfigError(f"{name} = {values!r}: must be a section")
            made[spec.name] = _section(name, spec.default_factory, values)  # type: ignore[arg-type]
        return cls(**made)

    def replace(self, assignments: Mapping[str, Any]) -> Self:
        """A config with ``{"section.key": value}`` put in; strings are parsed as the field's type asks."""
        sections = self.to_dict()
        for key, value in assignments.items():
            section, dot, name = key.partition(".")
            if not dot or section not in sections or name not in sections[section]:
                raise ConfigError(f"{key}: unknown key{_nearest(key)}")
            sections[section][name] = value
        return type(self).from_dict(sections)


#: What to do where the cache folder cannot be used.
CACHE_ADVICE = "set data.cache_dir, or XDG_CACHE_HOME in the environment, to a folder that you may write to"


def cache_folder(chosen: str = "") -> Path:
    """Where siafu keeps what it can make again: ``chosen`` if that is not empty, else ``siafu`` in $XDG_CACHE_HOME or
    ~/.cache. The XDG base directory specification has a relative $XDG_CACHE_HOME ignored.

    ConfigError if that is below a home directory and there is none, as in a container whose user is only a number.
    """
    said = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        if chosen:
            return Path(chosen).expanduser()
        if not said.is_absolute():
            said = Path.home() / ".cache"
            if not said.is_absolute():  # HOME="": files would appear in whichever folder one stands in
                raise RuntimeError(f"HOME is {os.environ.get('HOME')!r}")
        return said / "siafu"
    except RuntimeError as error:
        raise ConfigError(
            f"{chosen or '~/.cache/siafu'}: no such home directory: {str(error).rstrip('.')}; {CACHE_ADVICE}"
        ) from None


def load(path: str | Path) -> Config:
    """The config in a TOML file."""
    return Config.from_dict(sections_of(path))


def sections_of(path: str | Path) -> dict[str, Any]:
    """What a TOML file says, without defaults."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, thousands of digits, or too deep
        raise ConfigError(f"{path}: {error}") from error


def dump(config: Config) -> str:
    """The config as TOML, every field written out."""
    lines = []
    for section, values in config.to_dict().items():
        lines.append(f"[{section}]")
        # JSON's strings, numbers, booleans and flat lists are also TOML's.
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
        lines.append("")
    return "\n".join(lines)


@lru_cache(maxsize=2)
def help_texts(of: type[Config] = Config) -> dict[str, str]:
    """``"section.key"`` -> the comment behind the field above."""
    texts = {}
    for f in dataclasses.fields(of):
        cls = f.default_factory
        for line in inspect.getsource(cls).splitlines():  # type: ignore[arg-type]
            if match := re.match(r"    (\w+): [^=]+ = .*?(?:  # (.*))?$", line):
                texts[f"{_section_name(f.name)}.{match[1]}"] = match[2] or ""
    return texts


def parsed(key: str, value: Any) -> Any:
    """The value of "section.key" as its type asks, not held against any other.
    ConfigError if it cannot be, or is no key."""
    section, _, name = key.partition(".")
    known = {_section_name(f.name): f.default_factory for f in dataclasses.fields(Config)}
    hint = typing.get_type_hints(known[section]).get(name) if section in known else None
    if hint is None:
        raise ConfigError(f"{key}: unknown key{_nearest(key)}")
    return _convert(key, value, hint)


def _section_name(attribute: str) -> str:
    return "lambda" if attribute == "lambdas" else attribute


#: In the config.toml of older runs, which are still predicted and exported. What
#: ``data.verify`` asked for is always done.
RETIRED = ("data.verify",)


def _section(name: str, cls: type, values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    values = {key: value for key, value in values.items() if f"{name}.{key}" not in RETIRED}
    for key in values:
        if key not in hints:
            raise ConfigError(f"{name}.{key}: unknown key{_nearest(f'{name}.{key}')}")
    return cls(**{key: _convert(f"{name}.{key}", value, hints[key]) for key, value in values.items()})


def _nearest(key: str) -> str:
    close = difflib.get_close_matches(key, help_texts(), 1)
    return f"; did you mean {close[0]}?" if close else ""


def _convert(key: str, value: Any, hint: Any) -> Any:
    """``value`` as the field's type, parsed if it is a string; ConfigError if it cannot be."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        if value not in typing.get_args(hint):
            raise ConfigError(f"{key} = {value!r}: must be one of {', '.join(map(str, typing.get_args(hint)))}")
        return value
    if origin is tuple:
        items = re.split(r"[ ,\[\]]+", value.strip(" []")) if isinstance(value, str) else value
        items = items if isinstance(items, (list, tuple)) else [items]
        return tuple(_convert(key, item, typing.get_args(hint)[0]) for item in items)
    assert not isinstance(hint, types.UnionType), key
    try:
        if hint is bool:
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if hint is int:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            return int(value)
        if hint is float:
            number = float(value)
            if isinstance(value, bool) or not math.isfinite(number):
                raise ValueError
            return number
        if not isinstance(value, str):
            raise ValueError
        value.encode()
        return value
    except UnicodeEncodeError:
        raise ConfigError(f"{key} = {value!r}: a name that is not UTF-8: rename it") from None
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ConfigError(f"{key} = {value!r}: must be {_article(hint)}") from None


def _article(hint: type) -> str:
    return {int: "an integer", float: "a finite number", bool: "true or false", str: "a string"}[hint]


def at_least(section: Any, **limits: float) -> None:
    for key, limit in limits.items():
        if not getattr(section, key) >= limit:
            raise ConfigError(
                f"{_section_name(type(section).__name__.lower())}.{key} = {getattr(section, key)}: must be >= {limit}"
            )
