"""``siafu.predict``: applies a run's model to every vertex of a graph.

The servers of a run that trains for no epoch cut the graph and evaluate it layer by layer. The parameter servers begin
with the saved weights, and every graph server writes the rows of one slot to files as they are computed
(``run.write``). So the scores equal those of the run's own evaluation, to the last bit if the partitions are the same.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from graph_data import source_flags
from graph_data.chosen import UNKNOWN
from graph_data.objects import graph_of
from graph_data.renumbered import renumbered
from graph_data.sources import ids as source_ids
from graph_data.sources.names import check_files
from run_coordinator import api, prepared
from run_coordinator.actions import Status
from run_coordinator.predict.files import Block, Sheet
from run_coordinator.predict.joined import JoinedRows
from run_coordinator.predict.plan import Plan, plan_of
from run_coordinator.predict.predictions import Predictions as Predictions
from run_coordinator.run_config import name_of
from siafu.baseline import load
from siafu.errors import ConfigError, DatasetError
from siafu.run_files import CONFIG
from siafu.shards import ROWS_FOLDER, ShardSet, is_prepared
from siafu.sparse import Array

#: Values of all rows that are joined and written together.
BLOCK_VALUES = 1 << 22


def predict(
    run: str | os.PathLike[str],
    *,
    graph: Any = ...,
    layer: int | None = None,
    scores: str = "probabilities",
    settings: Mapping[str, Any] | None = None,
    on_status: Callable[[Status], None] = lambda status: None,
) -> Predictions:
    """Predicts every vertex of a graph with the model of ``run``, a ``siafu.Run`` or its directory.

    graph: another graph with as many features, by its name or in memory (``siafu.from_pandas``, ...). It is prepared
    and standardised as the run's graph was; classes and edge types are matched by name, or by number without names.
    scores: "probabilities" or "logits". layer: instead of scores, the activations that enter this layer (the number
    of layers: logits). settings: ``{"section.key": value}``.

        >>> siafu.predict(run).to_pandas()
             id   class    true  split    p_cook   p_smith
        0   ann    cook    cook  train    0.9312    0.0688

    Warns of categories that the run does not have. Raises: ConfigError or DatasetError for wrong input; PeerLost,
    WorkerError and others for failures.
    """
    graph = name_of(graph, "graph") if graph is ... or isinstance(graph, str | os.PathLike) else graph
    with evaluated(run, graph, layer, scores, settings, on_status) as (sheet, blocks, result):
        for note in result["notes"]:
            if UNKNOWN in note:
                warnings.warn(note, stacklevel=2)
        return Predictions.of(sheet, list(blocks), result)


@contextmanager
def evaluated(
    run: str | os.PathLike[str],
    graph: Any,
    layer: int | None,
    scores: str,
    settings: Mapping[str, Any] | None,
    on_status: Callable[[Status], None],
) -> Iterator[tuple[Sheet, Iterator[Block], dict[str, Any]]]:
    """Yields the sheet, the predictions block by block, and the result for ``--json``. Blocks are readable within the
    ``with`` block."""
    run_dir = Path(run)
    in_memory = None if isinstance(graph, str | os.PathLike) else graph_of(graph)
    named = os.fspath(graph) if in_memory is None else f"{in_memory.name} (in memory)"
    if in_memory is None and named and (run_dir / CONFIG).is_file():
        named = source_flags.read_as(named, load(run_dir / CONFIG).data.source)
    plan = plan_of(run_dir, graph=named, layer=layer, scores=scores, settings=settings or {})
    if in_memory is None and not is_prepared(plan.config.data.source):
        check_files(plan.config.data.source)
    on_status(Status(phase="preparing"))
    shards = ShardSet.open(prepared.shards_of(plan.config, in_memory, plan.features_as))
    plan = (plan if in_memory is None else plan.of_shards(shards)).fitted(shards)
    on_status(Status(phase="starting", notes=shards.notes()))
    work = _work_dir(run_dir)
    try:
        shown = renumbered(shards, work / "graph", *plan.numbers) if any(plan.numbers) else shards
        ended = api.carry_out(plan.config, shown, work, on_status)
    except (ConfigError, KeyboardInterrupt):
        shutil.rmtree(work, ignore_errors=True)
        raise  # after another failure it stays: its logs say why
    sheet = Sheet(
        plan.kind, plan.spec.num_classes if plan.kind != "embedding" else 0, plan.classes, shards.manifest.target
    )
    rows = JoinedRows.written(work / ROWS_FOLDER, shards)
    try:
        yield sheet, _blocks(plan, rows, shards, shown), _result(plan, run_dir, shards, rows, ended)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _work_dir(run_dir: Path) -> Path:
    """A folder beside the run's own files: parts of predictions may be as large as the graph. The system's temporary
    folder if the run's is not writable, as in a colleague's run."""
    for folder in (run_dir, Path(tempfile.gettempdir())):
        try:
            return Path(tempfile.mkdtemp(prefix="predict-", dir=folder)).resolve()
        except OSError as error:
            failed = error
    raise ConfigError(f"{folder}: cannot be written: {failed.strerror}; TMPDIR=DIR chooses another folder")


def _blocks(plan: Plan, rows: JoinedRows, shards: ShardSet, renumbered: ShardSet) -> Iterator[Block]:
    """Yields the predictions block by block. ``renumbered``: the shards, with classes numbered as in the run."""
    ids, true, split = source_ids.load(shards.path), _true(plan, renumbered), _split(plan, shards)
    flat = shards.manifest.target == "classes"
    num_rows = max(1, BLOCK_VALUES // rows.width)
    for start in range(0, rows.num_rows, num_rows):
        stop = min(start + num_rows, rows.num_rows)
        values = rows[start:stop]
        if not np.isfinite(values).all():
            raise DatasetError(f"{plan.run_dir}: its model gives NaN or infinity on {shards.manifest.name}")
        labels = None if true is None else true[start:stop][:, 0] if flat else true[start:stop]
        roles = None if split is None else split[start:stop][:, 0]
        yield Block.of(plan.kind, _ids_of(ids, start, stop), values, labels, roles)


def _true(plan: Plan, shards: ShardSet) -> JoinedRows | None:
    """Labels [N, C] by the run's numbers; None if no vertex has a label, or labels are of another kind."""
    if shards.manifest.target != plan.spec.target:
        return None

    def labels(p: int) -> Array:
        found = np.asarray(shards.partition(p).labels)
        found = found.view(np.int8) if found.dtype == np.uint8 else found  # -1: unknown
        return found.reshape(len(found), -1)

    parts = [labels(p) for p in range(shards.manifest.num_partitions)]
    known = any(bool((~np.isnan(part)).any() if part.dtype.kind == "f" else (part >= 0).any()) for part in parts)
    return JoinedRows(shards, lambda p: parts[p]) if known else None


