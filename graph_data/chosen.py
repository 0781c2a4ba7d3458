"""Chooses the columns of new tables: those that a run's graph had, so that the run's model gets the columns that it
knows.

1. A table named without columns is read with the run's columns: other columns may hold anything.
2. A column of categories is one-hot again, whatever categories the new table has. A category that the run does not have
   is 0 in all columns, like a missing value, and a note counts them: a new brand must not stop a prediction. A category
   that the new table does not have is a column of zeros.
3. Source, target, weight, type and id are the run's columns, wherever a table has columns of these names: with
   exchanged ends, a directed graph would be reversed. A graph in memory is refused if its ends are exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from graph_data.source_flags import with_options
from graph_data.sources import columns
from graph_data.sources.columns import file_and_columns, path_and_options
from graph_data.sources.names import resolve
from graph_data.sources.onehot import ENDING
from graph_data.sources.randomrows import random_width
from graph_data.sources.vertexfiles import is_by_number
from siafu.errors import DatasetError, counted, listed
from siafu.features import blocks, columns_of
from siafu.graph import Graph
from siafu.shards import CHOSEN, COLUMNS, END_COLUMNS, ID_COLUMN, TYPE_COLUMN, WEIGHT_COLUMN, read_names

#: In a note on categories that the run does not have.
UNKNOWN = "unknown to"


def of_run(run: str | Path) -> tuple[str, ...]:
    """The columns that a run, or prepared graph, read its features from; () without names."""
    names = read_names(Path(run))
    return names.get(CHOSEN) or names.get(COLUMNS, ())


def as_read(source: str, run: str | Path) -> str:
    """The source's name with the run's columns of edges and ids (rule 3). If features are a table named without
    columns, with the run's feature columns too (rule 1).

    Raises: DatasetError for a column that the table lacks.
    """
    found = resolve(source)
    asked, edges = of_run(run), path_and_options(found.argument)[0]
    given = dict(parse_qsl(path_and_options(found.argument)[1], errors="surrogateescape"))
    text = given.get("features", "")
    path, said = file_and_columns(text)
    is_table = bool(text) and not is_by_number(text) and random_width(text) is None
    if found.kind == "edges":
        source = with_options(source, _columns_of_run(run, edges, path if is_table else "", given))
    if not asked or not is_table or said:
        return source
    file = columns.files_of(path)[0]
    there = columns.column_names(file)
    if missing := [name for name in asked if name not in there and name.removesuffix(ENDING) not in there]:
        raise DatasetError(
            f"{file}: has no feature column {listed(missing)}, which {run} was made with, only {listed(there)}"
        )
    return with_options(source, {"features": f"{text}#{columns.line_of(asked)}"})


def _columns_of_run(run: str | Path, edges: str, features: str, given: Mapping[str, str]) -> dict[str, str]:
    """The run's columns of source, target, weight, type and id that these tables have, unless the user named one."""
    names = read_names(Path(run))
    of_edges = [*zip(("src", "dst"), names.get(END_COLUMNS, ()), strict=False)]
    of_edges += [(option, name) for option in (WEIGHT_COLUMN, TYPE_COLUMN) for name in names.get(option, ())]
    taken = [given.get(option) for option in ("src", "dst", "weight", "type")]
    wanted = [(option, edges, name) for option, name in of_edges if name not in taken]
    wanted += [("id", features, name) for name in names.get(ID_COLUMN, ()) if features]
    return {
        option: name
        for option, path, name in wanted
        if option not in given and name in columns.column_names(columns.files_of(path)[0])
    }


def check_ends(graph: Graph, run: str | Path) -> None:
    """Checks rule 3 for a graph in memory, whose columns were chosen before. Raises: DatasetError if its edges' source
    column is the run's target column, or the reverse."""
    ours, theirs = (names.get(END_COLUMNS, ()) for names in (read_names(Path(run)), graph.names))
    if ours and theirs and (ours[0] == theirs[1] or ours[1] == theirs[0]):
        raise DatasetError(
            f"{graph.name}: its edges go from column {theirs[0]!r} to {theirs[1]!r}, those of {run} from {ours[0]!r} "
            f"to {ours[1]!r}: siafu.from_pandas(..., source={ours[0]!r}, target={ours[1]!r}) makes them alike"
        )


def aligned(graph: Graph, run: str) -> Graph:
    """The graph with the feature columns of a run in the order that they have there, found by their names; columns of
    categories by rule 2. Where either has no names, the columns stay as they are, and a note says so.

    Raises: DatasetError for a column that the graph lacks.
    """
    ours, theirs = read_names(Path(run)).get(COLUMNS, ()), graph.names.get(COLUMNS, ())
    if ours == theirs:
        return graph
    if not (ours and theirs):
        who = run if theirs else graph.name
        note = f"{graph.name}: feature columns are taken by position, since {who} has no names for them"
        return replace(graph, notes=(*graph.notes, note))
    both = _onehot(of_run(run)) & _onehot(graph.names.get(CHOSEN, ()))
    if missing := [name for name in ours if name not in theirs and not name.startswith(tuple(both))]:
        raise DatasetError(
            f"{graph.name}: has no feature column {listed(missing)}, which {run} was made with, only {listed(theirs)}"
        )
    notes = [f"{graph.name}: feature columns are taken by name, in the order of {run}"]
    extra = [name for name in theirs if name not in ours]
    if left := [name for name in extra if not name.startswith(tuple(both))]:
        notes[0] += f"; left out: {listed(left)}"
    if unknown := [name for name in extra if name not in left]:
        rows = counted(_count(graph, unknown), "row")
        notes.append(f"{graph.name}: {UNKNOWN} {run}, and 0 in all columns: {listed(unknown)} in {rows}")
    features = columns_of(graph.features, [theirs.index(name) if name in theirs else -1 for name in ours])
    names = {**graph.names, COLUMNS: ours} | ({CHOSEN: of_run(run)} if CHOSEN in graph.names else {})
    return replace(graph, features=features, names=names, notes=(*graph.notes, *notes))


def _onehot(chosen: Sequence[str]) -> frozenset[str]:
    """Prefixes of the columns that these categories become."""
    return frozenset(f"{name.removesuffix(ENDING)}=" for name in chosen if name.endswith(ENDING))


def _count(graph: Graph, names: Sequence[str]) -> int:
    """Rows with one of these categories."""
    theirs = graph.names[COLUMNS]
    found = columns_of(graph.features, [theirs.index(name) for name in names])
    return sum(int(np.count_nonzero(block.any(axis=1))) for _, block in blocks(found))
