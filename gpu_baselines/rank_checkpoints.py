"""Checkpoints of a baseline: a folder per epoch, a file per rank, and a last file that makes it complete."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from gpu_baselines.clock import PHASES
from gpu_baselines.group import Group
from gpu_baselines.run import Method
from siafu.errors import DatasetError
from siafu.run_files import Evaluation, write_whole
from siafu.stopping import Stopping

FOLDER, WHOLE = "checkpoint-{epoch}", "whole.json"


@dataclass
class Progress:
    """State that changes from epoch to epoch; every checkpoint has it."""

    epoch: int = 0  # the next one
    losses: list[float] = field(default_factory=list)
    epoch_seconds: list[float] = field(default_factory=list)
    # of all epochs, mean over ranks
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    bytes: dict[str, int] = field(default_factory=dict)  # of all epochs and ranks
    links: list[list[int]] = field(default_factory=list)  # of these, halo rows and gradients: by sender and receiver
    best: Evaluation | None = None
    final: Evaluation | None = None
    setup_s: float = 0.0  # from the start of the process to the start of training, of all sessions
    time_s: float = 0.0  # since then, over all sessions, without evaluations
    evaluation_s: float = 0.0  # of evaluations, over all sessions
    stopped: str = ""  # why there is no next epoch; "": there is one


def save(
    run_dir: Path, group: Group, method: Method, progress: Progress, stopping: Stopping, best: dict[str, Any]
) -> None:
    """Saves a checkpoint, and removes older ones once it is complete. Collective. Raises: DatasetError if it cannot be
    written."""
    folder = run_dir / FOLDER.format(epoch=progress.epoch)
    tensors = {f"state.{name}": value.detach().cpu().contiguous() for name, value in method.state().items()}
    if not group.rank:
        tensors |= {f"weights.{name}": torch.from_numpy(W) for name, W in method.net.weights().items()}
        tensors |= {f"best.{name}": torch.from_numpy(np.array(W)) for name, W in best.items()}
    try:
        folder.mkdir(exist_ok=True)
        file = folder / f"rank-{group.rank}.safetensors"
        save_file(tensors, file)
        with open(file, "rb") as written:
            os.fsync(written.fileno())  # before older ones go
        group.barrier()
        if not group.rank:
            text = json.dumps({"progress": asdict(progress), "stopping": _finite(vars(stopping)), "ranks": group.size})
            write_whole(folder / WHOLE, text.encode())
            for old in run_dir.glob(FOLDER.format(epoch="*")):
                if old != folder:
                    shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be written: {error.strerror}") from error
    except SafetensorError as error:
        raise DatasetError(f"{folder}: cannot be written: {error}") from error


def load(run_dir: Path, group: Group, method: Method) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Restores the newest complete checkpoint; returns its progress and best weights. None: there is none. Collective.

    Raises: DatasetError for an unreadable one, or if ranks do not find the same: a run directory on several machines.
    """
    whole = sorted(
        run_dir.glob(f"{FOLDER.format(epoch='*')}/{WHOLE}"), key=lambda file: int(file.parent.name.split("-")[1])
    )
    found = group.share(whole[-1].parent.name if whole else "none")
    if len(set(found)) > 1:
        told = ", ".join(f"rank {rank}: {name}" for rank, name in enumerate(found))
        raise DatasetError(f"{run_dir}: ranks find different checkpoints ({told}): they must all see one run directory")
    if not whole:
        return None
    folder = whole[-1].parent
    saved = json.loads(whole[-1].read_text())
    if saved["ranks"] != group.size:
        raise DatasetError(f"{folder}: of {saved['ranks']} ranks, there are {group.size}")
    try:
        zero, mine = load_file(folder / "rank-0.safetensors"), load_file(folder / f"rank-{group.rank}.safetensors")
    except (OSError, SafetensorError) as error:
        raise DatasetError(f"{folder}: not readable: {error}") from error
    method.net.load({name: W.numpy() for name, W in _under("weights.", zero).items()})
    method.restore(_under("state.", mine))
    saved["stopping"] = {key: _number(value) for key, value in saved["stopping"].items()}
    return saved, {name: W.numpy() for name, W in _under("best.", zero).items()}


def _under(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _number(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf") else value
