"""A Lambda function whose environments are as those of two kinds of processors: other
compiled kernels, another OpenBLAS."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

CORES, ISAS = ("Haswell", "Sandybridge"), ("scalar", "avx2")  # what any x86-64 of the last ten years can run
PATIENCE_S = 120.0


def handler(event: dict[str, Any], context: Any) -> Any:
    """The workers of even numbers are of one kind. The first two wait for each other with a
    task in their hands: both compute."""
    number = int(event["worker"].rpartition("-")[2])
    os.environ["OPENBLAS_CORETYPE"] = CORES[number % 2]  # which OpenBLAS reads when NumPy is loaded
    from siafu.kernels import library

    assert library.LIBRARY is not None
    library.LIBRARY.siafu_use_isa(library.ISAS.index(ISAS[number % 2]))
    from lambda_funcs.desk import Desk
    from lambda_funcs.handler import handler as ours
    from siafu.wire import Task

    here = Path(tempfile.gettempdir()) / f"siafu-two-processors-{event['run_id']}"
    handle = Desk.handle

    def meets_the_other(desk: Desk, message: Any) -> Any:
        if isinstance(message, Task):
            meet(here, number)
        return handle(desk, message)

    if number < 2:
        Desk.handle = meets_the_other  # type: ignore[method-assign]
    try:
        return ours(event, context)
    finally:
        Desk.handle = handle  # type: ignore[method-assign]


def meet(here: Path, number: int) -> None:
    """Returns once both workers are there. Raises TimeoutError where one never comes."""
    here.mkdir(exist_ok=True)
    (here / str(number)).touch()
    until = time.monotonic() + PATIENCE_S
    while len(list(here.iterdir())) < 2:
        if time.monotonic() > until:
            raise TimeoutError(f"worker {number} has waited {PATIENCE_S:g} s for the other one")
        time.sleep(0.01)
