"""Writes a run's progress to a file of its directory, for ``siafu watch`` and for the agent of a deployed machine."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from run_coordinator.actions import Status
from siafu.metrics import SPLITS
from siafu.run_files import BySplit

STATUS = ".status.json"
EVERY_S = 0.5


@contextlib.contextmanager
def kept(run_dir: Path, on_status: Callable[[Status], None]) -> Iterator[Callable[[Status], None]]:
    """Yields ``on_status`` extended to write the status file: from time to time, and at each new phase. Removes the
    file at the end."""
    written_at, phase = -float("inf"), ""

    def write(status: Status) -> None:
        nonlocal written_at, phase
        on_status(status)
        now = time.monotonic()
        if now - written_at >= EVERY_S or status.phase != phase:
            written_at, phase = now, status.phase
            with contextlib.suppress(OSError):  # it is only shown
                _write(run_dir, status)

    try:
        yield write
    finally:
        with contextlib.suppress(OSError):
            (run_dir / STATUS).unlink(missing_ok=True)


def _write(run_dir: Path, status: Status) -> None:
    draft = run_dir / f"{STATUS}.new"
    draft.write_text(json.dumps(asdict(status)))
    os.replace(draft, run_dir / STATUS)


def read(run_dir: Path) -> dict[str, Any]:
    """The status file as a dict of ``Status`` fields; empty if no run writes one."""
    try:
        found = json.loads((run_dir / STATUS).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def status_of(told: Mapping[str, Any]) -> Status:
    """The ``Status`` in the dict that ``read`` returns. Values of a wrong type are left out."""
    defaults = asdict(Status())
    right = {name: value for name, value in told.items() if name in defaults and _is_like(value, defaults[name])}
    return Status(**{**right, "evaluation": _scores_of(told.get("evaluation"))})


def _is_like(value: Any, default: Any) -> bool:
    return type(value) is type(default) or (type(value) is int and type(default) is float)


def _scores_of(told: Any) -> BySplit | None:
    if not isinstance(told, dict) or told.keys() != set(SPLITS):
        return None
    scored = [scores for scores in told.values() if scores is not None]
    is_sound = all(isinstance(scores, dict) and isinstance(scores.get("acc"), int | float) for scores in scored)
    return cast(BySplit, told) if is_sound else None
