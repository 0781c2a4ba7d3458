"""Weights on disk: safetensors with the model's description, written completely or not at all; and a digest of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from siafu.errors import ConfigError, DatasetError
from siafu.models import Model, ModelSpec
from siafu.run_files import write_whole
from siafu.sparse import Array


def check_name(path: Path) -> None:
    """Raises: ConfigError for a path that is not UTF-8: safetensors cannot open it, and would fail only at the end of
    the run."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(path)!a}: a name that is not UTF-8: rename it") from None


def digest(weights: Mapping[str, Any]) -> str:
    """Returns a hash of names, dtypes, shapes and bits, 16 hex digits."""
    state = hashlib.sha256()
    for name in sorted(weights):
        value = np.ascontiguousarray(weights[name])
        state.update(f"{name} {value.dtype.str} {value.shape}".encode())
        state.update(value.tobytes())
    return state.hexdigest()[:16]


def packed(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Packs arrays by name into a safetensors file. Keeps their dtypes, shapes (also of scalars) and bits."""
    return save({name: np.asarray(value, order="C") for name, value in tensors.items()}, dict(metadata or {}) or None)


def unpacked(data: bytes) -> dict[str, Array]:
    """Returns writable copies of the arrays of a safetensors file. Raises: DatasetError if it is not one."""
    try:
        return {name: value.copy() for name, value in load(data).items()}
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"not a file of tensors: {error}") from error


def packed_model(weights: Mapping[str, Any], spec: ModelSpec, metadata: Mapping[str, Any]) -> bytes:
    """Packs a model into the file that ``load_model`` reads, which compares the weights with ``metadata["digest"]`` if
    there is one."""
    return packed(weights, {"model": json.dumps(asdict(spec)), **{key: str(value) for key, value in metadata.items()}})


def save_model(path: Path, weights: Mapping[str, Any], spec: ModelSpec, metadata: Mapping[str, Any]) -> None:
    """Writes a model file, completely or not at all (``run_files.write_whole``). Raises: DatasetError if it cannot be
    written."""
    data = packed_model(weights, spec, {"digest": digest(weights), **metadata})
    try:
        write_whole(path, data)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror}") from error


def load_model(path: Path) -> tuple[dict[str, Array], ModelSpec]:
    """Reads weights by name, and the model that they belong to. Raises: DatasetError if the file is not a model file,
    or was altered."""
    try:
        with safe_open(str(path), "numpy") as file:
            said = file.metadata()
            raw = json.loads(said["model"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        spec = ModelSpec(**{**raw, "widths": tuple(raw["widths"])})
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not a model of siafu: {error}") from error
    if (found := digest(weights)) != said.get("digest", found):  # older files have none
        raise DatasetError(f"{path}: its weights have digest {found}, must have {said['digest']}: they were altered")
    return weights, spec


def trained_on(path: Path) -> dict[str, str]:
    """Reads the fingerprint of the data that a model was trained on; empty if its file has none. Raises: DatasetError
    if it is not a model file."""
    try:
        with safe_open(str(path), "numpy") as file:
            return dict(json.loads((file.metadata() or {}).get("data", "{}")))
    except (OSError, SafetensorError, TypeError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not a model of siafu: {error}") from error


def file_of(warm_start: str) -> Path:
    """Returns the model file that ``train.warm_start`` names: itself, or the best model in a run's directory."""
    path = Path(warm_start)
    return path / "model.safetensors" if path.is_dir() else path


def check_there(warm_start: str) -> None:
    """Raises: DatasetError if ``train.warm_start`` names no file."""
    if warm_start and not file_of(warm_start).is_file():
        raise DatasetError(f"{file_of(warm_start)}: not a model of siafu: no such file")


def first_weights(model: Model, warm_start: str) -> dict[str, Array]:
    """Returns the initial weights: the model's own, or those in ``warm_start``, a file or a run's directory.

    Raises: ConfigError for a model of other parameters or shapes, or with NaN or infinity, naming the first;
    DatasetError if the file is not a model file.
    """
    drawn = model.init()
    if not warm_start:
        return drawn
    saved, _ = load_model(file_of(warm_start))
    for name in sorted(drawn.keys() ^ saved.keys()):
        whose = "it has no" if name in drawn else "this model has no"
        raise ConfigError(f"train.warm_start = {warm_start}: {whose} {name}")
    for name, W in drawn.items():
        if saved[name].shape != W.shape:
            raise ConfigError(
                f"train.warm_start = {warm_start}: {name} is {list(saved[name].shape)}, must be {list(W.shape)}"
            )
        if not np.isfinite(saved[name]).all():
            raise ConfigError(f"train.warm_start = {warm_start}: {name} holds NaN or infinity")
    return {name: saved[name].astype(W.dtype) for name, W in drawn.items()}
