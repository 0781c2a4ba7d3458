"""Tables as users have them: files of ten graphs with what goes wrong on the way, each
loaded to the right graph or refused.

    python -m tests.fuzz tables --count 300 --seed 1

Every case is one graph and one to three mishaps. The graph that is loaded is compared with the one that was
written: vertices, edges, weights, features, labels and splits, by what the files call them. A refusal must be one
line that names a file or a column.
"""

from __future__ import annotations

import csv
import io
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from graph_data.sources.names import resolve
from siafu.errors import GnnError
from siafu.graph import Graph, check
from siafu.sparse import SparseRows

ROLES = ("none", "train", "val", "test")


@dataclass
class Base:
    """A graph as a user knows it: everything by name, "" where it is unknown."""

    name: str
    ids: list[str]
    edges: list[tuple[str, str, float]]
    features: dict[str, list[float]]  # column -> a value for each vertex
    labels: list[str]
    split: list[str] = field(default_factory=list)  # of ROLES; []: none
    weighted: bool = False


def bases(seed: int) -> list[Base]:
    rng = random.Random(seed)
    n = 40

    def base(
        name: str, ids: list[str], labels: Callable[[int], str], split: bool = False, weighted: bool = False
    ) -> Base:
        pairs = {(rng.randrange(n), rng.randrange(n)) for _ in range(160)} | {(v, (v + 1) % n) for v in range(n)}
        edges = [(ids[u], ids[v], rng.randrange(1, 9) / 4) for u, v in sorted(pairs)]
        rng.shuffle(edges)
        features = {column: [rng.randrange(-64, 64) / 8 for _ in ids] for column in ("age", "income", "posts")}
        roles = [rng.choice(ROLES[1:]) for _ in ids] if split else []
        return Base(name, ids, edges, features, [labels(v) for v in range(n)], roles, weighted)

    words = ("red", "green", "blue")
    return [
        base("integers", [str(v) for v in range(n)], lambda v: str(v % 3)),
        base("gaps in ids", [str(7 * v + 1000) for v in range(n)], lambda v: words[v % 3], split=True),
        base("users", [f"U{v}" for v in range(n)], lambda v: words[v % 3]),
        base("leading zeros", [f"{v:04d}" for v in range(n)], lambda v: str(v % 2), split=True),
        base("postcodes as classes", [str(v) for v in range(n)], lambda v: ("10115", "80331", "20095", "50667")[v % 4]),
        base("weights", [str(v) for v in range(1, n + 1)], lambda v: str(v % 3), weighted=True),
        base("one-based classes", [f"p{v}" for v in range(n)], lambda v: str(1 + v % 4)),
        base("large integers", [str(10**17 + v) for v in range(n)], lambda v: words[v % 2], split=True),
        base("names with blanks", [f"Ann {v}" for v in range(n)], lambda v: ("new york", "paris")[v % 2]),
        base("words of umlauts", [f"ü{v}" for v in range(n)], lambda v: ("süd", "nord")[v % 2], weighted=True),
    ]


# --- tables and what happens to them ----------------------------------------------------------------------------------


@dataclass
class Table:
    name: str
    header: list[str] | None
    rows: list[list[str]]
    separator: str = ","
    ending: str = ".csv"
    newline: str = "\n"
    encoding: str = "utf-8"
    before: str = ""  # lines above the header
    behind: str = ""  # lines below the rows
    quote_all: bool = False

    def bytes(self) -> bytes:
        out = io.StringIO()
        writer = csv.writer(
            out,
            delimiter=self.separator,
            lineterminator=self.newline,
            quoting=csv.QUOTE_ALL if self.quote_all else csv.QUOTE_MINIMAL,
        )
        writer.writerows([*([] if self.header is None else [self.header]), *self.rows])
        return (self.before + out.getvalue() + self.behind).encode(self.encoding, "replace")

    def column(self, name: str, change: Callable[[str], str]) -> None:
        if self.header is not None and name in self.header:
            at = self.header.index(name)
            for row in self.rows:
                row[at : at + 1] = map(change, row[at : at + 1])  # a row may be short


