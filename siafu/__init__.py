"""Full-graph GNN training on CPU servers and serverless tensor workers: ``prepare``, ``train`` and more for Python."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Loaded when first asked for, by name alone: siafu imports nothing of the rooms above it.
_ELSEWHERE = {
    "prepare": "datasets.prepare", "train": "bench.api", "Run": "bench.api", "repeat": "bench.many", "search": "bench.search",
    "resume": "bench.resume", "predict": "bench.predict", "export": "bench.export", "train_baseline": "bench.baseline", "Graph": "siafu.graph",
    "from_arrays": "datasets.objects.arrays", "from_dgl": "datasets.objects.dgl", "from_pyg": "datasets.objects.pyg",
    "from_networkx": "datasets.objects.networkx", "from_scipy": "datasets.objects.scipy",
    "to_dgl": "datasets.objects.dgl", "to_pyg": "datasets.objects.pyg", "convert": "datasets.convert",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'siafu' has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)
