"""The configuration of a run: one TOML file, frozen dataclasses, every value checked on construction.

Defaults < TOML < ``--set section.key=value`` and the command line's flags. An unknown key is an error. A field's
``setting`` has its help text for the command line. The resolved config goes into the run directory, and its digest into
every handshake: two roles that disagree on it refuse each other.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import os
import re
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from siafu.errors import ConfigError, one_of
from siafu.places import CORE_MB, PLACES, UNIX, Place, Where
from siafu.setting import SECONDS, Setting, check_bounds, converted, setting, settings_of, types_of

if typing.TYPE_CHECKING:
    import tomllib
    from typing_extensions import Self
else:
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib


#: Settings of ``[data]`` that may change when a run is resumed: its edges, features, labels and splits stay the same.
REPARTITIONS = frozenset({"parts", "partitioner", "order", "cache_dir", "keep_aggregate"})
#: Share of an environment's memory for constant rows.
KEPT_SHARE = 0.25
#: Share of a GPU's memory, free at the start, for copies of weights and of constant rows.
GPU_KEPT_SHARE = 0.5


@dataclass(frozen=True)
class Data:
    source: str = setting(
        "digits", "digits, synthetic:NAME?scale=S, a .npz file, a name in $SIAFU_DATA, or prepared shards"
    )
    parts: int = setting(
        1, "number of partitions, one per graph server", flag="parts", common=True, metavar="P", least=1
    )
    partitioner: str = setting(
        "metis", "how vertices are assigned to graph servers: see siafu prepare --help-all", flag="partitioner"
    )
    order: str = setting(
        "auto",
        "vertex order inside a partition; intervals are contiguous slices of it: see siafu prepare --help-all",
        flag="order",
    )
    directed: bool = setting(False, "keep edge directions instead of making the graph symmetric", flag="directed")
    feature_norm: Literal["none", "row", "standard"] = setting(
        "none", "row: each row sums to 1; standard: z-score per column", flag="feature_norm"
    )
    split: int = setting(
        0,
        "which of the graph's splits to use; --split FILE#COLUMN reads splits from a table",
        flag="split",
        metavar="N|FILE",
        least=0,
    )
    seed: int = setting(0, "seed of the partitioner, and of the split if the source has none", least=0)
    train_per_class: int = setting(20, "training vertices per class, if the source has no split", least=1)
    val_per_class: int = setting(30, "validation vertices per class, if the source has no split", least=0)
    cache_dir: str = setting("", "folder for prepared shards; empty: $XDG_CACHE_HOME/siafu, or ~/.cache/siafu")
    keep_aggregate: bool = setting(True, "store layer 0's aggregate with the shards, for later runs")
    task: Literal["node", "link"] = setting(
        "node", "what to predict: labels of vertices, or held-out edges", flag="task"
    )
    inductive: bool = setting(
        False, "train only on training vertices and the edges among them; evaluate on the whole graph", flag="inductive"
    )
    val_edges: float = setting(0.05, "task link: share of edges held out for validation", least=0)
    test_edges: float = setting(0.1, "task link: share of edges held out for test", least=0)
    negatives: int = setting(
        8, "task link: pool of negative edges per training edge, of which each epoch draws one", least=1
    )
    eval_negatives: int = setting(100, "task link: negative edges that each held-out edge is ranked among", least=1)

    def __post_init__(self) -> None:
        check_bounds(self, "data")
        if not self.val_edges + self.test_edges < 1:
            raise ConfigError(f"data.val_edges + data.test_edges = {self.val_edges + self.test_edges:g}: must be < 1")
        if self.inductive and self.task == "link":
            raise ConfigError("data.inductive: is for task node; task link always trains without the held-out edges")


@dataclass(frozen=True)
class Model:
    name: str = setting(
        "gcn", "gcn, sage, gat, gin, gcnii, appnp, sgc or rgcn", flag="model", common=True, metavar="NAME"
    )
    layers: int = setting(2, "number of graph layers", flag="layers", common=True, least=1)
    hidden: tuple[int, ...] = setting(
        (16,),
        "width of hidden layers: one number for all, or one per hidden layer",
        flag="hidden",
        common=True,
        metavar="H",
    )
    activation: Literal["relu", "tanh", "elu"] = setting("relu", "activation of hidden layers")
    bias: bool = setting(True, "whether layers add a bias")
    dropout: float = setting(
        0.0, "share of a layer's gathered inputs set to zero while training", flag="dropout", common=True
    )
    norm: Literal["none", "layer"] = setting("none", "layer: LayerNorm before the activation of hidden layers")
    init: Literal["xavier", "he"] = setting("xavier", "distribution of the initial weights")
    heads: int = setting(
        8, "gat: attention heads of a hidden layer, concatenated; must divide its width", flag="heads", least=1
    )
    out_heads: int = setting(1, "gat: attention heads of the last layer, averaged", least=1)
    attn_dropout: float = setting(
        0.0, "gat: share of attention coefficients set to zero while training", flag="attn_dropout"
    )
    slope: float = setting(0.2, "gat: slope of LeakyReLU below zero", least=0)
    residual: bool = setting(
        False,
        "add a layer's input before its activation, through a learnt weight if the widths differ",
        flag="residual",
    )
    jump: Literal["none", "cat", "max", "sum"] = setting(
        "none", "jumping knowledge: how the last layer combines all hidden layers"
    )
    alpha: float = setting(
        0.1, "gcnii, appnp: share of the initial representation in every propagation", least=0, most=1
    )
    theta: float = setting(0.5, "gcnii: the paper's lambda, beta_l = ln(theta / l + 1)", least=0)
    hops: int = setting(10, "appnp, sgc: number of propagations", least=1)
    eps: float = setting(0.0, "gin: the vertex's own row has weight 1 + eps")
    train_eps: bool = setting(False, "gin: learn eps, one per layer")
    bases: int = setting(0, "rgcn: matrices that all relations share; 0: each relation has its own", least=0)
    decoder: Literal["dot", "mlp"] = setting("dot", "task link: how two embeddings give a score")
    outputs: int = setting(
        0, "width of the last layer; 0: number of classes, or with task link the last hidden width", least=0
    )
    narrow: bool = setting(True, "transform before gathering if a layer's output is narrower than its input")
    rows: Literal["exact", "bfloat16"] = setting(
        "exact", "number format of gathered rows and of products' operands; exact: model.dtype"
    )
    dtype: Literal["float32", "float64"] = setting("float32", "number format of weights, activations and gradients")

    def __post_init__(self) -> None:
        check_bounds(self, "model")
        if any(width < 1 for width in self.hidden) or not self.hidden:
            raise ConfigError(f"model.hidden = {list(self.hidden)}: widths must be >= 1")
        if len(self.hidden) not in (1, self.num_hidden):
            named = "model.layers" if self.num_hidden == self.layers else "model.layers - 1"
            raise ConfigError(f"model.hidden = {list(self.hidden)}: must be one width or {named} = {self.num_hidden}")
        if self.rows == "bfloat16" and self.dtype != "float32":
            raise ConfigError(f"model.rows = bfloat16 needs model.dtype = float32, not {self.dtype}")
        for key in ("dropout", "attn_dropout"):
            if not 0 <= getattr(self, key) < 1:
                raise ConfigError(f"model.{key} = {getattr(self, key)}: must be >= 0 and < 1")

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of outputs of each hidden layer."""
        return self.hidden * self.num_hidden if len(self.hidden) == 1 else self.hidden

    @property
    def num_hidden(self) -> int:
        """The number of hidden layers: all but the last. With jumping knowledge all are hidden, and one more stage
        gives the classes."""
        return self.layers if self.jump != "none" else self.layers - 1


