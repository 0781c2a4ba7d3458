"""From the name of a data set to its shards on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from datasets.choice import choose_order
from datasets.cut import shards_of
from datasets.estimate import Estimate, estimate_of
from datasets.memory import show_bytes
from datasets.options import Options
from datasets.partitioners import partition
from datasets.sources import edgelist
from datasets.sources.names import SOURCES, Source, resolve
from datasets.stream.pipeline import Input, check_options, of_graph, prepare_on_disk
from datasets.stream.work import Work
from datasets.writer import ShardWriter
from siafu.errors import DatasetError
from siafu.graph import Graph, tidy
from siafu.shards import FORMAT, MANIFEST, VERSION, ShardSet
from siafu.sparse import SparseRows

__all__ = ["SOURCES", "Source", "cached", "estimate", "prepare", "resolve"]

log = logging.getLogger(__name__)

#: Raised when an order's name comes to mean another order: shards in the cache are made anew, users' own stay readable.
ORDERS_VERSION = 2


def prepare(
    source: str | Graph,
    out: str | os.PathLike[str],
    *,
    parts: int = 1,
    partitioner: str = "metis",
    order: str = "auto",
    directed: bool = False,
    feature_norm: str = "none",
    seed: int = 0,
    train_per_class: int = 20,
    val_per_class: int = 30,
    memory: str | int | None = None,
    stream: bool | None = None,
    work: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = log.info,
) -> ShardSet:
    """Writes the shards of ``source`` to the folder ``out``, in place of a prepared graph that is there.

    ``source`` is a name (``resolve``) or a graph in memory. ``partitioner`` is a name in ``datasets.partitioners``,
    ``order`` one in ``datasets.orders``, or "auto" or "best" (``datasets.choice``). ``directed`` and ``feature_norm``:
    see ``siafu.graph.tidy``. A graph without a split gets a seeded one: ``train_per_class`` and ``val_per_class``
    vertices of every class and the rest for test, or 60/20/20 percent if it is multi-label.

    ``memory`` limits what this process may take (bytes, or "6GiB"; None: 60% of what is free, or all of it if the
    partitioner or order needs the graph in memory). A graph that would take more is prepared on disk
    (``datasets.stream``), with the same result as with order "given"; ``stream`` True or False forces one way. The way
    over the disk continues where an interrupted call with the same source and options stopped; what it has lies in
    the folder ``work``, by default beside ``out``. ``say`` is told the estimate, then every step.

    Raises: DatasetError for a source that is unknown or malformed; ConfigError for an option that cannot be.
    """
    options = Options(parts, partitioner, order, directed, feature_norm, seed, train_per_class, val_per_class)
    options.check()
    with ShardWriter(out) as writer:  # first, so that a bad destination costs no time
        found = source if isinstance(source, Graph) else resolve(source)
        guess = estimate_of(found, options, memory, stream)
        say(guess.line())
        if not guess.on_disk:
            return _in_memory(found if isinstance(found, Graph) else found.load(), options, writer)
        check_options(options, show_bytes(guess.memory_in_memory))
        folder = Path(work) if work else writer.out.parent / f".{writer.out.name}.work"
        guess.check_disk(folder)
        with Work(folder, _work_key(found, options), say) as unfinished:
            return prepare_on_disk(_input(found), options, writer, unfinished, guess.budget)


def estimate(
    source: str | Graph, *, memory: str | int | None = None, stream: bool | None = None, **given: Any
) -> Estimate:
    """What ``prepare`` with these options will take, and which way it will go. Options as for ``prepare``."""
    defaults: dict[str, Any] = prepare.__kwdefaults__ or {}
    options = Options(**{field.name: given.get(field.name, defaults[field.name]) for field in fields(Options)})
    found = source if isinstance(source, Graph) else resolve(source)
    return estimate_of(found, options, memory, stream)


def _in_memory(graph: Graph, options: Options, writer: ShardWriter) -> ShardSet:
    graph = options.with_split(tidy(graph, options.directed, options.feature_norm))
    owner = partition(graph, options.partitioner, options.parts, options.seed)
    chosen = choose_order(graph, owner, options.order, options.seed)
    for shard in shards_of(graph, chosen.parts):
        writer.add(shard)
    writer.add_ids(graph.ids)
    return writer.finish(options.manifest(graph, chosen.name, graph.num_edges, writer.entries, chosen.scores))


def _input(found: Graph | Source) -> Input:
    if isinstance(found, Source) and found.kind == "edges":
        edges = edgelist.parse(found.argument)
        return Input(edges, edges.census, edges.vertices)
    return of_graph(found if isinstance(found, Graph) else found.load())


def _work_key(found: Graph | Source, options: Options) -> str:
    """What an unfinished preparation must have been of to be continued."""
    identity = [found.name, found.num_vertices, _digest(found)] if isinstance(found, Graph) else _identity(found)
    return json.dumps({"siafu": version("siafu"), "source": identity, "options": asdict(options)}, sort_keys=True)


def _digest(graph: Graph) -> str:
    """sha256 of all arrays of a graph in memory."""
    digest = hashlib.sha256()
    features = graph.features
    sparse = isinstance(features, SparseRows)
    rows = [features.indptr, features.indices, features.data] if sparse else [features]  # type: ignore[union-attr]
    for array in (graph.src, graph.dst, graph.weight, graph.labels, graph.split, *rows):
        digest.update(b"none" if array is None else np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def cached(source: str, *, cache_dir: str | os.PathLike[str] | None = None, **options: Any) -> Path:
    """The folder where ``source`` lies prepared with these options of ``prepare``; prepares it if it does not yet.

    The key covers every option of the shards, this version of siafu, and the source: its name, or its files' paths,
    sizes and times. How it is prepared (``memory``, ``stream``) is not in it.
    Of two processes that prepare the same thing at once, the one that ends first wins. Nothing is ever evicted.
    """
    folder = Path(cache_dir) if cache_dir is not None else Path.home() / ".cache" / "siafu"
    found = resolve(source)
    all_options = {**(prepare.__kwdefaults__ or {}), **options}
    chosen = {field.name: all_options[field.name] for field in fields(Options)}
    key = {
        "format": [FORMAT, VERSION],
        "orders": ORDERS_VERSION,
        "siafu": version("siafu"),
        "source": _identity(found),
        "options": chosen,
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    done = folder / f"{_slug(found)}-{digest[:16]}"
    if (done / MANIFEST).is_file():
        return done
    mine = folder / f".{done.name}.{uuid.uuid4().hex}"
    prepare(source, mine, **{"work": folder / f".{done.name}.work", **options})
    try:
        mine.rename(done)
    except OSError as error:
        shutil.rmtree(mine)
        if not (done / MANIFEST).is_file():
            raise DatasetError(f"{done}: cannot be written: {error.strerror}") from None
    return done


def _identity(source: Source) -> list[Any]:
    if source.kind not in ("npz", "edges"):
        return list(source)
    files = [Path(source.argument)]
    if source.kind == "edges":
        edges = edgelist.parse(source.argument)
        files = [*edges.files, *edges.vertex_files()]
    return [source.kind, source.argument, *(_file_identity(file) for file in files)]


def _file_identity(file: Path) -> list[Any]:
    try:
        status = file.stat()
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror}") from None
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]


def _slug(source: Source) -> str:
    """A readable start for the name of a cache folder."""
    if source.kind == "edges":
        return edgelist.parse(source.argument).name
    stem = Path(source.argument).stem if source.kind == "npz" else source.argument.partition("?")[0]
    return stem or source.kind
