"""``siafu.train`` and ``Run``: a run from Python, and what the command line's ``train`` calls."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib
import json
import logging
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_data import source_flags
from graph_data.prepare import cached
from graph_data.sources.names import absolute
from run_coordinator import apply_edge, curves, intervals, launch, live_status, loggers, presets
from run_coordinator.actions import Status
from run_coordinator.lambda_emulator import lambda_site
from siafu import __version__, allotment, conditions, extras, model_file, models, progress, run_files
from siafu import config as configs
from siafu.baseline import BaselineConfig
from siafu.checkpoints import TrainingState
from siafu.config import Config, Data
from siafu.errors import ConfigError, DatasetError, listed, one_of
from siafu.evaluation import usual_eval_every
from siafu.features import STANDARD
from siafu.fingerprint import differences, of_run
from siafu.graph import TEST_NEGATIVE, TEST_PAIR, TRAIN_NEGATIVE, TRAIN_PAIR, VAL_NEGATIVE, VAL_PAIR
from siafu.models import Model, ModelSpec
from siafu.pricing.meter import Meter
from siafu.run_files import CONFIG, METRICS, OfGraph, Record, Result, Trained
from siafu.shards import CLASSES, COLUMNS, EDGE_TYPES, NAMES, ShardSet, is_prepared, read_names
from siafu.sparse import Array
from siafu.tasks import Lane, is_of_edges

logger = logging.getLogger(__name__)

#: Settings of data that mean nothing but with task link.
OF_LINKS = ("val_edges", "test_edges", "negatives", "eval_negatives")
#: Short names of keyword arguments and command-line flags -> config keys.
SHORT = configs.flags()


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run and its directory."""

    dir: Path
    result: Result  # what ``siafu train --json`` prints

    @classmethod
    def open(cls, run_dir: str | os.PathLike[str]) -> Run:
        """A run that has ended, by its directory. Raises: ConfigError for one that has not."""
        path = Path(run_dir)
        if not (path / CONFIG).is_file():
            raise ConfigError(f"{path}: not a run directory: it has no {CONFIG}")
        if (found := run_files.result(path)) is None:
            raise ConfigError(f"{path}: its run has not ended: siafu resume {path} goes on with it")
        return cls(path, found)

    @property
    def test_acc(self) -> float:
        """Test accuracy of the best epoch, by validation (``train.stop_on``), without validation vertices of the last;
        NaN without test vertices, or if a limit came before the first evaluation."""
        return float("nan") if self.result["test_acc"] is None else float(self.result["test_acc"])

    @property
    def stopped(self) -> str:
        """Why training ended: "epochs", "target", "patience", or at a limit: "budget", "time"."""
        return str(self.result["stopped"])

    def weights(self) -> dict[str, Array]:
        """The best epoch's weights, by name."""
        return model_file.load_model(self.dir / "model.safetensors")[0]

    def metrics(self) -> list[Record]:
        """The lines of metrics.jsonl."""
        return run_files.records(self.dir)

    def plot(self) -> Any:
        """Loss and scores over the epochs, as a matplotlib Figure."""
        return curves.plot(self.result, self.metrics())

    def __repr__(self) -> str:
        result = self.result
        found = (("val", result["val_acc"]), ("test", result["test_acc"])) if result["scores"] else ()
        scores = [f"{split} {progress.written(score)}" for split, score in found]
        return f"Run({', '.join([str(self.dir), *scores])})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return curves.html(self.result, self.metrics())


def train(
    source: Any = "",
    *,
    config: Config | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    on_status: Callable[[Status], None] | None = None,
    **short: Any,
) -> Run:
    """Trains a model and returns the finished run. In a notebook, progress is shown below the cell.

    source: what to train on; see ``siafu prepare --help``; or a graph in memory, also one of PyG, DGL, NetworkX or
    SciPy (``graph_data.objects``), whose shards the cache keeps. config: a Config or a TOML file to start from.
    settings: ``{"section.key": value}``. preset: "paper" for what was published of the model on this graph
    (``run_coordinator.presets``). Keyword arguments are the command line's flags: ``epochs=50, mode="pipe", parts=2``;
    also those of tables: ``siafu.train("edges.csv", features="users.csv", labels="users.csv#job")``.

        >>> run = siafu.train("digits", epochs=50)
        >>> run.test_acc

    Raises: ConfigError or DatasetError for what the user asked; PeerLost, WorkerError and others for what failed.
    """
    in_memory = None if isinstance(source, str | os.PathLike) else source
    check_in_memory(in_memory, short)
    resolved = resolve("" if in_memory is not None else os.fspath(source), config, settings, short, preset)
    cell = progress.of_notebook(resolved.train.epochs) if on_status is None else None
    on_status = on_status or cell or (lambda status: None)
    on_status(Status(phase="preparing"))
    shards_path = shards_of(resolved, in_memory)
    if in_memory is not None:
        resolved = resolved.replace({"data.source": str(shards_path)})  # so that the run's config.toml repeats it
    run = conduct(resolved, shards_path, on_status)
    if cell is not None:
        cell.end()
    return run


