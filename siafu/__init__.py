"""Full-graph GNN training on CPU servers and serverless tensor workers: ``prepare``, ``train`` and more for Python."""

import importlib

TYPE_CHECKING = False
# Type checkers and editors read __init__.pyi. Nothing else is imported yet when ``python -m siafu`` has the working
# folder on its path.
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

# Loaded when first asked for, by name alone: siafu imports nothing of the rooms above it. __init__.pyi has them too,
# made by make pages.
_ELSEWHERE = {
    "prepare": "graph_data.prepare",
    "train": "run_coordinator.api",
    "EpochEnd": "run_coordinator.epoch_calls",
    "Run": "run_coordinator.run",
    "repeat": "run_coordinator.repeat",
    "Runs": "run_coordinator.repeat",
    "search": "run_coordinator.search",
    "Search": "run_coordinator.search",
    "Point": "run_coordinator.search",
    "runs": "run_coordinator.past_runs",
    "PastRuns": "run_coordinator.past_runs",
    "PastRun": "run_coordinator.past_runs",
    "Trials": "run_coordinator.past_runs",
    "resume": "run_coordinator.recovery.resume",
    "predict": "run_coordinator.predict",
    "Predictions": "run_coordinator.predict.predictions",
    "evaluate": "run_coordinator.evaluate",
    "Evaluation": "run_coordinator.evaluate",
    "export": "run_coordinator.export",
    "train_baseline": "run_coordinator.baseline",
    "Graph": "siafu.graph",
    "from_arrays": "graph_data.objects.arrays",
    "from_dgl": "graph_data.objects.dgl",
    "from_pyg": "graph_data.objects.pyg",
    "from_pandas": "graph_data.objects.frames",
    "from_networkx": "graph_data.objects.networkx",
    "from_scipy": "graph_data.objects.scipy",
    "to_dgl": "graph_data.objects.dgl",
    "to_pyg": "graph_data.objects.pyg",
    "convert": "graph_data.convert",
}


__all__ = ["__version__", *_ELSEWHERE]


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> "Any":
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'siafu' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    except ImportError as error:
        _check_hidden(error)
        raise


def _check_hidden(error: ImportError) -> None:
    """Raises: ImportError that names the user's file, if one beside their script has the name of a package of ours."""
    import importlib.util
    import os

    room = (error.name or "").partition(".")[0]
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), room)
    found = importlib.util.find_spec(room) if os.path.isdir(beside) else None
    if found is not None and found.origin and os.path.dirname(os.path.abspath(found.origin)) != beside:
        raise ImportError(f"{found.origin} hides siafu's package {room}: rename it") from error
