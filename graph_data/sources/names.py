"""Finds the source that a name means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from glob import has_magic
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote_plus, urlencode

from graph_data import published
from graph_data.archives.formats import recognised
from graph_data.census import Input
from graph_data.rowfile import check_file
from graph_data.sources.beside import TOLD
from graph_data.sources.columns import (
    LISTED,
    SUFFIXES,
    file_and_columns,
    files_of,
    missing,
    path_and_options,
    why_unknown,
)
from graph_data.sources.randomrows import random_width
from graph_data.sources.sizes import SMALL, Sizes, guessed
from siafu.errors import DatasetError
from siafu.graph import Graph

#: Kind -> function of the rest of the name, which loads the graph; "KIND" and "KIND:REST" name a source. Its module may
#: have three more functions of the same argument: ``parse`` -> ``Streamed``, where edges can be read a block at a time,
#: again and again; ``sizes`` -> ``Sizes``, told without reading; ``files``: those of a folder. And it
#: may have FLAGS: those of ``graph_data.source_flags`` that are its options, if they are not those of ``beside.TOLD``.
SOURCES = {
    "archive": "graph_data.archives.formats:load",
    "bsnap": "graph_data.sources.bsnap:load",
    "dgl": "graph_data.sources.dglfile:load",
    "digits": "graph_data.sources.digits:load",
    "distdgl": "graph_data.sources.distdgl:load",
    "edges": "graph_data.sources.edgelist:load",
    "npz": "graph_data.sources.npz:load",
    "ogb": "graph_data.sources.ogb:load",
    "pyg": "graph_data.sources.pygfile:load",
    "synthetic": "graph_data.sources.synthetic:load",
}
OF_VERTICES = ("features", "labels", "split")  # options that name files
ENDINGS = {".npz": "npz", ".bsnap": "bsnap", ".dgl": "dgl", ".pt": "pyg"}  # ending of a file -> kind of source
DATA_VARIABLE = "SIAFU_DATA"  # the folder where bare names are looked up first
DATA_FOLDERS = ("data", "../shared/data")


def data_folders() -> list[Path]:
    return [Path(folder) for folder in (os.environ.get(DATA_VARIABLE, ""), *DATA_FOLDERS) if folder]


class Streamed(Input, Protocol):
    """What ``parse`` gives: a graph on disk."""

    @property
    def name(self) -> str: ...

    @property
    def typed(self) -> bool:
        """Whether edges have types: then they cannot be read a block at a time."""

    def vertex_files(self) -> tuple[Path, ...]:
        """Every file that is read beside the edges."""


class Source(NamedTuple):
    kind: str  # a key of SOURCES
    argument: str  # what its function is called with

    def load(self) -> Graph:
        graph: Graph = self._ask("load")
        return graph

    @property
    def streamed(self) -> Streamed | None:
        """The source's edges and vertices on disk; None if it can only be loaded."""
        found: Streamed | None = self._ask("parse")
        return found

    def sizes(self) -> Sizes:
        """Sizes from headers and tables, else guessed from the sizes of files."""
        found: Sizes | None = self._ask("sizes")
        if found is not None:
            return found
        files = [file for file in self.files() if file.is_file()]
        return guessed(files) if files else SMALL

    def files(self) -> list[Path]:
        """All files that the source is read from, including those in its options; empty if it is generated."""
        return list(dict.fromkeys([*self._of_kind(), *_named_by_options(self.argument)]))

    def _of_kind(self) -> list[Path]:
        if (found := self.streamed) is not None:
            return [*map(Path, found.pieces), *found.vertex_files()]
        if (files := self._ask("files")) is not None:
            return list(files)
        return [Path(path_and_options(self.argument)[0])] if self.kind in ENDINGS.values() else []

    @property
    def flags(self) -> tuple[str, ...]:
        """Options of the source that flags may set."""
        found: tuple[str, ...] = getattr(self._module(), "FLAGS", TOLD)
        return found

    def _ask(self, what: str) -> Any:
        """The result of a function of the kind's module on the argument; None if the module has no such function."""
        function = getattr(self._module(), what, None)
        return None if function is None else function(self.argument)

    def _module(self) -> ModuleType:
        return import_module(SOURCES[self.kind].partition(":")[0])


def _named_by_options(argument: str) -> Iterator[Path]:
    for key, text in parse_qsl(path_and_options(argument)[1], errors="surrogateescape"):
        path = file_and_columns(text)[0]
        if key in OF_VERTICES and os.path.isfile(path):
            yield Path(path)
        elif key in OF_VERTICES and (os.path.isdir(path) or has_magic(path)):
            with suppress(DatasetError):  # a folder that only has the name of something else, as OGB's splits have
                yield from files_of(path)


