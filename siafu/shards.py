"""A prepared graph on disk: one folder per partition of plain ``.npy`` files, and a manifest that is written last.

This is the format and its reader; ``graph_data.writer`` writes it.

    OUT/manifest.json                counts, options, bytes, sha256 and CRC-32 of every file, and a digest of all of it
    OUT/ids.npy                      int64 [N]      the source's id of vertex v, ascending; only if it is not v
    OUT/ids.parquet                  column "id"    the same, if ids are not 64-bit integers
    OUT/names.json                   the source's names of "classes" and "edge_types" 0, 1, ...; only if it has other
                                     names
    OUT/standard.npy                 float64 [2, F] mean and deviation of every feature (inf: it is constant), before
                                                    feature_norm "standard" made them 0 and 1; only then
    OUT/part-000/
        vertices.npy                 int64 [n]      global ids in local order
        in_indptr.npy                int64 [n + 1]  edges into the inner vertices, columns sorted in each row:
        in_indices.npy               int32 [m]        column c < n is the inner vertex c, else ghost c - n
        in_weight.npy                float32 [m]    only if the graph is weighted
        in_type.npy                  uint16 [m]     only if edges have types; columns of a row are sorted by (column,
                                                    type)
        ghosts_in.npy                int64 [g]      global ids, sorted by (owner, id)
        ghosts_in_owner.npy          int32 [g]
        degree_ghosts_in.npy         float64 [g]
        degree.npy                   float64 [n]    weighted in-degree in the *whole* graph, without self-loop
        features.npy                 [n, F] of uint8, float16 or float32; sparse ones are instead
        features_{indptr,indices,data}.npy            int64 [n + 1], int32 [nnz], [nnz]
        labels.npy                   int64 [n], -1 = unknown; uint8 [n, C], 255 = unknown; or float32 [n] or [n, C], NaN
        split.npy                    uint8 [n, S]   of NONE, TRAIN, VAL, TEST (siafu.graph)
        out_*, ghosts_out*, degree_ghosts_out.npy   the same for edges out of the inner vertices, for the backward pass:
                                                    only if the graph is directed, else they equal the in-edges
        train_degree.npy, train_degree_ghosts_{in,out}.npy   float64, among training vertices alone: only if the graph
                                                    was prepared for inductive training

``Manifest.edge_types`` defines the meaning of edge types: relations of the graph; or edges to gather along and edges to
predict ("links"); or whether both ends are training vertices ("inductive"). ``siafu.views`` separates them. Arrays are
memory-mapped, so that a server pays only for the pages it touches. Nothing is pickled.

Files that servers add to a partition's folder:

        .verified.json               the files that were verified (``siafu.verified``)
        aggregate-KEY-MADE-CRC.npy   layer 0's aggregate (``graph_server.layer_zero``); the last 8 digits are its CRC-32
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import EllipsisType
from typing import Any, Literal, get_args

from siafu.errors import DatasetError
from siafu.features import STANDARD
from siafu.graph import NONE, TEST, TRAIN_NEGATIVE, TRAIN_PAIR, VAL_PAIR, Target
from siafu.npy import mapped
from siafu.sparse import Array, Rows, SparseRows
from siafu.sparse import Edges as Edges
from siafu.verified import Look, Verified, between, columns, compare, finite, rising

FORMAT, VERSION = "siafu-shards", 2
MANIFEST = "manifest.json"
IDS, NAMED_IDS, NAMES = "ids.npy", "ids.parquet", "names.json"
# Keys of names.json; each holds names:
COLUMNS = "features"  # of the columns of features
CHOSEN = "columns"  # of the chosen columns in the table of features, as in FILE#COLUMN,COLUMN
EDGE_TYPES = "edge_types"  # of the types of edges
CLASSES = "classes"  # of classes, or of the columns of several labels
END_COLUMNS = "ends"  # of the columns of source and target, in the table of edges
ID_COLUMN = "id"  # of the column of ids, in the table of features
WEIGHT_COLUMN, TYPE_COLUMN = "weight", "type"  # of the columns of weights and types, in the table of edges
TABLE_COLUMNS = (END_COLUMNS, ID_COLUMN, WEIGHT_COLUMN, TYPE_COLUMN)  # for another table of the same kind
NOTES = "notes"  # no names: how parts of the source were interpreted, and which were left out
BESIDE = (IDS, NAMED_IDS, NAMES, STANDARD)  # files beside the partitions' folders, which no server needs
ROWS_FOLDER = "rows"  # in a run directory: rows that its servers have written (run.write), in local order
FILE_NAME = re.compile(r"[a-z_]{1,40}\.npy")  # of a partition's arrays
AGGREGATE = re.compile(r"aggregate-[0-9a-f]{16}-(?P<made>[0-9a-f]{8})-(?P<crc>[0-9a-f]{8})\.npy")
HASH_BLOCK_BYTES = 1 << 20

OrderScores = Mapping[str, Mapping[str, float]]  # order -> its "cost" and "crossing": see graph_data.choice
EdgeTypes = Literal["none", "relations", "links", "inductive"]  # the meaning of edge types


def is_prepared(source: str | os.PathLike[str]) -> bool:
    """Whether a source is a folder of shards. A name longer than a path can be is not."""
    return os.path.isfile(os.path.join(source, MANIFEST))


def _of_run(manifest: Path) -> str:
    """Returns advice if a run's directory, which has a manifest of its own, was given in place of a graph; else ""."""
    is_run = (manifest.parent / "config.toml").is_file()
    return ": a run's directory is for siafu resume, predict and evaluate" if is_run else ""