@dataclass(frozen=True)
class Train:
    epochs: int = setting(
        200,
        "maximum number of epochs (passes over the graph); 0: only evaluate the initial weights",
        flag="epochs",
        common=True,
        metavar="E",
        least=0,
    )
    lr: float = setting(0.01, "learning rate", flag="lr", common=True, least=0)
    optimizer: Literal["adam", "sgd"] = setting("adam", "optimiser; it steps once per epoch")
    momentum: float = setting(0.9, "momentum of sgd", least=0, most=1)
    weight_decay: float = setting(
        0.0, "L2 penalty added to the gradient, as torch.optim does", flag="weight_decay", least=0
    )
    weight_decay_rest: float = setting(
        -1.0, "weight decay of the weights that the model's paper treats differently; -1: weight_decay", least=-1
    )
    clip_norm: float = setting(0.0, "clip the gradient to this norm, over all weights; 0: do not clip", least=0)
    label_smoothing: float = setting(
        0.0, "share of each training label that is spread evenly over all classes", least=0, most=1
    )
    warm_start: str = setting(
        "",
        "start from the weights of a model.safetensors or a run; empty: random weights",
        flag="warm_start",
        metavar="MODEL",
    )
    schedule: Literal["constant", "cosine", "step"] = setting("constant", "learning-rate schedule")
    step_epochs: int = setting(50, "schedule step: epochs between drops", least=1)
    step_factor: float = setting(0.5, "schedule step: factor of each drop", least=0)
    seed: int = setting(0, "seed of initial weights and dropout masks", flag="seed", least=0)
    mode: Literal["no-pipe", "pipe", "async"] = setting(
        "pipe", "how far steps overlap; async: gathers may read stale rows", flag="mode"
    )
    staleness: int = setting(
        0, "async: epochs that an interval may be ahead of the slowest", flag="staleness", metavar="S", least=0
    )
    intervals: int = setting(
        0,
        "intervals per graph server; 0: enough to keep it busy, at most 16",
        flag="intervals",
        metavar="K",
        least=0,
    )
    ahead: float = setting(
        0.125,
        "async with staleness > 0: share of intervals that may be ahead of the slowest epoch; 0: none",
        least=0,
        most=1,
    )
    freshness: float = setting(
        0.9,
        "async: share of an interval's edges from other intervals that must have rows of this epoch before it gathers",
        least=0,
        most=1,
    )
    warmup_epochs: int = setting(1, "async: number of first epochs that run as pipe", least=0)
    eval_every: int = setting(
        -1,
        "epochs between evaluations; 0: only after the last epoch; -1: 1, or at least 10 on large graphs",
        flag="eval_every",
        least=-1,
    )
    target_acc: float = setting(0.0, "stop at this validation accuracy; 0: never", flag="target_acc", least=0, most=1)
    patience: int = setting(
        0,
        "stop after this many evaluations (not epochs) without improvement; 0: never",
        flag="patience",
        common=True,
        least=0,
    )
    stop_on: Literal["score", "loss", "both"] = setting(
        "score", "validation result that decides patience and the best epoch", flag="stop_on"
    )

    def __post_init__(self) -> None:
        check_bounds(self, "train")
        if self.staleness and self.mode != "async":
            raise ConfigError(f"train.staleness = {self.staleness} needs train.mode = async, not {self.mode}")


