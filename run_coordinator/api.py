"""``siafu.train``: a run from Python, and what the command line's ``train`` calls."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from run_coordinator import (
    epoch_calls,
    keywords,
    launch,
    live_status,
    loggers,
    prepared,
    run_config,
    run_directory,
)
from run_coordinator.actions import Status
from run_coordinator.epoch_calls import OnEpoch
from run_coordinator.lambda_emulator import lambda_site
from run_coordinator.meter import Meter
from run_coordinator.run import Run
from siafu import extras, model_file, progress, run_files
from siafu.checkpoints import TrainingState
from siafu.config import Config
from siafu.errors import ConfigError, DatasetError
from siafu.models import Model, ModelSpec
from siafu.run_files import Result, Trained
from siafu.shards import ShardSet


@keywords.spelled_out(tuple(run_config.SHORT), tables=True)
def train(
    source: Any = ...,
    *,
    config: Config | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    on_status: Callable[[Status], None] | None = None,
    on_epoch: OnEpoch | None = None,
    **short: Any,
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
    """
    resolved, in_memory = run_config.asked(source, config, settings, short, preset)
    cell = progress.of_notebook(resolved.train.epochs) if on_status is None else None
    run = from_source(resolved, on_status or cell or (lambda status: None), on_epoch, in_memory)
    if cell is not None:
        cell.end()
    return run


def from_source(
    config: Config, on_status: Callable[[Status], None], on_epoch: OnEpoch | None = None, in_memory: Any = None
) -> Run:
    """Prepares the graph and trains as a resolved config says (``run_config.resolve``). ``in_memory``: a graph that is
    the source. Raises: as ``train``."""
    # Mistakes that do not depend on the graph are found before it is prepared, which may take an hour.
    loggers.check(config.run.loggers)
    run_directory.check_free(config)
    model_file.check_there(config.train.warm_start)
    prepared.check_beforehand(config, in_memory)
    on_status(Status(phase="preparing"))
    shards_path = prepared.shards_of(config, in_memory)
    if in_memory is not None:
        config = config.replace({"data.source": str(shards_path)})  # so that the run's config.toml repeats it
    return conduct(config, shards_path, on_status, on_epoch=on_epoch)


def conduct(
    config: Config,
    shards_path: Path,
    on_status: Callable[[Status], None],
    run_dir: Path | None = None,
    before: Callable[[Model], TrainingState | None] = lambda model: None,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Trains on shards. ``run_dir``: directory of the run to continue from the state ``before``, which the caller has
    locked (``run_directory.alone``); None: a new one is made."""
    shards = ShardSet.open(shards_path)
    on_status(Status(phase="starting", notes=shards.training_notes()))
    resolved, model = prepared.ready(config, shards)  # what cannot be must not cost a run directory
    Meter(resolved)  # nor a budget without prices
    loggers.check(resolved.run.loggers)
    state = before(model)
    far = resolved.run.on == "aws"
    do = _carry_out_on_aws() if far else functools.partial(carry_out, before=state)
    told = resolved.replace({"run.loggers": ()}) if far else resolved  # there, nobody has their packages
    is_new = run_dir is None and not (resolved.run.dir and Path(resolved.run.dir).exists())
    alone: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if run_dir is None:
        run_dir = run_directory.made(resolved, f"{shards.manifest.name}-{resolved.model.name}-{resolved.train.mode}")
        alone = alone if far else run_directory.alone(run_dir)
    try:
        run_directory.keep_beside(run_dir, shards)
        calls = epoch_calls.Calls(on_epoch, run_dir, resolved.train, state.version if state else 0)
        with alone, epoch_calls.as_raised(), run_directory.divergence_told(run_dir):
            with live_status.kept(run_dir, calls.beside(on_status)) as tell:
                trained = do(told, shards, run_dir, tell)
            result: Result = {**trained, **run_directory.told_of_graph(shards), "run_dir": str(run_dir)}
            if far:
                loggers.replay(resolved, run_dir)
            run_files.write_result(run_dir, result)
            calls.end()
    except (ConfigError, DatasetError) as error:
        is_told_of = str(run_dir) in str(error)  # a log there, perhaps
        is_kept = is_told_of or run_directory.has_learnt(run_dir)
        if is_new and not is_kept:  # a mistake of the user's
            shutil.rmtree(run_dir, ignore_errors=True)
        raise
    return Run(run_dir, result)


def _carry_out_on_aws() -> Callable[..., Trained]:
    """``carry_out`` on a deployment, one of whose machines coordinates. Imported by name: only users of AWS have
    boto3."""
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
    """Trains with this process as coordinator, and returns the result. The models and all other files of the run go to
    ``run_dir``, which the caller has locked. ``before``: the state that training continues from."""
    spec = ModelSpec.of(config, shards.manifest)
    with run_directory.reads(shards.path), lambda_site(config, run_dir) as site:
        config = config.replace(site.settings)
        run_directory.write_manifest(run_dir, config, shards)
        result, weights_of = launch.run(config, shards, run_dir, on_status, site.check, before)
        site.ended(int(result["lambda"].get("invocations", 0)))
    epoch_of = {"best": result["kept"]["epoch"] if result["kept"] else result["epochs"], "final": result["epochs"]}
    data = json.dumps(dict(shards.manifest.fingerprint))
    for name, weights in weights_of.items():
        file = run_dir / ("model.safetensors" if name == "best" else f"{name}.safetensors")
        model_file.save_model(file, weights, spec, {"epoch": epoch_of[name], "data": data})
    return result
