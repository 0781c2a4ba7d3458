"""Loggers: copy a run's metrics to TensorBoard, MLflow or Weights & Biases, all into the run directory.

To add a logger: write ``run_coordinator/loggers/<name>.py`` with a class that keeps the contract, and add its line to
``LOGGERS``. ``tests/run_coordinator/loggers/test_loggers.py`` tests every logger in the table. A logger only observes:
its failures cost one warning, and never the run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from siafu import extras, run_files
from siafu.config import Config
from siafu.errors import ConfigError, one_of
from siafu.metrics import SPLITS
from siafu.run_files import Record
from siafu.table import loaded

logger = logging.getLogger(__name__)

#: ``run.loggers`` -> the class
LOGGERS = {
    "tensorboard": "run_coordinator.loggers.tensorboard:TensorBoard",
    "mlflow": "run_coordinator.loggers.mlflow:MLflow",
    "wandb": "run_coordinator.loggers.wandb:WandB",
}
#: What pip installs for each.
PACKAGES = {"tensorboard": "tensorboard", "mlflow": "mlflow-skinny", "wandb": "wandb"}

Tell = Callable[[Record], None]


class Logger(Protocol):
    """A logger. Only the coordinator's thread calls it. Any exception that it raises becomes a warning."""

    def __init__(self, run_dir: Path, settings: Mapping[str, Any]):
        """``settings``: the config as ``{"section.key": value}``. ImportError if its package is not installed."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers by name, after ``step`` epochs. Steps do not fall."""

    def close(self) -> None:
        """Flushes everything to disk and ends all threads and processes of the logger."""


def check(names: Iterable[str]) -> None:
    """Raises: ConfigError for an unknown logger, or one whose package is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise ConfigError(f"run.loggers: {name!r} is unknown, {one_of(name, LOGGERS)}")
        try:
            loaded(LOGGERS[name])
        except ImportError as error:
            raise ConfigError(f"run.loggers = {name}: {error}: {extras.pip()} install {PACKAGES[name]}") from None


@contextmanager
def opened(config: Config, run_dir: Path) -> Iterator[Tell]:
    """Yields a function that passes a record of metrics.jsonl to every logger of ``run.loggers``."""
    loggers: dict[str, Logger] = {}
    settings = config.flat()

    def attempt(name: str, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:  # other people's code at the edge of ours: the run goes on without it
            loggers.pop(name, None)
            logger.warning("run.loggers = %s: %s: %s; it is told nothing more", name, type(error).__name__, error)

    def begin(name: str) -> None:
        loggers[name] = loaded(LOGGERS[name])(run_dir, settings)

    def tell(record: Record) -> None:
        if record["event"] in ("epoch", "evaluation"):
            step, values = record["epoch"], scalars(record)
            for name, logger_ in list(loggers.items()):
                attempt(name, lambda told=logger_: told.log(step, values))  # type: ignore[misc]

    for name in config.run.loggers:
        attempt(name, lambda which=name: begin(which))  # type: ignore[misc]
    try:
        yield tell
    finally:
        for name, logger_ in list(loggers.items()):
            attempt(name, logger_.close)


def replay(config: Config, run_dir: Path) -> None:
    """Passes metrics.jsonl to the loggers of a run that was coordinated elsewhere."""
    with opened(config, run_dir) as tell:
        for record in run_files.records(run_dir):
            tell(record)


def scalars(record: Record) -> dict[str, float] | None:
    """The numbers of an epoch or an evaluation, by name: "loss", "usd", "usage/gb_s", "val/acc"; None for other
    records."""
    if record["event"] == "epoch":
        named = {name: record[name] for name in ("loss", "epoch_s", "time_s", "ghost_bytes", "usd")}
        return {**named, **{f"usage/{name}": value for name, value in record["usage"].items()}}
    if record["event"] == "evaluation":
        return {f"{split}/{name}": value for split in SPLITS for name, value in (record[split] or {}).items()}
    return None
