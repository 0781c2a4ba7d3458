"""``Run``: a finished run and its directory."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run_coordinator import curves, tables
from siafu import model_file, progress, run_files
from siafu.errors import ConfigError
from siafu.metrics import SPLITS
from siafu.run_files import CONFIG, BySplit, Record, Result
from siafu.sparse import Array

#: Of a record of metrics.jsonl, for ``Run.to_pandas``.
EPOCH_COLUMNS = ("epoch", "loss", "time_s", "epoch_s", "ghost_bytes", "usd")


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run and its directory. Functions that take a run's directory take a ``Run`` too."""

    dir: Path
    result: Result  # what ``siafu train --json`` prints

    def __fspath__(self) -> str:
        return str(self.dir)

    @classmethod
    def open(cls, run_dir: str | os.PathLike[str]) -> Run:
        """The finished run in a directory. Raises: ConfigError for a run that has not ended."""
        path = Path(run_dir)
        if not (path / CONFIG).is_file():
            raise ConfigError(f"{path}: not a run directory: it has no {CONFIG}")
        if (found := run_files.result(path)) is None:
            raise ConfigError(f"{path}: its run has not ended: siafu resume {shlex.quote(str(path))} goes on with it")
        return cls(path, found)

    @property
    def test_acc(self) -> float:
        """Test accuracy of the best epoch, by validation (``train.stop_on``), without validation vertices of the last;
        NaN without test vertices, or if a limit came before the first evaluation."""
        return float("nan") if self.result["test_acc"] is None else float(self.result["test_acc"])

    @property
    def stopped(self) -> str:
        """The reason why training ended: "epochs", "target", "patience", or at a limit: "budget", "time"."""
        return str(self.result["stopped"])

    def weights(self) -> dict[str, Array]:
        """The best epoch's weights, by name."""
        return model_file.load_model(self.dir / "model.safetensors")[0]

    def metrics(self) -> list[Record]:
        """The lines of metrics.jsonl."""
        return run_files.records(self.dir)

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each epoch: epoch, loss, time_s (since training began), epoch_s,
        ghost_bytes, usd (so far), and train_acc, val_acc, test_acc (NaN where it was not evaluated). Raises:
        ConfigError without pandas."""
        metrics = self.metrics()
        judged = {record["epoch"]: record for record in metrics if record["event"] == "evaluation"}
        rows = [
            {**{name: record.get(name) for name in EPOCH_COLUMNS}, **_scores(judged.get(record["epoch"]))}
            for record in metrics
            if record["event"] == "epoch"
        ]
        return tables.frame(rows, [*EPOCH_COLUMNS, *_scores(None)])

    def plot(self) -> Any:
        """Loss and scores over the epochs, as a matplotlib Figure."""
        return curves.plot(self.result, self.metrics())

    def __repr__(self) -> str:
        result = self.result
        found = (("val", result["val_acc"]), ("test", result["test_acc"])) if result["scores"] else ()
        scores = [f"{split} {progress.written(score)}" for split, score in found]
        return f"Run({', '.join([str(self.dir), *scores])})"

    def _repr_html_(self) -> str:
        """The result and its curve, as a notebook shows them."""
        return curves.html(self.result, self.metrics())


def _scores(judged: BySplit | None) -> dict[str, float]:
    found = {split: judged[split] if judged else None for split in SPLITS}
    return {f"{split}_acc": scores["acc"] if scores else float("nan") for split, scores in found.items()}
