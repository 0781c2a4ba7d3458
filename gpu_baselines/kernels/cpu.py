"""Quantising on the CPU: siafu's compiled kernels, or numpy."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_baselines.halos import quantise as reference
from gpu_baselines.halos.quantise import Layout, row_bytes
from siafu.kernels import quantise as compiled
from siafu.sparse import Array


class Packing:
    """``gpu_baselines.kernels.Packing`` on the CPU."""

    def __init__(self, layout: Layout, threads: int = 1):
        self.layout, self._threads = layout, threads

    def pack(self, rows: Tensor, key: int) -> Tensor:
        host, layout = rows.numpy(), self.layout
        if not compiled.COMPILED:
            return torch.from_numpy(reference.message(host, layout, key))
        message = torch.empty(layout.nbytes(rows.shape[1]), dtype=torch.uint8)
        bytes_, at = message.numpy(), layout.first_code
        for bits, index, first in layout.groups:
            size = len(index) * row_bytes(rows.shape[1], bits)
            parameters, codes = _of_group(bytes_, first, len(index), at, size)
            if not compiled.quantise(host, index, bits, key, parameters, codes, threads=self._threads):
                raise ValueError
            at += size
        return message

    def check(self) -> None:
        """Does nothing: ``pack`` accepts no invalid values."""

    def unpack(self, message: Tensor, out: Tensor) -> None:
        bytes_, rows, layout = message.numpy(), out.numpy(), self.layout
        if not compiled.COMPILED:
            rows[:] = reference.rows_of(bytes_, layout, out.shape[1])
            return
        at = layout.first_code
        for bits, index, first in layout.groups:
            size = len(index) * row_bytes(out.shape[1], bits)
            parameters, codes = _of_group(bytes_, first, len(index), at, size)
            compiled.dequantise(parameters, codes, bits, rows, index, threads=self._threads)
            at += size


def _of_group(message: Array, first: int, count: int, at: int, size: int) -> tuple[Array, Array]:
    """Z and S [count, 2] and codes [count, row_bytes] of the rows from ``first`` on, whose codes begin at ``at``."""
    begin = first * reference.PARAMETER_BYTES
    parameters = message[begin : begin + count * reference.PARAMETER_BYTES].view("<u2").reshape(count, 2)
    return parameters, message[at : at + size].reshape(count, -1)