@dataclass(frozen=True)
class Servers:
    param_servers: int = setting(
        1, "number of parameter servers, which hold the weights", flag="param_servers", metavar="Q", least=1
    )
    backend: Literal["auto", "lambda", "cpu", "gpu"] = setting(
        "auto",
        "where tensor tasks run; auto: lambda with --on ray, --on aws or any Lambda setting, else cpu",
        flag="backend",
        common=True,
    )
    device: Literal["auto", "cuda", "cpu"] = setting(
        "auto", "device of backend gpu; cpu: for tests without a GPU; auto: cuda"
    )
    threads: int = setting(
        0, "compute threads per graph server; 0: cores / graph servers on the machine, at least 1", least=0
    )
    listen: str = setting(
        "127.0.0.1",
        "address that servers listen on; on Ray and AWS, each machine's own; 127.0.0.1 on Linux, without "
        "servers.ports: Unix sockets",
    )
    ports: str = setting("", "ports that servers listen on, such as 7000-7099; empty: any free ones")
    start_timeout_s: float = setting(60.0, "seconds for all servers to start", least=0.1)
    heartbeat_s: float = setting(1.0, "seconds between heartbeats of a server", least=0.01)
    silence_s: float = setting(30.0, "a server without a heartbeat for this many seconds is lost", least=0.1)
    security: Literal["auto", "curve", "none"] = setting(
        "auto", "encryption and keys on every connection; auto: on, except within one machine", flag="security"
    )
    stall_s: float = setting(1800.0, "restart a run in which no task finishes for this many seconds", least=1)

    def __post_init__(self) -> None:
        _ = self.port_range
        check_bounds(self, "servers")
        if not self.heartbeat_s < self.silence_s:
            raise ConfigError(
                f"servers.heartbeat_s = {self.heartbeat_s}: must be < servers.silence_s = {self.silence_s}"
            )

    @property
    def port_range(self) -> tuple[int, int] | None:
        """The first and the last port that a role may bind; None: any port."""
        if not self.ports:
            return None
        found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", self.ports)
        first, last = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1024 <= first <= last <= 65535:
            raise ConfigError(f"servers.ports = {self.ports!r}: must be FIRST-LAST, both of 1024 to 65535")
        return first, last