def check_in_memory(graph: Any, short: Mapping[str, Any]) -> None:
    """Raises: ConfigError if a keyword argument is an option of a source that is read from files, and this is none."""
    for name in source_flags.sorted_out(short)[1] if graph is not None else ():
        raise ConfigError(
            f"{name}: is for a source that is read from files, and the graph is in memory: say it where the graph is "
            "made (siafu.from_pandas, siafu.from_arrays, ...)"
        )


def conduct(
    config: Config,
    shards_path: Path,
    on_status: Callable[[Status], None],
    run_dir: Path | None = None,
    before: Callable[[Model], TrainingState | None] = lambda model: None,
) -> Run:
    """Trains on shards. ``run_dir``: of the run that goes on, from the state that
    ``before`` gives; None: one is made."""
    shards = ShardSet.open(shards_path)
    on_status(Status(phase="starting", notes=shards.notes()))
    resolved, placement = apply_edge.placed(fit(config, shards), shards)
    model = built(resolved, shards)  # what cannot be must not cost a run directory
    resolved = _with_first_weights(resolved, model, shards)
    Meter(resolved)  # nor a budget without prices
    loggers.check(resolved.run.loggers)
    state = before(model)
    far = resolved.run.on == "aws"
    do = _far_away() if far else functools.partial(carry_out, before=state)
    told = resolved.replace({"run.loggers": ()}) if far else resolved  # there, nobody has their packages
    is_new = run_dir is None and not (resolved.run.dir and Path(resolved.run.dir).exists())
    if run_dir is None:
        run_dir = made_run_dir(resolved, f"{shards.manifest.name}-{resolved.model.name}-{resolved.train.mode}")
    try:
        keep_beside(run_dir, shards)
        with live_status.kept(run_dir, on_status) as tell:
            trained = do(told, shards, run_dir, tell)
        result: Result = {**trained, **placement, **told_of_graph(shards), "run_dir": str(run_dir)}
    except (ConfigError, DatasetError) as error:
        is_told_of = str(run_dir) in str(error)  # a log there, perhaps
        if is_new and not is_told_of and not _has_learnt(run_dir):  # a mistake of the user's: there is nothing to keep
            shutil.rmtree(run_dir, ignore_errors=True)
        raise
    if far:
        loggers.replay(resolved, run_dir)
    run_files.write_result(run_dir, result)
    return Run(run_dir, result)


def told_of_graph(shards: ShardSet) -> OfGraph:
    """What a result says of the graph: "features" that siafu made ("random:F"), "notes"
    on what its source was taken for."""
    found: OfGraph = {}
    if made := shards.manifest.made_features:
        found["features"] = made
    if notes := shards.notes():
        found["notes"] = notes
    return found


def _has_learnt(run_dir: Path) -> bool:
    metrics = run_dir / METRICS
    return metrics.is_file() and '"event": "epoch"' in metrics.read_text(encoding="utf-8")


def _far_away() -> Callable[..., Trained]:
    """``carry_out`` on a deployment, one of whose machines coordinates. By name: boto3 is for those who have one."""
    try:
        module = importlib.import_module("infra.machines.remote")
    except ModuleNotFoundError as error:
        raise ConfigError(f"run.on = aws needs {error.name}: {extras.install('aws')}") from None
    found: Callable[..., Trained] = module.carry_out
    return found


def carry_out(
    config: Config,
    shards: ShardSet,
    run_dir: Path,
    on_status: Callable[[Status], None],
    before: TrainingState | None = None,
) -> Trained:
    """Trains, with this process as coordinator; what it comes to. The models, and all that a run leaves, are in
    ``run_dir``. ``before``: what it goes on from."""
    spec = ModelSpec.of(config, shards.manifest)
    with alone(run_dir), lambda_site(config, run_dir) as site:
        write_manifest(run_dir, site.config, shards)
        result, weights_of = launch.run(
            site.config, shards, shards.path.resolve(), run_dir, on_status, site.check, before
        )
    epoch_of = {"best": result["kept"]["epoch"] if result["kept"] else result["epochs"], "final": result["epochs"]}
    data = json.dumps(dict(shards.manifest.fingerprint))
    for name, weights in weights_of.items():
        file = run_dir / ("model.safetensors" if name == "best" else f"{name}.safetensors")
        model_file.save_model(file, weights, spec, {"epoch": epoch_of[name], "data": data})
    return result


