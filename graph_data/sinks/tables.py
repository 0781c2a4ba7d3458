"""Edge lists and vertex tables, as ``graph_data.sources.edgelist`` reads them: any tool's formats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from graph_data.sinks import Written
from graph_data.sinks.npz import names_note
from graph_data.sources.arrow import arrow
from siafu.graph import Graph
from siafu.sparse import Array, SparseRows

EDGE_ROWS, FEATURE_VALUES = 1 << 21, 1 << 24  # edges, and values of features, that are written together
SPARSE = "features.npz"  # as scipy.sparse.save_npz writes it: a table has no sparse rows


def save_csv(graph: Graph, folder: Path) -> Written:
    """Writes FOLDER/edges.csv, features.csv, labels.csv and split.csv."""
    return _save(graph, folder, "csv")


def save_parquet(graph: Graph, folder: Path) -> Written:
    """Writes FOLDER/edges.parquet, features.parquet, labels.parquet and split.parquet."""
    return _save(graph, folder, "parquet")


def _save(graph: Graph, folder: Path, ending: str) -> Written:
    edges = folder / f"edges.{ending}"
    _write(edges, _edge_blocks(graph))
    options = {"src": "src", "dst": "dst", "num_vertices": str(graph.num_vertices), "name": graph.name}
    if graph.weight is not None:
        options["weight"] = "weight"
    if graph.edge_type is not None:
        options |= {"type": "type", "num_edge_types": str(graph.num_edge_types)}
    named = () if isinstance(graph.features, SparseRows) else _headers(graph, "features")
    if isinstance(graph.features, SparseRows):
        options["features"] = str(folder / SPARSE)
        _save_sparse(folder / SPARSE, graph.features)
    else:
        options["features"] = str(folder / f"features.{ending}")
        _write(Path(options["features"]), _feature_blocks(graph.features, named))
    options |= {"labels": str(folder / f"labels.{ending}"), "target": graph.target}
    _write(Path(options["labels"]), iter([_labels(graph)]))
    if graph.split.shape[1]:
        options["split"] = str(folder / f"split.{ending}")
        columns = {f"split{s}": roles for s, roles in enumerate(graph.split.T)}
        _write(Path(options["split"]), iter([{"id": np.arange(graph.num_vertices), **columns}]))
    return Written(
        f"edges:{edges}?{urlencode(options, safe='/:*', errors='surrogateescape')}",
        (
            *_notes(graph),
            *names_note(
                graph, kept=[*(["features"] if named else []), *([] if graph.target == "classes" else ["classes"])]
            ),
        ),
    )


def _notes(graph: Graph) -> Iterator[str]:
    """Notes classes without a vertex: a reader counts only classes that occur."""
    if graph.target == "classes" and graph.labels.max(initial=-1) + 1 < graph.num_classes:
        yield f"no vertex has class {graph.num_classes - 1}: {graph.labels.max(initial=-1) + 1} classes will be read"


def _edge_blocks(graph: Graph) -> Iterator[dict[str, Array]]:
    columns = {"src": graph.src, "dst": graph.dst}
    if graph.weight is not None:
        columns["weight"] = _text_floats(graph.weight)
    if graph.edge_type is not None:
        columns["type"] = graph.edge_type
    for start in range(0, max(1, graph.num_edges), EDGE_ROWS):
        yield {name: values[start : start + EDGE_ROWS] for name, values in columns.items()}


def _headers(graph: Graph, of: str) -> tuple[str, ...]:
    """Names of the columns of "features", or of labels that are columns ("classes"), if all differ, also from the ids'
    column; else none."""
    words = graph.names.get(of, ())
    return tuple(words) if len({"id", *words}) == len(words) + 1 else ()


def _feature_blocks(features: Array, named: tuple[str, ...]) -> Iterator[dict[str, Array]]:
    """Features in columns, a block of rows at a time, to limit the second copy. Smaller blocks would make many small
    groups in a wide Parquet file."""
    named = named or tuple(f"x{i}" for i in range(features.shape[1]))
    rows = max(1, FEATURE_VALUES // max(1, features.shape[1]))
    for start in range(0, len(features), rows):
        block = _text_floats(features[start : start + rows])
        yield {"id": np.arange(start, start + len(block)), **dict(zip(named, block.T, strict=True))}


def _labels(graph: Graph) -> dict[str, Array]:
    """Labels, without the vertices whose label is unknown."""
    labels = _text_floats(graph.labels)
    matrix = labels.reshape(len(labels), -1)
    unknown = np.isnan(matrix) if graph.target == "numbers" else matrix < 0
    known = ~unknown.all(axis=1)
    rows = matrix[known]
    width = rows.shape[1]
    names = () if graph.target == "classes" else _headers(graph, "classes")
    names = names or (("label",) if width == 1 else tuple(f"label{c}" for c in range(width)))
    columns = dict(zip(names, rows.T, strict=True))
    return {"id": np.flatnonzero(known), **columns}


def _text_floats(values: Array) -> Array:
    """float16 as float32, and booleans as 0 and 1: types that pyarrow writes as text, and that we read back to the last
    bit."""
    kinds = {np.dtype(np.float16): np.float32, np.dtype(bool): np.uint8}
    return values.astype(kinds[values.dtype]) if values.dtype in kinds else values


def _write(path: Path, blocks: Iterator[dict[str, Array]]) -> None:
    """Writes a table in one of the formats, a block of columns after the other."""
    pa, csv, parquet = arrow("pyarrow"), arrow("pyarrow.csv"), arrow("pyarrow.parquet")
    first = pa.table(_columns(next(blocks)))
    writer: Any = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
    with writer(str(path), first.schema) as file:
        file.write_table(first)
        for block in blocks:
            file.write_table(pa.table(_columns(block)))


def _columns(block: dict[str, Array]) -> dict[str, Array]:
    """The columns of a matrix. NaN becomes a missing value, in text as in Parquet."""
    pa = arrow("pyarrow")
    return {name: pa.array(np.ascontiguousarray(values), from_pandas=True) for name, values in block.items()}


def _save_sparse(path: Path, rows: SparseRows) -> None:
    np.savez_compressed(
        path,
        indptr=rows.indptr,
        indices=rows.indices,
        data=rows.data,
        shape=np.array(rows.shape),
        format=np.array(b"csr"),
    )
