"""What editors and type checkers know of ``siafu``. Made by ``make pages``."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from graph_data.convert import convert as convert
from graph_data.objects.arrays import from_arrays as from_arrays
from graph_data.objects.dgl import from_dgl as from_dgl
from graph_data.objects.dgl import to_dgl as to_dgl
from graph_data.objects.frames import from_pandas as from_pandas
from graph_data.objects.networkx import from_networkx as from_networkx
from graph_data.objects.pyg import from_pyg as from_pyg
from graph_data.objects.pyg import to_pyg as to_pyg
from graph_data.objects.scipy import from_scipy as from_scipy
from graph_data.prepare import prepare as prepare
from run_coordinator.actions import Status
from run_coordinator.epoch_calls import EpochEnd as EpochEnd
from run_coordinator.epoch_calls import OnEpoch
from run_coordinator.evaluate import Evaluation as Evaluation
from run_coordinator.evaluate import evaluate as evaluate
from run_coordinator.export import export as export
from run_coordinator.past_runs import PastRun as PastRun
from run_coordinator.past_runs import PastRuns as PastRuns
from run_coordinator.past_runs import Trials as Trials
from run_coordinator.past_runs import runs as runs
from run_coordinator.predict import predict as predict
from run_coordinator.predict.predictions import Predictions as Predictions
from run_coordinator.repeat import Done, Watch
from run_coordinator.repeat import Runs as Runs
from run_coordinator.run import Run as Run
from run_coordinator.search import Point as Point
from run_coordinator.search import Search as Search
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.graph import Graph as Graph

__version__: str
__all__: list[str]

def train(
    source: Any = ...,
    *,
    config: Config | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    on_status: Callable[[Status], None] | None = None,
    on_epoch: OnEpoch | None = None,
    parts: int = 1,
    partitioner: str = "metis",
    order: str = "auto",
    directed: bool = False,
    feature_norm: Literal["none", "row", "standard"] = "none",
    split: int | str | os.PathLike[str] = 0,
    task: Literal["node", "link"] = "node",
    inductive: bool = False,
    model: str = "gcn",
    layers: int = 2,
    hidden: int | list[int] | tuple[int, ...] = (16,),
    dropout: float = 0.0,
    heads: int = 8,
    attn_dropout: float = 0.0,
    residual: bool = False,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    warm_start: str | os.PathLike[str] = "",
    seed: int = 0,
    mode: Literal["no-pipe", "pipe", "async"] = "pipe",
    staleness: int = 0,
    intervals: int = 0,
    eval_every: int = -1,
    target_acc: float = 0.0,
    patience: int = 0,
    stop_on: Literal["score", "loss", "both"] = "score",
    param_servers: int = 1,
    backend: Literal["auto", "lambda", "cpu", "gpu"] = "auto",
    security: Literal["auto", "curve", "none"] = "auto",
    lambdas: int = 0,
    lambda_memory: int = 192,
    lambda_on: Literal["local", "localstack", "aws", "ray"] = "local",
    run_dir: str | os.PathLike[str] = "",
    trace: bool = False,
    checkpoint_every: int = 0,
    checkpoint_seconds: float | str = 300.0,
    keep: int = 3,
    restarts: int = 3,
    on: Literal["local", "ray", "aws"] = "local",
    budget: float = 0.0,
    max_time: float | str = 0.0,
    logger: str | list[str] | tuple[str, ...] = (),
    src: str = ...,
    dst: str = ...,
    weight: str = ...,
    type: str = ...,
    num_edge_types: int = ...,
    ids: str = ...,
    id: str = ...,
    num_vertices: int = ...,
    features: str | os.PathLike[str] = ...,
    labels: str | os.PathLike[str] = ...,
    target: str = ...,
) -> Run:
    """Trains a model and returns the finished run. In a notebook, progress is shown below the cell.

    source: the name of a graph (``siafu prepare --help-all`` lists all kinds), or a graph in memory, also of PyG, DGL,
    NetworkX or SciPy; its shards are kept in the cache. config: a Config or a TOML file to start from. settings:
    ``{"section.key": value}``. preset: "paper" for the settings that the model's paper published for this graph.
    Keyword arguments are the flags of ``siafu train``: ``epochs=50, mode="pipe", parts=2``; also those of tables:
    ``siafu.train("edges.csv", features="users.csv", labels="users.csv#job")``.
    on_epoch: called in this process with a ``siafu.EpochEnd`` after each epoch, once its scores are known. Its return
    value is ignored. An exception in it ends the run and is raised here; ``siafu.resume`` continues the run.

        >>> run = siafu.train("digits", epochs=50, on_epoch=lambda end: print(end.epoch, end.loss, end.val_acc))
        >>> run.test_acc

    Raises: ConfigError or DatasetError for what the user asked; PeerLost, WorkerError and others for what failed.

    Settings, with the defaults of a run without config and preset (docs/settings.md):

    parts: number of partitions, one per graph server
    partitioner: how vertices are assigned to graph servers: see siafu prepare --help-all
    order: vertex order inside a partition; intervals are contiguous slices of it: see siafu prepare --help-all
    directed: keep edge directions instead of making the graph symmetric
    feature_norm: row: each row sums to 1; standard: z-score per column
    split: which of the graph's splits to use; --split FILE#COLUMN reads splits from a table
    task: what to predict: labels of vertices, or held-out edges
    inductive: train only on training vertices and the edges among them; evaluate on the whole graph
    model: gcn, sage, gat, gin, gcnii, appnp, sgc or rgcn
    layers: number of graph layers
    hidden: width of hidden layers: one number for all, or one per hidden layer
    dropout: share of a layer's gathered inputs set to zero while training
    heads: gat: attention heads of a hidden layer, concatenated; must divide its width
    attn_dropout: gat: share of attention coefficients set to zero while training
    residual: add a layer's input before its activation, through a learnt weight if the widths differ
    epochs: maximum number of epochs (passes over the graph); 0: only evaluate the initial weights
    lr: learning rate
    weight_decay: L2 penalty added to the gradient, as torch.optim does
    warm_start: start from the weights of a model.safetensors or a run; empty: random weights
    seed: seed of initial weights and dropout masks
    mode: how far steps overlap; async: gathers may read stale rows
    staleness: async: epochs that an interval may be ahead of the slowest
    intervals: intervals per graph server; 0: enough to keep it busy, at most 16
    eval_every: epochs between evaluations; 0: only after the last epoch; -1: 1, or at least 10 on large graphs
    target_acc: stop at this validation accuracy; 0: never
    patience: stop after this many evaluations (not epochs) without improvement; 0: never
    stop_on: validation result that decides patience and the best epoch
    param_servers: number of parameter servers, which hold the weights
    backend: where tensor tasks run; auto: lambda with --on ray, --on aws or any Lambda setting, else cpu
    security: encryption and keys on every connection; auto: on, except within one machine
    lambdas: environments per graph server; 0: the autotuner decides
    lambda_memory: memory of an environment; Lambda derives its CPU share and price from it
    lambda_on: where Lambdas run: local, localstack, aws, ray
    run_dir: run directory; empty: runs/<date>-<name>
    trace: write start and end of every task to trace-<server>.jsonl
    checkpoint_every: epochs between checkpoints; 0: use --checkpoint-seconds only
    checkpoint_seconds: time between checkpoints; 0: use --checkpoint-every only
    keep: number of newest checkpoints to keep
    restarts: restarts in a row without a finished epoch between them; 0: none
    on: where servers run: this machine, a Ray cluster, or machines of siafu deploy
    budget: stop, with a checkpoint, before the run costs more than this; 0: no limit
    max_time: stop, with a checkpoint, before the run takes longer than this; 0: no limit
    logger: also log to tensorboard, mlflow, wandb (offline)
    src: column of source ids [source, src, from, ..., or the first]
    dst: column of target ids [target, dst, to, ..., or the second]
    weight: column of edge weights, > 0 [none]
    type: column of edge types, integers or words [none]
    num_edge_types: edge types are the numbers 0..R-1
    ids: type of the ids [auto]
    id: column of ids in the tables of vertices [id, node_id, or the first]
    num_vertices: ids are the vertex numbers 0..N-1
    features: features of vertices, for any source without features
    labels: labels of vertices
    target: meaning of the labels, for any source; labels: any number of classes per vertex [auto]
    """

def repeat(
    source: Any = ...,
    *,
    runs: int,
    data_seeds: bool = False,
    jobs: int = 1,
    config: Config | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    watch: Watch = ...,
    on_done: Callable[[Done], None] = ...,
    on_epoch: OnEpoch | None = None,
    parts: int = 1,
    partitioner: str = "metis",
    order: str = "auto",
    directed: bool = False,
    feature_norm: Literal["none", "row", "standard"] = "none",
    split: int | str | os.PathLike[str] = 0,
    task: Literal["node", "link"] = "node",
    inductive: bool = False,
    model: str = "gcn",
    layers: int = 2,
    hidden: int | list[int] | tuple[int, ...] = (16,),
    dropout: float = 0.0,
    heads: int = 8,
    attn_dropout: float = 0.0,
    residual: bool = False,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    warm_start: str | os.PathLike[str] = "",
    seed: int = 0,
    mode: Literal["no-pipe", "pipe", "async"] = "pipe",
    staleness: int = 0,
    intervals: int = 0,
    eval_every: int = -1,
    target_acc: float = 0.0,
    patience: int = 0,
    stop_on: Literal["score", "loss", "both"] = "score",
    param_servers: int = 1,
    backend: Literal["auto", "lambda", "cpu", "gpu"] = "auto",
    security: Literal["auto", "curve", "none"] = "auto",
    lambdas: int = 0,
    lambda_memory: int = 192,
    lambda_on: Literal["local", "localstack", "aws", "ray"] = "local",
    run_dir: str | os.PathLike[str] = "",
    trace: bool = False,
    checkpoint_every: int = 0,
    checkpoint_seconds: float | str = 300.0,
    keep: int = 3,
    restarts: int = 3,
    on: Literal["local", "ray", "aws"] = "local",
    budget: float = 0.0,
    max_time: float | str = 0.0,
    logger: str | list[str] | tuple[str, ...] = (),
    src: str = ...,
    dst: str = ...,
    weight: str = ...,
    type: str = ...,
    num_edge_types: int = ...,
    ids: str = ...,
    id: str = ...,
    num_vertices: int = ...,
    features: str | os.PathLike[str] = ...,
    labels: str | os.PathLike[str] = ...,
    target: str = ...,
) -> Runs:
    """Trains ``runs`` times, with seeds ``train.seed``, ``train.seed`` + 1 and so on; the
    other arguments are ``siafu.train``'s.

    data_seeds: also increase ``data.seed``: new partitions, and a new split if the source has none. jobs: runs to train
    at the same time. watch: what shows a run's progress; by default a line below the cell of a notebook. on_done:
    called with each finished run; on_epoch: called after each epoch of each run, whose ``run_dir`` names the run. After
    an interruption, the same call continues.

        >>> runs = siafu.repeat("digits", runs=5, epochs=50)
        >>> runs.test_acc
        (0.98, 0.004)

    Raises: as ``siafu.train``. Finished runs are kept.

    Settings, with the defaults of a run without config and preset (docs/settings.md; siafu.train tells what they mean).
    """

def search(
    source: Any = ...,
    over: Mapping[str, Any] | None = None,
    *,
    random: int = 0,
    seed: int = 0,
    runs: int = 1,
    jobs: int = 1,
    config: Config | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    watch: Watch = ...,
    on_done: Callable[[Done], None] = ...,
    on_epoch: OnEpoch | None = None,
    parts: int = 1,
    partitioner: str = "metis",
    order: str = "auto",
    directed: bool = False,
    feature_norm: Literal["none", "row", "standard"] = "none",
    split: int | str | os.PathLike[str] = 0,
    task: Literal["node", "link"] = "node",
    inductive: bool = False,
    model: str = "gcn",
    layers: int = 2,
    hidden: int | list[int] | tuple[int, ...] = (16,),
    dropout: float = 0.0,
    heads: int = 8,
    attn_dropout: float = 0.0,
    residual: bool = False,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    warm_start: str | os.PathLike[str] = "",
    mode: Literal["no-pipe", "pipe", "async"] = "pipe",
    staleness: int = 0,
    intervals: int = 0,
    eval_every: int = -1,
    target_acc: float = 0.0,
    patience: int = 0,
    stop_on: Literal["score", "loss", "both"] = "score",
    param_servers: int = 1,
    backend: Literal["auto", "lambda", "cpu", "gpu"] = "auto",
    security: Literal["auto", "curve", "none"] = "auto",
    lambdas: int = 0,
    lambda_memory: int = 192,
    lambda_on: Literal["local", "localstack", "aws", "ray"] = "local",
    run_dir: str | os.PathLike[str] = "",
    trace: bool = False,
    checkpoint_every: int = 0,
    checkpoint_seconds: float | str = 300.0,
    keep: int = 3,
    restarts: int = 3,
    on: Literal["local", "ray", "aws"] = "local",
    budget: float = 0.0,
    max_time: float | str = 0.0,
    logger: str | list[str] | tuple[str, ...] = (),
    src: str = ...,
    dst: str = ...,
    weight: str = ...,
    type: str = ...,
    num_edge_types: int = ...,
    ids: str = ...,
    id: str = ...,
    num_vertices: int = ...,
    features: str | os.PathLike[str] = ...,
    labels: str | os.PathLike[str] = ...,
    target: str = ...,
) -> Search:
    """Trains with every combination of ``over``, or ``random`` draws of it; returns the
    points, best validation score first.

    over: name of a flag or "section.key" -> values to try, or a range such as "1e-4..1e-1:log" to draw from
    (``run_coordinator.search_space``). seed: of the draws. runs: seeds per point; points are ranked by their mean.
    jobs: runs to train at the same time. watch, on_done, on_epoch: as in ``siafu.repeat``. The other arguments are
    those of ``siafu.train``, for all points.

        >>> found = siafu.search("cora", {"lr": [0.01, 0.005], "hidden": [16, 32]}, runs=3)
        >>> found.best_settings, found.best.val_acc

    Raises: ConfigError for a point that is not possible, before anything is trained; else as ``siafu.train``.

    Settings, with the defaults of a run without config and preset (docs/settings.md; siafu.train tells what they mean).
    """

def resume(
    run_dir: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any] | None = None,
    on_status: Callable[[Status], None] | None = None,
    on_epoch: OnEpoch | None = None,
    parts: int = ...,
    epochs: int = ...,
    lr: float = ...,
    mode: Literal["no-pipe", "pipe", "async"] = ...,
    staleness: int = ...,
    intervals: int = ...,
    target_acc: float = ...,
    eval_every: int = ...,
    patience: int = ...,
    param_servers: int = ...,
    backend: Literal["auto", "lambda", "cpu", "gpu"] = ...,
    lambdas: int = ...,
    lambda_memory: int = ...,
    lambda_on: Literal["local", "localstack", "aws", "ray"] = ...,
    checkpoint_every: int = ...,
    checkpoint_seconds: float | str = ...,
    keep: int = ...,
    restarts: int = ...,
    budget: float = ...,
    max_time: float | str = ...,
    security: Literal["auto", "curve", "none"] = ...,
) -> Run:
    """Continues a run that a limit, a crash or Ctrl-C stopped, and returns the finished run.

    settings, on_epoch and keyword arguments: as in ``siafu.train``, such as more epochs, a higher budget, or another
    number of partitions or parameter servers. A finished run continues too, with more epochs, a higher target or more
    patience. In ``pipe``, with unchanged settings, the weights are those of a run that was never stopped, bit for bit.
    A run without a checkpoint starts from the beginning, with a warning.

    Raises: ConfigError for a run that is finished, or that cannot continue with these settings; DatasetError for
    damaged checkpoints; else as ``siafu.train``.

    Settings, by default those that the run has (docs/settings.md; siafu.train tells what they mean).
    """

def train_baseline(
    method: str,
    source: Any = ...,
    *,
    config: BaselineConfig | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    on_status: Callable[[Any], None] = ...,
    on_epoch: OnEpoch | None = None,
    partitioner: str = ...,
    order: str = ...,
    directed: bool = ...,
    feature_norm: Literal["none", "row", "standard"] = ...,
    split: int | str | os.PathLike[str] = ...,
    inductive: bool = ...,
    model: str = ...,
    layers: int = ...,
    hidden: int | list[int] | tuple[int, ...] = ...,
    dropout: float = ...,
    heads: int = ...,
    attn_dropout: float = ...,
    residual: bool = ...,
    epochs: int = ...,
    lr: float = ...,
    weight_decay: float = ...,
    seed: int = ...,
    eval_every: int = ...,
    target_acc: float = ...,
    patience: int = ...,
    stop_on: Literal["score", "loss", "both"] = ...,
    run_dir: str | os.PathLike[str] = ...,
    checkpoint_every: int = ...,
    ranks: int = ...,
    device: Literal["auto", "cpu", "cuda"] = ...,
    transport: Literal["auto", "gloo", "nccl"] = ...,
    timeout_s: float = ...,
    link_rate: float | str = ...,
    link_delay: float | str = ...,
    norm: Literal["model", "batch"] = ...,
    depth: int = ...,
    smooth: Literal["none", "F", "G", "FG"] = ...,
    gamma: float = ...,
    correct: bool = ...,
    scheme: Literal["none", "fixed", "uniform", "adaptive"] = ...,
    bits: int = ...,
    period: int = ...,
    feedback: bool = ...,
    chunks: int = ...,
    groups: int = ...,
    subgraphs: int = ...,
    per_batch: int = ...,
    interval: int = ...,
    gossip: Literal["v1", "v2"] = ...,
    slow_rank: int = ...,
    replicas: int = ...,
    fanouts: int | list[int] | tuple[int, ...] = ...,
    batch: int = ...,
    src: str = ...,
    dst: str = ...,
    weight: str = ...,
    type: str = ...,
    num_edge_types: int = ...,
    ids: str = ...,
    id: str = ...,
    num_vertices: int = ...,
    features: str | os.PathLike[str] = ...,
    labels: str | os.PathLike[str] = ...,
    target: str = ...,
) -> Run:
    """Trains with a method of ``siafu baseline`` and returns the finished run.

    source: as in ``siafu.train``; shards must have the number of parts that the method needs. Keyword arguments are the
    flags of ``siafu baseline``: ``ranks=4, smooth="FG", link_rate="25MB"``. on_epoch: as in ``siafu.train``.

        >>> siafu.train_baseline("pipegcn", "cora", ranks=2, epochs=100).test_acc

    Raises: ConfigError or DatasetError for wrong input; PeerLost for a rank that died; else the
    error that a rank raised.

    Settings, by default those that the method begins with (docs/settings.md; siafu.train tells what the others mean):

    ranks: number of processes; each uses a GPU if there is one
    device: auto: cuda if there is a GPU
    transport: auto: nccl if every rank has its own GPU, else gloo
    timeout_s: a rank counts as lost when others wait for it for this many seconds; ten minutes until the first
        epoch ends
    link_rate: emulated bytes per second of each rank's link; 0: no limit
    link_delay: emulated one-way delay of each link
    norm: batch: normalise hidden layers over all vertices of all ranks (SyncBN)
    depth: age of the halo rows and gradients that a rank uses, in epochs
    smooth: average late rows (F), late gradients (G), or both over epochs
    gamma: share of the old average in a smoothed row
    correct: correct the averages' bias towards zero, and use exact rows in the first epoch
    scheme: how bits per value of halo rows are chosen; none: do not quantise
    bits: scheme fixed: bits per value, 2, 4 or 8
    period: schemes uniform, adaptive: epochs between two assignments of bits
    feedback: add a row's quantisation error to the next epoch's row
    chunks: gnnpipe: chunks of the graph; 0: four per stage
    groups: gnnpipe: graph-parallel ranks per stage
    subgraphs: allreduce, gossip, cluster: parts of the graph, from which batches are drawn
    per_batch: allreduce, gossip, cluster: subgraphs per batch, drawn in every epoch; 0: enough to mix the
        classes
    interval: allreduce, gossip: batches between averages
    gossip: gossip: fixed roles (v1) or a work pool (v2)
    slow_rank: allreduce, gossip: rank that computes slow_factor times as long; -1: none
    replicas: cagnet: ranks that hold the same rows (c of 1.5D); 1 is 1D
    fanouts: sampling: neighbours per vertex, the last layer's first
    batch: sampling: training vertices per batch, over all ranks
    """
