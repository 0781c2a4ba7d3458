"""Weights & Biases, offline: everything stays in RUN/wandb until the user says
``wandb sync``. No account, no network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else its own failures go to a server, from its import on

import wandb as library


class WandB:
    """``wandb sync RUN/wandb/offline-run-*``"""

    def __init__(self, run_dir: Path, settings: Mapping[str, Any]):
        quiet = library.Settings(
            silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True
        )
        self._alone = library.run is None  # in a notebook the user may have a run of their own
        self._run = library.init(
            mode="offline",
            dir=str(run_dir),
            project="siafu",
            name=run_dir.name,
            config=dict(settings),
            settings=quiet,
            reinit="create_new",
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()
        if self._alone:
            library.teardown()  # ends its helper process, which else stays as long as ours
