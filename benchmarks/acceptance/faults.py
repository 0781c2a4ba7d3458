"""Does trouble change the result? A quiet run, and runs whose Lambda environments are killed and answer twice.

    python -m benchmarks.acceptance.faults [--source cora] [--epochs 200] [--runs 2] [--json FILE]

In a troubled run one of every three environments dies by kill -9 at a random time, and workers send 5% of their results
and gradients twice. ``pipe``'s final weights must have the bits of the quiet run.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.acceptance import table
from tests.integration.processes import ENVIRONMENT, Training

HANDLER = "lambda.handler=tests.integration.handlers.answers_twice"
#: A killed environment's successor must have time to live, and to be killed: about this many die while a run lasts.
KILLED_WITHIN_S = 4.0


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(__doc__, source="cora", epochs=200, runs=(2, "troubled ones")).parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(Path(folder), args.source, args.epochs, seed) for seed in range(1 + args.runs)]
    table.show([{**row, "weights_digest": row["weights_digest"][:16]} for row in rows])
    identical = len({row["weights_digest"] for row in rows}) == 1
    troubled = all(row["killed"] and row["relaunches"] and row["duplicates"] for row in rows[1:])
    print(f"weights are {'bit-identical' if identical else 'DIFFERENT'}{'' if troubled else ', but NOTHING HAPPENED'}")
    table.record(args.json, rows)
    return 0 if identical and troubled else 1


def measure(folder: Path, source: str, epochs: int, seed: int) -> dict[str, Any]:
    """Seed 0 is the quiet run."""
    name = f"troubled {seed}" if seed else "quiet"
    arguments = [
        source,
        "--mode",
        "pipe",
        "--parts",
        "2",
        "--param-servers",
        "2",
        "--epochs",
        str(epochs),
        "--dropout",
        "0.5",
        "--weight-decay",
        "5e-4",
        "--feature-norm",
        "row",
        "--lambdas",
        "6",
        *(["--set", HANDLER] if seed else []),
    ]
    killed = 0
    with Training(folder / name.replace(" ", "-"), *arguments) as training:
        if seed:
            killed = kill_every_third(training, seed, KILLED_WITHIN_S)
        result = training.result
    return {
        "run": name,
        "killed": killed,
        **{k: int(result["lambda"][k]) for k in ("invocations", "relaunches", "duplicates")},
        "seconds": result["train_seconds"],
        "test_acc": result["test_acc"],
        "weights_digest": result["weights_digest"],
    }


def kill_every_third(training: Training, seed: int, within_s: float) -> int:
    """Until the run ends: of every three environments that start, kill -9 one within ``within_s``; returns how many."""
    rng = random.Random(seed)
    doomed: dict[int, float] = {}  # pid -> when
    seen: list[int] = []
    killed = 0
    while training.process.poll() is None:
        for pid in training.pids(ENVIRONMENT):
            if pid not in seen:
                seen.append(pid)
                if len(seen) % 3 == 1:
                    doomed[pid] = time.monotonic() + rng.uniform(0, within_s)
            if doomed.get(pid, float("inf")) < time.monotonic() and training.epochs():
                del doomed[pid]
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.02)
    return killed


if __name__ == "__main__":
    sys.exit(main())
