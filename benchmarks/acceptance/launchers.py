"""The same training at every place where Lambdas run on this machine: are the weights the same, and what does it cost?

    python -m benchmarks.acceptance.launchers [--sources digits,cora] [--places local,localstack] [--epochs 50]
        [--rounds 3] [--json FILE]

In ``pipe`` mode the final weights must have the same bits everywhere. A place that is not installed is left out, and
said so. Cold and warm latency and invocations a second are those of a function that does nothing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.acceptance import table
from benchmarks.measure import invocations
from run_coordinator import api
from siafu.config import Config
from siafu.errors import GnnError


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(
        __doc__,
        sources="digits,cora",
        places="local,localstack",
        epochs=50,
        rounds=(3, "of invoking a function that does nothing"),
    ).parse_args(argv)
    sources = args.sources.split(",")
    with tempfile.TemporaryDirectory() as folder:
        invoking = _invoking(args.places.split(","), args.rounds, Path(folder))
        rows = [
            {**costs, **_train(place, source, args.epochs, Path(folder))}
            for source in sources
            for place, costs in invoking.items()
        ]
    title = f"pipe, {args.epochs} epochs, 2 graph servers with 2 environments each; medians of {args.rounds} rounds"
    table.show([{**row, "weights_digest": row["weights_digest"][:16]} for row in rows], title)
    same = all(len({row["weights_digest"] for row in rows if row["source"] == source}) == 1 for source in sources)
    print(f"weights are {'bit-identical' if same else 'DIFFERENT'} on {', '.join(invoking)}")
    table.record(args.json, rows)
    return 0 if same else 1


def _invoking(places: list[str], rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    """What invoking costs, by place, in interleaved rounds; those that can be had."""
    measured: dict[str, list[dict[str, float]]] = {place: [] for place in places}
    for number in range(rounds):
        for place in list(measured):
            try:
                found = invocations.measure(Config().replace({"lambda.on": place}), folder / f"{place}-ping-{number}")
            except GnnError as error:
                del measured[place]
                table.say(f"{place} is left out: {error}")
            else:
                measured[place].append(asdict(found))
    return {place: {key: median(one[key] for one in found) for key in found[0]} for place, found in measured.items()}


def _train(place: str, source: str, epochs: int, folder: Path) -> dict[str, Any]:
    result = api.train(
        source,
        mode="pipe",
        parts=2,
        lambdas=2,
        intervals=8,
        epochs=epochs,
        dropout=0.5,
        lambda_on=place,
        run_dir=str(folder / f"{place}-{source}"),
    ).result
    table.say(f"{place}, {source}: {result['weights_digest'][:16]}")
    usage = result["usage"]
    return {
        "place": place,
        "source": source,
        "invocations": usage["invocations"],
        "tasks_per_invocation": usage["tasks"] / usage["invocations"],
        "billed_ms": usage["billed_ms"],
        "train_seconds": result["train_seconds"],
        "test_acc": result["test_acc"],
        "weights_digest": result["weights_digest"],
    }


if __name__ == "__main__":
    sys.exit(main())
