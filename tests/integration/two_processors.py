"""A Lambda function whose environments are as those of two kinds of processors. OpenBLAS chooses when NumPy is loaded."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

CORES = ("Haswell", "Sandybridge")  # what any x86-64 of the last ten years can run


def handler(event: dict[str, Any], context: Any) -> Any:
    """The workers of even numbers are of one kind. The first two wait for each other: both compute."""
    number = int(event["worker"].rpartition("-")[2])
    os.environ["OPENBLAS_CORETYPE"] = CORES[number % 2]
    here = Path(tempfile.gettempdir()) / f"siafu-two-processors-{event['run_id']}"
    here.mkdir(exist_ok=True)
    (here / CORES[number % 2]).touch()
    until = time.monotonic() + 60
    while number < 2 and len(list(here.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    from lambda_funcs.handler import handler as ours

    return ours(event, context)
