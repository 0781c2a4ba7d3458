"""Prepares a graph: from the name of a data set to its shards on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.census import Input
from graph_data.choice import choose_order
from graph_data.chosen import as_read, check_ends
from graph_data.counts import check_labels_met, counts_of
from graph_data.cut import shards_of
from graph_data.estimate import Estimate, estimate_of
from graph_data.link_split import counts_line
from graph_data.memory import show_bytes
from graph_data.objects import graph_of
from graph_data.options import Options
from graph_data.partitioners import partition
from graph_data.sources.columns import path_and_options
from graph_data.sources.ids import NamedIds
from graph_data.sources.names import SOURCES, Source, resolve
from graph_data.writer import ShardWriter
from siafu import __version__, outputs
from siafu.config import CACHE_ADVICE, cache_folder
from siafu.errors import ConfigError, DatasetError
from siafu.graph import Graph, tidy
from siafu.shards import FORMAT, MANIFEST, VERSION, ShardSet
from siafu.sparse import SparseRows

__all__ = ["SOURCES", "Source", "cached", "estimate", "prepare", "resolve"]

log = logging.getLogger(__name__)

#: Raised when an order's name comes to mean another order: shards in the cache are made anew, users' own stay readable.
ORDERS_VERSION = 2


def prepare(
    source: Any,
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
    task: str = "node",
    inductive: int | None = None,
    val_edges: float = 0.05,
    test_edges: float = 0.1,
    negatives: int = 8,
    eval_negatives: int = 100,
    features_as: str | os.PathLike[str] = "",
    memory: str | int | None = None,
    stream: bool | None = None,
    work: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = log.info,
) -> ShardSet:
    """Writes the shards of ``source`` to the folder ``out``, in place of a prepared graph that is there.

    ``source`` is a name (``resolve``), or a graph in memory, also one of another package (``graph_data.objects``).
    ``partitioner`` is a name in ``graph_data.partitioners``, ``order`` one in ``graph_data.orders``, or "auto"
    (``graph_data.choice``). ``directed`` and ``feature_norm``: see ``siafu.graph.tidy``. A graph without a split
    gets a seeded one: ``train_per_class`` and ``val_per_class`` vertices of every class and the rest for test, or
    60/20/20 percent if it is multi-label or its labels are numbers.

    ``task`` "link" holds out the shares ``val_edges`` and ``test_edges`` of the edges, to be predicted, and draws
    negative edges: ``negatives`` per training edge, ``eval_negatives`` per vertex that ranks held-out edges
    (``graph_data.link_split``). ``inductive``: the number of a split; only its training vertices, and the edges among
    them, train, and features are standardised with their means and deviations. ``features_as``: a prepared graph or a
    run; its feature columns are taken by name, in its order, and standardised with its means and deviations.

    ``memory`` limits this process (bytes, or "6GiB"; None: 60% of free memory, or all of it if the partitioner or order
    needs the graph in memory). A graph that needs more is prepared on disk (``graph_data.stream``), and equals one
    with order "given"; ``stream`` True or False forces one way. On disk, the same call continues an interrupted one
    with the same source and options; its files are in the folder ``work``, by default beside ``out``. ``say`` is called
    with the estimate, then with every step.

    Raises: DatasetError for a source that is unknown or malformed; ConfigError for an option that is not possible.
    """
    options = Options.of({**locals(), "features_as": os.fspath(features_as)})
    options.check()
    outputs.check_no_tilde("out", out)
    source = _as_read(source, options)
    with ShardWriter(out) as writer:  # first, so that a bad destination costs no time
        found = found_in(source)
        guess = estimate_of(found, options, memory, stream)
        say(guess.line())
        if not guess.on_disk:
            return _in_memory(found if isinstance(found, Graph) else found.load(), options, writer, say)
        return _on_disk(found, options, writer, guess, work, say)


def found_in(source: Any) -> Source | Graph:
    """The source that a name means, or the graph in an object. Raises: DatasetError for anything else."""
    if isinstance(source, str | os.PathLike):
        return resolve(os.fspath(source))
    return graph_of(source)


def _as_read(source: Any, options: Options) -> Any:
    """The source's name with the columns of ``features_as``, if it names none itself.

    Raises: DatasetError for a graph in memory whose edges go the other way.
    """
    if isinstance(source, Graph) and options.features_as:
        check_ends(source, options.features_as)
    if not options.features_as or not isinstance(source, str | os.PathLike):
        return source
    return as_read(os.fspath(source), options.features_as)


def estimate(source: Any, *, memory: str | int | None = None, stream: bool | None = None, **given: Any) -> Estimate:
    """Estimates time, memory and disk of ``prepare`` with these options, and whether it runs in memory or on disk.
    Options as for ``prepare``."""
    options = Options.of(given)
    return estimate_of(found_in(_as_read(source, options)), options, memory, stream)


def _in_memory(graph: Graph, options: Options, writer: ShardWriter, say: Callable[[str], None]) -> ShardSet:
    say(f"{graph.name}: {counts_of(graph).line()}")
    graph = options.with_columns(graph)
    for note in graph.notes:
        say(note)
    graph = tidy(graph, options.directed)
    met = np.zeros(graph.num_vertices, bool)
    met[graph.src] = met[graph.dst] = True
    check_labels_met(graph, met)
    graph = options.with_types(options.with_split(graph))
    graph, standard = options.normalised(graph)
    if options.task == "link":
        say(counts_line(graph))
    topology = options.topology(graph)
    owner = partition(topology, options.partitioner, options.parts, options.seed)
    chosen = choose_order(topology, owner, options.order, options.seed)
    for shard in shards_of(graph, chosen.parts, options.edge_types(graph)):
        writer.add(shard)
    writer.add_names(graph)
    writer.add_standard(standard)
    return writer.finish(options.manifest(graph, chosen.name, graph.num_edges, writer.entries, chosen.scores))


def _on_disk(
    found: Source | Graph,
    options: Options,
    writer: ShardWriter,
    guess: Estimate,
    work: str | os.PathLike[str] | None,
    say: Callable[[str], None],
) -> ShardSet:
    from graph_data.stream import pipeline  # most graphs fit into memory: nothing of this is loaded for them
    from graph_data.stream.work import Work

    pipeline.check_options(options, show_bytes(guess.memory_in_memory))
    folder = Path(work) if work else writer.out.parent / f".{writer.out.name}.work"
    guess.check_disk(folder)
    if isinstance(found, Source) and (edges := found.streamed):
        if edges.typed:
            raise ConfigError(
                f"{edges.name}: edges with types need the graph in memory: raise --memory, or drop --stream"
            )
        streamed: Input = edges
    else:
        streamed = pipeline.InMemory(found if isinstance(found, Graph) else found.load())
    with Work(folder, _key(found, options), say) as unfinished:
        return pipeline.prepare_on_disk(streamed, options, writer, unfinished, guess.budget)


def _key(found: Graph | Source, options: Options) -> str:
    """The key of source and options. A prepared graph in the cache, or an unfinished preparation, is used only if its
    key is equal."""
    said = {
        "format": [FORMAT, VERSION],
        "orders": ORDERS_VERSION,
        "siafu": __version__,
        "source": _identity(found),
        "options": options.key(),
    }
    return json.dumps(said, sort_keys=True)


def _digest(graph: Graph) -> str:
    """sha256 of all data of a graph in memory."""
    told = [graph.num_classes, graph.num_edge_types, graph.names, graph.directed, graph.target]
    told += [said for said in (graph.made_features, graph.notes) if said]
    told += [str(graph.ids.values.type)] if isinstance(graph.ids, NamedIds) else []  # 1 s and 1 ms have the same bytes
    digest = hashlib.sha256(json.dumps(told, default=str).encode())
    features = graph.features
    sparse = isinstance(features, SparseRows)
    rows = [features.indptr, features.indices, features.data] if sparse else [features]  # type: ignore[union-attr]
    if isinstance(features, SparseRows):
        digest.update(str(features.width).encode())
    ids = graph.ids.hashed if isinstance(graph.ids, NamedIds) else [graph.ids]
    for array in (graph.src, graph.dst, graph.weight, graph.edge_type, graph.labels, graph.split, *ids, *rows):
        if array is None:
            digest.update(b"none")
            continue
        digest.update(f"{array.dtype} {list(array.shape)}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def cached(source: Any, *, cache_dir: str | os.PathLike[str] | None = None, **options: Any) -> Path:
    """The folder with ``source`` prepared with these options of ``prepare``; prepares it on first use.

    The key covers every option of the shards, this version of siafu, and the source: its name, or its files' paths,
    inodes, sizes and times, or all arrays of a graph in memory. How it is prepared (``memory``, ``stream``) is not in
    it. Of two processes that prepare the same thing at once, the one that ends first wins. Nothing is ever evicted.
    """
    folder = cache_folder(os.fspath(cache_dir or ""))
    told = Options.of(options)
    source = _as_read(source, told)
    found = found_in(source)
    digest = hashlib.sha256(_key(found, told).encode()).hexdigest()
    done = folder / f"{_slug(found)}-{digest[:16]}"
    if (done / MANIFEST).is_file():
        return done
    mine = folder / f".{done.name}.{uuid.uuid4().hex}"
    _make_private(folder)
    prepare(found if isinstance(found, Graph) else source, mine, **{"work": folder / f".{done.name}.work", **options})
    try:
        mine.chmod(0o700)  # also in a cache folder that others may read
        mine.rename(done)
    except OSError as error:
        shutil.rmtree(mine)
        if not (done / MANIFEST).is_file():
            raise DatasetError(f"{done}: cannot be written: {error.strerror}; {CACHE_ADVICE}") from None
    return done


def _make_private(folder: Path) -> None:
    """Makes a folder that only its owner can read, as run directories are. An existing folder keeps its rights."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be made: {error.strerror}; {CACHE_ADVICE}") from None


def _identity(found: Graph | Source) -> list[Any]:
    if isinstance(found, Graph):
        return [found.name, found.num_vertices, _digest(found)]
    return [*found, *(_file_identity(file) for file in found.files())]


def _file_identity(file: Path) -> list[Any]:
    try:
        status = file.stat()
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror}") from None
    # rsync -t and build tools set mtime; a file that was replaced or rewritten has another
    # inode or ctime (siafu.verified).
    return [str(file.resolve()), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _slug(found: Graph | Source) -> str:
    """A readable prefix for the name of a cache folder."""
    if isinstance(found, Graph):
        return re.sub(r"[^A-Za-z0-9.-]+", "-", found.name)
    if edges := found.streamed:
        return str(edges.name)
    stem = Path(path_and_options(found.argument)[0]).name.partition(".")[0]
    return stem or found.kind
