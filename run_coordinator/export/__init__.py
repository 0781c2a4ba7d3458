"""``siafu.export``: a run's model as a module of another library, which gives the same logits.

The export has source (copied from ``run_coordinator.export.modules``), weights, settings and a README; none of it needs
siafu. Before an export gets its name, it runs on the run's own graph, and its logits are compared with those of our
servers.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from run_coordinator import prepared
from run_coordinator.actions import Status
from run_coordinator.export import exported
from run_coordinator.export.readme import readme
from run_coordinator.export.source import source
from run_coordinator.export.weights import form, settings, state
from run_coordinator.export.whole import Inputs, inputs_of
from run_coordinator.predict import predict
from siafu import model_file, outputs
from siafu.baseline import load
from siafu.errors import ConfigError, GnnError, one_of
from siafu.features import STANDARD, Standard
from siafu.models import ModelSpec, operators
from siafu.run_files import CONFIG
from siafu.shards import NAMES, NOTES, TABLE_COLUMNS, ShardSet, read_names
from siafu.sparse import Array

TARGETS = ("torch", "pyg", "dgl", "onnx")
#: Logits may differ by so much, times the largest of ours, and 1 at least: float32 sums in another order.
TOLERANCE = 1e-5
#: Layers of the libraries that take no weights of edges, or mean another thing by them.
UNWEIGHTED = {"pyg": {"sage", "gat", "gin", "rgcn"}, "dgl": {"sage", "gat", "gin", "rgcn"}}
#: Layers that normalise by out-degrees where ours take in-degrees.
UNDIRECTED = {"dgl": {"gcnii", "appnp", "sgc"}}


def export(
    run: str | os.PathLike[str],
    *,
    to: str,
    out: str | Path,
    on_status: Callable[[Status], None] = lambda status: None,
) -> dict[str, Any]:
    """Writes the model of a run to the folder ``out`` as a module of "torch", "pyg", "dgl" or "onnx".

    Returns what ``siafu export --json`` prints: with ``max_abs_logit_difference`` on the run's own graph.

        >>> siafu.export(run, to="pyg", out="exported")

    Raises: ConfigError for a model that this format cannot hold, or a missing package; GnnError if logits differ.
    """
    run_dir, out = Path(run), Path(out)
    if to not in TARGETS:
        raise ConfigError(f"to = {to!r}: {one_of(to, TARGETS)}")
    model_file.check_name(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"out = {out}: exists already")
    outputs.check_folder("out", out)
    if not (run_dir / "model.safetensors").is_file():
        raise ConfigError(f"{run_dir}: not a finished run: it has no model.safetensors")
    weights, spec = model_file.load_model(run_dir / "model.safetensors")
    if spec.target == "links":
        raise ConfigError(f"--to {to}: link prediction cannot be exported; siafu predict writes its embeddings")
    form(spec)
    python = exported.interpreter(to)
    reference = {"servers.backend": "cpu", "run.on": "local", "model.rows": "exact"}
    ours = predict(run_dir, scores="logits", settings=reference, on_status=on_status)
    on_status(Status(phase="exporting"))
    shards = _shards(run_dir)
    inputs = inputs_of(shards, typed="typed" in operators(spec.name), dtype=spec.dtype)
    _check(spec, to, inputs, directed=shards.manifest.directed)
    return _write(out, to, spec, weights, inputs, python, ours.values, run_dir)


def _shards(run_dir: Path) -> ShardSet:
    return ShardSet.open(prepared.shards_of(load(run_dir / CONFIG)))


def _check(spec: ModelSpec, to: str, inputs: Inputs, *, directed: bool) -> None:
    if directed and spec.name in UNDIRECTED.get(to, ()):
        raise ConfigError(
            f"--to {to}: its {spec.name} layers are for undirected graphs, and this one is directed; --to torch does"
        )
    if inputs.edge_weight is not None and spec.name in UNWEIGHTED.get(to, ()):
        raise ConfigError(
            f"--to {to}: its {spec.name} layers take no edge weights, and this graph has some; --to torch does"
        )


def _write(
    out: Path,
    to: str,
    spec: ModelSpec,
    weights: Mapping[str, Array],
    inputs: Inputs,
    python: str,
    ours: Array,
    run_dir: Path,
) -> dict[str, Any]:
    """Writes into a folder beside ``out``, and renames it to ``out`` when the logits agree."""
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    except OSError as error:
        raise ConfigError(f"out = {out}: {error.strerror}") from error
    try:
        (beside / "model.py").write_text(source(spec.name, to))
        norm = _norm_of(run_dir)
        told = {**settings(spec), "feature_norm": norm, "target": spec.target}
        (beside / "settings.json").write_text(json.dumps(told, indent=1) + "\n")
        save_file(state(spec, weights, to), str(beside / "weights.safetensors"))
        names = _keep_meanings(run_dir, beside)
        given = inputs if to == "onnx" else replace(inputs, x=_as_in_source(inputs.x, norm, run_dir))
        difference, scale = _compared(ours, exported.logits(python, to, beside, given))
        limit = TOLERANCE * max(1.0, scale)
        if not difference <= limit:
            raise GnnError(
                f"--to {to}: its logits differ from ours by up to {difference:.3g}, the limit is {limit:.3g}"
            )
        (beside / "README.md").write_text(readme(spec, to, inputs, tuple(names), norm))
        beside.chmod(0o755)
        if out.is_dir():
            out.rmdir()
        beside.rename(out)
    except OSError as error:
        raise ConfigError(f"out = {out}: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return {
        "out": str(out),
        "to": to,
        "model": spec.name,
        "files": sorted(path.name for path in out.iterdir()),
        "vertices": len(ours),
        "max_abs_logit_difference": difference,
        "max_abs_logit": scale,
        "tolerance": limit,
    }


def _norm_of(run_dir: Path) -> str:
    """The normalisation that the exported model applies to features; "none" for a standardised run that lacks its
    means."""
    norm = str(load(run_dir / "config.toml").data.feature_norm)
    return "none" if norm == "standard" and not (run_dir / STANDARD).is_file() else norm


def _keep_meanings(run_dir: Path, beside: Path) -> dict[str, tuple[str, ...]]:
    """Copies the run's names of columns, classes and edge types, and its means and deviations, into the folder."""
    names = {key: called for key, called in read_names(run_dir).items() if key not in (NOTES, *TABLE_COLUMNS)}
    if names:
        (beside / NAMES).write_text(json.dumps(names, ensure_ascii=False, indent=1) + "\n", "utf-8")
    if (run_dir / STANDARD).is_file():
        shutil.copyfile(run_dir / STANDARD, beside / STANDARD)
    return names


def _as_in_source(x: Array, norm: str, run_dir: Path) -> Array:
    """Features before standardisation, for ``load``'s model to standardise again. float64, so that it gets ``x`` back.
    Row-normalised features stay as they are: normalising them again changes nothing."""
    standard = Standard.load(run_dir) if norm == "standard" else None
    if standard is None:
        return x
    return np.where(np.isinf(standard.deviation), 0, x * np.nan_to_num(standard.deviation, posinf=0)) + standard.mean


def _compared(ours: Array, theirs: Array) -> tuple[float, float]:
    """The largest difference, and the largest absolute value of our logits."""
    if ours.shape != theirs.shape:
        raise GnnError(f"its logits are {list(theirs.shape)}, ours {list(ours.shape)}")
    return float(np.abs(ours - theirs).max(initial=0)), float(np.abs(ours).max(initial=0))
