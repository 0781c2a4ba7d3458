"""A figure of docs/ as a file: on paper of its own, and it says what drew it."""

from __future__ import annotations

import matplotlib
from matplotlib.figure import Figure

from cost_planner.report import drawing


def document(drawn: Figure, name: str, title: str, command: str) -> str:
    """SVG. ``command``: what writes the file. Call it within ``drawing.style``. Equal figures are equal bytes."""
    text = drawing.alone(drawing.svg(drawn, name, title))
    drawn_by = f"<!-- {command}, with matplotlib {matplotlib.__version__} -->"
    return text.replace("<style>", f"{drawn_by}<style>svg {{background: var(--paper)}} ", 1)
