"""``siafu.evaluate``: scores a run's predictions, class by class (``scores``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from run_coordinator import tables
from run_coordinator.actions import Status
from run_coordinator.evaluate import picture, scores
from run_coordinator.evaluate.scores import Scored
from run_coordinator.predict import predict
from run_coordinator.predict.predictions import Predictions
from siafu.errors import ConfigError, one_of
from siafu.sparse import Array

SPLITS = {"train": 1, "val": 2, "test": 3}


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores of the labelled vertices of one split."""

    run_dir: Path
    graph: str
    split: str
    count: int  # vertices
    found: Scored

    @property
    def name(self) -> str:
        """The graph's name without folder and options."""
        return Path(self.graph.partition("?")[0].partition("#")[0]).name or self.graph

    @property
    def scores(self) -> Mapping[str, float | None]:
        """Scores by name: "accuracy", "f1_macro", "auc_macro", ...; "r2", "rmse", "mae"."""
        return self.found.scores

    def confused(self, most: int = 10) -> list[tuple[str, str, int]]:
        """(true class, predicted class, count) of each confusion, the most frequent first."""
        if self.found.confusion is None:
            return []
        wrong = self.found.confusion - np.diag(np.diag(self.found.confusion))
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = [divmod(int(place), len(wrong)) for place in order]
        names = [one["name"] for one in self.found.classes]
        return [(names[a], names[b], int(wrong[a, b])) for a, b in pairs if wrong[a, b]]

    def to_dict(self) -> dict[str, object]:
        """The JSON object that ``siafu evaluate --json`` prints."""
        confusion = self.found.confusion
        return {
            "run_dir": str(self.run_dir),
            "graph": self.graph,
            "split": self.split,
            "vertices": self.count,
            **self.found._asdict(),
            "confusion": None if confusion is None else confusion.tolist(),
        }

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each class (name, precision, recall, f1, support, auc), or for each
        column of numbers (name, r2, rmse, mae). Raises: ConfigError without pandas."""
        return tables.frame(self._rows)

    @property
    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return self.found.classes or self.found.columns

    def __repr__(self) -> str:
        shown = [f"{name} {score:.4f}" for name, score in self.scores.items() if score is not None]
        return f"Evaluation({', '.join([f'{self.name}, {self.split}: {self.count:,} vertices', *shown])})"

    def _repr_html_(self) -> str:
        """The table of scores that a notebook shows."""
        cells = [
            [f"{value:.4f}" if isinstance(value, float) else value for value in row.values()] for row in self._rows
        ]
        return tables.as_html(repr(self), list(self._rows[0]), cells)

    def plot(self) -> Any:
        """A matplotlib Figure. Raises: ConfigError without matplotlib, or of numbers."""
        return picture.drawn(self.found, f"{self.name}, {self.split}: {self.count:,} vertices")


def evaluate(
    run: str | os.PathLike[str],
    *,
    split: str = "test",
    graph: Any = ...,
    settings: Mapping[str, Any] | None = None,
    on_status: Callable[[Status], None] = lambda status: None,
) -> Evaluation:
    """Predicts with the run's kept weights and compares with the labels of a split.

    split: "train", "val", "test", or "all" for every vertex with a label. graph, settings: as in ``siafu.predict``.

        >>> siafu.evaluate(run).scores["f1_macro"]
        0.8123

    Raises: ConfigError if no vertex of the split has a label, and for link prediction; else as ``siafu.predict``.
    """
    if split not in (*SPLITS, "all"):
        raise ConfigError(f"split = {split!r}: {one_of(split, (*SPLITS, 'all'))}")
    return of(predict(run, graph=graph, settings=settings, on_status=on_status), split)


def of(found: Predictions, split: str) -> Evaluation:
    """``evaluate`` for given predictions. Raises: ConfigError as ``evaluate``."""
    run_dir, graph, what = Path(found.result["run_dir"]), found.result["graph"], found.result["what"]
    if what == "embedding":
        raise ConfigError(f"{run_dir}: it predicts edges: their MRR and AUC are in result.json")
    kept = _labelled(found)
    if split != "all":
        kept &= (np.zeros(len(found), np.uint8) if found.split is None else found.split) == SPLITS[split]
    if not kept.any():
        words = "vertex" if split == "all" else f"{split} vertex"
        raise ConfigError(f"{graph}: no {words} has a label to compare with; --split all, train, val or test")
    assert found.true is not None
    true, values = found.true[kept], found.values[kept].astype(np.float64)
    told = run_dir, graph, split, len(true)
    if what == "numbers":
        return Evaluation(*told, scores.of_numbers(true, values, found.class_names))
    names = found.class_names or tuple(map(str, range(values.shape[1])))
    assert found.classes is not None
    if what == "labels":
        return Evaluation(*told, scores.of_sets(true.astype(bool), found.classes[kept], values, names))
    return Evaluation(*told, scores.of_classes(true.astype(np.int64), found.classes[kept], values, names))


def _labelled(found: Predictions) -> Array:
    """Whether each vertex has a label: bool [N]."""
    if found.true is None:
        return np.zeros(len(found), bool)
    known = ~np.isnan(found.true) if found.true.dtype.kind == "f" else found.true >= 0
    return np.asarray(known if known.ndim == 1 else known.all(1))
