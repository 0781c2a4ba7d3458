"""``siafu resume``: continues a run from its newest checkpoint, with its own or with other settings."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from run_coordinator import api, keywords, prepared, run_config, run_directory
from run_coordinator.actions import Status
from run_coordinator.epoch_calls import OnEpoch
from run_coordinator.lambda_emulator import as_asked
from run_coordinator.meter import LIMITS
from run_coordinator.run import Run
from siafu import config as configs
from siafu import outputs, run_files
from siafu.checkpoints import Store, TrainingState, mirror_of
from siafu.config import REPARTITIONS, Config, Data, Train
from siafu.errors import ConfigError
from siafu.models import Model
from siafu.run_files import CONFIG
from siafu.schedules import learning_rate
from siafu.shards import ShardSet

logger = logging.getLogger(__name__)

#: Why a run ended -> the flag that lets it go on.
_MORE = {"target": "a higher --target-acc", "patience": "a higher --patience", "epochs": "a higher --epochs"}
#: Flags of ``siafu train`` that a run may be given anew: those that leave the model and
#: what it learns from as they are.
FLAGS = (
    "parts",
    "epochs",
    "lr",
    "mode",
    "staleness",
    "intervals",
    "target_acc",
    "eval_every",
    "patience",
    "param_servers",
    "backend",
    "lambdas",
    "lambda_memory",
    "lambda_on",
    "checkpoint_every",
    "checkpoint_seconds",
    "keep",
    "restarts",
    "budget",
    "max_time",
    "security",
)
#: Sections and keys that what was learnt depends on.
_FIXED = ("model.", "train.optimizer", *(f"data.{f.name}" for f in fields(Data) if f.name not in REPARTITIONS))


@keywords.spelled_out(FLAGS, defaults="by default those that the run has")
def resume(
    run_dir: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any] | None = None,
    on_status: Callable[[Status], None] | None = None,
    on_epoch: OnEpoch | None = None,
    **short: Any,
) -> Run:
    """Continues a run that a limit, a crash or Ctrl-C stopped, and returns the finished run.

    settings, on_epoch and keyword arguments: as in ``siafu.train``, such as more epochs, a higher budget, or another
    number of partitions or parameter servers. A finished run continues too, with more epochs, a higher target or more
    patience. In ``pipe``, with unchanged settings, the weights are those of a run that was never stopped, bit for bit.
    A run without a checkpoint starts from the beginning, with a warning.

    Raises: ConfigError for a run that is finished, or that cannot continue with these settings; DatasetError for
    damaged checkpoints; else as ``siafu.train``.
    """
    path = Path(run_dir).resolve()
    config = resolve(path, settings or {}, short)
    outputs.check_folder("run", path)
    prepared.check_beforehand(config)
    on_status = on_status or (lambda status: None)
    with run_directory.alone(path):  # a run under way saves checkpoints, which are tidied up before they are read
        on_status(Status(phase="preparing"))
        shards = ShardSet.open(prepared.shards_of(config))
        run_directory.same_data(path, config, shards)  # before the run's manifest is written again
        before = functools.partial(_state, path, config, shards)
        return api.conduct(config, shards.path, on_status, path, before, on_epoch)


def resolve(run_dir: Path, settings: Mapping[str, Any], short: Mapping[str, Any]) -> Config:
    """The run's config with the new settings. ConfigError for a setting that cannot change, or a run on AWS."""
    if not (run_dir / CONFIG).is_file():
        raise ConfigError(f"{run_dir}: not a run directory: it has no {CONFIG}")
    known = as_asked(configs.load(run_dir / CONFIG), run_dir)
    config = run_config.resolve("", known, settings, short).replace({"run.dir": str(run_dir)})
    before = known.flat()
    for key, value in config.flat().items():
        if value != before[key] and key.startswith(_FIXED):
            raise ConfigError(f"{key} = {value}: the run has {before[key]}, and cannot go on otherwise")
    if config.run.on == "aws":
        raise ConfigError(
            f"{run_dir}: its coordinator is on AWS (run.on = aws): siafu attach follows it there; --set run.on=local "
            "--lambda-on local goes on with it here"
        )
    return config


def _state(run_dir: Path, config: Config, shards: ShardSet, model: Model) -> TrainingState | None:
    """The newest checkpoint. ConfigError if the run is finished, or already has more epochs than asked for."""
    before = configs.load(run_dir / CONFIG).train
    stopped, epochs = _ended(run_dir)
    if stopped and not _goes_on(stopped, epochs, before, config.train):
        raise ConfigError(
            f"{run_dir}: is finished ({stopped}); {_MORE[stopped]} goes on, and siafu train --warm-start {run_dir} "
            "begins with its weights"
        )
    mirror = mirror_of(config.run.checkpoint_to, run_dir.name)
    data = shards.manifest.fingerprint
    state = Store(run_dir / "checkpoints", model.spec, config.digest, data, config.run.keep, mirror).newest(fetch=True)
    if state is None:
        logger.warning("%s: no checkpoint: begins anew", run_dir)
        return None
    if config.train.epochs < state.version:
        raise ConfigError(
            f"train.epochs = {config.train.epochs}: {run_dir} has {state.version} already, must be at least as many"
        )
    last = state.version - 1
    if config.train.epochs == state.version and state.ledger["judged"] >= last:
        raise ConfigError(f"train.epochs = {config.train.epochs}: {run_dir} has as many already, must be more")
    if last >= 0 and learning_rate(last, before) != learning_rate(last, replace(before, epochs=config.train.epochs)):
        logger.warning(
            "learning rates from epoch %d on are those of a run of %d epochs: the weights will be no such run's",
            state.version,
            config.train.epochs,
        )
    return state


def _goes_on(stopped: str, epochs: int, before: Train, now: Train) -> bool:
    """Whether a run that ended for this reason, after that many epochs, can continue with its new settings."""
    if stopped == "target":
        return not 0 < now.target_acc <= before.target_acc
    if stopped == "patience":
        return not 0 < now.patience <= before.patience
    return stopped in LIMITS or epochs < now.epochs


def _ended(run_dir: Path) -> tuple[str, int]:
    """The reason why the run ended and its number of epochs; "" for an unfinished run."""
    try:
        found = run_files.result(run_dir)
    except ConfigError:  # it was cut short
        found = None
    return (found["stopped"], found["epochs"]) if found else ("", 0)