def _split(plan: Plan, shards: ShardSet) -> JoinedRows | None:
    """The split of the run, uint8 [N, 1]; None if no vertex is in it."""
    if plan.spec.target == "links" or not _is_judged(plan, shards):
        return None
    at = plan.config.data.split
    return JoinedRows(shards, lambda p: np.asarray(shards.partition(p).split)[:, at : at + 1])


def _is_judged(plan: Plan, shards: ShardSet) -> bool:
    split = shards.manifest.splits[plan.config.data.split] if shards.manifest.splits else None
    return split is not None and bool(split.val + split.test + split.train)


def _ids_of(ids: Any, start: int, stop: int) -> Any:
    """int64 [n], or an Arrow array of names."""
    if ids is None:
        return np.arange(start, stop)
    return ids.values.slice(start, stop - start) if isinstance(ids, source_ids.NamedIds) else ids[start:stop]


def _result(plan: Plan, run_dir: Path, shards: ShardSet, rows: JoinedRows, ended: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run_dir": str(run_dir),
        "graph": plan.config.data.source,
        "what": plan.kind,
        "layer": plan.layer,
        "vertices": rows.num_rows,
        "columns": rows.width,
        "scores": ended["scores"] if _is_judged(plan, shards) else None,
        "weights_digest": ended["weights_digest"],
        "lambda": ended["lambda"],
        "cost": ended["cost"],
        "notes": list(shards.notes()),
    }
