"""Writes shards in the format of ``siafu.shards``, all of them or none."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from graph_data.rowfile import header
from graph_data.sources.ids import save as save_ids
from siafu.errors import DatasetError
from siafu.features import Standard
from siafu.fingerprint import fingerprint
from siafu.graph import Graph
from siafu.kernels.checksum import crc32
from siafu.shards import (
    BESIDE,
    FORMAT,
    HASH_BLOCK_BYTES,
    MANIFEST,
    NAMES,
    NOTES,
    Edges,
    FileEntry,
    Manifest,
    PartitionEntry,
    Shard,
    ShardSet,
    folder_of,
)
from siafu.sparse import Array, SparseRows


class ShardWriter:
    """Writes a prepared graph beside its destination and moves it there when it is whole.

    Use in a ``with`` block: ``add`` every partition in order, then ``finish``. A block that is left before ``finish``,
    or a process that dies, leaves the destination as it was. Raises: DatasetError if the file system refuses an
    operation.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self.out = Path(out)
        self._real = Path(os.path.realpath(out))  # a link to another disk stays a link
        self._folder = self._real.with_name(f".{self._real.name[:40]}.{uuid.uuid4().hex}")
        self.entries: list[PartitionEntry] = []  # the only state that changes

    def __enter__(self) -> ShardWriter:
        try:
            if self._real.exists() and not _replaceable(self._real):
                raise DatasetError(f"{self.out}: exists and is not a prepared graph, so it is not overwritten")
            self._folder.mkdir(parents=True)
        except OSError as error:
            raise DatasetError(f"{self.out}: cannot be written: {error.strerror}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        if isinstance(error, OSError):
            named, ours = error.filename, tuple(map(str, (self.out, self._real, self._folder)))
            if isinstance(named, str | os.PathLike) and not os.fspath(named).startswith(ours):  # the source's
                raise DatasetError(f"{named}: {error.strerror}") from error
            raise DatasetError(f"{self.out}: cannot be written: {error.strerror or error}") from error

    def add(self, shard: Shard) -> None:
        """Writes the next partition, and keeps nothing of it in memory."""
        assert shard.index == len(self.entries), "partitions are written in order"
        folder = self._folder / folder_of(shard.index)
        folder.mkdir()
        self.entries.append(
            PartitionEntry(
                vertices=len(shard.vertices),
                in_edges=len(shard.in_edges.indices),
                out_edges=len(shard.out_edges.indices),
                cut_edges=int((shard.in_edges.indices >= len(shard.vertices)).sum()),
                ghosts_in=len(shard.ghosts_in),
                ghosts_out=len(shard.ghosts_out),
                files={
                    f"{name}.npy": write_array(folder / f"{name}.npy", array) for name, array in _arrays(shard).items()
                },
            )
        )

    def adopt(self, written: Path, entry: PartitionEntry) -> None:
        """Takes over the next partition's files from a folder of the same file system.

        They stay there too, under a second name: an interrupted preparation continues with them.
        """
        folder = self._folder / folder_of(len(self.entries))
        folder.mkdir()
        for name in entry.files:
            os.link(written / name, folder / name)
        self.entries.append(entry)

    def add_names(self, graph: Graph) -> None:
        """Writes the source's vertex ids (ids.npy or ids.parquet), and in names.json the names of classes, edge types
        and feature columns, with the graph's notes; nothing for numbers 0, 1, 2, ..."""
        if graph.ids is not None:
            save_ids(self._folder, graph.ids)
        if names := {**graph.names, **({NOTES: graph.notes} if graph.notes else {})}:
            (self._folder / NAMES).write_text(json.dumps(names, ensure_ascii=False, indent=1) + "\n", "utf-8")

    def add_standard(self, standard: Standard | None) -> None:
        """Writes the means and deviations that standardised the features, if any."""
        if standard is not None:
            standard.save(self._folder)

    def finish(self, manifest: Manifest) -> ShardSet:
        """Writes the manifest and moves everything to its destination, in place of a prepared graph that is there."""
        beside = {name: _entry_of(self._folder / name) for name in BESIDE if (self._folder / name).is_file()}
        manifest = replace(manifest, files=beside)
        manifest = replace(manifest, fingerprint=fingerprint(ShardSet(self._folder, manifest)))
        write_manifest(self._folder, manifest)
        if self._real.exists():
            old = self._folder.with_name(self._folder.name + ".old")
            self._real.rename(old)
            self._folder.rename(self._real)
            shutil.rmtree(old)
        else:
            self._folder.rename(self._real)
        return ShardSet(self.out, manifest)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest, after all other files, and syncs it to disk."""
    text = json.dumps({**manifest.body(), "digest": manifest.digest}, indent=1)
    with (folder / MANIFEST).open("w") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _replaceable(out: Path) -> bool:
    """True for an empty folder and for a prepared graph of any version."""
    if not out.is_dir():
        return False
    try:
        made_here = json.loads((out / MANIFEST).read_bytes()).get("format") == FORMAT  # a run has a manifest too
    except (OSError, ValueError, AttributeError):
        made_here = False
    return made_here or not any(out.iterdir())


def _arrays(shard: Shard) -> dict[str, Array]:
    """Every array of the shard by the name of its file."""
    arrays = {"vertices": shard.vertices, "degree": shard.degree, "labels": shard.labels, "split": shard.split}
    arrays |= _side("in", shard.in_edges, shard.ghosts_in, shard.ghosts_in_owner, shard.degree_ghosts_in)
    if not shard.undirected:
        arrays |= _side("out", shard.out_edges, shard.ghosts_out, shard.ghosts_out_owner, shard.degree_ghosts_out)
    arrays |= _train_degrees(shard)
    if isinstance(shard.features, SparseRows):
        rows = shard.features
        return arrays | {"features_indptr": rows.indptr, "features_indices": rows.indices, "features_data": rows.data}
    return arrays | {"features": shard.features}


def _side(name: str, edges: Edges, ghosts: Array, owner: Array, degree: Array) -> dict[str, Array]:
    of_edge = {f"{name}_weight": edges.weight, f"{name}_type": edges.type}
    return {key: array for key, array in of_edge.items() if array is not None} | {
        f"{name}_indptr": edges.indptr,
        f"{name}_indices": edges.indices,
        f"ghosts_{name}": ghosts,
        f"ghosts_{name}_owner": owner,
        f"degree_ghosts_{name}": degree,
    }


def _train_degrees(shard: Shard) -> dict[str, Array]:
    found = {"train_degree": shard.train_degree, "train_degree_ghosts_in": shard.train_degree_ghosts_in}
    if not shard.undirected:
        found["train_degree_ghosts_out"] = shard.train_degree_ghosts_out
    return {name: array for name, array in found.items() if array is not None}


class _Hashing:
    """A file that computes checksums and the number of the bytes written to it; without a file, only counts."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._stream = stream
        self._sha256, self._crc32, self._nbytes = hashlib.sha256(), 0, 0

    def write(self, block: bytes | memoryview) -> int:
        self._sha256.update(block)
        self._crc32 = crc32(block, self._crc32)
        self._nbytes += len(block)
        return len(block) if self._stream is None else self._stream.write(block)

    def entry(self) -> FileEntry:
        """The manifest's entry of the file."""
        return FileEntry(self._nbytes, self._sha256.hexdigest(), self._crc32)


def write_array(file: Path, array: Array) -> FileEntry:
    """Writes a ``.npy`` file, and syncs it to disk."""
    with file.open("wb") as stream:
        hashing = _Hashing(stream)
        np.lib.format.write_array(hashing, np.ascontiguousarray(array), allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())
    return hashing.entry()


def link_array(written: Path, file: Path) -> FileEntry:
    """Gives a ``.npy`` file a second name on the same file system, and syncs it to disk."""
    file.unlink(missing_ok=True)
    os.link(written, file)
    return _entry_of(file)


def _entry_of(file: Path) -> FileEntry:
    """The entry of a written file, after a sync to disk."""
    hashing = _Hashing(None)
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
        while block := stream.read(HASH_BLOCK_BYTES):
            hashing.write(block)
    return hashing.entry()


class BlockFile:
    """A ``.npy`` file of a known shape, written one block of rows at a time, and synced to disk."""

    def __init__(self, file: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._stream = file.open("wb")
        self._hashing = _Hashing(self._stream)
        self._dtype = dtype
        self._hashing.write(header(shape, dtype))

    def append(self, rows: Array) -> None:
        if rows.size:
            self._hashing.write(np.ascontiguousarray(rows, self._dtype).data.cast("B"))

    def entry(self) -> FileEntry:
        """The manifest's entry of the file."""
        return self._hashing.entry()

    def __enter__(self) -> BlockFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stream:
            if kind is None:
                self._stream.flush()
                os.fsync(self._stream.fileno())
