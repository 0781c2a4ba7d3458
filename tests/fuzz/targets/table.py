"""Edge lists in CSV and Parquet, and tables of vertices beside them."""

from __future__ import annotations

import io
from collections.abc import Iterator

from graph_data.sources import edgelist
from tests.fuzz.inputs import Input
from tests.fuzz.targets import Folder, Target

EDGES, VERTICES, PARQUET = "edges.csv", "vertices.csv", "edges.parquet"


class Table(Target):
    name = "table"
    modules = (
        "graph_data.sources.edgelist",
        "graph_data.sources.textfile",
        "graph_data.sources.columns",
        "graph_data.sources.ids",
        "graph_data.sources.vertexfiles",
        "graph_data.sources.edgetypes",
        "graph_data.sources.words",
        "graph_data.census",
    )
    tokens = (
        b",",
        b"\t",
        b"\n",
        b"\r\n",
        b'"',
        b'""',
        b"nan",
        b"NA",
        b"inf",
        b"1e400",
        b"-1",
        b"9223372036854775808",
        b"0.5",
        b"\x00",
        b"\xff\xfe",
        b"\x1f\x8b",
        b"PAR1",
        b"src,dst\n",
        b"id,",
        b"split",
        b"train",
        b"\xef\xbb\xbf",
        b"18446744073709551616",
    )
    structured = 0.0
    constant_bytes = 6_000_000  # text is read in blocks of 4 MiB

    def __init__(self) -> None:
        self._folder = Folder()

    def examples(self) -> Iterator[Input]:
        edges, vertices = (
            b"src,dst,w\n0,1,0.5\n1,2,1\n2,0,2\n",
            b"id,a,b,label,split\n0,1,2,0,train\n1,3,4,1,val\n2,5,6,0,test\n",
        )
        yield ((EDGES, edges),)
        yield ((EDGES, b"0,1\n1,2\n"),)
        yield ((EDGES, b"ann,bob\nbob,eve\n"),)
        yield ((EDGES, edges), (VERTICES, vertices))
        yield ((PARQUET, _parquet()),)
        yield ((PARQUET, _parquet()), (VERTICES, vertices))

    def run(self, given: Input) -> None:
        folder, parts = self._folder.put(given), dict(given)
        file = PARQUET if PARQUET in parts else EDGES
        weight = "&weight=w" if b"w" in parts.get(file, b"") else ""
        beside = f"&features={folder / VERTICES}&labels={folder / VERTICES}&split={folder / VERTICES}"
        edgelist.load(f"{folder / file}?name=fuzz{weight}{beside if VERTICES in parts else '&features=random:4'}")


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table({"src": [0, 1, 2], "dst": [1, 2, 0], "w": [0.5, 1.0, 2.0]}), stream)
    return stream.getvalue()