Mishap = Callable[[Base, Table, Table, random.Random], Any]  # changes the tables of edges and of vertices


def _row_numbers(table: Table) -> None:
    """As ``DataFrame.to_csv()`` writes them."""
    table.header = None if table.header is None else ["", *table.header]
    table.rows = [[str(i), *row] for i, row in enumerate(table.rows)]


def _second_header(table: Table, words: list[str]) -> None:
    table.rows.insert(0, (words * len(table.rows[0]))[: len(table.rows[0])])


def _moved(table: Table, rng: random.Random) -> None:
    """The columns in another order, the id first or not."""
    order = list(range(len(table.rows[0])))
    rng.shuffle(order)
    table.header = None if table.header is None else [table.header[i] for i in order]
    table.rows = [[row[i] for i in order] if len(row) == len(order) else row for row in table.rows]


def _some(table: Table, column: str, rng: random.Random, word: str, share: float = 0.2) -> None:
    table.column(column, lambda value: word if rng.random() < share else value)


def _decimal_commas(table: Table, columns: list[str]) -> None:
    for column in columns:
        table.column(column, lambda value: value.replace(".", ","))


def _no_header(table: Table) -> None:
    table.header = None


def _set(table: Table, **changes: Any) -> None:
    for key, value in changes.items():
        setattr(table, key, value)


def _each(change: Callable[[Table], None], *tables: Table) -> None:
    for table in tables:
        change(table)


def _either(edges: Table, vertices: Table, rng: random.Random) -> Table:
    return rng.choice((edges, vertices))


MISSING = ("", "NA", "N/A", "null", "NULL", "None", "nan", "NaN", "#N/A", "\\N", "<NA>")
MISHAPS: dict[str, Mishap] = {
    "row numbers": lambda base, e, v, rng: _row_numbers(_either(e, v, rng)),
    "row numbers in both": lambda base, e, v, rng: _each(_row_numbers, e, v),
    "no header": lambda base, e, v, rng: _no_header(_either(e, v, rng)),
    "no header in both": lambda base, e, v, rng: _each(_no_header, e, v),
    "units below the header": lambda base, e, v, rng: _second_header(_either(e, v, rng), ["-", "years", "eur"]),
    "a comment above": lambda base, e, v, rng: _set(_either(e, v, rng), before="# made by hand\n"),
    "a comment above, with %": lambda base, e, v, rng: _set(_either(e, v, rng), before="% made by hand\n"),
    "semicolons": lambda base, e, v, rng: _set(_either(e, v, rng), separator=";"),
    "tabs": lambda base, e, v, rng: _set(_either(e, v, rng), separator="\t"),
    "bars": lambda base, e, v, rng: _set(_either(e, v, rng), separator="|"),
    "blanks": lambda base, e, v, rng: _set(_either(e, v, rng), separator=" "),
    "tsv": lambda base, e, v, rng: _set(_either(e, v, rng), separator="\t", ending=".tsv"),
    "a byte order mark": lambda base, e, v, rng: _set(_either(e, v, rng), encoding="utf-8-sig"),
    "UTF-16": lambda base, e, v, rng: _set(_either(e, v, rng), encoding="utf-16"),
    "Latin-1": lambda base, e, v, rng: _set(_either(e, v, rng), encoding="latin-1"),
    "Windows' lines": lambda base, e, v, rng: _set(_either(e, v, rng), newline="\r\n"),
    "empty lines at the end": lambda base, e, v, rng: _set(_either(e, v, rng), behind="\n\n"),
    "all quoted": lambda base, e, v, rng: _set(_either(e, v, rng), quote_all=True),
    "columns moved": lambda base, e, v, rng: _moved(v, rng),
    "columns of edges moved": lambda base, e, v, rng: _moved(e, rng),
    "ids as floats": lambda base, e, v, rng: e.column(rng.choice(("source", "target")), lambda x: x and f"{x}.0"),
    "ids as floats in one table": lambda base, e, v, rng: v.column("id", lambda x: x and f"{x}.0"),
    "ids in capitals": lambda base, e, v, rng: v.column("id", str.swapcase),
    "zeros dropped": lambda base, e, v, rng: v.column("id", lambda x: x.lstrip("0") or "0"),
    "blanks around ids": lambda base, e, v, rng: v.column("id", lambda x: f" {x} "),
    "blanks behind ids of edges": lambda base, e, v, rng: e.column("target", lambda x: f"{x} "),
    "an id that is missing": lambda base, e, v, rng: _some(
        *(_either(e, v, rng),), rng.choice(("id", "source")), rng, "", 0.1
    ),
    "labels as floats": lambda base, e, v, rng: v.column("label", lambda x: f"{x}.0" if x.isdigit() else x),
    "decimal commas": lambda base, e, v, rng: _decimal_commas(v, [*base.features]),
    "a feature that is missing": lambda base, e, v, rng: _some(v, "income", rng, rng.choice(MISSING), 0.1),
    "a word among features": lambda base, e, v, rng: _some(v, "age", rng, "old", 0.1),
    "a row that is short": lambda base, e, v, rng: v.rows[rng.randrange(len(v.rows))].pop(),
    "a row that is long": lambda base, e, v, rng: v.rows[rng.randrange(len(v.rows))].append("7"),
    "a vertex that is there twice": lambda base, e, v, rng: v.rows.append(list(v.rows[rng.randrange(len(v.rows))])),
    "a vertex that is not there": lambda base, e, v, rng: v.rows.pop(rng.randrange(len(v.rows))) and None,
    "two columns of one name": lambda base, e, v, rng: _set(
        v, header=None if v.header is None else ["age" if name == "posts" else name for name in v.header]
    ),
    "a column without a name": lambda base, e, v, rng: _set(
        v, header=None if v.header is None else ["" if name == "posts" else name for name in v.header]
    ),
    "a column of another kind": lambda base, e, v, rng: _set(
        e, header=None if e.header is None else [*e.header, "when"], rows=[[*row, "2020-01-01"] for row in e.rows]
    ),
}


