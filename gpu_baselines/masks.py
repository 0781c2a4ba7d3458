"""siafu's dropout masks on any device: a pure function of (seed, epoch, layer, vertex, column), see ``siafu.ops``.

Every copy of a row is dropped alike, whoever holds it and however late it came; nothing travels, and a baseline drops
exactly what ``siafu train`` drops.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from siafu import ops
from siafu.sparse import Array


class Masks:
    """Of one rank's rows, for the epoch that it is in."""

    def __init__(self, p: float, seed: int, device: torch.device, dtype: torch.dtype):
        self.p, self.seed, self.device, self.dtype = p, seed, device, dtype
        self.scale = ops.dropout_threshold(p)[1] if p else 1.0

    def __call__(self, vertices: Array, width: int, *, epoch: int, key: int) -> Tensor | None:
        """What rows of these vertices (int64 [n], global ids) are multiplied with: [n, width]; None: nothing is dropped."""
        if not self.p:
            return None
        like = np.broadcast_to(np.float32(0), (len(vertices), width))
        keep = ops.dropout_mask(like, self.p, seed=self.seed, epoch=epoch, layer=key, vertices=vertices)
        assert keep is not None
        return torch.from_numpy(keep).to(self.device).to(self.dtype).mul_(self.scale)
