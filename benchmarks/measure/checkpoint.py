"""``python -m benchmarks measure checkpoint``: what saving a training state costs, and what training waits for it.

Every state is saved whole (files, digests, fsync, rename), read back, and beside it the same bytes are written to one
file and synced: the disk's own limit. Rounds are interleaved, figures are medians. Training waits for ``put`` alone:
the rest runs beside it, and takes a core's time from it (``cpu_ms``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Measurement
from run_coordinator.epoch_totals import Ledger
from siafu.checkpoints import Saver, Store, TrainingState, load
from siafu.errors import ConfigError
from siafu.models import ModelSpec
from siafu.sparse import Array

COLUMNS = ("state_mb", "put_us", "save_ms", "cpu_ms", "load_ms", "raw_write_ms", "save_over_raw", "save_mb_s")
#: Weights of the latest version and of the best one, and Adam's two moments.
COPIES = 4
SPEC = ModelSpec("gcn", 1, 1, 1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Save and load training states, beside a plain synced write of the same bytes."
    parser.add_argument("--sizes", default="1,10,100", metavar="MB[,…]", help="of the whole state [1,10,100]")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="interleaved repeats, medians [7]")
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="on the disk to measure [here]")


def measure(args: argparse.Namespace) -> Measurement:
    sizes = args.sizes.split(",")
    if args.rounds < 1 or not all(size.isdecimal() and int(size) for size in sizes):
        raise ConfigError(f"--rounds {args.rounds}, --sizes {args.sizes}: must be >= 1")
    states = {int(size): state_of(int(size) * 1_000_000) for size in sizes}
    samples: dict[int, list[dict[str, float]]] = {size: [] for size in states}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for _ in range(args.rounds):
            for size, state in states.items():
                samples[size].append(_sample(Path(folder) / str(size), state))
    rows = [_row(size, found) for size, found in samples.items()]
    largest = rows[-1]
    return Measurement(
        f"checkpoints on the disk of {args.folder.resolve()}",
        COLUMNS,
        rows,
        {"save_mb_s": largest["save_mb_s"], "save_over_raw": largest["save_over_raw"]},
    )


def state_of(nbytes: int) -> TrainingState:
    """A state that takes so many bytes, in layers of up to 4 MB as models have them."""
    rng = np.random.default_rng(0)
    values = nbytes // COPIES // 4
    widths = [min(1 << 20, values - start) for start in range(0, values, 1 << 20)]

    def weights() -> dict[str, Array]:
        return {f"{layer}.weight": rng.random(width, dtype=np.float32) for layer, width in enumerate(widths)}

    moments = {f"{moment}/{name}": value for moment in "mv" for name, value in weights().items()}
    ledger = Ledger("score").dump(0, {}, 0.0, 0.0)
    return TrainingState(2, {2: weights(), 1: weights()}, {"steps": np.array(2, np.int64), **moments}, ledger)


def _sample(folder: Path, state: TrainingState) -> dict[str, float]:
    """Seconds of each part; the folder is gone afterwards."""
    store = Store(folder / "checkpoints", SPEC, "", {}, keep=1)
    cpu = time.process_time()
    save = _seconds(lambda: store.save(state))
    cpu = time.process_time() - cpu
    path = store.folder / "epoch-0002"
    data = b"".join(file.read_bytes() for file in path.iterdir())
    found = {"save": save, "cpu": cpu, "load": _seconds(lambda: load(path))}
    found["raw"] = _seconds(lambda: _write_synced(folder / "raw", data))
    with Saver(store) as saver:
        found["put"] = _seconds(lambda: saver.put(state))
    shutil.rmtree(folder)
    return found


def _row(size: int, samples: list[dict[str, float]]) -> dict[str, Any]:
    s = {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
    return {
        "state_mb": size,
        "put_us": s["put"] * 1e6,
        "save_ms": s["save"] * 1e3,
        "cpu_ms": s["cpu"] * 1e3,
        "load_ms": s["load"] * 1e3,
        "raw_write_ms": s["raw"] * 1e3,
        "save_over_raw": s["save"] / s["raw"],
        "save_mb_s": size / s["save"],
        "save_ms_slowest": max(sample["save"] for sample in samples) * 1e3,
    }


def _write_synced(file: Path, data: bytes) -> None:
    with file.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _seconds(once: Callable[[], Any]) -> float:
    start = time.perf_counter()
    once()
    return time.perf_counter() - start
