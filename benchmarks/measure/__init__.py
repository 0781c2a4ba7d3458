"""What ``python -m benchmarks measure`` measures: one module per subject, each with
``add_arguments(parser)`` and ``measure(args)``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """What was measured: a table, and the figures that are asked about first."""

    title: str
    columns: tuple[str, ...]  # keys of the rows that the table shows, in this order; JSON has every key
    rows: list[dict[str, Any]]
    summary: dict[str, Any] = field(default_factory=dict)