@dataclass(frozen=True)
class Lambda:
    count: int = setting(0, "environments per graph server; 0: the autotuner decides", flag="lambdas", least=0)
    memory_mb: int = setting(
        192,
        "memory of an environment; Lambda derives its CPU share and price from it",
        flag="lambda_memory",
        metavar="MB",
        least=128,
    )
    on: Where = setting("local", f"where Lambdas run: {', '.join(PLACES)}", flag="lambda_on", metavar="WHERE")
    function: str = setting("siafu", "name of the function, on localstack and aws")
    endpoint: str = setting("", "URL for invocations; empty: AWS's, or a LocalStack that siafu starts")
    region: str = setting("us-east-1", "AWS region of the function and the servers")
    callback_host: str = setting("", "address that functions connect to, if it is not servers.listen")
    timeout_s: float = setting(900.0, "Lambda's limit on one invocation", least=1)
    margin_s: float = setting(
        10.0, "a worker takes no new task in this many seconds before the end of its invocation", least=0
    )
    idle_s: float = setting(2.0, "a worker ends after this many seconds without a task", least=0.01)
    task_timeout_s: float = setting(
        10.0, "relaunch a task after this many seconds, until similar tasks have been timed", least=0.01
    )
    relaunch_factor: float = setting(
        3.0, "afterwards: relaunch a task after this many times the usual time of its kind", least=1
    )
    relaunch_quantile: float = setting(0.95, "quantile of the measured times that counts as usual", least=0.01, most=1)
    relaunches: int = setting(10, "relaunches of one task before the run fails", least=0)
    refused_s: float = setting(
        300.0, "a server without workers gives up after this many seconds of refused invocations", least=1
    )
    handler: str = setting("lambda_funcs.handler.handler", "module.function that environments run")
    fuse: bool = setting(True, "run the last ApplyVertex, the loss and its backward as one task")
    rematerialise: Literal["auto", "always", "never"] = setting(
        "auto", "recompute activations in backward; auto: if they would cross a network"
    )
    stream: bool = setting(True, "send inputs in halves, and compute on the first while the second arrives")
    keep_constants: bool = setting(True, "workers keep rows that never change, and get the same intervals again")
    prefetch: int = setting(0, "tasks that a worker holds, one of them running; 0: as many as save time", least=0)
    proxy: str = setting("", "SOCKS5 proxy, host:port, through which workers connect")
    apply_edge: Literal["auto", "lambda", "server"] = setting("auto", "where ApplyEdge runs; auto: on servers")
    cpu_share: Literal["auto", "real", "free"] = setting(
        "auto",
        "CPU time of environments that are not on AWS; real: what Lambda gives for memory_mb; free: all that they can "
        "get; auto: real in siafu value, else free",
    )

    def __post_init__(self) -> None:
        check_bounds(self, "lambda")
        if self.memory_mb > 10_240:
            raise ConfigError(f"lambda.memory_mb = {self.memory_mb}: Lambda's limit is 10240")
        if self.timeout_s > 900:
            raise ConfigError(f"lambda.timeout_s = {self.timeout_s}: Lambda's limit is 900")
        if not self.margin_s < self.timeout_s:
            raise ConfigError(f"lambda.margin_s = {self.margin_s}: must be < lambda.timeout_s = {self.timeout_s}")

    @property
    def place(self) -> Place:
        return PLACES[self.on]

    @property
    def keep_bytes(self) -> int:
        """The most bytes of constant rows that an environment keeps from task to task."""
        return int(KEPT_SHARE * (self.memory_mb << 20)) if self.keep_constants else 0

    @property
    def core(self) -> float:
        """The share of a core that an environment computes with: at most 1, since it has one thread."""
        limited = self.place.billed or self.cpu_share == "real"
        return min(1.0, self.memory_mb / CORE_MB) if limited else 1.0


