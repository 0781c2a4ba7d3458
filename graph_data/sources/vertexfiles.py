"""Features, labels and splits of an edge list's vertices: in .npy files by vertex number, or in tables by id.

A table is Parquet or CSV; the id is the column of that name (IDS) or the first, the others are values.
FILE#COLUMN,COLUMN takes only those; FILE#-COLUMN all others; FILE#*,COLUMN:onehot all, this one as columns of 0 and 1.
A column used as label or split is not a feature. A label may be missing; words are numbered in ascending order, and so
are integers that are not 0, 1, 2, ...
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from graph_data.masks import role_of
from graph_data.rowfile import RowFile, check_file
from graph_data.sources import columns, onehot, textfile, words
from graph_data.sources.columns import FEATURES, Identity, Kind
from graph_data.sources.ids import Ids, check_alike, places
from graph_data.sources.onehot import Categories
from graph_data.sources.randomrows import RandomRows, random_width
from graph_data.targets import numbered_note, one_hot, renumbered
from siafu.errors import DatasetError, counted
from siafu.features import Extent
from siafu.graph import NONE, check_told, kept_numbers
from siafu.npy import read_archive
from siafu.sparse import Array, Rows, SparseRows

log = logging.getLogger(__name__)

#: Names (``columns.plain``) of the column that is the id, wherever it stands.
IDS = ("id", "ids", "nodeid", "node", "vertexid", "vertex", "nid", "vid")
TABLE_VALUES = 1 << 20  # of a table, read together
MANY = "; --target numbers makes numbers of labels"


@dataclass(frozen=True)
class Table:
    """Columns of a table whose rows are vertices."""

    text: str  # as the user wrote it
    files: tuple[Path, ...]
    id: str
    values: tuple[str, ...]
    onehot: frozenset[str] = frozenset()  # of the values, those of categories
    identities: tuple[Identity, ...] = ()  # of the files: they are read more than once

    @cached_property
    def categories(self) -> dict[str, Categories]:
        """Categories of the one-hot columns, in the order of ``values``."""
        return {name: Categories(self.files, name) for name in self.values if name in self.onehot}

    @cached_property
    def widths(self) -> list[int]:
        """Number of numbers that each column of values makes."""
        found = columns.widths(self.files[0], self.values)
        return [
            len(self.categories[name].names) if name in self.onehot else width
            for name, width in zip(self.values, found, strict=True)
        ]

    @property
    def chosen(self) -> tuple[str, ...]:
        """The columns, as FILE#COLUMN,COLUMN names them."""
        return tuple(f"{name}{onehot.ENDING}" if name in self.onehot else name for name in self.values)

    def ids(self, kind: Kind) -> Iterator[Array]:
        """The ids, or their hashes, in blocks."""
        for file in self.files:
            for (found,) in columns.blocks(file, [self.id], TABLE_VALUES, [kind]):
                yield found

    def rows(
        self, kinds: Sequence[Kind], id_kind: Kind, ids: Ids | None, seen: Array
    ) -> Iterator[tuple[Array, list[Array]]]:
        """Blocks of vertex numbers [k] and values [k] of every column; marks vertices as ``seen``, bool [N]."""
        rows = max(1, TABLE_VALUES // (1 + sum(self.widths)))
        for file, before in zip(self.files, self.identities, strict=True):
            first = 1
            for keys, *values in columns.blocks(file, (self.id, *self.values), rows, [id_kind, *kinds]):
                columns.check_unchanged(file, before)
                where, known = places(ids, len(seen), keys)
                if not known.all():
                    row = int(np.argmin(known))
                    raise DatasetError(f"{file}: row {first + row}: vertex {keys[row]} is not in the graph")
                order = np.argsort(where, kind="stable")
                twice = seen[where]
                twice[order[1:]] |= where[order[1:]] == where[order[:-1]]
                if twice.any():
                    row = int(np.argmax(twice))
                    raise DatasetError(f"{file}: row {first + row}: vertex {name_of(ids, where[row])} is there twice")
                seen[where] = True
                first += len(keys)
                yield where, values


def name_of(ids: Ids | None, vertex: int) -> str:
    return str(vertex if ids is None else ids[vertex])


def is_by_number(text: str) -> bool:
    """Whether the rows of the file are the vertices 0, 1, 2, ...: a ``.npy`` or ``.npz`` file, not a table."""
    return text.endswith((".npy", ".npz"))


def num_rows(path: str) -> int:
    return len(_sparse(Path(path))) if path.endswith(".npz") else len(RowFile(Path(path)))


def table(text: str, without: Sequence[str] = (), id_column: str = "") -> Table:
    """The table that FILE or FILE#COLUMN,COLUMN names; without columns, all but the id and those of ``without``.

    Raises: DatasetError if there is no such file or column, none is left, or one of them has no name.
    """
    path, chosen = columns.file_and_columns(text)
    files = columns.files_of(path)
    identities = tuple(map(columns.identity, files))
    names = columns.column_names(files[0])
    id_column = id_column if id_column and id_column in names else _id_of(files[0], names)
    others = names[1:] if _begins_with_row_numbers(files[0], names) else names
    rest = [name for name in others if name != id_column and name not in without]
    values, categories, every = _chosen(files[0], columns.listed(chosen) if chosen else ["*"], names, rest)
    if every and any(map(columns.is_nameless, values)):
        named = ",".join(name for name in values if not columns.is_nameless(name))
        raise DatasetError(
            f"{files[0]}: column {next(filter(columns.is_nameless, values))!r} has no name of its own (row numbers of "
            f"a DataFrame?): say which columns to take, {files[0].name}#{named}"
        )
    if not values:
        used = " that is not a label or split" if len(names) > 1 else ""
        how = f": --labels {files[0].name}#COLUMN takes one of them" if not chosen and len(without) > 1 else ""
        raise DatasetError(
            f"{files[0]}: its columns are {', '.join(names)}: must be an id and at least one value{used}{how}"
        )
    for file in files:
        columns.check_columns(file, (id_column, *values))
    return Table(text, tuple(files), id_column, values, categories, identities)


def _chosen(
    file: Path, words: Sequence[str], names: Sequence[str], rest: Sequence[str]
) -> tuple[tuple[str, ...], frozenset[str], bool]:
    """The columns that the words of FILE#WORD,WORD take, those of categories, and whether all others are taken too.

    A word is COLUMN; COLUMN:onehot; -COLUMN, which excludes it and takes all others; or *, which takes all others.
    Raises: DatasetError for a column named twice.
    """
    taken, left, there = list[tuple[str, bool]](), set[str](), frozenset(names)
    for word in words:
        if word not in there and word.startswith("-") and word[1:] in there:
            left.add(word[1:])
        elif word not in there and word.endswith(onehot.ENDING):
            taken.append((word.removesuffix(onehot.ENDING), True))
        elif word in there or word != "*":
            taken.append((word, False))
    every = bool(left) or ("*" in words and "*" not in there)
    named = [name for name, _ in taken]
    times = Counter(named)  # tables of genes have ten thousands of columns
    for name in named:
        if times[name] > 1 or name in left:
            raise DatasetError(f"{file}: column {name!r} is there twice in #{','.join(words)}")
    values = named
    if every:
        others = frozenset(name for name in rest if name not in left)
        in_order = [name for name in names if name in times or name in others]
        known = frozenset(in_order)
        values = in_order + [name for name in named if name not in known]
    return tuple(values), frozenset(name for name, is_onehot in taken if is_onehot), every


def _begins_with_row_numbers(file: Path, names: Sequence[str]) -> bool:
    """Whether the first column has no name and holds 0, 1, 2, ..., as a DataFrame writes row numbers: it is no
    feature."""
    if columns.is_parquet(file) or not columns.is_nameless(names[0]):  # in Parquet, pandas writes an index that is more
        return False
    head = textfile.values(file, names[0])
    return head == [str(row) for row in range(len(head))]


def feature_names(rows: Table | None) -> tuple[str, ...]:
    """Names of the columns of a feature table; () if they have only numbers. A list's columns are NAME[0], NAME[1],
    ..., those of categories NAME=CATEGORY."""
    if rows is None or (not rows.onehot and any(name.isdigit() for name in rows.values)):
        return ()
    found: list[str] = []
    for name, k in zip(rows.values, rows.widths, strict=True):
        if name in rows.onehot:
            found += [f"{name}={category}" for category in rows.categories[name].names]
        else:
            found += [name] if k == 1 else [f"{name}[{i}]" for i in range(k)]
    return tuple(found)


def _id_of(file: Path, names: Sequence[str]) -> str:
    """The column that names vertices."""
    known = [name for name in names if columns.plain(name) in IDS]
    if len(known) == 1:
        return known[0]
    if known and names[0] not in known:
        raise DatasetError(
            f"{file}: columns {known[0]!r} and {known[1]!r} may both be the id: id=COLUMN (--id) says which is"
        )
    if columns.is_nameless(names[0]):
        others = ", ".join(name for name in names if not columns.is_nameless(name))
        raise DatasetError(
            f"{file}: its first column has no name of its own (row numbers of a DataFrame?): say which column is the "
            f"id, of {others}: id=COLUMN (--id)"
        )
    if not columns.is_parquet(file) and not known:
        textfile.check_commented(file, _known_id, (0,))
    return names[0]


def _known_id(names: Sequence[str]) -> tuple[int] | None:
    """Position of the only column whose name means an id; None if there is none, or several."""
    known = [i for i, name in enumerate(names) if columns.plain(name) in IDS]
    return (known[0],) if len(known) == 1 else None


# --- features ---------------------------------------------------------------------------------------------------------


def features(
    text: str, rows: Table | None, num_vertices: int, id_kind: Kind, ids: Ids | None, scratch: Path | None
) -> Rows | RowFile | RandomRows:
    """The feature rows of all vertices, [N, F]: of the table ``rows`` if ``text`` is one.

    A table is copied to the file ``scratch`` in vertex order, or to memory if there is none. Raises: DatasetError.
    """
    if rows is None:
        width = random_width(text)
        if width:
            return RandomRows(num_vertices, width)
        if text.endswith(".npz"):
            return _sparse(Path(text))
        found = RowFile(Path(text))
        return found[:][:, None] if found.ndim == 1 else found  # a vector is one feature
    if unfit := words.of_words(rows.files[0], [name for name in rows.values if name not in rows.onehot]):
        (column, value), file = unfit, rows.files[0]
        if words.is_split(file, column):
            raise DatasetError(
                f"{file}: column {column!r} is a split by its values: --split {file.name}#{column} makes a split of "
                f"it, #-{column} leaves it out of the features"
            )
        raise DatasetError(
            f"{file}: column {column!r} is {value}, must be a number: #*,{column}:onehot makes a feature of "
            f"each word, #-{column} leaves it out"
        )
    widths = rows.widths
    extent = Extent(sum(widths))
    kinds = [rows.categories[name].kind if name in rows.onehot else FEATURES for name in rows.values]
    shape = (num_vertices, sum(widths))
    seen = np.zeros(num_vertices, bool)
    if scratch is None:
        out = np.zeros(shape, np.float32)
    else:
        np.lib.format.open_memmap(scratch, "w+", np.float32, shape).flush()
    for where, values in rows.rows(kinds, id_kind, ids, seen):
        if scratch is not None:  # mapped anew for every block: what was written does not stay in our memory
            out = np.lib.format.open_memmap(scratch, "r+")
        for column, one, k in zip(rows.values, values, widths, strict=True):
            if one.size != k * len(one):
                raise DatasetError(
                    f"{rows.files[0]}: column {column!r} has lists of {k} numbers and of "
                    f"{one.size // len(one)}, must be of one length"
                )
        block = np.concatenate([one.reshape(len(one), -1) for one in values], axis=1)
        extent.see(block)
        out[where] = block
    if not seen.all():
        count = int((~seen).sum())
        more = f" and {count - 1:,} more" if count > 1 else ""
        raise DatasetError(
            f"{rows.files[0]}: has no features of vertex {name_of(ids, int(np.argmin(seen)))}{more}, which "
            "edges or another table have"
        )
    ends = np.cumsum(widths)
    extent.warn(lambda i: f"{rows.files[0].name}: feature {rows.values[int(np.searchsorted(ends, i, side='right'))]!r}")
    return out if scratch is None else RowFile(scratch)


def _sparse(path: Path) -> SparseRows:
    """CSR rows of a file of ``scipy.sparse.save_npz``, in memory."""
    check_file(path)
    try:
        with path.open("rb") as stream:
            found = read_archive(stream)
        if "format" not in found:
            raise ValueError(f"it holds {', '.join(found) or 'nothing'}: numpy.save writes one array as .npy")
        if (kind := bytes(found["format"]).decode()) != "csr":  # the others have the same arrays, of other meaning
            raise ValueError(f"it is {kind}: save_npz(file, matrix.tocsr())")
        arrays = {name: found[name] for name in ("indptr", "indices", "data", "shape")}
    except (OSError, ValueError, KeyError) as error:
        raise DatasetError(f"{path}: not a CSR matrix of scipy.sparse.save_npz ({error})") from None
    indices = arrays["indices"].astype(np.int32, copy=False)
    return SparseRows(arrays["indptr"].astype(np.int64), indices, arrays["data"], int(arrays["shape"][1])).in_order()


# --- labels -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as in ``siafu.graph.Graph``, with names of classes if the source has words or other numbers for them."""

    values: Array
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        if self.values.dtype.kind == "f" or self.values.ndim == 2:
            return 1 if self.values.ndim == 1 else int(self.values.shape[1])
        return len(self.names) or max(1, int(self.values.max()) + 1)


def labels(
    text: str, rows: Table | None, num_vertices: int, id_kind: Kind, ids: Ids | None, target: str = "auto"
) -> Labels:
    """Labels from one column of classes: words, or integers from 0 on. From several columns, 0 or 1 for every class. -1
    or missing if unknown. Or numbers, if ``target`` says so or the column has fractions. Raises: DatasetError."""
    missing = 0
    if rows is None:
        found = _by_number(text, num_vertices)
        if found.ndim == 2 and found.shape[1] == 1 and target != "labels":  # a label a vertex, as in every other format
            found = found[:, 0]
        whole = found.dtype.kind in "iub"
        found = found.astype(np.float64) if found.dtype.kind in "ub" else found
    else:
        are_words = [words.is_words(rows.files[0], column) for column in rows.values]
        if are_words == [True] and target in ("auto", "classes"):
            return _words(rows, num_vertices, id_kind, ids)
        for column, of_words in zip(rows.values, are_words, strict=True):
            if of_words and not columns.is_bool(rows.files[0], column):
                how = f": {rows.files[0].name}#COLUMN takes one column of words" if len(are_words) > 1 else ""
                raise DatasetError(f"{rows.files[0]}: column {column!r} is of words, must be of numbers{how}")
        whole = target != "numbers" and all(words.is_whole(rows.files[0], column) for column in rows.values)
        found, missing = _numbers(rows, num_vertices, id_kind, ids, whole)
    made = _labels(text, found, whole, ids, target, () if rows is None else rows.values)
    if rows is None:
        return made
    columns_are_outputs = (
        len(rows.values) > 1 or made.values.dtype.kind == "f"
    )  # of one column of classes, its words are
    if columns_are_outputs and not all(column.isdecimal() for column in rows.values):
        made = replace(made, names=tuple(rows.values))
    return replace(made, notes=(*made.notes, _missing("label", rows, missing))) if missing else made


def _missing(what: str, rows: Table, count: int, words: Iterable[str] = ()) -> str:
    said = ", ".join(repr(word) for word in words if word)
    where = f"{rows.files[0].name}: no {what} [{'] ['.join(rows.values)}]"
    return f"{where} in {counted(count, 'row')}{f' ({said})' if said else ''}"


def _words(rows: Table, num_vertices: int, id_kind: Kind, ids: Ids | None) -> Labels:
    vocabulary = words.Vocabulary("a word", optional=True)
    out, seen = np.full(num_vertices, -1, np.int64), np.zeros(num_vertices, bool)
    for where, (values,) in rows.rows([vocabulary.kind], id_kind, ids, seen):
        out[where] = values
    values, names = vocabulary.sorted(out)
    if len(names) > words.MAX_CLASSES:
        raise DatasetError(
            f"{rows.text}: column {rows.values[0]!r} has {len(names)} words, must have <= {words.MAX_CLASSES} classes"
        )
    _check_header(rows, names)
    check_alike(names, f"{rows.files[0]}: column {rows.values[0]!r}: classes")
    missing = vocabulary.missing
    return Labels(values, names, (_missing("label", rows, missing.total(), sorted(missing)),) if missing else ())


def _check_header(rows: Table, names: Sequence[str]) -> None:
    """Raises: DatasetError if the supposed name of a column of classes is one of the classes."""
    for file in rows.files:
        if not columns.is_parquet(file) and textfile.has_header(file) and rows.values[0] in names:
            raise DatasetError(
                f"{file}: {rows.values[0]!r} of its first line is also a class: give it a first "
                "line that names its columns"
            )


def _numbers(rows: Table, num_vertices: int, id_kind: Kind, ids: Ids | None, whole: bool) -> tuple[Array, int]:
    """float64 [N] or [N, C], NaN where the table has no value; and the number of rows that lack one."""
    width = len(rows.values)
    bools = [columns.is_bool(rows.files[0], column) for column in rows.values]
    kinds = [words.OPTIONAL_INTEGERS if whole and not is_bool else words.OPTIONAL_NUMBERS for is_bool in bools]
    out, seen = np.full((num_vertices, width), np.nan), np.zeros(num_vertices, bool)
    for where, values in rows.rows(kinds, id_kind, ids, seen):
        out[where] = np.stack(values, axis=1)
    missing = int(np.isnan(out[seen]).any(axis=1).sum())
    return (out[:, 0] if width == 1 else out), missing


def _labels(text: str, found: Array, whole: bool, ids: Ids | None, target: str, names: Sequence[str] = ()) -> Labels:
    """Labels as their kind asks, from numbers [N] or [N, C], NaN if unknown. ``names``: of the columns."""
    unknown = np.isnan(found) if found.dtype.kind == "f" else np.zeros(found.shape, bool)
    if target == "auto":
        if found.ndim == 2 and not whole:  # of one column, whole numbers are classes
            check_told(found, text)
        fractions = not whole and bool((~unknown & (found != np.floor(found))).any())
        target = "numbers" if fractions else "classes" if found.ndim == 1 else "labels"
    if target == "numbers":
        name = Path(columns.file_and_columns(text)[0]).name
        return Labels(kept_numbers(found, name, names))
    if target == "classes" and found.ndim == 2:
        return Labels(one_hot(np.where(unknown, -1, found), text))
    if target == "labels":
        found = np.where(unknown, -1, found).reshape(len(found), -1)
        found = _checked(text, found, -1, 1, f"0 or 1, or -1 for unknown{MANY}", ids)
        return Labels(found.astype(np.int8 if (found < 0).any() else np.uint8))
    found = np.where(unknown, -1, found)
    values, names = renumbered(
        _checked(text, found, -1, 2.0**53, f"an integer from 0 on, or -1 for unknown{MANY}", ids)
    )
    if len(names) > words.MAX_CLASSES:
        raise DatasetError(f"{text}: {len(names)} classes, must be <= {words.MAX_CLASSES}{MANY}")
    if not names:
        return Labels(values)
    note = f"{Path(columns.file_and_columns(text)[0]).name}: {numbered_note(names)}"
    return Labels(values, names, (note,))


def _checked(text: str, found: Array, low: int, high: float, must: str, ids: Ids | None) -> Array:
    bad = (found < low) | (found > high) | (found != np.floor(found))
    if bad.any():
        place = tuple(np.argwhere(bad)[0])
        raise DatasetError(f"{text}: label of vertex {name_of(ids, place[0])} is {found[place]:g}, must be {must}")
    return found


# --- splits -----------------------------------------------------------------------------------------------------------


def split(
    text: str, rows: Table | None, num_vertices: int, id_kind: Kind, ids: Ids | None
) -> tuple[Array, tuple[str, ...]]:
    """uint8 [N, S] of NONE, TRAIN, VAL, TEST, and a note on rows without a role. Each column is a split, or all columns
    are masks of one (train, val, test)."""
    if rows is None:
        found = _by_number(text, num_vertices).reshape(num_vertices, -1)
        if found.dtype.kind == "b":
            raise DatasetError(f"{text}: is true and false, which may be any part: must be {words.ROLES_ARE}")
        good = np.isin(found, (0, 1, 2, 3))
        if not good.all():
            v, s = np.argwhere(~good)[0]
            raise DatasetError(f"{text}: split of vertex {v} is {found[v, s]}, must be {words.ROLES_ARE}")
        return found.astype(np.uint8), ()
    masks = [column for column in rows.values if words.is_mask(rows.files[0], column)]
    if len(masks) == len(rows.values):
        return _split_of_masks(rows, num_vertices, id_kind, ids)
    if masks:
        other = next(column for column in rows.values if column not in masks)
        raise DatasetError(
            f"{rows.files[0]}: column {masks[0]!r} is a mask by its name and values, {other!r} is none: name the "
            f"columns of the split, {rows.files[0].name}#{','.join(masks)}"
        )
    width, roles = len(rows.values), words.Roles()
    out, seen = np.full((num_vertices, width), NONE, np.uint8), np.zeros(num_vertices, bool)
    for where, values in rows.rows([roles.kind] * width, id_kind, ids, seen):
        out[where] = np.stack(values, axis=1)
    missing = roles.missing
    return out, (_missing("part", rows, missing.total(), sorted(missing)),) if missing else ()


def _split_of_masks(rows: Table, num_vertices: int, id_kind: Kind, ids: Ids | None) -> tuple[Array, tuple[str, ...]]:
    """The split [N, 1] of a table with a column of 0 and 1 for each part. Raises: DatasetError for a vertex in two."""
    width = len(rows.values)
    found, seen = np.zeros((num_vertices, width)), np.zeros(num_vertices, bool)
    for where, values in rows.rows([words.MASK] * width, id_kind, ids, seen):
        found[where] = np.stack(values, axis=1)
    masks, out = found == 1, np.full((num_vertices, 1), NONE, np.uint8)  # [N, width], [N, 1]
    twice = masks.sum(axis=1) > 1
    if twice.any():
        v = int(np.argmax(twice))
        parts = " and ".join(name for name, is_in in zip(rows.values, masks[v], strict=True) if is_in)
        raise DatasetError(f"{rows.files[0]}: vertex {name_of(ids, v)} is in {parts}, must be in one part")
    for name, mask in zip(rows.values, masks.T, strict=True):
        out[mask] = role_of(name) or NONE
    missing = int(np.isnan(found).any(axis=1).sum())
    return out, (_missing("part", rows, missing),) if missing else ()


def _by_number(text: str, num_vertices: int) -> Array:
    """All rows of a ``.npy`` file of labels or splits."""
    found = RowFile(Path(text))
    if len(found) != num_vertices or found.dtype.kind not in "iufb":
        raise DatasetError(f"{text}: {len(found)} rows of {found.dtype}, must be {num_vertices} rows of numbers")
    return found[:]