@contextlib.contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Nobody else runs in this directory meanwhile. ConfigError if somebody does."""
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        if not _locked(folder):
            raise ConfigError(f"{run_dir}: this run is under way")
        yield
    finally:
        os.close(folder)


def _locked(file: int) -> bool:
    """Whether it is ours, until it is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def settings_of(assignments: Sequence[str]) -> dict[str, str]:
    """``SECTION.KEY=VALUE``, as on a command line, by key. ConfigError for one without a value."""
    settings = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: must be SECTION.KEY=VALUE")
        settings[key] = value
    return settings


def check_code(file: str | Path, settings: Mapping[str, Any]) -> None:
    """A file of settings may be somebody else's: what Lambdas import is not for it to say. ConfigError unless that is
    ours, or ``settings``, those of the command line, say it."""
    section = configs.sections_of(file).get("lambda")
    handler = section.get("handler", configs.Lambda.handler) if isinstance(section, dict) else configs.Lambda.handler
    if handler != configs.Lambda.handler and "lambda.handler" not in settings:
        raise ConfigError(
            f"{file}: lambda.handler = {handler}: a file cannot choose what code Lambdas run; if it is meant, say "
            f"--set lambda.handler={handler}"
        )


def code_of(config: Config) -> list[str]:
    """What a command line needs besides ``--config`` for a config of our own making: ``check_code``."""
    handler = config.lambdas.handler
    return [] if handler == configs.Lambda.handler else ["--set", f"lambda.handler={handler}"]


def resolve(
    source: str,
    config: Config | str | Path | None,
    settings: Mapping[str, Any] | None,
    short: Mapping[str, Any],
    preset: str = "",
    *,
    many: bool = False,
) -> Config:
    """Defaults < config < preset < settings < keyword arguments, and where tensor tasks
    run (``servers.backend``) decided.

    ``many``: it is the base of runs in several modes or on several backends, so a setting may be for some of
    them. Raises: ConfigError for a name that does not exist, and for a setting that is said and does nothing
    (``siafu.conditions``). What other settings of a run's config, or of a file, lose their meaning by what is
    said here go back to their defaults. ``short`` may hold options of the source (``graph_data.source_flags``) too,
    which its name then holds.
    """
    base = config if isinstance(config, Config) else configs.load(config) if config else Config()
    changes = dict(settings or {})
    short, options = source_flags.sorted_out(short)
    for name, value in short.items():
        if name not in SHORT:
            known = [*SHORT, *(option for option in source_flags.OPTIONS if option not in SHORT)]
            raise ConfigError(f"{name}: unknown argument, {one_of(name, known)}")
        changes[SHORT[name]] = value
    if source:
        changes["data.source"] = source
    if preset:
        asked = base.replace({key: changes[key] for key in ("data.source", "model.name") if key in changes})
        changes = {**presets.find(preset, asked).settings, **changes}
    said = changes.keys() | _said_in(config)
    resolved = base.replace(changes)
    if options:
        resolved = resolved.replace({"data.source": source_flags.with_options(resolved.data.source, options)})
    if resolved.servers.backend == "auto" and not isinstance(resolved, BaselineConfig):
        resolved = resolved.replace({"servers.backend": _backend(resolved, said)})
    far = resolved.run.on == "aws" and resolved.servers.backend == "lambda"
    if far and "lambda.on" not in said and not isinstance(config, Config):  # a Config says local as it says aws
        resolved = resolved.replace({"lambda.on": "aws"})
    if many or isinstance(resolved, BaselineConfig):
        return resolved
    conditions.refuse(resolved, changes)
    if changes and config is not None and not isinstance(config, Config):  # does the file agree with itself?
        resolve("", config, {}, {})
    elif not isinstance(config, Config):
        conditions.refuse(resolved, said)
    return resolved.replace(conditions.idle(resolved))