@dataclass(frozen=True)
class Run:
    dir: str = setting("", "run directory; empty: runs/<date>-<name>", flag="run_dir", common=True, metavar="DIR")
    trace: bool = setting(False, "write start and end of every task to trace-<server>.jsonl", flag="trace")
    checkpoint_every: int = setting(
        0, "epochs between checkpoints; 0: use --checkpoint-seconds only", flag="checkpoint_every", metavar="K", least=0
    )
    checkpoint_seconds: float = setting(
        300.0,
        "time between checkpoints; 0: use --checkpoint-every only",
        flag="checkpoint_seconds",
        metavar="T",
        least=0,
        unit=SECONDS,
    )
    keep: int = setting(3, "number of newest checkpoints to keep", flag="keep", metavar="K", least=1)
    checkpoint_to: str = setting("", "also copy checkpoints to s3://bucket/prefix; empty: no copies")
    restarts: int = setting(
        3,
        "restarts in a row without a finished epoch between them; 0: none",
        flag="restarts",
        least=0,
    )
    on_nan: Literal["stop", "skip"] = setting(
        "stop", "at a gradient with NaN or infinity: stop the run, or skip the step"
    )
    on: Literal["local", "ray", "aws"] = setting(
        "local", "where servers run: this machine, a Ray cluster, or machines of siafu deploy", flag="on"
    )
    budget_usd: float = setting(
        0.0,
        "stop, with a checkpoint, before the run costs more than this; 0: no limit",
        flag="budget",
        common=True,
        metavar="USD",
        least=0,
    )
    max_seconds: float = setting(
        0.0,
        "stop, with a checkpoint, before the run takes longer than this; 0: no limit",
        flag="max_time",
        metavar="TIME",
        least=0,
        unit=SECONDS,
    )
    loggers: tuple[str, ...] = setting(
        (), "also log to tensorboard, mlflow, wandb (offline)", flag="logger", metavar="NAME[,…]"
    )
    write: str = setting("", "set by siafu predict: slot whose rows the servers write to RUN/rows; empty: none")

    def __post_init__(self) -> None:
        check_bounds(self, "run")
        if self.checkpoint_to and not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]+(/.*)?", self.checkpoint_to):
            raise ConfigError(f"run.checkpoint_to = {self.checkpoint_to!r}: must be s3://BUCKET/PREFIX")


@dataclass(frozen=True)
class Cloud:
    name: str = setting("siafu", "name of the deployment: prefix of its stacks, and tag of its resources")
    graph_instance: str = setting("c7g.2xlarge", "EC2 type of graph servers, one per partition")
    param_instance: str = setting("c7g.xlarge", "EC2 type of parameter servers")
    gpu_instance: str = setting("", "EC2 type whose price is charged for a GPU baseline's time; empty: no price")
    spot: bool = setting(False, "use spot instances")
    volume_gib: int = setting(50, "disk of each server, in GiB", least=20)
    zone: str = setting("", "availability zone of everything; empty: the region's first that has all it needs")
    shell: bool = setting(False, "let Session Manager reach the servers; needs one more endpoint")
    arch: Literal["arm64", "x86_64"] = setting("arm64", "processor of the function")
    reserved: int = setting(
        100, "environments reserved for the function; it cannot have more; 0: none reserved", least=0
    )
    ttl_hours: float = setting(12.0, "hours until the deployment removes itself, even during a run", least=0.1)
    monthly_usd: float = setting(100.0, "AWS Budgets warns cloud.email at shares of this monthly bill", least=0)
    email: str = setting("", "address for alarms and warnings about the account's bill; empty: none, and no AWS budget")
    bucket: str = setting("", "bucket of a deployment that siafu deploy did not create; empty: the deployment's own")
    ray_address: str = setting("auto", "address of the Ray cluster (run.on = ray)")

    def __post_init__(self) -> None:
        check_bounds(self, "cloud")
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", self.name):
            raise ConfigError(f"cloud.name = {self.name!r}: must be 1 to 31 of a-z, 0-9 and -, a letter first")


