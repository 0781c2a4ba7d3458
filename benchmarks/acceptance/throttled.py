"""What an environment's memory buys: epochs with one local Lambda of several sizes that computes on the share of a core
which AWS gives for its memory (``lambda.cpu_share = real``), interleaved.

    python -m benchmarks.acceptance.throttled [--rounds 3] [--epochs 3] [--memories 192 512 1769] [--json FILE]

A wide model on a sparse graph, so that nearly all of an epoch is the environment's arithmetic: then time goes down as
the price of a second goes up, and an epoch costs the same. What is left is what the server does meanwhile.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Any

from benchmarks.acceptance import table
from siafu import train
from siafu.places import CORE_MB

GRAPH = "synthetic:amazon?scale=0.001"
SETTINGS: dict[str, Any] = {
    "model.layers": 3,
    "model.hidden": 1024,
    "lambda.count": 1,
    "lambda.cpu_share": "real",
    "train.eval_every": 0,
}
WARMUP_EPOCHS = 1


def main(argv: Sequence[str] | None = None) -> int:
    memories = ((192, 512, CORE_MB), "MB of the environment")
    args = table.parser(__doc__, rounds=3, epochs=3, memories=memories).parse_args(argv)
    seen: dict[int, list[float]] = {}
    for number in range(args.rounds):
        for memory_mb in Random(number).sample(args.memories, len(args.memories)):
            seen.setdefault(memory_mb, []).append(epoch_s(memory_mb, args.epochs, number))
            table.say(f"{number + 1}/{args.rounds} {memory_mb} MB: {seen[memory_mb][-1]:.3g} s")
    least = min(args.memories)
    rows = [
        {
            "memory, MB": memory_mb,
            "price of a second": f"{memory_mb / least:.2f}",
            "epoch, s": f"{median(seen[memory_mb]):.2f} ({min(seen[memory_mb]):.2f} to {max(seen[memory_mb]):.2f})",
            "speed": f"{median(seen[least]) / median(seen[memory_mb]):.2f}",
        }
        for memory_mb in args.memories
    ]
    table.show(rows)
    table.markdown(rows)
    table.record(args.json, {"rows": rows, "epoch_s": seen})
    return 0


def epoch_s(memory_mb: int, epochs: int, seed: int) -> float:
    """Median seconds of an epoch."""
    with tempfile.TemporaryDirectory(prefix="siafu-throttled-") as folder:
        settings = {**SETTINGS, "lambda.memory_mb": memory_mb, "train.seed": seed}
        run = train(GRAPH, backend="lambda", run_dir=f"{folder}/run", epochs=WARMUP_EPOCHS + epochs, settings=settings)
        found = [record["epoch_s"] for record in run.metrics() if record["event"] == "epoch"]
    return median(found[WARMUP_EPOCHS:])


if __name__ == "__main__":
    sys.exit(main())