def written(base: Base, names: list[str], rng: random.Random, folder: Path) -> tuple[str, Base]:
    """The source's name of the files, and the graph that they are of: with the labels
    that a mishap took away unknown."""
    edges = Table("edges", ["source", "target"], [[u, v] for u, v, _ in base.edges])
    if base.weighted:
        edges.header, edges.rows = ["source", "target", "weight"], [[u, v, f"{w:g}"] for u, v, w in base.edges]
    columns = [*base.features]
    vertices = Table(
        "users",
        ["id", *columns, "label", *(["split"] if base.split else [])],
        [
            [
                who,
                *(f"{base.features[c][v]:g}" for c in columns),
                base.labels[v],
                *([base.split[v]] if base.split else []),
            ]
            for v, who in enumerate(base.ids)
        ],
    )
    wanted = base
    for name in names:
        if name.startswith("labels missing"):
            lost = [rng.random() < 0.3 for _ in base.ids]
            word = rng.choice(MISSING)
            at = None if vertices.header is None else vertices.header.index("label")
            if at is not None:
                for row, gone in zip(vertices.rows, lost, strict=False):
                    row[at] = word if gone else row[at]
                wanted = replace(
                    wanted, labels=["" if gone else y for y, gone in zip(wanted.labels, lost, strict=True)]
                )
        else:
            MISHAPS[name](base, edges, vertices, rng)
    files = {}
    for table in (edges, vertices):
        files[table.name] = folder / f"{table.name}{table.ending}"
        files[table.name].write_bytes(table.bytes())
    users = str(files["users"])
    options = {"labels": f"{users}#label"} | ({"split": f"{users}#split"} if base.split else {})
    options |= {"features": users if rng.random() < 0.5 else f"{users}#{','.join(columns)}"}
    options |= {"weight": "weight"} if base.weighted else {}
    return f"edges:{files['edges']}?{urlencode(options, safe='/:')}", wanted


