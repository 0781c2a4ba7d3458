"""The fields of a PyG ``Data``, as a file that torch reads without running code from it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from graph_data.objects.pyg import tensors_of
from graph_data.sinks import Written
from graph_data.sinks.npz import names_note
from siafu.graph import Graph


def save(graph: Graph, folder: Path) -> Written:
    """Writes FOLDER/NAME.pt: ``Data.from_dict(torch.load(path, weights_only=True))``."""
    path = folder / f"{graph.name}.pt"
    fields = tensors_of(graph)
    kept = replace(graph, ids=None) if "n_id" in fields else graph
    try:
        import_module("torch").save(fields, path)
    except RuntimeError as error:  # torch's word for a full disk
        raise OSError(f"torch.save: {str(error).partition(chr(10))[0]}") from None
    return Written(str(path), notes=(f"in PyG: Data.from_dict(torch.load({str(path)!r}))", *names_note(kept)))
