"""Makes and locks a run's directory, and records what runs in it and on which data."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from siafu import __version__, allotment, outputs, run_files
from siafu import config as configs
from siafu.config import Config
from siafu.errors import ConfigError, Diverged
from siafu.features import STANDARD
from siafu.fingerprint import differences, of_run
from siafu.locks import EXCLUSIVE, SHARED, locked
from siafu.run_files import CONFIG, DIVERGED, METRICS, OfGraph, write_whole
from siafu.shards import NAMES, ShardSet


def made(config: Config, what: str) -> Path:
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
    check_free(config)
    return path.resolve()


def check_free(config: Config) -> None:
    """Raises: ConfigError if ``run.dir`` holds a run, or cannot be made."""
    path = config.run.dir
    outputs.check_folder("run.dir", path or "runs")
    if path and Path(path, CONFIG).exists():
        raise ConfigError(f"run.dir = {path}: holds a run already; siafu resume {shlex.quote(path)} continues it")


#: Longer than ``is_under_way`` looks, seconds.
LOOK_S = 0.2


@contextlib.contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Locks the directory for this run, if its file system has locks. ConfigError if another run holds the lock."""
    folder = os.open(run_dir, os.O_RDONLY)
    deadline = time.monotonic() + LOOK_S
    try:
        while not locked(folder):
            if time.monotonic() >= deadline:
                raise ConfigError(f"{run_dir}: this run is under way")
            time.sleep(LOOK_S / 20)
        yield
    finally:
        os.close(folder)


def is_under_way(run_dir: Path) -> bool:
    """Whether a run holds the directory's lock (``alone``); False if the file system has no locks."""
    return _is_locked(run_dir, SHARED)  # so that those who look do not take each other for a run


@contextlib.contextmanager
def reads(shards: Path) -> Iterator[None]:
    """Makes ``is_read`` of this prepared graph true in every process while the block runs; not if the file system has
    no locks."""
    folder = os.open(shards, os.O_RDONLY)
    try:
        locked(folder, SHARED, wait=True)
        yield
    finally:
        os.close(folder)


def is_read(shards: Path) -> bool:
    """Whether an active run reads this folder, wherever the run's directory is."""
    return _is_locked(shards, EXCLUSIVE)


def _is_locked(path: Path, kind: int) -> bool:
    """Whether another process holds a lock on the folder that conflicts with this kind of lock."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # a file, or gone
        return False
    try:
        return not locked(folder, kind)
    finally:
        os.close(folder)


def write_manifest(run_dir: Path, config: Config, shards: ShardSet) -> None:
    """Writes config.toml, and manifest.json: software, machine and data of the run. ConfigError if they cannot be
    written."""
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
            "weights": graph.weighted,
            "types": graph.edge_types == "relations",
        },
    }
    try:
        write_whole(run_dir / CONFIG, configs.dump(config).encode())
        write_whole(run_dir / run_files.MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"run.dir = {run_dir}: {error.strerror}") from error


def same_data(run_dir: Path, config: Config, shards: ShardSet) -> None:
    """Raises ConfigError, naming the difference, if a continued run would train on other data than before."""
    if differ := differences(of_run(run_dir), shards.manifest.fingerprint):
        raise ConfigError(
            f"{config.data.source}: its {differ} differ from those that {run_dir} was trained on: a run goes on with "
            "its own data alone; train a new one (--warm-start takes the weights)"
        )


def keep_beside(run_dir: Path, shards: ShardSet) -> None:
    """Copies into the run directory what ``siafu predict`` needs for another graph: names of classes and edge types
    (names.json), means and deviations of features (standard.npy). ConfigError if it cannot be written."""
    try:
        for name in (NAMES, STANDARD):
            if (shards.path / name).is_file() and not (run_dir / name).exists():
                shutil.copyfile(shards.path / name, run_dir / name)
    except OSError as error:
        raise ConfigError(f"run.dir = {run_dir}: {error.strerror}") from error


def _told_before(run_dir: Path) -> run_files.Manifest:
    """The start time of a run that continues, and the times of all its continuations."""
    known = run_files.manifest(run_dir)
    if "started" not in known:
        return {}
    return {
        "started": known["started"],
        "resumed": [*known.get("resumed", []), time.strftime("%Y-%m-%dT%H:%M:%S%z")],
    }


@contextlib.contextmanager
def divergence_told(run_dir: Path) -> Iterator[None]:
    """Notes in the run directory if training diverges in this block (``run_files.divergence``)."""
    (run_dir / DIVERGED).unlink(missing_ok=True)  # of before: now it may end otherwise
    try:
        yield
    except Diverged as error:
        with contextlib.suppress(OSError):  # a full disk: the error itself is what matters
            run_files.write_divergence(run_dir, error)
        raise


def told_of_graph(shards: ShardSet) -> OfGraph:
    """The result's notes on the graph: "features" that siafu made ("random:F"), "notes" on how its source was read."""
    found: OfGraph = {}
    if made := shards.manifest.made_features:
        found["features"] = made
    if notes := shards.training_notes():
        found["notes"] = notes
    return found


def has_learnt(run_dir: Path) -> bool:
    metrics = run_dir / METRICS
    return metrics.is_file() and '"event": "epoch"' in metrics.read_text(encoding="utf-8")