# --- what a shard is --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Shard:
    """The part of the graph that one graph server holds: n inner vertices, their edges, and the owners of ghosts."""

    index: int
    num_partitions: int
    num_vertices: int  # of the whole graph
    vertices: Array  # int64 [n], global ids in local order
    in_edges: Edges  # row v lists the u with an edge u -> v
    out_edges: Edges  # row u lists the v with an edge u -> v; the same object as in_edges if the graph is undirected
    ghosts_in: Array  # int64 [g], global ids sorted by (owner, id)
    ghosts_in_owner: Array  # int32 [g]
    ghosts_out: Array
    ghosts_out_owner: Array
    degree: Array  # float64 [n], weighted in-degree in the whole graph, without self-loop; of links, along messages
    degree_ghosts_in: Array  # float64 [g]
    degree_ghosts_out: Array
    features: Rows  # [n, F]
    labels: Array  # int64 [n], -1 = unknown; uint8 [n, C], 255 = unknown; or float32 [n] or [n, C], NaN = unknown
    split: Array  # uint8 [n, S]
    train_degree: Array | None = None  # float64 [n], as degree, among training vertices; None: not inductive
    train_degree_ghosts_in: Array | None = None  # float64 [g]
    train_degree_ghosts_out: Array | None = None

    @property
    def undirected(self) -> bool:
        return self.out_edges is self.in_edges


@dataclass(frozen=True)
class SplitSizes:
    train: int
    val: int
    test: int


@dataclass(frozen=True)
class FileEntry:
    bytes: int
    sha256: str  # compared when a file is copied, and by ``siafu doctor``
    crc32: int  # compared before a file is mapped: ``siafu.verified``


@dataclass(frozen=True)
class PartitionEntry:
    vertices: int
    in_edges: int
    out_edges: int
    cut_edges: int  # in-edges that come from a ghost
    ghosts_in: int
    ghosts_out: int
    files: Mapping[str, FileEntry]

    @property
    def words(self) -> int:
        """The number of stored values of sparse features; 0 for dense ones."""
        file = self.files.get("features_indices.npy")
        return file.bytes // 4 if file else 0


