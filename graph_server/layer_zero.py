"""Gather of layer 0. Features never change, so it is computed once and kept with the shards for later runs.

Dense features are gathered a block of columns at a time, so that no second copy of all of them is ever made: on
reddit-small they are 561 MB. The result is written to a mapped file, or to memory if no file can be kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import mmap
import os
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from graph_server.aggregate import Gather
from graph_server.lane_view import LaneView
from graph_server.operators.linear import Linear
from graph_server.operators.table import OperatorTable
from siafu import kernels, ops
from siafu.errors import DatasetError
from siafu.kernels import Table
from siafu.npy import mapped
from siafu.ops import BFLOAT16
from siafu.shards import AGGREGATE
from siafu.sparse import Array, Rows, SparseRows, stack
from siafu.tasks import Lane
from siafu.verified import Verified, checksum, compare

logger = logging.getLogger(__name__)

#: Version of the aggregate's computation and format, apart from the compiled kernels': raised when its bits change.
VERSION = 1

#: Size of the table that a block of columns is gathered from; the narrowest block: each row of it fills cache lines.
BLOCK_BYTES, MIN_COLUMNS = 256 << 20, 64
#: A draft that nobody has written to for so long is left over from a run that was killed.
ABANDONED_S = 3600.0
#: Rows of features that are converted together.
CONVERTED_BYTES = 16 << 20


@dataclass(frozen=True)
class Kept:
    """The file in which a partition's aggregate is kept from run to run: ``aggregate-KEY-MADE-CRC.npy``.

    KEY identifies the inputs (graph, aggregation, dtype, instruction set), MADE the code version, CRC is the checksum
    of the file. The file is renamed to this name once it is complete. A different MADE or CRC makes the aggregate anew.
    """

    folder: Path | None  # None: the aggregate is not kept
    against: str  # digest of the prepared graph
    key: str
    shape: tuple[int, int]
    dtype: np.dtype[np.generic]

    @classmethod
    def of(
        cls, folder: Path | None, digest: str, name: str, shape: tuple[int, int], dtype: np.dtype[np.generic]
    ) -> Kept:
        """Makes the description of the file. ``folder``: the partition's; ``digest``: of the prepared graph, so that
        other shards never find the file; ``name``: of the aggregation."""
        # Instruction sets round differently: machines that share shards each keep their own.
        key = hashlib.sha256(f"{digest} {name} {dtype.str} {kernels.ISA}".encode()).hexdigest()[:16]
        return cls(folder, digest, key, shape, dtype)

    def load(self) -> Array | None:
        """Returns the aggregate of an earlier run, mapped; None if there is none, or none that is intact."""
        for file in self._files():
            try:
                return self._opened(file)
            except DatasetError as error:
                logger.warning("%s; layer 0's aggregate is made again", error)
                remove(file)
        return None

    def _opened(self, file: Path) -> Array:
        """Returns the file's rows, mapped. Raises: DatasetError naming the file if it cannot be read, or has another
        version, shape, dtype or checksum."""
        said = AGGREGATE.fullmatch(file.name)
        if said is None or said["made"] != _made():
            raise DatasetError(f"{file}: made by another version of siafu")
        try:
            rows = mapped(file)
        except (OSError, ValueError) as error:
            raise DatasetError(f"{file}: not a readable array ({error})") from None
        if (rows.shape, rows.dtype) != (self.shape, self.dtype):
            raise DatasetError(f"{file}: {rows.dtype} {list(rows.shape)}, must be {self.dtype} {list(self.shape)}")
        check = functools.partial(compare, file, int(said["crc"], 16))
        Verified(file.parent, self.against).check({file.name: check})
        return rows

    def _files(self) -> list[Path]:
        """Returns the aggregates of this key in the folder, sorted."""
        return [] if self.folder is None else sorted(self.folder.glob(f"aggregate-{self.key}-*"))

    def begin(self) -> tuple[Array, Path | None]:
        """Makes room for the aggregate. Returns a mapped file, with its disk blocks allocated, and the file's path; or
        an array in memory, and None."""
        if self.folder is not None:
            self._forget_drafts()
            draft = self.folder / f".aggregate-{self.key}.{uuid.uuid4().hex}"
            try:
                rows = np.lib.format.open_memmap(draft, mode="w+", dtype=self.dtype, shape=self.shape)
                with draft.open("r+b") as file:  # a full disk must be known now, not when a page is written
                    _allocate(file.fileno())
                return rows, draft
            except (OSError, ValueError) as error:  # read-only or full; mmap refuses files without a byte
                logger.info("%s: layer 0's aggregate is not kept: %s", self.folder, error)
                remove(draft)
        return np.empty(self.shape, self.dtype), None

    def finish(self, rows: Array, draft: Path | None) -> Array:
        """Flushes the complete file to the disk and gives it its final name. Returns the rows, read-only."""
        if draft is not None:
            assert self.folder is not None
            try:
                with draft.open("r+b") as file:
                    rows.flush()  # type: ignore[attr-defined]  # a draft's rows are a memmap
                    os.fsync(file.fileno())
                named = self.folder / f"aggregate-{self.key}-{_made()}-{checksum(draft):08x}.npy"
                draft.rename(named)
                Verified(self.folder, self.against).remember(named.name)
                for other in self._files():
                    if other != named:
                        remove(other)
            except (
                OSError,
                DatasetError,
            ) as error:  # the shards were prepared again meanwhile: what is mapped stays good
                logger.info("%s: layer 0's aggregate is not kept: %s", self.folder, error)
                remove(draft)
        rows.flags.writeable = False
        return rows

    def _forget_drafts(self) -> None:
        """Deletes drafts left by runs that were killed: those untouched for ``ABANDONED_S``."""
        assert self.folder is not None
        for draft in self.folder.glob(f".aggregate-{self.key}.*"):
            with contextlib.suppress(OSError):
                if time.time() - draft.stat().st_mtime > ABANDONED_S:
                    draft.unlink()


def _made() -> str:
    """Returns the code version of an aggregate, 8 hex digits of a hash of ``VERSION`` and the kernels' version."""
    return hashlib.sha256(f"{VERSION} {kernels.VERSION}".encode()).hexdigest()[:8]


