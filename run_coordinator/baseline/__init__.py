"""``siafu.train_baseline``: trains with a competing system, on the same shards and with the same metrics.

Each is started as ``python -m gpu_baselines`` once for each rank: nothing of torch is imported here.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from run_coordinator import epoch_calls, keywords, live_status, prepared, run_directory
from run_coordinator.actions import Status
from run_coordinator.baseline import launch
from run_coordinator.baseline.settings import OWN, SHARED, fitted, resolve
from run_coordinator.epoch_calls import OnEpoch
from run_coordinator.run import Run
from run_coordinator.run_config import name_of
from siafu import allotment, extras, run_files
from siafu import config as configs
from siafu.baseline import BaselineConfig
from siafu.errors import ConfigError
from siafu.pricing import cost
from siafu.run_files import CONFIG, RESULT, Result
from siafu.shards import ShardSet

#: More take minutes only to start, as each imports torch, and get less than an eighth of a core each.
RANKS_PER_CORE = 8


@keywords.spelled_out((*SHARED, *OWN), tables=True, defaults="by default those that the method begins with")
def train_baseline(
    method: str,
    source: Any = ...,
    *,
    config: BaselineConfig | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "",
    on_status: Callable[[Any], None] = lambda status: None,
    on_epoch: OnEpoch | None = None,
    **short: Any,
) -> Run:
    """Trains with a method of ``siafu baseline`` and returns the finished run.

    source: as in ``siafu.train``; shards must have the number of parts that the method needs. Keyword arguments are the
    flags of ``siafu baseline``: ``ranks=4, smooth="FG", link_rate="25MB"``. on_epoch: as in ``siafu.train``.

        >>> siafu.train_baseline("pipegcn", "cora", ranks=2, epochs=100).test_acc

    Raises: ConfigError or DatasetError for wrong input; PeerLost for a rank that died; else the
    error that a rank raised.
    """
    needs_torch()
    resolved = resolve(method, name_of(source), config, settings or {}, short, preset)
    _fits_here(resolved)
    resolved, shards, run_dir = _prepared(resolved, on_status)
    try:
        return _carried_out(resolved, shards, run_dir, on_status, resume=False, on_epoch=on_epoch)
    except ConfigError:
        if not resolved.run.dir:  # ours: a mistake that only the ranks could see leaves nothing, either
            shutil.rmtree(run_dir, ignore_errors=True)
        raise


def for_torchrun(config: BaselineConfig, on_status: Callable[[Any], None]) -> list[str]:
    """Prepares shards and a run directory, and starts nothing. Returns torchrun's last arguments: the ranks' module and
    its options.

    Raises: as ``train_baseline``, but for what ranks find.
    """
    _, shards, run_dir = _prepared(config, on_status)
    return ["-m", *launch.words(shards.path.resolve(), run_dir)]


def _prepared(config: BaselineConfig, on_status: Callable[[Any], None]) -> tuple[BaselineConfig, ShardSet, Path]:
    """Prepares shards and run directory for a new run: fitted config, shards and directory."""
    run_directory.check_free(config)
    config = config.replace({"data.parts": config.partitions})
    prepared.check_beforehand(config)
    on_status(Status(phase="preparing"))
    shards = ShardSet.open(prepared.shards_of(config))
    config = fitted(config, shards)
    prepared.built(config, shards)  # what cannot be must not cost a run directory
    cost.of_baseline(config, seconds=0)  # nor an unknown price
    on_status(Status(phase="starting", notes=shards.training_notes()))
    run_dir = run_directory.made(config, f"{shards.manifest.name}-{config.model.name}-{config.baseline.method}")
    run_directory.write_manifest(run_dir, config, shards)
    run_directory.keep_beside(run_dir, shards)
    return config, shards, run_dir


def resume(run_dir: str | Path, *, on_status: Callable[[Any], None] = lambda status: None) -> Run:
    """Continues a run from its newest checkpoint. The weights are those of a run without interruption. Raises: as
    ``train_baseline``."""
    needs_torch()
    config, folder = begun(run_dir), Path(run_dir).resolve()
    _fits_here(config)
    if (folder / RESULT).is_file():
        raise ConfigError(f"{run_dir}: it is finished")
    if not any(folder.glob("checkpoint-*/whole.json")):
        raise ConfigError(f"{run_dir}: it has no checkpoint to go on from; --checkpoint-every makes some")
    on_status(Status(phase="preparing"))
    shards = ShardSet.open(prepared.shards_of(config))
    run_directory.same_data(folder, config, shards)
    return _carried_out(config, shards, folder, on_status, resume=True)


def begun(run_dir: str | Path) -> BaselineConfig:
    """The config of the run in a directory. ConfigError if there is no run."""
    file = Path(run_dir) / CONFIG
    if not file.is_file():
        raise ConfigError(f"{run_dir}: no run there, it has no config.toml")
    return BaselineConfig.from_dict(configs.sections_of(file))


def _carried_out(
    config: BaselineConfig,
    shards: ShardSet,
    run_dir: Path,
    on_status: Callable[[Any], None],
    *,
    resume: bool,
    on_epoch: OnEpoch | None = None,
) -> Run:
    calls = epoch_calls.Calls(on_epoch, run_dir, config.train)
    with run_directory.alone(run_dir), run_directory.reads(shards.path), epoch_calls.as_raised():
        with run_directory.divergence_told(run_dir), live_status.kept(run_dir, calls.beside(on_status)) as tell:
            found = launch.run(config, shards.path.resolve(), run_dir, tell, resume=resume)
        spent = cost.of_baseline(config, seconds=found["train_seconds"] + found["evaluation_seconds"])
        result: Result = {
            **found,
            "cost": None if spent is None else spent.to_dict(),
            **run_directory.told_of_graph(shards),
            "run_dir": str(run_dir),
        }
        run_files.write_result(run_dir, result)
        calls.end()
    return Run(run_dir, result)


def _fits_here(config: BaselineConfig) -> None:
    """Raises ConfigError for more ranks than this machine starts in time: each is a process that imports torch."""
    cores = allotment.cores()
    if config.baseline.ranks > RANKS_PER_CORE * cores:
        raise ConfigError(
            f"baseline.ranks = {config.baseline.ranks}: this machine has {cores} cores and takes "
            f"{RANKS_PER_CORE * cores} ranks; --torchrun prepares a run for others"
        )


def needs_torch() -> None:
    """Raises ConfigError if torch is not installed. Does not import it: that takes seconds, and only ranks need it."""
    if importlib.util.find_spec("torch") is None:
        raise ConfigError(f"baselines need torch, which is not installed: {extras.install('gpu')}")
