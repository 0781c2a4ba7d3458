"""siafu's own contenders and the machine's limit, each in a process as its peers are:
``python -m benchmarks.measure.own_process``.

The JSON lines are those of ``benchmarks.measure.rounds``.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure.limits import read_rows
from benchmarks.single_process.loop import Loop, first_weights
from benchmarks.single_process.workspace import Aggregation
from siafu import kernels
from siafu.models import ModelSpec
from siafu.shards import Edges, ShardSet
from siafu.sparse import Array

CHECKED_ROWS = 64  # of a product, compared with those of the peers
PREFETCHES = (0, 8, 16, 32, 64)  # edges ahead: the limit is the best of them
TILES = (16, 32, 64, 128, 256)  # columns read together: narrow tables may fit a cache where wide ones do not
PACK_ROWS = 1 << 13


class Gather:
    """The GCN product of a random matrix: rows packed with their scale, then gathered."""

    note = ""

    def __init__(self, setup: dict[str, Any]):
        self.edges, self.threads = mapped_edges(setup["graph"]), setup["threads"]
        n, width = len(self.edges.indptr) - 1, setup["width"]
        self.rows = np.random.default_rng(0).standard_normal((n, width), dtype=np.float32)
        self.aggregation = Aggregation.of("gcn", np.diff(self.edges.indptr))
        self.table = kernels.Table(n, width, setup["dtype"], edges=self.edges.per_row)
        self.out = np.zeros((n, width), np.float32)
        self.run({"at_least_s": 0})

    def run(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"seconds": repeated(self.product, options["at_least_s"])}

    def product(self) -> None:
        scale = self.aggregation.source
        self.table.write(slice(0, len(self.rows)), self.rows, scale=scale, threads=self.threads)
        self.gather()

    def gather(self) -> None:
        kernels.gather(
            self.edges,
            0,
            len(self.rows),
            self.table,
            scale=self.aggregation.target,
            add_self=True,
            out=self.out,
            threads=self.threads,
        )

    def check(self, options: dict[str, Any]) -> dict[str, Any]:
        step = max(1, len(self.out) // CHECKED_ROWS)
        return {"sample": self.out[::step].tolist(), "peak_nbytes": peak_nbytes()}


class Packed(Gather):
    """The same of rows that are packed already: what stands beside the limit."""

    def run(self, options: dict[str, Any]) -> dict[str, Any]:
        if not self.out.any():
            self.product()
        return {"seconds": repeated(self.gather, options["at_least_s"])}


class Limit:
    """Reading the same rows in the same order and nothing else: the best of tile widths and prefetch distances."""

    def __init__(self, setup: dict[str, Any]):
        edges, self.threads, self.width = mapped_edges(setup["graph"]), setup["threads"], setup["width"]
        num_rows = len(edges.indptr) - 1
        self.indices = edges.indices
        if setup.get("uniform"):
            self.indices = np.random.default_rng(0).integers(0, num_rows, len(edges.indices), np.int32)
        self.prefetch: int | None = None  # what gather does
        best = math.inf
        for tile in sorted({min(tile, self.width) for tile in (*TILES, self.width)}):
            table = kernels.Table(num_rows, tile, setup["dtype"])
            for start in range(0, num_rows, PACK_ROWS):  # else all of it is one page of zeros, in the first-level cache
                stop = min(num_rows, start + PACK_ROWS)
                table.write(slice(start, stop), np.ones((stop - start, tile), np.float32))
            seconds = self._read(table, None)
            if seconds < best:
                best, self.table = seconds, table
        self.prefetch = min((None, *PREFETCHES), key=lambda prefetch: self._read(self.table, prefetch))
        ahead = "as gather" if self.prefetch is None else self.prefetch
        self.note = f"{self.table.width} columns at a time, prefetch {ahead}"

    def _read(self, table: kernels.Table, prefetch: int | None) -> float:
        """Seconds for all columns, as many times as the table holds fewer."""
        passes = math.ceil(self.width / table.width)
        return sum(read_rows(self.indices, table, self.threads, prefetch=prefetch) for _ in range(passes))

    def run(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"seconds": self._read(self.table, self.prefetch)}

    def check(self, options: dict[str, Any]) -> dict[str, Any]:
        return {}


class Training:
    """Whole epochs of ``benchmarks.single_process.loop``."""

    note = ""

    def __init__(self, setup: dict[str, Any]):
        shard = ShardSet.open(setup["shards"]).partition(0)
        spec = ModelSpec(**{**setup["spec"], "widths": tuple(setup["spec"]["widths"])})
        self.loop = Loop(
            shard,
            spec,
            threads=setup["threads"],
            dtype=setup["dtype"],
            cache=setup["cache"],
            lr=setup["lr"],
            heads=setup["heads"],
        )
        self.losses = [self.loop.epoch()]  # makes every buffer
        self.loop.phases.clear()

    def run(self, options: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        for _ in range(options["epochs"]):
            self.losses.append(self.loop.epoch())
        return {"seconds": (time.perf_counter() - start) / options["epochs"]}

    def check(self, options: dict[str, Any]) -> dict[str, Any]:
        peak, epochs = peak_nbytes(), len(self.losses) - 1
        phases = {phase: 1000 * seconds / epochs for phase, seconds in self.loop.phases.items()}
        accuracy = self.loop.test_accuracy()
        return {"losses": self.losses, "test_acc": accuracy, "peak_nbytes": peak, "phases_ms": phases}


CONTENDERS: dict[str, Any] = {"gather": Gather, "packed": Packed, "limit": Limit, "epoch": Training}


def mapped_edges(folder: str) -> Edges:
    """In-edges of a folder of .npy files, mapped; without weights."""
    indptr, indices = (np.load(Path(folder) / f"in_{what}.npy", mmap_mode="r") for what in ("indptr", "indices"))
    return Edges(np.asarray(indptr), np.asarray(indices), None)


def repeated(work: Any, at_least_s: float) -> float:
    """Mean seconds of one call, over as many as take this long."""
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < at_least_s:
        work()
        count += 1
    return (time.perf_counter() - start) / count


def save_first_weights(spec: ModelSpec, heads: int, file: str) -> dict[str, Array]:
    """For the peers, which begin with the same."""
    weights = first_weights(spec, heads)
    np.savez(file, **weights)  # type: ignore[arg-type]
    return weights


def peak_nbytes() -> int:
    """Most memory that this program has held. Not ru_maxrss, which begins with that of the process that started us."""
    with open("/proc/self/status") as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return kilobytes * 1024


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    work: Any = None
    for line in sys.stdin:
        ((what, options),) = json.loads(line).items()
        try:
            if what == "setup":
                work = CONTENDERS[options["subject"]](options)
                answer = {"note": work.note}
            else:
                answer = getattr(work, what)(options)
        except Exception as error:  # the process edge: whatever went wrong is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
