"""Flags that are options of a source: the tables of an edge list, and what their columns are.

Every verb that takes a graph takes them from this one table: ``prepare``, ``train``, ``search``, ``value``,
``baseline``, ``convert``, ``plan``, and ``predict`` for its ``--graph``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from graph_data.sources.columns import path_and_options
from graph_data.sources.names import resolve
from siafu.errors import ConfigError
from siafu.shards import is_prepared

SOURCE_FLAGS = {  # flag -> what it takes, and what that is
    "src": ("COLUMN", "column of source ids [source, src, from, ..., or the first]"),
    "dst": ("COLUMN", "column of target ids [target, dst, to, ..., or the second]"),
    "weight": ("COLUMN", "column of edge weights, > 0 [none]"),
    "type": ("COLUMN", "column of edge types, integers or words [none]"),
    "num-edge-types": ("R", "edge types are the numbers 0..R-1"),
    "ids": ("auto|integer|text", "type of the ids [auto]"),
    "id": ("COLUMN", "column of ids in the tables of vertices [id, node_id, or the first]"),
    "num-vertices": ("N", "ids are the vertex numbers 0..N-1"),
    "features": ("FILE|random:F", "features of vertices, for any source without features"),
    "labels": ("FILE", "labels of vertices"),
    "target": (
        "auto|classes|labels|numbers",
        "meaning of the labels, for any source; labels: any number of classes per vertex [auto]",
    ),
    "split": ("FILE", "split of vertices"),
}
OPTIONS = tuple(flag.replace("-", "_") for flag in SOURCE_FLAGS)
#: What columns mean, which is the same in another table of the same kind.
MEANINGS = ("src", "dst", "weight", "type", "num_edge_types", "ids", "id")


def add_to(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Adds the flags as a group. ``without``: names of the verb's own flags."""
    group = parser.add_argument_group("tables of edges and vertices (siafu prepare --help-all describes them)")
    for flag, (takes, what) in SOURCE_FLAGS.items():
        if flag not in without:
            group.add_argument(f"--{flag}", metavar=takes, help=what)


def given(args: argparse.Namespace, without: Collection[str] = ()) -> dict[str, str]:
    """The options given on the command line."""
    found = {name: getattr(args, name, None) for name in OPTIONS if name not in without}
    return {name: str(value) for name, value in found.items() if value is not None}


def sorted_out(short: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Splits a run's keyword arguments into its settings and the options of its source.

    ``split`` is a setting if it is a number: which of the graph's splits is used. Else it names a file of splits.
    """
    named = [key for key, value in short.items() if key in OPTIONS and not _is_number_of_split(key, value)]
    options = {key: str(short[key]) for key in named}
    return {key: value for key, value in short.items() if key not in options}, options


def _is_number_of_split(key: str, value: Any) -> bool:
    return key == "split" and (not isinstance(value, str | os.PathLike) or str(value).lstrip("+-").isdecimal())


def with_options(source: str, options: Mapping[str, str | None]) -> str:
    """The name of a source with these options, which replace its own of the same names.

    Raises: ConfigError for a prepared or generated source, or for options of edge lists if it is none.
    """
    said = {name.replace("-", "_"): value for name, value in options.items() if value is not None}
    if not said:
        return source
    flag = f"--{next(iter(said)).replace('_', '-')}"
    if is_prepared(source):
        raise ConfigError(f"{flag} is for graphs that are prepared now, and {source!r} is prepared already")
    found = resolve(source)
    prefix, argument = "", source
    if found.kind == "edges":
        prefix, argument = "edges:", source.removeprefix("edges:")
    elif not found.flags and found.files():
        raise ConfigError(f"{flag} is for other sources: {source!r} has no options")
    elif not found.flags:
        raise ConfigError(f"{flag} is for graphs that are read, and {source!r} is made")
    elif edges_only := [name for name in said if name not in found.flags]:
        raise ConfigError(f"--{edges_only[0].replace('_', '-')} is for edge lists, and {source!r} is none")
    path, query = path_and_options(argument) if prefix else _path_and_options(source, found.argument)
    kept = [option for option in query.split("&") if option and option.partition("=")[0] not in said]
    added = urlencode(said, safe="/:*#,", errors="surrogateescape")
    return f"{prefix}{path}?{'&'.join([*kept, added])}"


def read_as(source: str, example: str) -> str:
    """A table of edges, read with the columns of the table ``example`` where ``source`` names none.

    Any other source, or of another example, is returned as it is.
    """
    if is_prepared(source) or not example.startswith("edges:") or resolve(source).kind != "edges":
        return source
    own, there = (
        dict(parse_qsl(path_and_options(name.removeprefix("edges:"))[1], errors="surrogateescape"))
        for name in (source, example)
    )
    return with_options(source, {name: there[name] for name in MEANINGS if name in there and name not in own})


def _path_and_options(source: str, argument: str) -> tuple[str, str]:
    """Splits a source's path and options. Its kind may stand before its path, and the path may be another file's
    name."""
    query = path_and_options(argument)[1]
    return source.removesuffix(f"?{query}"), query
