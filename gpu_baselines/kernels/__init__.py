"""Packs rows into messages of 2, 4 and 8 bits and back, on the rows' own device, with the bytes of
``gpu_baselines.halos.quantise``.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from gpu_baselines.halos.quantise import Layout


class Packing(Protocol):
    """Converts between rows of one layout and messages."""

    layout: Layout

    def pack(self, rows: Tensor, key: int) -> Tensor:
        """The message, uint8, of rows float32 [k, F], contiguous, F >= 1. Raises: ValueError for values that cannot be
        sent, here or in ``check``: a GPU would have to be waited for."""

    def check(self) -> None:
        """Raises: ValueError if ``pack`` accepted values that cannot be sent since the last check."""

    def unpack(self, message: Tensor, out: Tensor) -> None:
        """Writes the rows into ``out``, float32 [k, F], contiguous."""


def packing(layout: Layout, device: torch.device, threads: int) -> Packing:
    """The packing for a layout on this device. threads: on the CPU."""
    if device.type == "cuda":
        from gpu_baselines.kernels import cuda  # where there is no GPU, there may be no Triton

        return cuda.Packing(layout, device)
    from gpu_baselines.kernels import cpu

    return cpu.Packing(layout, threads)