# --- what came of it --------------------------------------------------------------------------------------------------


def known(graph: Graph) -> tuple[Any, ...]:
    """A graph by what its source calls things, whatever numbers they have."""
    ids = [str(v) for v in range(graph.num_vertices)] if graph.ids is None else [str(x) for x in np.asarray(graph.ids)]
    features = graph.features.dense() if isinstance(graph.features, SparseRows) else np.asarray(graph.features[:])
    classes = graph.names.get("classes")
    labels = [
        "" if y < 0 else classes[y] if classes else f"{y:g}"
        for y in np.asarray(graph.labels).reshape(len(ids), -1)[:, 0]
    ]
    roles = [ROLES[r] for r in graph.split[:, 0]] if graph.split.shape[1] else [""] * len(ids)
    rows = {who: (tuple(features[v].tolist()), labels[v], roles[v]) for v, who in enumerate(ids)}
    weight = np.ones(graph.num_edges) if graph.weight is None else graph.weight
    ends = Counter((ids[u], ids[v], float(w)) for u, v, w in zip(graph.src, graph.dst, weight, strict=True))
    return rows, ends


def expected(base: Base, graph: Graph) -> tuple[Any, ...]:
    """As ``known``; a column order of the file's own is right where the columns have names."""
    columns = graph.names.get("features") or tuple(base.features)
    if sorted(columns) != sorted(base.features):
        return ({}, Counter())
    rows = {}
    for v, who in enumerate(base.ids):
        row = tuple(base.features[column][v] for column in columns)
        rows[who] = (
            row,
            base.labels[v],
            base.split[v] if base.split and base.labels[v] else (base.split or [""] * len(base.ids))[v],
        )
    return rows, Counter((u, v, w if base.weighted else 1.0) for u, v, w in base.edges)


def outcome(base: Base, names: list[str], rng: random.Random) -> tuple[str, str]:
    """ "right", "refused" or "WRONG", and what was said."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, wanted = written(base, names, rng, Path(folder))
        try:
            graph = resolve(source).load()
            check(graph)
        except GnnError as error:
            line = str(error)
            names_it = "\n" not in line and (
                folder in line or any(repr(name) in line for name in ("source", "target", "id"))
            )
            return ("refused" if names_it else "WRONG"), line.replace(folder, "")
        if known(graph) == expected(wanted, graph):
            return "right", "; ".join(graph.notes).replace(folder, "")
        return (
            "WRONG",
            (
                f"loaded to another graph: {graph.num_vertices} vertices, {graph.num_edges} edges; "
                f"{'; '.join(graph.notes)}"
            ).replace(folder, ""),
        )


def campaign(count: int, seed: int) -> list[tuple[str, list[str], str, str]]:
    """Base, mishaps, outcome, and what was said, of so many cases: one or two mishaps
    for the first, then up to three."""
    found, graphs = [], bases(seed)
    every = [*MISHAPS, "labels missing"]
    for number in range(count):
        rng = random.Random(1000 * seed + number)
        base = graphs[number % len(graphs)]
        first = every[number // len(graphs) % len(every)]
        names = [first, *rng.sample([name for name in every if name != first], rng.choice((0, 0, 1, 1, 2)))]
        if any(name.startswith("no header") for name in names):  # then nobody can tell source from target
            names = [name for name in names if name != "columns of edges moved"]
        names.sort(key=lambda name: name != "labels missing")  # while the columns have their names
        found.append((base.name, names, *outcome(base, names, rng)))
    return found


def main(count: int, seed: int) -> int:
    """0: every file was loaded to the right graph or refused; 1: some were not, and are said."""
    found = campaign(count, seed)
    tally = Counter(what for _, _, what, _ in found)
    for name, names, what, said in found:
        if what == "WRONG":
            print(f"{name}, {' + '.join(names)}: {said}")
    print(
        f"tables: {count} files, seed {seed}: {tally['right']} loaded to the right graph, {tally['refused']} "
        f"refused, {tally['WRONG']} wrong"
    )
    return 1 if tally["WRONG"] else 0
