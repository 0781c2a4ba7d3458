"""Kernels: loops over edges and rows in which NumPy is slow, or whose bits NumPy changes from processor to processor.

They are compiled (``src/``) or, without a compiler, use SciPy. Servers, tensor workers, preparation and benchmarks call
them.
"""

from typing import Final

from siafu.kernels.attention import (
    Attended,
    Records,
    attend,
    attend_backward,
    target_gradient,
)
from siafu.kernels.bags import matmul_sparse, matmul_sparse_transposed
from siafu.kernels.coefficients import attend_given, edge_dot, edge_scores, rows_gradient, segments
from siafu.kernels.dense import matmul, matmul_doubles, matmul_transposed
from siafu.kernels.dropout import EdgeDropout, dropped
from siafu.kernels.gather import gather
from siafu.kernels.library import VERSION, isa
from siafu.kernels.pairs import draw as draw_pairs
from siafu.kernels.passes import column_sums, relu, relu_backward, softmax_cross_entropy
from siafu.kernels.rows import Table, to_bfloat16
from siafu.ops import from_bfloat16

#: The instruction set in use: amx, avx512bf16, avx512, avx2, neon or scalar; "numpy" without a compiled library.
ISA: Final = isa()

__all__ = [
    "ISA",
    "VERSION",
    "Attended",
    "EdgeDropout",
    "Records",
    "Table",
    "attend",
    "attend_backward",
    "attend_given",
    "column_sums",
    "draw_pairs",
    "dropped",
    "edge_dot",
    "edge_scores",
    "from_bfloat16",
    "gather",
    "matmul",
    "matmul_doubles",
    "matmul_sparse",
    "matmul_sparse_transposed",
    "matmul_transposed",
    "relu",
    "relu_backward",
    "rows_gradient",
    "segments",
    "softmax_cross_entropy",
    "target_gradient",
    "to_bfloat16",
]
