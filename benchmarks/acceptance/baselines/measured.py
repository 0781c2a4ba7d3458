"""How a baseline's run is measured: what the tables share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from run_coordinator import prepared
from run_coordinator.baseline import begun, train_baseline
from siafu.shards import ShardSet

#: Epochs that do not count: buffers are filled, widths are assigned for the first time.
WARMUP_EPOCHS = 3


class Measured(NamedTuple):
    """Of one run, without its first epochs."""

    epoch_s: float  # median
    mean_s: float  # what comes only now and then is in it: assignments of widths, evaluations are not
    share: float  # of the time that ranks wait for others
    nbytes: Mapping[str, int]  # per epoch, all ranks, by kind
    # bytes per epoch of the rank that sends most, of halo rows and gradients, and its share of the reduction
    busiest: float
    num_vertices: int
    result: Mapping[str, Any]

    @property
    def halo_bytes(self) -> int:
        """Rows of activations and their gradients, between whomever they go."""
        return sum(n for kind, n in self.nbytes.items() if kind not in ("reduce", "norm"))


def measure(method: str, source: str, settings: Mapping[str, Any], epochs: int) -> Measured:
    """Trains for some epochs without evaluating, in a directory that does not stay. Not measured: the first few, and
    those before the first assignment of bits."""
    warmup = max(WARMUP_EPOCHS, int(settings.get("baseline.period", 0)))
    folder = Path(tempfile.mkdtemp(prefix="siafu-baselines-"))
    try:
        run = train_baseline(
            method, source, run_dir=str(folder / "run"), epochs=epochs + warmup, eval_every=0, settings=settings
        )
        num_vertices = ShardSet.open(prepared.shards_of(begun(run.dir))).manifest.num_vertices
        records = [line for line in run.metrics() if line["event"] == "epoch"][warmup:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    times = [record["epoch_s"] for record in records]
    whole = sum(sum(record["seconds"].values()) for record in records)
    waited = sum(record["seconds"]["communicate"] + record["seconds"]["reduce"] for record in records)
    kinds = {kind for record in records for kind in record["bytes"]}
    nbytes = {kind: sum(record["bytes"].get(kind, 0) for record in records) // len(records) for kind in sorted(kinds)}
    links = run.result["bytes_per_link"]
    busiest = max(map(sum, links)) + nbytes.get("reduce", 0) / len(links)
    return Measured(median(times), sum(times) / len(times), waited / whole, nbytes, busiest, num_vertices, run.result)
