"""Full-graph GNN training on CPU servers and serverless tensor workers: ``prepare``, ``train``, ``Run``, ``Graph`` for Python."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Loaded when first asked for, by name alone: siafu imports nothing of the rooms above it.
_ELSEWHERE = {"prepare": "datasets.prepare", "train": "bench.api", "Run": "bench.api", "Graph": "siafu.graph"}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'siafu' has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)
