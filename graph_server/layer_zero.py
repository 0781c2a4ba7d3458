"""Gather of layer 0. Features never change, so it is computed once and kept with the shards for later runs.

Dense features are gathered a block of columns at a time, so that no second copy of all of them is
ever made: on reddit-small they are 561 MB. The result goes straight into a file that is mapped where
one can be kept, else into memory.
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

#: Of how an aggregate is made and kept, beside the compiled kernels' part in it: raised when its bits change.
VERSION = 1

#: Of the table that a block of columns is gathered from, and the narrowest block: a row of it fills cache lines.
BLOCK_BYTES, MIN_COLUMNS = 256 << 20, 64
#: A draft that nobody has written to for so long is left over from a run that was killed.
ABANDONED_S = 3600.0
#: Rows of features that are converted together.
CONVERTED_BYTES = 16 << 20


@dataclass(frozen=True)
class Kept:
    """The file in which a partition's aggregate is kept from run to run: ``aggregate-KEY-MADE-CRC.npy``.

    KEY stands for what it is of, MADE for what made it, CRC is the checksum of the file: all that a reader must know is
    in the name, which the file gets last. Another CRC or MADE, and it is made again.
    """

    folder: Path | None  # None: it is not kept
    against: str  # digest of the prepared graph
    key: str
    shape: tuple[int, int]
    dtype: np.dtype[np.generic]

    @classmethod
    def of(
        cls, folder: Path | None, digest: str, name: str, shape: tuple[int, int], dtype: np.dtype[np.generic]
    ) -> Kept:
        """``folder``: the partition's; ``digest``: of the prepared graph, so that other shards never find it."""
        # Instruction sets round differently: machines that share shards each keep their own.
        key = hashlib.sha256(f"{digest} {name} {dtype.str} {kernels.ISA}".encode()).hexdigest()[:16]
        return cls(folder, digest, key, shape, dtype)

    def load(self) -> Array | None:
        """The aggregate of an earlier run, mapped; None if there is none, or none that is as it was made."""
        for file in self._files():
            try:
                return self._opened(file)
            except DatasetError as error:
                logger.warning("%s; layer 0's aggregate is made again", error)
                remove(file)
        return None

    def _opened(self, file: Path) -> Array:
        """Its rows, mapped. Raises: DatasetError naming it if it is not what its name and we say."""
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
        """Those of this key."""
        return [] if self.folder is None else sorted(self.folder.glob(f"aggregate-{self.key}-*"))

    def begin(self) -> tuple[Array, Path | None]:
        """Room for the aggregate: a mapped file, whose blocks are there already, and its name; or memory, and None."""
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
        """Gives the file its name, now that it is whole and on the disk; the rows, read-only."""
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
        """Those of runs that were killed while they made theirs."""
        assert self.folder is not None
        for draft in self.folder.glob(f".aggregate-{self.key}.*"):
            with contextlib.suppress(OSError):
                if time.time() - draft.stat().st_mtime > ABANDONED_S:
                    draft.unlink()


def _made() -> str:
    """What an aggregate is made by, in 8 digits: this file's version, and the kernels'."""
    return hashlib.sha256(f"{VERSION} {kernels.VERSION}".encode()).hexdigest()[:8]


def remove(draft: Path | None) -> None:
    """A read-only file system says so even of a file that is not there."""
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
    """Of the lanes that have one, of what each sees (``seen``); ``known``: that of all rows, of an earlier run.

    Where lanes look along the same edges, one is made for them. Bags of words that a single lane gathers are not kept:
    of these only the rows that it sees are made.
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
    """A X for features X of inner vertices ``[n, F]`` and of ghosts ``[g, F]``; computed
    in ``dtype``, stored in ``kept``'s. ``rows_of``: the inner vertices that ``gather`` is of; None: all.

    Sparse features give sparse rows if they stay sparse, and are not kept; ``only``: these rows of theirs, if any.
    """
    if isinstance(features, SparseRows):
        features = features if rows_of is None else ops.take(features, rows_of)
        assert isinstance(features, SparseRows)
        # Without ghosts the shard's own words, which are mapped: stacking would copy them.
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
    """``chosen``: the rows of X that are put there; None: all."""
    assert isinstance(X, np.ndarray)
    for start, stop in _pieces(
        len(X) if chosen is None else len(chosen), (columns.stop - columns.start) * dtype.itemsize
    ):
        place = slice(offset + start, offset + stop)
        rows = slice(start, stop) if chosen is None else chosen[start:stop]
        table.write(place, X[rows, columns].astype(dtype), None if scale is None else scale[place])
        _let_go(X)


def _let_go(rows: Array) -> None:
    """Pages of a mapped file that were read are ours no longer: they stay in the system's
    cache, as long as there is room."""
    mapping = getattr(rows, "_mmap", None)  # numpy.memmap keeps its mmap there, and gives no other way to it
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def _pieces(num_rows: int, row_bytes: int) -> list[tuple[int, int]]:
    size = max(1, CONVERTED_BYTES // max(1, row_bytes))
    return [(start, min(num_rows, start + size)) for start in range(0, num_rows, size)]
