"""From the name of a data set to its shards on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import uuid
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datasets.cut import shards_of
from datasets.partitioners import chosen_order, order_vertices, partition
from datasets.splits import by_share, per_class
from datasets.writer import ShardWriter
from siafu.errors import ConfigError, DatasetError
from siafu.graph import TEST, TRAIN, VAL, Graph, tidy
from siafu.shards import FORMAT, MANIFEST, VERSION, Manifest, ShardSet, SplitSizes
from siafu.sparse import Array, SparseRows

log = logging.getLogger(__name__)

SOURCES = {  # kind -> function of the rest of the name; "KIND" and "KIND:REST" name a source
    "digits": "datasets.sources.digits:load",
    "npz": "datasets.sources.npz:load",
    "synthetic": "datasets.sources.synthetic:load",
}

DATA_VARIABLE = "SIAFU_DATA"  # the folder where bare names are looked up first
DATA_FOLDERS = ("data", "../shared/data")
MULTILABEL_SHARES = (0.6, 0.2)  # of the random split of a multi-label graph that has none; the rest is test


class Source(NamedTuple):
    kind: str  # a key of SOURCES
    argument: str  # what its function is called with

    def load(self) -> Graph:
        module, _, function = SOURCES[self.kind].partition(":")
        graph: Graph = getattr(import_module(module), function)(self.argument)
        return graph


def resolve(name: str) -> Source:
    """What a source's name means: KIND, KIND:REST, a path that ends in .npz, or NAME of a NAME.npz in a data folder.

    Raises: DatasetError that lists what is known.
    """
    kind, _, rest = name.partition(":")
    if kind in SOURCES:
        return Source(kind, rest)
    if name.endswith(".npz"):
        return Source("npz", name)
    folders = [Path(f) for f in (os.environ.get(DATA_VARIABLE, ""), *DATA_FOLDERS) if f]
    for folder in folders:
        if (folder / f"{name}.npz").is_file():
            return Source("npz", str(folder / f"{name}.npz"))
    known = [*SOURCES, *sorted({path.stem for folder in folders for path in folder.glob("*.npz")})]
    raise DatasetError(f"source {name!r} is not a .npz file and not one of {', '.join(known)}")


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
) -> ShardSet:
    """Writes the shards of ``source`` to the folder ``out``, in place of a prepared graph that is there.

    ``source`` is a name (``resolve``) or a graph in memory. ``partitioner`` and ``order`` are names of
    ``datasets.partitioners``; order "auto" is metis up to 20 million edges and given beyond. ``directed`` and
    ``feature_norm``: see ``siafu.graph.tidy``. A graph without a split gets a seeded one: ``train_per_class`` and
    ``val_per_class`` vertices of every class and the rest for test, or 60/20/20 percent if it is multi-label.

    Raises: DatasetError for a source that is unknown or malformed; ConfigError for an option that cannot be.
    """
    if train_per_class < 1 or val_per_class < 0:
        raise ConfigError(
            f"{train_per_class} training and {val_per_class} validation vertices per class, must be >= 1, >= 0"
        )
    with ShardWriter(out) as writer:  # first, so that a bad destination costs no time
        graph = source if isinstance(source, Graph) else resolve(source).load()
        graph = _with_split(tidy(graph, directed, feature_norm), train_per_class, val_per_class, seed)
        owner = partition(graph, partitioner, parts, seed)
        order = chosen_order(order, graph.num_edges)
        for shard in shards_of(graph, order_vertices(graph, owner, order, seed)):
            writer.add(shard)
        entries = tuple(writer.entries)
        return writer.finish(
            Manifest(
                siafu=version("siafu"),
                name=graph.name,
                num_vertices=graph.num_vertices,
                num_edges=graph.num_edges,
                num_features=graph.num_features,
                num_classes=graph.num_classes,
                multilabel=graph.multilabel,
                directed=directed,
                weighted=graph.weight is not None,
                sparse_features=isinstance(graph.features, SparseRows),
                feature_norm=feature_norm,
                partitioner=partitioner,
                order=order,
                seed=seed,
                num_partitions=parts,
                splits=tuple(_sizes(column) for column in graph.split.T),
                cut_edges=sum(entry.cut_edges for entry in entries),
                partitions=entries,
            )
        )


def cached(source: str, *, cache_dir: str | os.PathLike[str] | None = None, **options: Any) -> Path:
    """The folder where ``source`` lies prepared with these options of ``prepare``; prepares it if it does not yet.

    The key covers every option, this version of siafu, and the source: its name, or a file's path, size and time.
    Of two processes that prepare the same thing at once, the one that ends first wins. Nothing is ever evicted.
    """
    folder = Path(cache_dir) if cache_dir is not None else Path.home() / ".cache" / "siafu"
    found = resolve(source)
    options = {**(prepare.__kwdefaults__ or {}), **options}
    key = {"format": [FORMAT, VERSION], "siafu": version("siafu"), "source": _identity(found), "options": options}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    done = folder / f"{_slug(found)}-{digest[:16]}"
    if (done / MANIFEST).is_file():
        return done
    mine = folder / f".{done.name}.{uuid.uuid4().hex}"
    prepare(source, mine, **options)
    try:
        mine.rename(done)
    except OSError as error:
        shutil.rmtree(mine)
        if not (done / MANIFEST).is_file():
            raise DatasetError(f"{done}: cannot be written: {error.strerror}") from None
    return done


def _with_split(graph: Graph, train: int, val: int, seed: int) -> Graph:
    if graph.split.shape[1]:
        return graph
    if graph.multilabel:
        return replace(graph, split=by_share(graph.num_vertices, *MULTILABEL_SHARES, seed))
    return replace(graph, split=per_class(graph.labels, train, val, seed))


def _sizes(split: Array) -> SplitSizes:
    counts = np.bincount(split, minlength=TEST + 1)
    return SplitSizes(train=int(counts[TRAIN]), val=int(counts[VAL]), test=int(counts[TEST]))


def _identity(source: Source) -> list[Any]:
    if source.kind != "npz":
        return list(source)
    try:
        status = os.stat(source.argument)
    except OSError as error:
        raise DatasetError(f"{source.argument}: {error.strerror}") from None
    return [source.kind, str(Path(source.argument).resolve()), status.st_size, status.st_mtime_ns]


def _slug(source: Source) -> str:
    """A readable start for the name of a cache folder."""
    stem = Path(source.argument).stem if source.kind == "npz" else source.argument.partition("?")[0]
    return stem or source.kind
