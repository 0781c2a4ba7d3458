"""Makes a graph of tables in memory: DataFrames of pandas, polars and others, and pyarrow's tables.

narwhals knows how each library's DataFrame becomes an Arrow table. The tables are written as Parquet to a temporary
folder and read from there, so that what holds for a user's files (which column is what, missing values, classes, what
is refused) holds here by the same code.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any
from urllib.parse import urlencode

import numpy as np

from graph_data.sources import columns, edgelist, vertexfiles
from graph_data.sources.arrow import arrow, first_line_of
from graph_data.sources.randomrows import random_width
from siafu import extras
from siafu.errors import ConfigError, DatasetError
from siafu.graph import Graph


def from_pandas(
    edges: Any,
    vertices: Any = None,
    *,
    source: str = "",
    target: str = "",
    weight: str = "",
    edge_type: str = "",
    id: str = "",
    features: str | Sequence[str] = (),
    label: str | Sequence[str] = (),
    split: str | Sequence[str] = (),
    label_kind: str = "auto",
    ids: str = "auto",
    name: str = "frames",
) -> Graph:
    """A graph of two tables: ``edges``, a row for each edge, and ``vertices``, a row for each vertex.

    Tables are DataFrames of pandas or polars, pyarrow tables, or of another library that narwhals knows (DuckDB, Modin,
    cuDF). What holds for files holds for them (docs/data.md, "Tables"); types of columns decide as in Parquet. An index
    of pandas that has a name is a column.

    source, target: columns of ``edges`` [by such names, else the first two]. weight, edge_type: other columns of it.
    id: the column of ``vertices`` that names them [``id``, ``node_id`` or similar, else the first]. label: its column
    of classes or numbers, or several columns of 0 and 1, one for each class; split: its column of train, val and test,
    or several. features: its other columns that are taken [all], or "random:F" for F random ones; also "-brand" for all
    but one, or "*" and "brand:onehot" for all, of which one is of categories (docs/data.md, "Tables"). label_kind:
    "classes", "labels" (several per vertex) or "numbers", where labels do not tell. ids: "text" if ids of different
    types are to be compared as text.

        >>> graph = siafu.from_pandas(sales, users, source="buyer", target="seller", id="user", label="job")
        >>> siafu.train(graph, epochs=50)

    Raises: DatasetError in one line for a table that is no good, ConfigError without narwhals or pyarrow.
    """
    of_vertices = {"id": id, "label": label, "split": split}
    if vertices is None and (useless := [key for key, value in of_vertices.items() if _names(value)]):
        raise DatasetError(f"{name}: {useless[0]} {of_vertices[useless[0]]!r} is a column of vertices: give this table")
    made = isinstance(features, str) and random_width(features) is not None
    if vertices is not None and made and not (_names(label) or _names(split)):
        raise DatasetError(
            f"{name}: nothing of vertices is used: features are {features}, and no label or split is named"
        )
    id_column = "".join(_names(id))
    with tempfile.TemporaryDirectory(prefix="siafu-frames-") as folder:
        file = "" if vertices is None else _written(vertices, "vertices", folder, id_column)
        options = {
            "src": "".join(_names(source)),
            "dst": "".join(_names(target)),
            "weight": "".join(_names(weight)),
            "type": "".join(_names(edge_type)),
            "id": id_column,
            "ids": ids,
            "labels": _of(file, label),
            "split": _of(file, split),
            "features": str(features) if made else _of(file, features) or file,
            "target": label_kind,
            "name": name,
        }
        said = urlencode({key: value for key, value in options.items() if value})
        try:
            graph = edgelist.load(f"{_written(edges, 'edges', folder, id_column)}?{said}")
        except DatasetError as error:
            raise DatasetError(_without_folder(str(error), folder)) from None
    return replace(graph, notes=tuple(_without_folder(note, folder) for note in graph.notes))


#: What messages about files say -> the same of our arguments.
ARGUMENTS = {
    "src=COLUMN and dst=COLUMN (--src, --dst)": "source=COLUMN and target=COLUMN",
    "id=COLUMN (--id)": "id=COLUMN",
    "--ids text": "ids='text'",
    "vertices#COLUMN takes": "label=COLUMN takes",
    "--target ": "label_kind ",
    "SOURCE?target=classes, in Python target='classes'": "in Python label_kind='classes'",
}


def _without_folder(text: str, folder: str) -> str:
    """A message or note about our files, reworded for the user's tables."""
    text = text.replace(f"edges:{folder}", folder).replace(f"{folder}/", "")
    text = text.replace("edges.parquet", "edges").replace("vertices.parquet", "vertices")
    for said, ours in ARGUMENTS.items():
        text = text.replace(said, ours)
    if (told := re.search(r"(?<=columns to take, )vertices#(.*)$", text)) is not None:
        text = f"{text[: told.start()]}features={columns.listed(told[1])}"
    text = re.sub(r"#\*,([^#]*):onehot makes", r"features=['*', '\1:onehot'] makes", text)
    text = re.sub(r"--split vertices#(\S+) makes", lambda told: f"split={columns.listed(told[1])} makes", text)
    return re.sub(r"#-([^#]*) leaves", r"features=['-\1'] leaves", text)