@dataclass(frozen=True)
class Config:
    """The configuration of a run. Sections are attributes; ``lambda``, a keyword of Python, is ``lambdas``."""

    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    train: Train = field(default_factory=Train)
    servers: Servers = field(default_factory=Servers)
    lambdas: Lambda = field(default_factory=Lambda)
    run: Run = field(default_factory=Run)
    cloud: Cloud = field(default_factory=Cloud)

    @property
    def overlaps(self) -> bool:
        """Whether steps may overlap. In no-pipe none do, not even inside a worker."""
        return self.train.mode != "no-pipe"

    @property
    def listen(self) -> str:
        """The address that members started by this machine bind. It is UNIX if no member has to dial a port: Unix
        sockets carry twice as much as the loopback interface, for half of the processor time."""
        servers, lambdas = self.servers, self.lambdas
        alone = servers.backend != "lambda" or (lambdas.on == "local" and not lambdas.proxy)
        asked = servers.listen != Servers.listen or servers.ports or lambdas.callback_host
        return UNIX if alone and not asked and self.run.on == "local" and sys.platform == "linux" else servers.listen

    @property
    def rematerialises(self) -> bool:
        """Whether backward recomputes activations instead of fetching those that forward sent to the graph server. A
        row of 128 costs a Lambda 1.5 µs to compute from 602 features, 14 µs to fetch at its 75 MB/s, and 0.5 µs
        through this machine's memory."""
        if self.servers.backend != "lambda":
            return False  # nothing is fetched
        if self.lambdas.rematerialise == "auto":
            return not self.lambdas.place.same_machine or bool(self.lambdas.proxy)
        return self.lambdas.rematerialise == "always"

    @cached_property
    def digest(self) -> str:
        """A hash of all values, 16 hex digits; equal on all roles of a run."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, dict[str, Any]]:
        return {_section_name(f.name): dataclasses.asdict(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def flat(self) -> dict[str, Any]:
        """Returns all values as ``{"section.key": value}``."""
        return {
            f"{section}.{key}": value for section, values in self.to_dict().items() for key, value in values.items()
        }

    @classmethod
    def from_dict(cls, sections: Mapping[str, Any]) -> Self:
        """Makes a config of sections. Raises: ConfigError naming the key, the value and the allowed values."""
        known = {_section_name(f.name): f for f in dataclasses.fields(cls)}
        for name in sections:
            if name not in known:
                raise ConfigError(f"[{name}]: unknown section, {one_of(name, known)}")
        made = {}
        for name, spec in known.items():
            values = sections.get(name, {})
            if not isinstance(values, Mapping):
                raise ConfigError(f"{name} = {values!r}: must be a section")
            made[spec.name] = _section(name, spec.default_factory, values)  # type: ignore[arg-type]
        return cls(**made)

    def replace(self, assignments: Mapping[str, Any]) -> Self:
        """Returns a config with these values, ``{"section.key": value}``; strings are parsed by the field's type."""
        sections = self.to_dict()
        for key, value in assignments.items():
            section, dot, name = key.partition(".")
            if not dot or section not in sections or name not in sections[section]:
                raise ConfigError(f"{key}: unknown key{_nearest(key)}")
            sections[section][name] = value
        return type(self).from_dict(sections)


#: Advice if the cache folder cannot be used.
CACHE_ADVICE = "set data.cache_dir, or XDG_CACHE_HOME in the environment, to a folder that you may write to"


