"""Real runs of the eight golden models at every place where tensor tasks run, under several
BLAS: are the weights the golden ones?

    python -m benchmarks.acceptance.same_bits [--places cpu,local,ray,localstack]
    [--blas ,Haswell,Prescott] [--parts 1,2]

A place is ``cpu`` (servers' threads) or one of ``lambda.on``; one that is not installed is left out,
and said so. ``--blas`` lists values of OPENBLAS_CORETYPE, empty for unset. Exit code 0 if every digest
is that of tests/golden/models.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.acceptance import table
from run_coordinator import api
from siafu.errors import GnnError
from siafu.models import MODELS
from tests.integration.test_golden_models import GOLDEN, OPTIONS, SETTINGS, shards_of

CORETYPE = "OPENBLAS_CORETYPE"


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    golden, places = json.loads(GOLDEN.read_text()), args.places.split(",")
    rows: list[dict[str, Any]] = []
    missing: set[str] = set()
    same, compared = True, 0
    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            for parts in args.parts:
                wanted = golden[f"{model}, {parts} partitions"]
                rows.append({"model": model, "partitions": parts, "golden": wanted})
                shards_of(model, parts, Path(folder, f"{model}-{parts}"))
                for place in places:
                    for core in args.blas:
                        digest = "" if place in missing else _trained(model, parts, place, core, Path(folder))
                        missing |= {place} if not digest else set()
                        same &= digest in ("", wanted)
                        compared += digest == wanted
                        rows[-1][f"{place} {core}".strip()] = "same" if digest == wanted else digest or "left out"
    table.show(rows)
    table.record(args.json, rows)
    print(
        f"{compared} runs have the golden weights, {'no' if same else 'SOME'} others; left out: "
        f"{', '.join(sorted(missing)) or 'nothing'}"
    )
    return 0 if same and compared else 1


def _trained(model: str, parts: int, place: str, core: str, folder: Path) -> str:
    """The digest of the weights of a run; empty where there is no such place."""
    os.environ.pop(CORETYPE, None)
    if core:
        os.environ[CORETYPE] = core  # of the processes that the run starts
    options = {"model.name": model, "data.parts": parts, **OPTIONS[model]}
    where = {"servers.backend": "cpu"} if place == "cpu" else {"lambda.on": place, "lambda.count": 2}
    run_dir = {"run.dir": str(folder / f"run-{model}-{parts}-{place}-{core}")}
    try:
        result = api.train(
            str(folder / f"{model}-{parts}"), settings={**SETTINGS, **options, **where, **run_dir}
        ).result
    except GnnError as error:
        if place == "cpu":  # which every machine has
            raise
        table.say(f"{place} is left out: {error}")
        return ""
    table.say(f"{model}, {parts}, {place}, {core or 'any BLAS'}: {result['weights_digest']}")
    return str(result["weights_digest"])


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = table.parser(__doc__, places="cpu,local,ray,localstack")
    parser.add_argument("--blas", type=lambda text: text.split(","), default=["", "Haswell", "Prescott"])
    parser.add_argument("--parts", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2])
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