@dataclass(frozen=True)
class Manifest:
    """The description of a prepared graph; counts are of the whole graph, after tidying."""

    siafu: str  # the version that wrote it
    name: str
    num_vertices: int
    num_edges: int  # as gathered: an undirected edge counts twice
    num_features: int
    num_classes: int
    multilabel: bool
    directed: bool
    weighted: bool
    sparse_features: bool
    feature_norm: str
    partitioner: str
    order: str  # of the vertices inside a partition; an interval is a slice of it
    seed: int
    num_partitions: int
    splits: tuple[SplitSizes, ...]
    cut_edges: int  # edges whose ends are owned by different partitions
    partitions: tuple[PartitionEntry, ...]
    order_scores: OrderScores = field(default_factory=dict)  # of the orders that were compared
    num_edge_types: int = 1
    edge_types: EdgeTypes = "none"  # their meaning
    type_counts: tuple[int, ...] = ()  # edges of every type, as stored; () if there is only one type
    inductive_split: int = -1  # the split whose training vertices edges of type 0 connect
    target: Target = "classes"  # the kind of labels; "labels" follows from multilabel
    files: Mapping[str, FileEntry] = field(default_factory=dict)  # of BESIDE
    fingerprint: Mapping[str, str] = field(default_factory=dict)  # of the training data: see siafu.fingerprint
    random_features: bool = False  # the source has none: the user said "random:F"

    def __post_init__(self) -> None:
        if self.multilabel:
            object.__setattr__(self, "target", "labels")

    def body(self) -> dict[str, Any]:
        """Returns the manifest in JSON's types, without the digest. ``random_features`` is included only if true, so
        that the digests of other graphs do not change."""
        unsaid = () if self.random_features else ("random_features",)
        said = {key: value for key, value in asdict(self).items() if key not in unsaid}
        return {"format": FORMAT, "version": VERSION, **said}

    @property
    def made_features(self) -> str:
        """The features that siafu made: "random:F"; "" if the source has features."""
        return f"random:{self.num_features}" if self.random_features else ""

    def num_validated(self, split: int) -> int:
        """Returns the number of validation vertices; in link prediction, of edges as stored."""
        return self.type_counts[VAL_PAIR] if self.edge_types == "links" else self.splits[split].val

    @property
    def training_pairs(self) -> tuple[int, int]:
        """In a graph for link prediction: (undirected training edges, false edges in the pool for each)."""
        edges = self.type_counts[TRAIN_PAIR] // 2
        return edges, self.type_counts[TRAIN_NEGATIVE] // 2 // max(1, edges)

    @property
    def digest(self) -> str:
        """The sha256 of the canonical JSON of everything else."""
        canonical = json.dumps(self.body(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str, where: Path) -> Manifest:
        """Parses a manifest. Raises: DatasetError if it is not a manifest of this version, or was altered."""
        try:
            raw = json.loads(text)
            found = raw.pop("format"), raw.pop("version")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise DatasetError(f"{where}: not a manifest of prepared shards{_of_run(where)}") from None
        if found[0] == FORMAT and found[1] in range(1, VERSION):
            raise DatasetError(
                f"{where}: version {found[1]}, must be {VERSION}: prepared by an older siafu, prepare it again"
            )
        if found != (FORMAT, VERSION):
            again = ": another siafu prepared it; prepare it again" if found[0] == FORMAT else ""
            raise DatasetError(
                f"{where}: format {found[0]!r} version {found[1]!r}, must be {FORMAT!r} version {VERSION}{again}"
            )
        digest = raw.pop("digest", None)
        raw.setdefault("random_features", False)
        try:
            raw["splits"] = tuple(SplitSizes(**s) for s in raw["splits"])
            raw["partitions"] = tuple(_partition_entry(p) for p in raw["partitions"])
            raw["type_counts"] = tuple(raw["type_counts"])
            raw["files"] = _file_entries(raw["files"])
            manifest = cls(**raw)
            raw["fingerprint"].items()
        except (KeyError, TypeError, AttributeError):
            names = {f.name for f in fields(cls)}
            wrong = ", ".join(sorted(names ^ raw.keys())) or "splits or partitions"
            raise DatasetError(f"{where}: manifest fields missing, unknown or malformed: {wrong}") from None
        if digest != manifest.digest:
            raise DatasetError(f"{where}: digest {digest}, but its content has {manifest.digest}: the file was altered")
        of_parts = (entry for partition in manifest.partitions for entry in partition.files.values())
        for said in (manifest, *manifest.splits, *manifest.partitions, *manifest.files.values(), *of_parts):
            _check_types(said, where)
        if manifest.edge_types not in get_args(EdgeTypes) or manifest.target not in get_args(Target):
            raise DatasetError(
                f"{where}: edge types {manifest.edge_types!r} or target {manifest.target!r} are not known"
            )
        if any(type(count) is not int for count in manifest.type_counts):
            raise DatasetError(f"{where}: type_counts are {str(manifest.type_counts)[:40]}, must be integers")
        if manifest.num_partitions != len(manifest.partitions):
            raise DatasetError(f"{where}: {len(manifest.partitions)} partitions, must be {manifest.num_partitions}")
        for name in (name for partition in manifest.partitions for name in partition.files):
            if not FILE_NAME.fullmatch(name):
                raise DatasetError(f"{where}: lists the file {name[:80]!r}, must be one of a partition's arrays")
        if not manifest.files.keys() <= set(BESIDE):
            raise DatasetError(f"{where}: lists files beside its partitions, must be of {', '.join(BESIDE)}")
        return manifest


def _check_types(said: Any, where: Path) -> None:
    """Raises: DatasetError if a plain field is of another type, or a count negative."""
    for f in fields(said):
        value: Any = getattr(said, f.name)
        kind = {"int": int, "str": str, "bool": bool}.get(str(f.type))
        if kind and (type(value) is not kind or (isinstance(value, int) and not -1 <= value < 2**63)):
            raise DatasetError(
                f"{where}: {f.name} is {str(value)[:40]!r}, must be of type {f.type}, and no less than -1"
            )


def _partition_entry(raw: dict[str, Any]) -> PartitionEntry:
    return PartitionEntry(**{**raw, "files": _file_entries(raw["files"])})


def _file_entries(raw: dict[str, Any]) -> dict[str, FileEntry]:
    return {name: FileEntry(**entry) for name, entry in raw.items()}


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardSet:
    """One prepared graph on disk."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | os.PathLike[str], partitions: Collection[int] | None = None) -> ShardSet:
        """Reads the manifest and compares the size of every file with it (``partition`` and ``verify`` compare the
        content).

        ``partitions``: the partitions that must exist, for a machine that has only its own; None: all.
        Raises: DatasetError, in one line, if anything is missing, of another version, altered or truncated.
        """
        path = Path(path)
        try:
            text = (path / MANIFEST).read_text("utf-8")
        except OSError as error:
            raise DatasetError(f"{path}: no prepared graph there ({MANIFEST}: {error.strerror})") from None
        except UnicodeDecodeError:
            raise DatasetError(f"{path / MANIFEST}: not a manifest of prepared shards") from None
        shards = cls(path, Manifest.from_json(text, path / MANIFEST))
        for file, entry in shards._files(partitions):
            nbytes = file.stat().st_size if file.is_file() else None
            if nbytes != entry.bytes:
                found = "missing" if nbytes is None else f"{nbytes} bytes"
                raise DatasetError(f"{file}: {found}, must be {entry.bytes} bytes")
        return shards

    def verify(self) -> int:
        """Verifies every file, even if it is remembered as good. Returns the number of aggregates kept beside the
        graph's own files.

        Raises: DatasetError naming the first file that was altered or holds an invalid value.
        """
        for file, entry in self._files():
            digest = _sha256(file)
            if digest != entry.sha256:
                raise DatasetError(f"{file}: sha256 {digest}, must be {entry.sha256}: it was altered; {self.advice}")
        for p in range(self.manifest.num_partitions):
            for check in self._mapped(p)[1].values():
                check()
        found = [(file, AGGREGATE.fullmatch(file.name)) for file in sorted(self.path.glob("part-*/*"))]
        kept = [(file, int(said["crc"], 16)) for file, said in found if said is not None]
        for file, wanted in kept:
            compare(file, wanted, "delete it, and the next run makes it again")
        return len(kept)

    @property
    def advice(self) -> str:
        """Advice for a file that is not valid."""
        return f"delete {self.path}, and prepare the graph again"

    def partition(self, p: int) -> Shard:
        """Returns partition ``p``, its arrays mapped read-only. First compares each file with the manifest's checksum,
        and indices with their limits, unless that was done since the file changed (``siafu.verified``).

        Raises: DatasetError if there is no such partition, a file was altered, or an array has a dtype or shape that
        does not fit the manifest's counts, or holds an invalid value.
        """
        shard, checks = self._mapped(p)
        Verified(self.path / folder_of(p), self.manifest.digest).check(checks)
        return shard

    def unverified(self, p: int) -> Shard:
        """Returns partition ``p`` without checks, for the process that has just written its files."""
        return self._mapped(p)[0]

    def _mapped(self, p: int) -> tuple[Shard, dict[str, Callable[[], None]]]:
        """Returns the partition, and the checks to do before it is used: one per file, by name."""
        m = self.manifest
        if not 0 <= p < m.num_partitions:
            raise DatasetError(f"{self.path}: partition {p}, must be in 0..{m.num_partitions - 1}")
        part = _Part(self.path / folder_of(p), m.partitions[p], self.advice)
        load, n = part.load, part.entry.vertices
        vertex = between(0, m.num_vertices - 1)

        def side(name: str, num_edges: int, g: int) -> tuple[Edges, Array, Array, Array]:
            indptr = part.pointers(f"{name}_indptr", num_edges)
            indices = load(f"{name}_indices", (num_edges,), "int32", look=columns(indptr, n + g))
            weight = load(f"{name}_weight", (num_edges,), "float32", look=finite) if m.weighted else None
            types = between(0, m.num_edge_types - 1)
            kind = load(f"{name}_type", (num_edges,), "uint16", look=types) if m.edge_types != "none" else None
            ghosts = load(f"ghosts_{name}", (g,), "int64", look=vertex)
            owner = load(f"ghosts_{name}_owner", (g,), "int32", look=rising(0, m.num_partitions - 1))
            degree = load(f"degree_ghosts_{name}", (g,), "float64", look=finite)
            return Edges(indptr, indices, weight, kind), ghosts, owner, degree

        in_edges, ghosts_in, ghosts_in_owner, degree_ghosts_in = inward = side(
            "in", part.entry.in_edges, part.entry.ghosts_in
        )
        out_edges, ghosts_out, ghosts_out_owner, degree_ghosts_out = (
            side("out", part.entry.out_edges, part.entry.ghosts_out) if m.directed else inward
        )
        classes = between(-1, m.num_classes - 1) if m.target == "classes" else None
        shard = Shard(
            index=p,
            num_partitions=m.num_partitions,
            num_vertices=m.num_vertices,
            vertices=load("vertices", (n,), "int64", look=vertex),
            in_edges=in_edges,
            out_edges=out_edges,
            ghosts_in=ghosts_in,
            ghosts_in_owner=ghosts_in_owner,
            ghosts_out=ghosts_out,
            ghosts_out_owner=ghosts_out_owner,
            degree=load("degree", (n,), "float64", look=finite),
            degree_ghosts_in=degree_ghosts_in,
            degree_ghosts_out=degree_ghosts_out,
            features=self._features(part),
            labels=load("labels", (n, ...), *_LABELS[m.target], look=classes),
            split=load("split", (n, len(m.splits)), "uint8", look=between(NONE, TEST)),
            **self._train_degrees(part),
        )
        return shard, part.checks

    def _features(self, part: _Part) -> Rows:
        n, F = part.entry.vertices, self.manifest.num_features
        if not self.manifest.sparse_features:
            return part.load("features", (n, F), *_FEATURES)
        data = part.load("features_data", (None,), *_FEATURES)
        indptr = part.pointers("features_indptr", len(data))
        indices = part.load("features_indices", data.shape, "int32", look=columns(indptr, F))
        return SparseRows(indptr, indices, data, F)

    def _train_degrees(self, part: _Part) -> dict[str, Array]:
        m, entry = self.manifest, part.entry
        if m.edge_types != "inductive":
            return {}
        into = part.load("train_degree_ghosts_in", (entry.ghosts_in,), "float64", look=finite)
        out = part.load("train_degree_ghosts_out", (entry.ghosts_out,), "float64", look=finite) if m.directed else into
        degree = part.load("train_degree", (entry.vertices,), "float64", look=finite)
        return {"train_degree": degree, "train_degree_ghosts_in": into, "train_degree_ghosts_out": out}

    def names(self) -> dict[str, tuple[str, ...]]:
        """Reads the source's names of classes ("classes"), edge types ("edge_types") and columns of features
        ("features"), in the order of their numbers, if they are not just numbers; and "notes": how parts of the source
        were interpreted, and which were left out. Raises: DatasetError if they cannot be read."""
        return read_names(self.path)

    def notes(self) -> tuple[str, ...]:
        """Reads the notes for the user, a line each: how parts of the source were interpreted, and which were left
        out."""
        return self.names().get(NOTES, ())

    def training_notes(self) -> tuple[str, ...]:
        """Returns ``notes``, and a warning if training makes no sense because all labels are of one class."""
        m = self.manifest
        if m.target == "classes" and m.num_classes == 1 and m.edge_types != "links":
            return (*self.notes(), "all labels are of one class: every prediction will be that class, and right")
        return self.notes()

    def _files(self, partitions: Collection[int] | None = None) -> list[tuple[Path, FileEntry]]:
        """Returns the files of these partitions with their entries. None: of all, and the files beside them."""
        beside = self.manifest.files if partitions is None else {}
        return [(self.path / name, entry) for name, entry in beside.items()] + [
            (self.path / folder_of(p) / name, entry)
            for p, partition in enumerate(self.manifest.partitions)
            if partitions is None or p in partitions
            for name, entry in partition.files.items()
        ]


#: Dtypes that features may have, and labels of each kind.
_FEATURES = ("uint8", "float16", "float32")
_LABELS: Mapping[Target, tuple[str, ...]] = {"classes": ("int64",), "labels": ("uint8",), "numbers": ("float32",)}


@dataclass(frozen=True)
class _Part:
    """The arrays of a partition's folder, checked against the manifest."""

    folder: Path
    entry: PartitionEntry
    advice: str
    checks: dict[str, Callable[[], None]] = field(default_factory=dict)  # of the files that were loaded, in this order

    def load(
        self, name: str, shape: tuple[int | EllipsisType | None, ...], *dtypes: str, look: Look | None = None
    ) -> Array:
        """Maps an array and registers its check. ``shape``: None is any number, an ellipsis at the end no further axis
        or one. Raises: DatasetError if dtype or shape do not fit."""
        file = self.folder / f"{name}.npy"
        if (said := self.entry.files.get(file.name)) is None:
            raise DatasetError(f"{file}: is not in the manifest; {self.advice}")
        array = _mapped(file)
        axes = array.shape[:1] if shape[-1] is ... else array.shape
        wanted = shape[:-1] if shape[-1] is ... else shape
        fits = len(axes) == len(wanted) and all(w in (None, axis) for w, axis in zip(wanted, axes, strict=True))
        if not fits or array.ndim > 2 or array.dtype.name not in dtypes:
            axes_said = ", ".join("…" if w in (None, ...) else str(w) for w in shape)
            raise DatasetError(
                f"{file}: {array.dtype} {list(array.shape)}, must be {' or '.join(dtypes)} [{axes_said}]"
            )
        self.checks[file.name] = lambda: compare(file, said.crc32, self.advice, look)
        return array

    def pointers(self, name: str, last: int) -> Array:
        """Loads row pointers [n + 1] from 0 to ``last``."""
        indptr = self.load(name, (self.entry.vertices + 1,), "int64", look=rising(0, last))
        if (indptr[0], indptr[-1]) != (0, last):
            raise DatasetError(f"{self.folder / name}.npy: from {indptr[0]} to {indptr[-1]}, must be from 0 to {last}")
        return indptr


def read_names(folder: Path) -> dict[str, tuple[str, ...]]:
    """Reads names.json of a prepared graph, or of a run; empty if there is none. Raises: DatasetError if it cannot be
    read."""
    try:
        found = json.loads((folder / NAMES).read_text("utf-8"))
        return {kind: tuple(map(str, names)) for kind, names in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DatasetError(f"{folder / NAMES}: not readable: {error}") from None


def folder_of(p: int) -> str:
    return f"part-{p:03d}"


def _mapped(file: Path) -> Array:
    try:
        return mapped(file)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: not a readable array ({error})") from None


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