def cache_folder(chosen: str = "") -> Path:
    """Returns the folder for files that siafu can make again: ``chosen``, or if it is empty ``siafu`` in
    $XDG_CACHE_HOME or ~/.cache. A relative $XDG_CACHE_HOME is ignored, as the XDG specification demands.

    Raises: ConfigError if the folder is below a home directory that does not exist, as in a container whose user is
    only a number.
    """
    said = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        if chosen:
            return Path(chosen).expanduser()
        if not said.is_absolute():
            said = Path.home() / ".cache"
            if not said.is_absolute():  # HOME="": files would be written into the working folder
                raise RuntimeError(f"HOME is {os.environ.get('HOME')!r}")
        return said / "siafu"
    except RuntimeError as error:
        raise ConfigError(
            f"{chosen or '~/.cache/siafu'}: no such home directory: {str(error).rstrip('.')}; {CACHE_ADVICE}"
        ) from None


def load(path: str | Path) -> Config:
    """Reads the config in a TOML file."""
    return Config.from_dict(sections_of(path))


def sections_of(path: str | Path) -> dict[str, Any]:
    """Reads the sections of a TOML file, without defaults."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, thousands of digits, or too deep
        raise ConfigError(f"{path}: no TOML: {error}") from error


def dump(config: Config) -> str:
    """Returns the config as TOML, with every field."""
    lines = []
    for section, values in config.to_dict().items():
        lines.append(f"[{section}]")
        # JSON's strings, numbers, booleans and flat lists are also TOML's.
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
        lines.append("")
    return "\n".join(lines)


def settings(of: type[Config] = Config) -> dict[str, Setting]:
    """Returns ``"section.key"`` -> its ``Setting``, in the order of the sections' fields."""
    return {
        f"{_section_name(f.name)}.{key}": said
        for f in dataclasses.fields(of)
        for key, said in settings_of(f.default_factory).items()
    }


def flags(of: type[Config] = Config) -> dict[str, str]:
    """Returns the name of a flag, with _ for -, -> "section.key"."""
    return {said.flag: key for key, said in settings(of).items() if said.flag}


def type_and_default(key: str, of: type[Config] = Config) -> tuple[Any, Any]:
    """Returns the type and the default value of "section.key"."""
    section, _, name = key.partition(".")
    held = next(getattr(of(), f.name) for f in dataclasses.fields(of) if _section_name(f.name) == section)
    return types_of(type(held))[name], getattr(held, name)


def parsed(key: str, value: Any) -> Any:
    """Converts a value to the type of "section.key", without comparing it with other settings. Raises: ConfigError if
    that fails, or the key is unknown."""
    section, _, name = key.partition(".")
    known = {_section_name(f.name): f.default_factory for f in dataclasses.fields(Config)}
    hint = types_of(known[section]).get(name) if section in known else None
    if hint is None:
        raise ConfigError(f"{key}: unknown key{_nearest(key)}")
    return converted(key, value, hint, settings_of(known[section])[name].unit)


def _section_name(attribute: str) -> str:
    return "lambda" if attribute == "lambdas" else attribute


#: Removed settings in the config.toml of older runs, which can still be predicted and exported -> the values that have
#: today's meaning: ``data.verify`` is always done; both values of ``baseline.solver`` found the same optimum.
RETIRED: Mapping[str, tuple[Any, ...]] = {
    "data.verify": (True, False),
    "baseline.solver": ("exact", "milp"),
    "train.stale_gradients": ("use",),
    "train.stale_rows": ("use",),
    "train.smoothing": (0.5,),
    "train.freeze_epochs": (23,),
    "train.stale_lr": (0.0,),
}


def _section(name: str, cls: type, values: Mapping[str, Any]) -> Any:
    hints = types_of(cls)
    values = {key: value for key, value in values.items() if f"{name}.{key}" not in RETIRED}
    for key in values:
        if key not in hints:
            raise ConfigError(f"{name}.{key}: unknown key{_nearest(f'{name}.{key}')}")
    units = {key: said.unit for key, said in settings_of(cls).items()}
    return cls(**{key: converted(f"{name}.{key}", value, hints[key], units[key]) for key, value in values.items()})


def _nearest(key: str) -> str:
    close = difflib.get_close_matches(key, settings(), 1)
    return f"; did you mean {close[0]}?" if close else ""
