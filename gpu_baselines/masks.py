"""siafu's dropout masks on any device: a pure function of (seed, epoch, layer, vertex, column), see ``siafu.ops``.

Every copy of a row is dropped alike, on any rank and however late it arrived; masks do not travel, and a baseline drops
exactly what ``siafu train`` drops. On the CPU siafu's kernel makes the masks; a GPU hashes for itself, and gets only
the vertices' ids.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from siafu import ops
from siafu.kernels.dropout import factors
from siafu.sparse import Array


class Masks:
    """Masks of one rank's rows, in its present epoch."""

    def __init__(self, p: float, seed: int, device: torch.device, dtype: torch.dtype):
        self.p, self.seed, self.device, self.dtype = p, seed, device, dtype
        self.threshold, self.scale = ops.dropout_threshold(p) if p else (0, 1.0)

    def __call__(self, vertices: Array, width: int, *, epoch: int, key: int) -> Tensor | None:
        """Factors of the rows of these vertices (int64 [n], global ids): [n, width]; None: nothing is dropped."""
        if not self.p:
            return None
        if self.device.type == "cpu" and self.dtype == torch.float32:
            threads, where = torch.get_num_threads(), {"seed": self.seed, "epoch": epoch, "layer": key}
            return torch.from_numpy(factors(width, self.p, **where, vertices=vertices, threads=threads))
        if self.device.type == "cpu":
            like = np.broadcast_to(np.float32(0), (len(vertices), width))
            mask = ops.dropout_mask(like, self.p, seed=self.seed, epoch=epoch, layer=key, vertices=vertices)
            assert mask is not None
            keep = torch.from_numpy(mask)
        else:
            keep = kept(self._row_keys(vertices, epoch, key), width, self.threshold)
        return keep.to(self.dtype).mul_(self.scale)

    def of_entries(self, vertices: Array, row: Tensor, column: Tensor, *, epoch: int, key: int) -> Tensor:
        """Factors of the entries [m] of a sparse matrix; row, column: int64 [m], their positions."""
        keep = kept_entries(self._row_keys(vertices, epoch, key)[row], column, self.threshold)
        return keep.to(self.dtype).mul_(self.scale)

    def _row_keys(self, vertices: Array, epoch: int, key: int) -> Tensor:
        ids = torch.from_numpy(np.array(vertices)).to(self.device)
        return row_keys(ids, int(ops.run_key(self.seed, epoch, key)))


# --- ops.dropout_mask in torch: uint64 as int64, whose products and sums wrap to the same bits ------------------------


def row_keys(vertices: Tensor, run_key: int) -> Tensor:
    """Keys of rows, int64 [n], from vertices, int64 [n]."""
    return mixed(vertices * _GOLDEN + _signed(run_key))


def kept(row_key: Tensor, width: int, threshold: int) -> Tensor:
    """Whether each value of the rows is kept, bool [n, width]: one 64-bit hash serves four columns."""
    return _reach(threshold, row_key, width, _GOLDEN)


def kept_entries(row_key: Tensor, column: Tensor, threshold: int) -> Tensor:
    """Whether single entries are kept, bool [m], from their rows' keys and their columns."""
    hashes = mixed(row_key + (column >> 2) * _GOLDEN)
    return ((hashes >> ((column & 3) * 16)) & 0xFFFF) >= threshold


def edge_places(sources: Tensor, targets: Tensor) -> Tensor:
    """Hash inputs of ``kept_edges``, int64 [m], from the global ids of edges' ends."""
    return sources * _signed(ops.SOURCE_STEP) + targets * _signed(ops.TARGET_STEP)


def kept_edges(places: Tensor, heads: int, key: int, threshold: int) -> Tensor:
    """Whether attention's coefficients are kept (``ops.edge_dropout``), bool [m, heads]; key: ``ops.edge_key``."""
    return _reach(threshold, places + _signed(key), heads, _signed(ops.HEADS_STEP))


def _reach(threshold: int, first: Tensor, width: int, step: int) -> Tensor:
    """Whether the 16 bits for each column reach the threshold, bool [n, width]. They are from hashes of n counters,
    which grow by ``step`` for every four columns."""
    quads = torch.arange((width + 3) // 4, device=first.device) * step
    lanes = mixed(first[:, None] + quads).view(torch.int16)  # [n, 4 * quads]; its bytes are little-endian
    # As unsigned numbers: with the sign turned over on both sides.
    return (lanes[:, :width] ^ -0x8000) >= threshold - 0x8000


def mixed(x: Tensor) -> Tensor:
    """SplitMix64's finaliser (``ops.mixed``) of int64."""
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, places: int) -> Tensor:
    """Shifts right, with zeros from the left."""
    return (x >> places) & ((1 << (64 - places)) - 1)


def _signed(word: int) -> int:
    """The int64 with the bits of a uint64."""
    return word - (1 << 64) if word >> 63 else word


_GOLDEN = _signed(int(ops.GOLDEN))
