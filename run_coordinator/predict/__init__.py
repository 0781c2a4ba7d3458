"""``siafu.predict``: what a run's model says of every vertex of a graph.

The graph is cut, and evaluated layer by layer, by the servers of a run that trains for no epoch: the parameter servers
begin with the saved weights, and every graph server writes down the rows of one slot as they come (``run.write``). So
the scores are those of the run's own evaluation, to the last bit where the partitions are the same.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.renumbered import renumbered
from graph_data.sources import ids as source_ids
from run_coordinator import api
from run_coordinator.actions import Status
from run_coordinator.predict.files import Block, Sheet, check, opened
from run_coordinator.predict.joined import JoinedRows
from run_coordinator.predict.plan import Plan, plan_of
from siafu.errors import ConfigError, DatasetError
from siafu.shards import ROWS_FOLDER, ShardSet
from siafu.sparse import Array

#: Values of all rows that are joined and written together.
BLOCK_VALUES = 1 << 22


@dataclass(frozen=True)
class Predictions:
    """Arrays in the order of the graph's vertices."""

    ids: Array  # [N] what the source calls them
    values: Array  # [N, C] probabilities or logits; numbers of a regression; the embedding of a layer
    classes: Array | None  # int64 [N]; bool [N, C] where a vertex may have several; None: nothing is classified
    result: Mapping[str, Any]  # what ``siafu predict --json`` prints


def predict(
    run: api.Run | str | Path,
    *,
    graph: str = "",
    layer: int | None = None,
    scores: str = "probabilities",
    settings: Mapping[str, Any] | None = None,
    on_status: Callable[[Status], None] = lambda status: None,
) -> Predictions:
    """What the model of a run says of every vertex.

    graph: another one with as many features, prepared and standardised as the run's was; its classes and types of edges
    are the run's of the same names, or without names, numbers. layer: the activations that enter this layer (the number
    of layers: logits) instead of ``scores``, "probabilities" or "logits". settings: ``{"section.key": value}``.

        >>> siafu.predict(run).classes
        array([3, 0, 4, ...])

    Raises: ConfigError or DatasetError for what the user asked; PeerLost, WorkerError and others for what failed.
    """
    with _evaluated(run, graph, layer, scores, settings, on_status) as (sheet, blocks, result):
        found = list(blocks)
        ids = np.concatenate([np.asarray(block.ids) for block in found])
        values = np.concatenate([block.values for block in found])
        classes = np.concatenate([block.decided for block in found]) if sheet.classifies else None
    return Predictions(ids, values, classes, result)


def predict_to(
    out: str | Path,
    run: api.Run | str | Path,
    *,
    graph: str = "",
    layer: int | None = None,
    scores: str = "probabilities",
    settings: Mapping[str, Any] | None = None,
    on_status: Callable[[Status], None] = lambda status: None,
) -> dict[str, Any]:
    """The same, written to a .parquet, .csv or .npy file block by block, whole or not
    at all; what ``--json`` prints."""
    check(out)
    with _evaluated(run, graph, layer, scores, settings, on_status) as (sheet, blocks, result):
        on_status(Status(phase="writing"))
        with opened(out) as write:
            for block in blocks:
                write(sheet, block)
    return {**result, "out": str(out)}


@contextmanager
def _evaluated(
    run: api.Run | str | Path,
    graph: str,
    layer: int | None,
    scores: str,
    settings: Mapping[str, Any] | None,
    on_status: Callable[[Status], None],
) -> Iterator[tuple[Sheet, Iterator[Block], dict[str, Any]]]:
    """What is predicted, block by block while the ``with`` block runs, and the result for ``--json``."""
    run_dir = run.dir if isinstance(run, api.Run) else Path(run)
    on_status(Status(phase="preparing"))
    plan = plan_of(run_dir, graph=graph, layer=layer, scores=scores, settings=settings or {})
    shards = ShardSet.open(api.shards_of(plan.config, features_as=plan.features_as))
    plan = plan.fitted(shards)
    on_status(Status(phase="starting", notes=shards.notes()))
    work = _work_dir(run_dir)
    try:
        shown = renumbered(shards, work / "graph", *plan.numbers) if any(plan.numbers) else shards
        ended = api.carry_out(plan.config, shown, work, on_status)
    except ConfigError:
        shutil.rmtree(work, ignore_errors=True)
        raise
    sheet = Sheet(plan.kind, plan.spec.num_classes if plan.kind != "embedding" else 0, plan.classes)
    rows = JoinedRows(work / ROWS_FOLDER, shards)
    yield sheet, _blocks(plan, rows, shards), _result(plan, run_dir, shards, rows, ended)
    shutil.rmtree(work, ignore_errors=True)  # after a failure it stays, but for a mistake of the user: its logs say why


def _work_dir(run_dir: Path) -> Path:
    """Beside the run's own files: parts of predictions may be as large as the graph."""
    try:
        return Path(tempfile.mkdtemp(prefix="predict-", dir=run_dir)).resolve()
    except OSError as error:
        raise ConfigError(f"{run_dir}: cannot be written: {error.strerror}") from error


def _blocks(plan: Plan, rows: JoinedRows, shards: ShardSet) -> Iterator[Block]:
    ids = source_ids.load(shards.path)
    num_rows = max(1, BLOCK_VALUES // rows.width)
    for start in range(0, rows.num_rows, num_rows):
        stop = min(start + num_rows, rows.num_rows)
        values = rows[start:stop]
        if not np.isfinite(values).all():
            raise DatasetError(f"{plan.run_dir}: its model gives NaN or infinity on {shards.manifest.name}")
        yield Block.of(plan.kind, _ids_of(ids, start, stop), values)


def _ids_of(ids: Any, start: int, stop: int) -> Any:
    """int64 [n], or an Arrow array of names."""
    if ids is None:
        return np.arange(start, stop)
    return ids.values.slice(start, stop - start) if isinstance(ids, source_ids.NamedIds) else ids[start:stop]


def _result(plan: Plan, run_dir: Path, shards: ShardSet, rows: JoinedRows, ended: Mapping[str, Any]) -> dict[str, Any]:
    split = shards.manifest.splits[plan.config.data.split] if shards.manifest.splits else None
    judged = split is not None and bool(split.val + split.test + split.train)
    return {
        "run_dir": str(run_dir),
        "graph": plan.config.data.source,
        "what": plan.kind,
        "layer": plan.layer,
        "vertices": rows.num_rows,
        "columns": rows.width,
        "scores": ended["scores"] if judged else None,
        "weights_digest": ended["weights_digest"],
        "lambda": ended["lambda"],
        "cost": ended["cost"],
    }