def remove(draft: Path | None) -> None:
    """Deletes the file if it exists. Ignores all OSErrors: a read-only file system raises one even for a missing
    file."""
    if draft is not None:
        with contextlib.suppress(OSError):
            draft.unlink()


def _allocate(descriptor: int) -> None:
    if hasattr(os, "posix_fallocate"):  # not on macOS
        os.posix_fallocate(descriptor, 0, os.fstat(descriptor).st_size)


def aggregates(
    operators: OperatorTable,
    lanes: Collection[Lane],
    seen: Mapping[Lane, LaneView],
    features: Rows,
    ghosts: Rows | None,
    kept: Kept,
    dtype: np.dtype[np.generic],
    known: Rows | None = None,
) -> dict[Lane, Rows]:
    """Computes layer 0's aggregate for each lane, of the rows that the lane sees (``seen``).

    ``known``: the aggregate of all rows from an earlier run, if any. Lanes that gather along the same edges share one.
    Sparse aggregates are not kept; if a single lane gathers them, only the rows that it sees are computed.
    """
    made: dict[Lane, Rows] = {}
    for lane in lanes:
        operator, view, mine = operators.made[lane, "linear", False], operators.seen[lane], seen[lane]
        assert isinstance(operator, Linear)
        gather = operator.gathers[False]
        if isinstance(features, SparseRows) and len(lanes) == 1 and view.rows is None:
            return {lane: aggregate(gather, features, ghosts, kept, dtype, only=mine.rows)}
        if not operators.one_view:
            known, shape = None, (len(view.shard.vertices), kept.shape[1])
            kept = replace(kept, folder=None, shape=shape)
        known = aggregate(gather, features, ghosts, kept, dtype, view.rows) if known is None else known
        made[lane] = known if mine is view else mine.take(known)
    return made


def aggregate(
    gather: Gather,
    features: Rows,
    ghosts: Rows | None,
    kept: Kept,
    dtype: np.dtype[np.generic],
    rows_of: Array | None = None,
    only: Array | None = None,
) -> Rows:
    """Computes A X for features X of inner vertices ``[n, F]`` and of ghosts ``[g, F]``, in ``dtype``, and stores it in
    ``kept.dtype``. ``rows_of``: the inner vertices that ``gather`` covers; None: all.

    Sparse features give sparse rows if the result is sparse enough, and these are not kept. ``only``: the rows of the
    sparse result to compute; None: all.
    """
    if isinstance(features, SparseRows):
        features = features if rows_of is None else ops.take(features, rows_of)
        assert isinstance(features, SparseRows)
        # Without ghosts, use the shard's mapped features as they are: stacking would copy them.
        base: Rows = features.astype(dtype)
        base = base if ghosts is None else stack([base, ghosts.astype(dtype)])
        assert isinstance(base, SparseRows)
        return gather.sparse(base, only)
    rows, draft = kept.begin()
    try:
        _aggregate_columns(gather, features, rows_of, ghosts, rows, dtype)
    except BaseException:
        remove(draft)
        raise
    return kept.finish(rows, draft)


def _aggregate_columns(
    gather: Gather,
    features: Array,
    rows_of: Array | None,
    ghosts: Rows | None,
    rows: Array,
    dtype: np.dtype[np.generic],
) -> None:
    num_inner, width = rows.shape
    num_rows = num_inner + (0 if ghosts is None else len(ghosts))
    columns = max(MIN_COLUMNS, BLOCK_BYTES // max(1, num_rows * dtype.itemsize))
    for first in range(0, width, columns):
        block = slice(first, min(width, first + columns))
        table = Table(num_rows, block.stop - block.start, dtype.name, edges=gather.edges.per_row)
        for offset, X, chosen in ((0, features, rows_of), (num_inner, ghosts, None)):
            if X is not None:
                _fill(table, offset, X, chosen, block, gather.source_scale, dtype)
        for start, stop in _pieces(num_inner, (block.stop - block.start) * dtype.itemsize):
            Z = gather(start, stop, table)
            rows[start:stop, block] = kernels.to_bfloat16(Z) if rows.dtype == BFLOAT16 else Z


def _fill(
    table: Table,
    offset: int,
    X: Rows,
    chosen: Array | None,
    columns: slice,
    scale: Array | None,
    dtype: np.dtype[np.generic],
) -> None:
    """Writes columns of X to the table from row ``offset`` on. ``chosen``: the rows of X to write; None: all."""
    assert isinstance(X, np.ndarray)
    for start, stop in _pieces(
        len(X) if chosen is None else len(chosen), (columns.stop - columns.start) * dtype.itemsize
    ):
        place = slice(offset + start, offset + stop)
        rows = slice(start, stop) if chosen is None else chosen[start:stop]
        table.write(place, X[rows, columns].astype(dtype), None if scale is None else scale[place])
        _let_go(X)


def _let_go(rows: Array) -> None:
    """Releases the pages of a mapped file from this process. They stay in the system's cache while there is room."""
    mapping = getattr(rows, "_mmap", None)  # numpy.memmap keeps its mmap there, and gives no other way to it
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def _pieces(num_rows: int, row_bytes: int) -> list[tuple[int, int]]:
    size = max(1, CONVERTED_BYTES // max(1, row_bytes))
    return [(start, min(num_rows, start + size)) for start in range(0, num_rows, size)]