def _said_in(config: Config | str | Path | None) -> set[str]:
    """Keys that a TOML file sets; of a Config those that differ from their defaults, as
    who said the others is not known."""
    if config is None:
        return set()
    usual = Config().to_dict()
    if isinstance(config, Config):
        found: Mapping[str, Any] = config.to_dict()
        return {
            f"{section}.{key}"
            for section, values in usual.items()
            for key, value in values.items()
            if found[section][key] != value
        }
    return {f"{section}.{key}" for section, values in configs.sections_of(config).items() for key in values}


def _backend(config: Config, said: Collection[str]) -> str:
    """What ``servers.backend = auto`` stands for. A setting of Lambdas asks for them, but for their
    region, by which servers are priced too; servers that are elsewhere are there for Lambdas. On one
    machine alone, its own threads are faster."""
    asked = any(key.startswith("lambda.") and key != "lambda.region" for key in said)
    return "lambda" if asked or config.run.on != "local" else "cpu"


def shards_of(config: Config, in_memory: Any = None, features_as: str = "") -> Path:
    """The prepared graph: the source itself if it is one, else from the cache. ``in_memory``: a graph that is the
    source. ``features_as``: as for ``graph_data.prepare.prepare``."""
    data = config.data
    if in_memory is None and is_prepared(data.source):
        return Path(data.source)
    return cached(
        data.source if in_memory is None else in_memory,
        cache_dir=data.cache_dir,
        parts=data.parts,
        partitioner=data.partitioner,
        order=data.order,
        directed=data.directed,
        feature_norm=data.feature_norm,
        seed=data.seed,
        train_per_class=data.train_per_class,
        val_per_class=data.val_per_class,
        task=data.task,
        inductive=data.split if data.inductive else None,
        val_edges=data.val_edges,
        test_edges=data.test_edges,
        negatives=data.negatives,
        eval_negatives=data.eval_negatives,
        features_as=features_as,
    )


def num_parts(config: Config) -> int:
    """Into how many the graph is cut: what a prepared graph says, whatever ``data.parts`` asks.
    DatasetError for a damaged one."""
    if is_prepared(config.data.source):
        return ShardSet.open(config.data.source).manifest.num_partitions
    return config.data.parts


def fit(config: Config, shards: ShardSet) -> Config:
    """The config with what prepared shards have fixed already. ConfigError if it asks for something else."""
    manifest = shards.manifest
    links, inductive = manifest.edge_types == "links", manifest.edge_types == "inductive"
    held = {
        "parts": manifest.num_partitions,
        "partitioner": manifest.partitioner,
        "order": manifest.order,
        "directed": manifest.directed and not links,
        "feature_norm": manifest.feature_norm,
        "seed": manifest.seed,
        "task": "link" if links else "node",
        "inductive": inductive,
    }
    if inductive:
        held["split"] = manifest.inductive_split
    if links:
        held |= _held_of_links(config.data, shards)
    defaults = Data()
    for key, value in held.items():
        asked = getattr(config.data, key)
        if asked not in (getattr(defaults, key), value):
            told = f"{value:g}" if isinstance(value, float) else value
            raise ConfigError(f"data.{key} = {asked}: {config.data.source} was prepared with {told}")
    for key in OF_LINKS if not links else ():
        if (asked := getattr(config.data, key)) != getattr(defaults, key):
            raise ConfigError(f"data.{key} = {asked}: is for data.task = link")
    every = config.train.eval_every
    fixed = {
        "train.intervals": intervals.of(config, manifest),
        "data.source": _from_anywhere(config.data.source),
        "train.eval_every": every if every >= 0 else usual_eval_every(manifest),
    }
    return config.replace({**{f"data.{key}": value for key, value in held.items()}, **fixed})


def _from_anywhere(source: str) -> str:
    """The source as a command in any other folder finds it: what goes on with the run, predicts or exports."""
    return str(Path(source).resolve()) if is_prepared(source) else absolute(source)


