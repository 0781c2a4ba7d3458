"""Graphs whose edges are rows of Parquet or CSV files, with files beside them about their vertices.

    PATH[?src=COLUMN&dst=COLUMN&weight=COLUMN&type=COLUMN&num_edge_types=R&ids=auto|integer|text
          &num_vertices=N&id=COLUMN&features=FILE&labels=FILE&target=auto|classes|labels|numbers&split=FILE&name=NAME]

PATH is a file (.parquet, .csv, .tsv, .txt, .edges, .edgelist; .gz too), a pattern with ``*``, or a folder of such
files. Source and target are columns of such names (ENDS), else the first two, unless ``src`` and ``dst`` name them;
there is no weight or type unless a column is named. Ids are of any type (``graph_data.sources.ids``): integers, or as
the first row has them, or text if ``ids`` says so. They are vertex numbers if ``num_vertices`` is given or a .npy file
has one row per vertex; else the ids that occur are numbered 0, 1, 2, ... in ascending order, and the shards keep them
in ids.npy, or ids.parquet if they are no 64-bit integers. So it is with types: they are 0..R-1 as they stand if
``num_edge_types`` is given; else those that occur, integers or words, are numbered. Features are a .npy file [N, F], a
scipy .npz file, a table by id, or ``random:F`` (float16); without any, it is refused.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.census import Block, Census, Numbering, take_census
from graph_data.sources import columns, ids, textfile, vertexfiles, words
from graph_data.sources.beside import options_of
from graph_data.sources.columns import WEIGHTS, Identity, Kind
from graph_data.sources.edgetypes import EdgeTypes
from graph_data.sources.ids import Seen
from graph_data.sources.randomrows import no_features, random_width
from graph_data.sources.sizes import Sizes
from graph_data.sources.vertexfiles import Table, is_by_number, table
from graph_data.targets import check_target
from siafu.errors import DatasetError, counted
from siafu.graph import MAX_EDGE_TYPES, Graph
from siafu.shards import CHOSEN, COLUMNS, END_COLUMNS, ID_COLUMN, TYPE_COLUMN, WEIGHT_COLUMN
from siafu.sparse import Array

log = logging.getLogger(__name__)

WIDE = 6  # columns of numbers, without a header, in as many rows: no list of edges

OPTIONS = (
    "src",
    "dst",
    "weight",
    "type",
    "num_edge_types",
    "ids",
    "num_vertices",
    "id",
    "features",
    "labels",
    "target",
    "split",
    "name",
)
#: Names (``columns.plain``) of the columns that are source and target, wherever they stand.
ENDS = (
    *((f"source{what}", f"target{what}") for what in ("", "id", "node", "nodeid")),
    *((f"src{what}", f"dst{what}") for what in ("", "id", "node", "nodeid")),
    *((f"from{what}", f"to{what}") for what in ("", "id", "node", "nodeid")),
    *((f"start{what}", f"end{what}") for what in ("", "id", "node", "nodeid")),
    ("u", "v"),
    ("row", "col"),
    ("row", "column"),
    ("head", "tail"),
    ("subject", "object"),
    ("citing", "cited"),
    ("follower", "followee"),
    ("node1", "node2"),
    ("id1", "id2"),
)
#: Names of columns that are no end of an edge, though they often stand first
NO_END = re.compile(
    r"index|rownames?|rownumber|edge|edgeid|eid|linkid|weights?|w|ts|year|month|day|hour|when|types?|rel|relation"
    r"|label|labels|x\d+|\w*(time|timestamp|date|datetime|timestampms|epochms|unixtime)"
    r"|(created|updated|modified|posted|ordered|purchased|paid|sent|occurred|happened|observed|started|ended)(at|on)"
)
SHOWN = 6  # names of columns in a note
FEW_IDS = 0.05  # of a table's ids in no edge: more are warned of
ROWS = 1 << 21  # edges that are read together where they all go to memory
DENSE_IDS = 1 << 28
MAX_VERTICES = 2**31 - 1


@dataclass(frozen=True)
class EdgeList:
    """An edge list on disk: an ``EdgeSource``, and the files of its vertices."""

    name: str
    files: tuple[Path, ...]
    src: str
    dst: str
    weight: str | None
    type: str | None  # the column of the edges' types
    num_edge_types: int | None  # if types are numbers as they stand
    how: str  # ids are said to be: one of graph_data.sources.ids.HOWS
    id_type: Any  # their Arrow type; None: integers of 64 bits
    num_vertices: int | None  # if ids are vertex numbers
    features: str
    labels: str | None
    target: str
    split: str | None
    tables: dict[str, Table]  # the tables among features, labels and split
    identities: tuple[Identity, ...]  # of the files: they are read more than once

    @property
    def pieces(self) -> tuple[str, ...]:
        return tuple(str(file) for file in self.files)

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        return np.dtype(np.float64) if self.weight else None

    def blocks(self, piece: int, rows: int) -> Iterator[Block]:
        """Blocks of edges, with ids or hashes of ids for vertices."""
        return self._blocks(piece, rows, self._id_kind())

    def _blocks(self, piece: int, rows: int, id_kind: Kind) -> Iterator[Block]:
        names, kinds = [self.src, self.dst], [id_kind, id_kind]
        if self.weight:
            names, kinds = [*names, self.weight], [*kinds, WEIGHTS]
        for src, dst, *weight in columns.blocks(self.files[piece], names, rows, kinds):
            columns.check_unchanged(self.files[piece], self.identities[piece])
            yield src, dst, weight[0].astype(np.float64, copy=False) if weight else None

    def _id_kind(self, seen: Seen | None = None) -> Kind:
        return ids.kind_of(self.id_type, self.how, self.num_vertices, seen)

    def num_edges(self) -> int:
        """Number of edges: exact for Parquet, approximate for text."""
        return sum(columns.num_rows(file) for file in self.files)

    def largest_id(self, default: int) -> int:
        """The largest id by the statistics of Parquet files, if all have them and it is plausible; else ``default``."""
        if self.id_type is not None:
            return default
        found = [columns.largest(file, column) for file in self.files for column in (self.src, self.dst)]
        known = [value for value in found if value is not None]
        return max(known) if len(known) == len(found) and 0 <= max(known) <= 4 * self.num_edges() else default

    def census(self, rows: int, dense_ids: int) -> Census:
        """Finds the vertices; ids that are not integers by name."""
        seen = None if self.id_type is None else Seen()
        kind = self._id_kind(seen)
        tables = self._ids_of_tables(kind)
        found = take_census(
            self,
            self.num_vertices,
            rows,
            dense_ids,
            tables,
            lambda piece, rows_of_block: self._blocks(piece, rows_of_block, kind),
        )
        if found.num_vertices > MAX_VERTICES:
            raise DatasetError(f"{self.name}: {found.num_vertices} vertices, must be <= {MAX_VERTICES}")
        if seen is None:
            self._check_no_counts(found)
            return found
        named = seen.ids()
        self._check_headers(named)
        if self.how != "text":
            self._check_alike(named)
        return replace(found, ids=named)

    def _check_no_counts(self, found: Census) -> None:
        """Raises: DatasetError for a first line that counts vertices and edges, as in some formats: it is no edge, and
        the number of edges no vertex."""
        file = self.files[0]
        if self.num_vertices or len(self.files) > 1 or columns.is_parquet(file) or textfile.has_header(file):
            return
        row = textfile.layout(file).rows[0]
        top = found.num_vertices - 1
        last, least = (top, top - 1) if found.ids is None else (int(found.ids[top]), int(found.ids[max(0, top - 1)]))
        if row == (str(least), str(last)) and last == found.num_edges - 1:
            raise DatasetError(
                f"{file}: its first line, {textfile.shown(textfile.layout(file))}, seems to count vertices and edges: "
                "leave it out, or put a line of names above it if it is an edge"
            )

    def _ids_of_tables(self, kind: Kind) -> dict[str, Iterator[Array]]:
        """Ids of each table, by its first file; several tables may be one file."""
        return {str(found.files[0]): found.ids(kind) for found in self.tables.values()}

    @property
    def typed(self) -> bool:
        """Whether edges have types: then they cannot be read a block at a time."""
        return self.type is not None

    def _check_headers(self, named: ids.NamedIds) -> None:
        """Raises: DatasetError if the header seems to be a first line of ids, taken for names of columns."""
        of_edges = [(file, (self.src, self.dst)) for file in self.files]
        of_tables = [(file, (found.id,)) for found in self.tables.values() for file in found.files]
        for file, ends in (*of_edges, *of_tables):
            if columns.is_parquet(file) or not textfile.has_header(file):
                continue
            for name in ends:
                if name in named:
                    raise DatasetError(
                        f"{file}: {name!r} of its first line is also an id: give it a first line that names its columns"
                    )

    def _check_alike(self, named: ids.NamedIds) -> None:
        """Raises: DatasetError for two ids that look the same: ``bob`` and ``bob`` with a trailing blank."""
        if (pair := named.alike()) is not None:
            files = ", ".join(dict.fromkeys([str(self.files[0]), *(str(t.files[0]) for t in self.tables.values())]))
            raise DatasetError(
                f"{files}: ids {pair[0]!a} and {pair[1]!a} differ only in what is not seen: make them "
                "equal; --ids text takes both"
            )

    def vertex_files(self) -> tuple[Path, ...]:
        """Every file with data of vertices."""
        named = [path for path in (self.features, self.labels, self.split) if path and is_by_number(path)]
        return (*map(Path, named), *(file for found in self.tables.values() for file in found.files))

    def vertices(self, census: Census, scratch: Path | None) -> Graph:
        """The whole graph but its edges; features may be on disk (``vertexfiles.features``)."""
        n, found, kind = census.num_vertices, census.ids, self._id_kind()
        self._check_apart(census)
        labels = vertexfiles.Labels(np.full(n, -1, np.int64))
        if self.labels:
            labels = vertexfiles.labels(self.labels, self.tables.get("labels"), n, kind, found, self.target)
        split, of_split = (
            vertexfiles.split(self.split, self.tables.get("split"), n, kind, found)
            if self.split
            else (np.zeros((n, 0), np.uint8), ())
        )
        none = np.empty(0, np.int32)
        return Graph(
            name=self.name,
            num_vertices=n,
            src=none,
            dst=none,
            weight=np.empty(0, np.float32) if self.weight else None,
            features=vertexfiles.features(self.features, self.tables.get("features"), n, kind, found, scratch),  # type: ignore[arg-type]
            labels=labels.values,
            num_classes=labels.num_classes,
            split=split,
            directed=True,
            ids=found,
            names=({"classes": labels.names} if labels.names else {}) | self._columns(),
            numbers_said=self.target == "numbers",
            random_features=random_width(self.features) is not None,
            notes=(self._note_of_edges(), *self._notes_of_tables(), *_notes_of_ids(census), *labels.notes, *of_split),
        )

    def _check_apart(self, census: Census) -> None:
        """Raises: DatasetError for a table none of whose ids is in an edge; warns if many are in none."""
        for name, (total, apart) in census.apart.items():
            if not census.num_edges or apart <= FEW_IDS * total:
                continue
            of_table = next(found for found in self.tables.values() if str(found.files[0]) == name)
            if apart < total:
                log.warning("%s: %d of %d ids in no edge", Path(name).name, apart, total)
                continue
            told, tables_own = "", of_table.files[0]
            if not columns.is_parquet(tables_own) and not columns.is_parquet(self.files[0]):
                ours = textfile.as_written(tables_own, of_table.id), textfile.as_written(self.files[0], self.src)
                show = (
                    repr
                    if unicodedata.normalize("NFC", str(ours[0])) != unicodedata.normalize("NFC", str(ours[1]))
                    else ascii
                )
                told = f": they are like {show(ours[0])}, those of edges like {show(ours[1])}"
            raise DatasetError(f"{name}: none of its {total} ids (column {of_table.id!r}) is in an edge{told}")

    def _columns(self) -> dict[str, tuple[str, ...]]:
        """Names of the feature columns, and the table's columns if these names do not show them. Also, for reading
        another table of the same kind, the columns of source, target, weight, type and id."""
        features = self.tables.get("features")
        named = vertexfiles.feature_names(features)
        found = {COLUMNS: named} if named else {}
        if features is not None and named and named != features.chosen:
            found[CHOSEN] = features.chosen
        said = {
            END_COLUMNS: (self.src, self.dst),
            WEIGHT_COLUMN: (self.weight,) if self.weight else (),
            TYPE_COLUMN: (self.type,) if self.type else (),
            ID_COLUMN: (features.id,) if features is not None else (),
        }
        return found | {key: names for key, names in said.items() if names and not any(map(str.isdecimal, names))}

    def _note_of_edges(self) -> str:
        """A note on the meaning of each column in the file of edges."""
        used = [f"edges from [{self.src}] to [{self.dst}]"]
        used += [f"{what} [{name}]" for what, name in (("weights", self.weight), ("types", self.type)) if name]
        return _note(self.files, used, (self.src, self.dst, self.weight, self.type))

    def _notes_of_tables(self) -> Iterator[str]:
        """Notes on the meaning of each column in the tables of vertices, a line for each table."""
        for files in dict.fromkeys(found.files for found in self.tables.values()):
            found = {what: table for what, table in self.tables.items() if table.files == files}
            used = [f"vertices by [{next(iter(found.values())).id}]"]
            used += [
                f"{what} {_listed(found[what].chosen)}" for what in ("features", "labels", "split") if what in found
            ]
            yield _note(files, used, [name for table in found.values() for name in (table.id, *table.values)])
            for one in found.values():
                yield from (categories.note(files[0]) for categories in one.categories.values())


def _note(files: Sequence[Path], used: Sequence[str], names: Collection[str | None]) -> str:
    """One line on a table of several files."""
    file = files[0]
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    how = []
    known = frozenset(names)
    if left := [name for name in columns.column_names(file) if name not in known]:
        how.append(f"not used: {_listed(left)}")
    if not columns.is_parquet(file):
        layout = textfile.layout(file)
        how += [f"no header: its first line, {textfile.shown(layout)}, is data"] if not layout.has_header else []
        if layout.comments:
            how.append(f"{counted(len(layout.comments), 'line')} of comments above")
        if layout.separator != textfile.promised_separator(file):
            how.append(f"separated by {'blanks' if layout.separator == textfile.BLANKS else repr(layout.separator)}")
    return f"{file.name}{more}: {'; '.join([', '.join(used), *how])}"


def _listed(names: Sequence[str]) -> str:
    shown = " ".join(f"[{name}]" if name else "a column without a name" for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} … ({len(names)})"


def _notes_of_ids(census: Census) -> Iterator[str]:
    for name, (total, apart) in census.apart.items():
        if apart:
            yield f"{Path(name).name}: {apart:,} of {total:,} ids in no edge"


def load(argument: str) -> Graph:
    """The whole graph in memory, including self-loops. Raises: DatasetError for an invalid file or value; ConfigError
    without pyarrow."""
    edges = parse(argument)
    census = edges.census(ROWS, DENSE_IDS)
    numbering = Numbering(census.ids, 4 * DENSE_IDS)
    found = [
        (numbering.of(src), numbering.of(dst), weight)
        for piece in range(len(edges.pieces))
        for src, dst, weight in edges.blocks(piece, ROWS)
    ]
    src, dst, weight = zip(*found, strict=True) if found else ((), (), ())
    vertices = edges.vertices(census, scratch=None)
    features = vertices.features
    if not isinstance(features, np.ndarray) and hasattr(features, "ndim"):
        features = features[:]
    graph = replace(
        vertices,
        src=_joined(src),
        dst=_joined(dst),
        weight=np.concatenate([np.empty(0), *weight]) if edges.weight else None,
        features=features,
    )
    return (
        EdgeTypes.read(edges.files, edges.identities, edges.type, edges.num_edge_types).of(graph)
        if edges.type
        else graph
    )


def sizes(argument: str) -> Sizes:
    edges = parse(argument)
    listed = edges.num_edges()
    n = edges.num_vertices or edges.largest_id(default=listed // 8) + 1
    width = random_width(edges.features)
    nbytes = 2 * n * width if width else sum(file.stat().st_size for file in edges.vertex_files())
    if (found := edges.tables.get("features")) is not None and found.onehot:
        nbytes = 4 * n * sum(found.widths)  # a word of a table may be a thousand columns
    text = edges.files[0].name.endswith(tuple(textfile.TEXT))
    return Sizes(n, listed, nbytes, edges.weight is not None, text=text)


def parse(argument: str) -> EdgeList:
    """The edge list that an argument of the form above names. Raises: DatasetError for an invalid option or a missing
    file."""
    path, given = options_of(argument, OPTIONS, "edges:")
    files = columns.files_of(path)
    identities = tuple(map(columns.identity, files))
    names = columns.column_names(files[0])
    if len(names) < 2:
        count = "one column" if names else "no columns"
        raise DatasetError(f"{files[0]}: has {count}, must have two: source and target")
    src, dst = _ends_of(files[0], names, given.get("src", ""), given.get("dst", ""))
    weight, type_ = given.get("weight"), given.get("type")
    used = [name for name in (src, dst, weight, type_) if name]
    if len(set(used)) < len(used):
        raise DatasetError(
            f"edges:{path}: source {src!r}, target {dst!r}, weight {weight!r} and type {type_!r} "
            "must be different columns"
        )
    for file in files:
        columns.check_columns(file, used)
    how, target = given.get("ids") or "auto", given.get("target") or "auto"
    check_target(target)
    features = given.get("features")
    if not features:
        raise no_features(path)
    labels, split = given.get("labels"), given.get("split")
    num_vertices = _num_vertices(given.get("num_vertices"), [p for p in (features, labels, split) if p])
    tables = _tables(features, labels, split, given.get("id", ""))
    if (told := given.get("id")) and not any(found.id == told for found in tables.values()):
        raise DatasetError(f"edges:{path}: id {told!r} is a column of none of its tables")
    id_type = ids.type_of(files, (src, dst), how, [(found.files[0], found.id) for found in tables.values()])
    if id_type is not None and num_vertices:
        by = next((path for path in (features, labels, split) if path and is_by_number(path)), "--num-vertices")
        raise DatasetError(f"{files[0]}: ids are {ids.name_of(id_type)}, but {by} is of vertices by number")
    return EdgeList(
        name=given.get("name") or Path(path.rstrip("/")).name.partition(".")[0].replace("*", "") or "edges",
        files=tuple(files),
        src=src,
        dst=dst,
        weight=weight,
        type=type_,
        num_edge_types=_num_edge_types(given.get("num_edge_types"), type_),
        how=how,
        id_type=id_type,
        num_vertices=num_vertices,
        features=features,
        labels=labels,
        target=target,
        split=split,
        tables=tables,
        identities=identities,
    )


def _ends_of(file: Path, names: Sequence[str], src: str, dst: str) -> tuple[str, str]:
    """The columns of source and target: as given, else by their names, else the first two."""
    pair = _known_ends(names)
    if pair is not None:
        for at in (at for at, given in zip(pair, (src, dst), strict=True) if not given):
            plain = columns.plain(names[at])
            if twins := [name for name in names[at + 1 :] if columns.plain(name) == plain]:
                raise DatasetError(
                    f"{file}: columns {names[at]!r} and {twins[0]!r} may both be an end of its edges: src=COLUMN and "
                    "dst=COLUMN (--src, --dst) say which are"
                )
        src, dst = src or names[pair[0]], dst or names[pair[1]]
    said = {src, dst}
    if pair is None and said == {""} and not columns.is_parquet(file):
        textfile.check_commented(file, _known_ends, (0, 1))
        _check_no_matrix(file, len(names))
    src = src or next((name for name in names if name != dst), "")
    dst = dst or next((name for name in names if name != src), "")
    times = {name for name in (src, dst) if pair is None and name in names and columns.is_time(file, name)}
    for name in {src, dst} - said:
        if pair is not None or columns.is_nameless(name):
            continue
        called = NO_END.fullmatch(columns.plain(name)) is not None
        if called or times == {name}:  # two columns of dates, or of large numbers, are a graph of these
            raise DatasetError(
                f"{file}: by its {'name' if called else 'values'}, column {name!r} is no end of an edge: say which "
                f"columns are source and target, of {', '.join(names)}: src=COLUMN and dst=COLUMN (--src, --dst)"
            )
    for name in (src, dst):
        if columns.is_nameless(name):
            named = ", ".join(name for name in names if not columns.is_nameless(name))
            raise DatasetError(
                f"{file}: its column {name!r} has no name of its own (row numbers of a DataFrame?): say which columns "
                f"are source and target, of {named}: src=COLUMN and dst=COLUMN (--src, --dst)"
            )
    return src, dst


def _known_ends(names: Sequence[str]) -> tuple[int, int] | None:
    """Positions of source and target by their names; None if no names match."""
    place = {columns.plain(name): i for i, name in reversed([*enumerate(names)])}  # of two alike, the first
    return next(((place[src], place[dst]) for src, dst in ENDS if {src, dst} <= place.keys()), None)


def _check_no_matrix(file: Path, width: int) -> None:
    """Raises: DatasetError for an adjacency matrix. That is a table of 0 and 1 alone, which as ids are two vertices,
    with as many rows as columns, or the beginning of a longer file. Or a square table of any numbers, with at least
    ``WIDE`` columns, none of them named."""
    found = textfile.layout(file)
    rows = [[field.strip() for field in row] for row in found.rows[found.has_header :]]
    whole = textfile.num_rows(file) <= len(rows)
    if width < 3 or (whole and len(rows) != width):
        return
    values = [field for row in rows for field in row]
    ones = all(textfile.NUMBER.fullmatch(field) and float(field) in (0, 1) for field in values)
    numbers = whole and not found.has_header and width >= WIDE and all(map(textfile.NUMBER.fullmatch, values))
    if ones or numbers:
        raise DatasetError(
            f"{file}: its {width} columns look like an adjacency matrix, must be a row for each edge, source and "
            "target: numpy.argwhere(matrix) makes these; --src and --dst name columns of edges"
        )


def _tables(features: str, labels: str | None, split: str | None, id_column: str) -> dict[str, Table]:
    """The tables among features, labels and split. Raises: DatasetError for a missing one."""
    given = {"labels": labels, "split": split}
    found = {key: table(text, id_column=id_column) for key, text in given.items() if text and not is_by_number(text)}
    if not random_width(features) and not is_by_number(features):
        files = columns.files_of(columns.file_and_columns(features)[0])
        taken = [name for other in found.values() if set(other.files) & set(files) for name in other.values]
        found["features"] = table(features, taken, id_column)
        if not columns.file_and_columns(features)[1]:
            _check_unnamed(found)
    for key, one in found.items():
        if one.onehot and key != "features":
            raise DatasetError(f"{one.text}: :onehot is for features: labels are classes as they are, splits words")
    return found


def _check_unnamed(tables: Mapping[str, Table]) -> None:
    """Checks features that are all columns of a table because the user named none. Raises: DatasetError for a column
    that another table names as label or split, or that is a mask by its name. It would be learnt from, or the split
    would be drawn anew."""
    features = tables["features"]
    file = features.files[0]
    for what, one in tables.items():
        told = [name for name in features.values if what != "features" and name in one.values and not name.isdigit()]
        if told:
            raise DatasetError(
                f"{file}: column {told[0]!r} is also that of {what} in {one.files[0].name}: #-{told[0]} leaves it out "
                "of the features, #* takes all columns"
            )
    if masks := [name for name in features.values if words.is_mask(file, name)]:
        raise DatasetError(
            f"{file}: column {masks[0]!r} is a mask by its name and values: --split {file.name}#{','.join(masks)} "
            f"makes a split of it, #-{masks[0]} leaves it out of the features"
        )


def _num_vertices(given: str | None, paths: list[str]) -> int | None:
    """N if ids are vertex numbers: as given, else the rows of the files by vertex number."""
    counts = {path: vertexfiles.num_rows(path) for path in paths if is_by_number(path)}
    if given is not None:
        if not given.isdecimal() or not 1 <= int(given) <= MAX_VERTICES:
            raise DatasetError(f"num_vertices {given!r}, must be a number in 1..{MAX_VERTICES}")
        counts = {"num_vertices": int(given), **counts}
    first = next(iter(counts), None)
    for what, count in counts.items():
        if count != counts[first]:  # type: ignore[index]
            raise DatasetError(f"{what}: {count} rows, but {first} says {counts[first]}: both are the vertices")  # type: ignore[index]
    return counts[first] if first else None


def _num_edge_types(given: str | None, column: str | None) -> int | None:
    """The given number of types, if types are numbers. Raises: DatasetError for an invalid number, or if no column has
    types."""
    if given is None:
        return None
    if not given.isdecimal() or not 1 <= int(given) <= MAX_EDGE_TYPES:
        raise DatasetError(f"num_edge_types {given!r}, must be a number in 1..{MAX_EDGE_TYPES}")
    if not column:
        raise DatasetError(f"num_edge_types {given}, but no edge has a type: name the column of types too")
    return int(given)


def _joined(blocks: tuple[Array, ...]) -> Array:
    return np.concatenate([np.empty(0, np.int64), *blocks])