def check_files(name: str) -> None:
    """Checks a source before anything is read. Raises: DatasetError for a missing file that its name, or one of its
    options, names."""
    source = resolve(name)
    path, query = path_and_options(source.argument)
    named = [path] if source.kind in (*ENDINGS.values(), "edges") else []
    if source.kind == "edges":  # others have schemes and numbers by these names
        options = ((key, text) for key, text in parse_qsl(query, errors="surrogateescape") if key in OF_VERTICES)
        named += [file_and_columns(text)[0] for key, text in options if key != "features" or random_width(text) is None]
    for file in named:
        if not (os.path.exists(file) or has_magic(file)):
            raise missing(file)


def absolute(name: str) -> str:
    """A source's name that means the same from any folder, with absolute paths of its files."""
    source = resolve(name)
    path, query = path_and_options(source.argument)
    if not source.files() or not (Path(path).exists() or "*" in path):
        return name
    said = "" if name == source.argument or not name.startswith(f"{source.kind}:") else f"{source.kind}:"
    return f"{said}{_absolute(path)}{'?' if query else ''}{'&'.join(map(_absolute_option, query.split('&')))}"


def _absolute(path: str) -> str:
    return os.path.normpath(Path.cwd() / path)


def _absolute_option(option: str) -> str:
    """KEY=FILE or KEY=FILE#COLUMN with the absolute path of an existing file; other options stay."""
    key, equals, value = option.partition("=")
    text = unquote_plus(value, errors="surrogateescape")
    file, _ = file_and_columns(text)
    if not equals or not (os.path.isfile(file) or (key in OF_VERTICES and (os.path.isdir(file) or "*" in file))):
        return option
    return urlencode({key: _absolute(file) + text.removeprefix(file)}, safe="/:*#,", errors="surrogateescape")


def resolve(name: str) -> Source:
    """The source that a name means: KIND, KIND:REST, a path to a file or a folder in one of the field's own formats
    (``graph_data.archives.formats``), a file with one of ENDINGS, a path, pattern or folder of edge lists
    (``graph_data.sources.edgelist``), a folder with a graph.bsnap, or NAME of a NAME.npz in a data folder.

    Raises: DatasetError that lists the known sources.
    """
    kind, _, rest = name.partition(":")
    if kind in SOURCES:
        return Source(kind, rest)
    path = path_and_options(name)[0]
    if not (Path(path) / "graph.bsnap").is_file() and (one := recognised(Path(path))) is not None:
        tables = (
            [file.name for file in sorted(Path(path).iterdir()) if file.name.endswith(LISTED)]
            if os.path.isdir(path)
            else []
        )
        if tables and one.missing() is None:
            raise DatasetError(
                f"{path}: holds tables ({tables[0]}) and {one.title} ({one.found.shown}): name one of these files"
            )
        return Source("edges" if tables else "archive", name)
    ending = Path(path).suffix
    if ending in ENDINGS:
        if ending != ".bsnap":  # which may be a folder
            check_file(Path(path))
        return Source(ENDINGS[ending], name)
    if (Path(path) / "graph.bsnap").is_file():
        return Source("bsnap", name)
    if path.endswith(SUFFIXES) or (
        Path(path).is_dir() and any(f.name.endswith(SUFFIXES) or "=" in f.name for f in Path(path).iterdir())
    ):
        return Source("edges", name)
    folders = data_folders()
    for folder in folders:
        if (folder / f"{path}.npz").is_file():
            return Source("npz", f"{folder / path}.npz{name.removeprefix(path)}")
    if path in published.graphs():
        raise DatasetError(f"source {name!r}: no {path}.npz in a data folder: siafu get {path} fetches it")
    if path in published.OGB:
        raise DatasetError(f"source {name!r}: siafu get {path} fetches it, as ogb:{path}")
    if Path(path).is_dir():
        raise DatasetError(f"source {name!r}: a folder without shards, tables or a graph in a format that siafu knows")
    if Path(path).is_file() and path.endswith("/"):
        raise DatasetError(f"{path}: is a file, not a folder: leave out the slash")
    if Path(path).exists():
        check_file(Path(path))  # a pipe
        endings = (*ENDINGS, *SUFFIXES)
        unknown = f"ends as no format that siafu reads: {', '.join(dict.fromkeys(endings))}, or those of docs/data.md"
        raise DatasetError(f"{path}: {why_unknown(Path(path).name, endings) or unknown}")
    if os.path.isabs(path):
        raise DatasetError(
            f"{path}: not there; if it was a prepared graph, which siafu clean may have removed, prepare it there "
            f"again, one in memory by siafu.prepare(graph, {path!r})"
        )
    known = [*SOURCES, *sorted({path.stem for folder in folders for path in folder.glob("*.npz")})]
    if close := get_close_matches(path.lower(), [*known, *published.graphs()], 1, 0.75):
        raise DatasetError(f"source {name!r}: no such file or graph, did you mean {close[0]}?")
    raise DatasetError(f"source {name!r}: must be a .npz, .parquet or .csv file, or one of {', '.join(known)}")
