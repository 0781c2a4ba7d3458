"""Targets of ``siafu convert``: formats of files, and how each names what it cannot hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from graph_data.objects.arrays import labels_for_losses
from siafu.errors import ConfigError, one_of
from siafu.graph import Graph, zero_and_one
from siafu.table import loaded

#: format -> function of the graph and a folder, which is there and empty
SINKS = {
    "npz": "graph_data.sinks.npz:save",
    "csv": "graph_data.sinks.tables:save_csv",
    "parquet": "graph_data.sinks.tables:save_parquet",
    "bsnap": "graph_data.sinks.bsnap:save",
    "pyg": "graph_data.sinks.pyg:save",
    "dgl": "graph_data.sinks.dgl:save",
}


@dataclass(frozen=True)
class Written:
    """The result of a sink."""

    source: str  # the name of a source that reads it back
    notes: tuple[str, ...] = ()  # what is other than in the graph, a line each


def save(graph: Graph, kind: str, folder: Path) -> Written:
    """Writes a checked graph. Raises: ConfigError for an unknown format, or a missing package."""
    if kind not in SINKS:
        raise ConfigError(f"format {kind!r}: {one_of(kind, SINKS)}")
    written: Written = loaded(SINKS[kind])(graph, folder)
    if graph.random_features:
        written = replace(
            written, notes=(*written.notes, f"its features are random ({graph.made_features}): a reader is not told")
        )
    if "target=" not in written.source and _asks(graph, kind):
        written = replace(written, source=f"{written.source}?target={graph.target}")
    return written


def _asks(graph: Graph, kind: str) -> bool:
    """Whether a reader must be told the kind of labels. Floats of 0 and 1 may also be several classes, as in PyG and
    DGL; one column of several classes would be read as one class per vertex."""
    if graph.target == "labels" and graph.labels.shape[1] == 1 and kind != "bsnap":
        return True
    return zero_and_one(labels_for_losses(graph) if kind in ("dgl", "pyg") else graph.labels)