def _held_of_links(asked: Data, shards: ShardSet) -> dict[str, Any]:
    """What the counts of link shards say that they were prepared with; a share that gives
    such a count is the one asked for."""
    counts = shards.manifest.type_counts
    held: dict[str, Any] = {"negatives": counts[TRAIN_NEGATIVE] // counts[TRAIN_PAIR]}  # a whole number
    edges = counts[TRAIN_PAIR] // 2 + counts[VAL_PAIR] + counts[TEST_PAIR]  # a held-out one is stored once
    for key, found in (("val_edges", counts[VAL_PAIR]), ("test_edges", counts[TEST_PAIR])):
        share = getattr(asked, key)
        held[key] = share if round(share * edges) == found else found / edges
    if (ranked := _false_edges_of_one(shards)) is not None:
        held["eval_negatives"] = ranked
    return held


def _false_edges_of_one(shards: ShardSet) -> int | None:
    """How many false edges a held-out edge is ranked among: every vertex that ranks any has as
    many. None: nothing is held out."""
    for part in range(shards.manifest.num_partitions):
        edges = shards.partition(part).in_edges
        for kind in (VAL_NEGATIVE, TEST_NEGATIVE):
            false = np.flatnonzero(np.asarray(edges.type) == kind)
            if len(false):
                row = int(np.searchsorted(edges.indptr, false[0], side="right"))  # one behind it
                return int(np.searchsorted(false, edges.indptr[row]))
    return None


def built(config: Config, shards: ShardSet) -> Model:
    """The model of a fitted config. ConfigError if there is none such, or for a setting that it would not heed."""
    model = models.build(ModelSpec.of(config, shards.manifest))
    _check_judged(config, shards)
    name, rest, write = config.model.name, config.train.weight_decay_rest, config.run.write
    if rest >= 0 and not any(model.rest(parameter) for parameter in models.shapes(model.spec)):
        raise ConfigError(f"train.weight_decay_rest = {rest:g}: {name} has no weights that are decayed otherwise")
    if config.lambdas.apply_edge == "lambda" and all(
        s.operator != "attention" for s in model.program(Lane.TRAIN).steps
    ):
        raise ConfigError(f"lambda.apply_edge = lambda: {name} has no coefficients of edges to be computed there")
    dropped = config.train.mode == "async" and config.train.stale_gradients == "drop"
    if config.lambdas.apply_edge == "lambda" and dropped:  # what it gathers before and behind the task must be the same
        raise ConfigError(
            "lambda.apply_edge = lambda: train.stale_gradients = drop needs lambda.apply_edge = server in mode async"
        )
    for key in model.unheeded:
        if (value := getattr(config.model, key)) != getattr(configs.Model(), key):
            told = list(value) if isinstance(value, tuple) else value
            raise ConfigError(f"model.{key} = {told}: {name} has one layer, and no hidden one")
    if write and (is_of_edges(write) or all(write not in step.writes for step in model.program(Lane.EVAL).steps)):
        raise ConfigError(f"run.write = {write}: {name} writes no such rows in an evaluation")
    return model


def _check_judged(config: Config, shards: ShardSet) -> None:
    """ConfigError for a setting that stops by validation where nothing is validated."""
    what = "edges" if config.data.task == "link" else "vertices"
    for key in () if shards.manifest.num_validated(config.data.split) else ("patience", "target_acc"):
        if value := getattr(config.train, key):
            raise ConfigError(
                f"train.{key} = {value:g}: {config.data.source} has no validation {what} to stop by; leave it out"
            )


def _with_first_weights(config: Config, model: Model, shards: ShardSet) -> Config:
    """The config with a warm start where servers find it. ConfigError or DatasetError if it is none for this model."""
    if not config.train.warm_start:
        return config
    if config.run.on != "local":
        raise ConfigError(
            f"train.warm_start = {config.train.warm_start}: its file is on this machine, and parameter servers are "
            f"elsewhere (run.on = {config.run.on}): it needs run.on = local"
        )
    model_file.first_weights(model, config.train.warm_start)
    file = model_file.file_of(config.train.warm_start)
    check_columns(file.parent, shards, config.data.source)
    check_labels(file.parent, shards, config.data.source)
    if bool(shards.names().get(COLUMNS)) != bool(read_names(file.parent).get(COLUMNS)):
        logger.warning(
            "train.warm_start = %s: feature columns are taken by position: one of the two has no names for them",
            config.train.warm_start,
        )
    differ = differences(model_file.trained_on(file), shards.manifest.fingerprint)
    if differ == "splits":
        logger.warning(
            "train.warm_start = %s: trained on this graph with other splits: it may have learnt "
            "labels that are scored here",
            config.train.warm_start,
        )
    elif differ:
        logger.warning("train.warm_start = %s: trained on other %s", config.train.warm_start, differ)
    return config.replace({"train.warm_start": str(Path(config.train.warm_start).resolve())})


def check_columns(run_dir: Path, shards: ShardSet, what: str) -> None:
    """Raises: ConfigError if a run's weights are for other feature columns than a graph has,
    or for the same in another order."""
    ours, theirs = read_names(run_dir).get(COLUMNS, ()), shards.names().get(COLUMNS, ())
    if ours and theirs and ours != theirs:
        pairs = zip(ours, theirs, strict=False)
        at = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
        differ = f"{len(theirs)}, not {len(ours)}" if at is None else f"column {at} is {theirs[at]!r}, not {ours[at]!r}"
        raise ConfigError(
            f"{what}: feature columns are not those that {run_dir} was trained on ({differ}): siafu prepare SOURCE "
            f"--features-as {run_dir} --out DIR takes them by name"
        )


def check_labels(run_dir: Path, shards: ShardSet, what: str, of: Sequence[str] = (CLASSES, EDGE_TYPES)) -> None:
    """Raises: ConfigError if classes, columns of labels or types of edges are partly those of a run, or in another
    order. Warns where all names differ."""
    for key in of:
        which = {CLASSES: "classes or columns of labels", EDGE_TYPES: "types of edges"}[key]
        ours, theirs = (names.get(key, ()) for names in (read_names(run_dir), shards.names()))
        if not (ours and theirs) or ours == theirs:
            continue
        if set(ours) & set(theirs):
            raise ConfigError(
                f"{what}: {which} are {listed(theirs)}, those that {run_dir} was trained on {listed(ours)}: its "
                "weights would be taken for others of them; give it these, in their order (columns of labels: "
                "--labels FILE#COLUMN,COLUMN)"
            )
        logger.warning(
            "%s: %s are %s, those of %s %s: taken by position", what, which, listed(theirs), run_dir, listed(ours)
        )


def made_run_dir(config: Config, what: str) -> Path:
    """Makes the run directory, by default named after what runs there. ConfigError if it has a run in it already."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", what)
    path = Path(config.run.dir or f"runs/{time.strftime('%Y%m%d-%H%M%S')}-{name}")
    number = 1
    while True:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=bool(config.run.dir))  # logs and graphs are their owner's
            break
        except FileExistsError:
            if config.run.dir:
                raise ConfigError(f"run.dir = {config.run.dir}: is not a directory") from None
            number += 1
            path = path.with_name(f"{path.name.rstrip('0123456789')}{number}")
        except OSError as error:
            raise ConfigError(f"run.dir = {path}: {error.strerror}") from error
    if (path / CONFIG).exists():
        raise ConfigError(f"run.dir = {path}: holds a run already")
    return path.resolve()


def write_manifest(run_dir: Path, config: Config, shards: ShardSet) -> None:
    """config.toml, and manifest.json: what ran where, on which data. ConfigError if they cannot be written."""
    graph = shards.manifest
    manifest: run_files.Manifest = {
        "siafu": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.platform(),
        "cores": allotment.cores(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **_told_before(run_dir),
        "config_digest": config.digest,
        "shards": str(shards.path.resolve()),
        "shards_digest": shards.manifest.digest,
        "data": dict(shards.manifest.fingerprint),
        "seed": config.train.seed,
        "graph": {
            "name": graph.name,
            "vertices": graph.num_vertices,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
        },
    }
    try:
        (run_dir / CONFIG).write_text(configs.dump(config))
        (run_dir / run_files.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"run.dir = {run_dir}: {error.strerror}") from error


def same_data(run_dir: Path, config: Config, shards: ShardSet) -> None:
    """ConfigError, saying what differs, unless a run that goes on finds the data that it was trained on."""
    if differ := differences(of_run(run_dir), shards.manifest.fingerprint):
        raise ConfigError(
            f"{config.data.source}: its {differ} differ from those that {run_dir} was trained on: a run goes on with "
            "its own data alone; train a new one (--warm-start takes the weights)"
        )


def keep_beside(run_dir: Path, shards: ShardSet) -> None:
    """What ``siafu predict`` must know of the run's graph to take another one: what it calls classes and types of edges
    (names.json), by what its features were standardised (standard.npy). ConfigError if it cannot be written."""
    try:
        for name in (NAMES, STANDARD):
            if (shards.path / name).is_file() and not (run_dir / name).exists():
                shutil.copyfile(shards.path / name, run_dir / name)
    except OSError as error:
        raise ConfigError(f"run.dir = {run_dir}: {error.strerror}") from error


def _told_before(run_dir: Path) -> run_files.Manifest:
    """When a run that goes on was started, and each time that it went on."""
    try:
        known = json.loads((run_dir / run_files.MANIFEST).read_text())
        return {
            "started": known["started"],
            "resumed": [*known.get("resumed", []), time.strftime("%Y-%m-%dT%H:%M:%S%z")],
        }
    except (OSError, ValueError, KeyError):
        return {}