def _of(file: str, chosen: Any) -> str:
    """FILE#COLUMN,COLUMN of these columns; "" without columns."""
    names = _names(chosen)
    return f"{file}#{columns.line_of(names)}" if names else ""


def _names(chosen: Any) -> list[str]:
    """Names of one or several columns. Those of pandas may be numbers, which become their digits in Parquet."""
    if chosen is None or (isinstance(chosen, str) and not chosen):
        return []
    return [*map(str, chosen)] if isinstance(chosen, Iterable) and not isinstance(chosen, str) else [str(chosen)]


# --- a table as Parquet -----------------------------------------------------------------------------------------------


def _written(frame: Any, what: str, folder: str, id_column: str) -> str:
    """Writes a table to a file. Raises: DatasetError for anything but a table, or for values that no column of Parquet
    can hold."""
    pa, narwhals, file = arrow(), _narwhals(), f"{folder}/{what}.parquet"
    try:
        table = narwhals.from_native(frame)
    except TypeError:
        raise DatasetError(
            f"{what}: {type(frame).__module__}.{type(frame).__qualname__} is no table: must be a DataFrame of pandas "
            "or polars, or a pyarrow table"
        ) from None
    except ValueError as error:  # two columns of one name
        raise DatasetError(f"{what}: {_of_column(error)}") from None
    try:
        table = table.collect() if isinstance(table, narwhals.LazyFrame) else table
        with_index = _with_index(narwhals, table, what, id_column)
        with warnings.catch_warnings():  # that numbers among the names become texts: names of columns are texts here
            warnings.filterwarnings("ignore", "The DataFrame has column names of mixed type")
            arrow("pyarrow.parquet").write_table(_as_arrow(narwhals, with_index), file)
    except (pa.ArrowException, ValueError) as error:  # narwhals' own errors are ValueErrors
        raise DatasetError(f"{what}: is no table that can be read: {_of_column(error)}") from None
    return file


def _as_arrow(narwhals: Any, table: Any) -> Any:
    """An Arrow table. Columns of mixed values, which Arrow has no type for, are text, as a CSV file has them; sparse
    ones of pandas are dense."""
    pa = arrow()
    native = narwhals.to_native(table)
    kinds = dict(native.dtypes) if hasattr(native, "iloc") else {}
    if dense := {name: kind.subtype for name, kind in kinds.items() if str(kind).startswith("Sparse[")}:
        table = narwhals.from_native(native.astype(dense))
    try:
        return table.to_arrow()
    except (pa.ArrowException, OverflowError):  # of an integer of more than 64 bits
        mixed = [name for name in table.columns if not _has_type(pa, table.select(name))]
        return table.with_columns(narwhals.col(*mixed).cast(narwhals.String)).to_arrow()


def _has_type(pa: Any, column: Any) -> bool:
    try:
        column.to_arrow()
    except (pa.ArrowException, OverflowError):
        return False
    return True


def _narwhals() -> Any:
    try:
        return import_module("narwhals")
    except ImportError as error:
        how = extras.advice(error, extras.install("data"))
        raise ConfigError(f"DataFrames need narwhals: {how}") from None


def _of_column(error: Exception) -> str:
    """An error's reason in one line; Arrow names the column in a second argument."""
    told = [" ".join(part.split()).rstrip(". ") for part in error.args if isinstance(part, str)]
    return "; ".join(told) or first_line_of(error)


def _with_index(narwhals: Any, table: Any, what: str, id_column: str) -> Any:
    """A pandas table with its named index as columns: for vertices the first columns; for edges the last, as an index
    is no end. Other tables have no index.

    Raises: DatasetError for an index without a name that may be ids.
    """
    index = narwhals.maybe_get_index(table)
    if index is None:
        return table
    native, named = narwhals.to_native(table), [name for name in index.names if name is not None]
    if len(named) == len(index.names):
        whole = narwhals.from_native(native.reset_index())
        first, others = list(map(str, named)), table.columns
        return whole.select(*(others + first if what == "edges" else first + others))
    plain = len(index.names) == 1 and np.array_equal(np.asarray(index), np.arange(len(table)))
    numbers_of_rows = what == "edges" and np.asarray(index).dtype.kind in "iu"  # of a table that was filtered, say
    known = id_column in table.columns or any(columns.plain(str(name)) in vertexfiles.IDS for name in table.columns)
    if not plain and not numbers_of_rows and (what == "edges" or not known):
        advice = "id=COLUMN says which column it is" if what == "vertices" else "reset_index(drop=True) drops it"
        raise DatasetError(
            f"{what}: its index is not 0, 1, 2, ... and has no name: rename_axis('id') makes a column of it, {advice}"
        )
    return narwhals.from_native(native.reset_index(drop=True))
