"""Every kernel makes the same bits on every processor: one golden digest each, for all
instruction sets and numbers of threads.

``python -m tests.siafu.kernels.test_same_bits`` writes the golden file anew: only where a kernel is
meant to compute otherwise. Products of bfloat16 rows are not here: AVX512_BF16 rounds
them as no other instruction set does.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from run_coordinator.known_answer import numbers
from siafu.kernels import Table, csr, dense, dropout, functions, gather, library, pairs, passes, quantise
from siafu.kernels.attention import Attended, EdgeDropout, Records, attend, attend_backward
from siafu.kernels.coefficients import attend_given, edge_dot, rows_gradient
from siafu.sparse import Array, EdgeRows, Edges, SparseRows
from tests.siafu.kernels.attention_problem import SHAPES
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using

GOLDEN = Path(__file__).parents[2] / "golden" / "kernels.json"
WIDTHS = (1, 2, 7, 8, 15, 16, 17, 31, 41, 64, 100, 128, 602)
PRODUCTS = ((1, 1, 1), (130, 41, 128), (300, 128, 41), (4700, 33, 256), (127, 1217, 31), (5000, 602, 41))
ROWS, GHOSTS = 60, 17


def graph(num_columns: int, *, weighted: bool = False, hub: int = 9000) -> Edges:
    """ROWS rows, some of them empty; row 3 has ``hub`` edges, more than are summed in one piece."""
    degree = np.abs(numbers(ROWS, seed=1, scale=25)).astype(np.int64)
    degree[[0, 30, 59]], degree[3] = 0, hub
    indptr = np.append(0, np.cumsum(degree))
    drawn = (np.abs(numbers(int(indptr[-1]), seed=2)) * num_columns).astype(np.int32)
    columns = np.concatenate([np.sort(drawn[a:b]) for a, b in pairwise(indptr)])
    return Edges(indptr, columns, np.abs(numbers(len(columns), seed=3)) if weighted else None)


def gathered(threads: int) -> Iterator[Array]:
    for width, weighted, dtype in product(WIDTHS, (False, True), ("float32", "float64", "bfloat16", "float16")):
        real = np.float64 if dtype == "float64" else np.float32
        table = Table(ROWS + GHOSTS, width, dtype)
        table.write(slice(None), numbers(ROWS + GHOSTS, width, seed=4).astype(real))
        edges = graph(ROWS + GHOSTS, weighted=weighted)
        scale = np.abs(numbers(ROWS, seed=6)).astype(real)
        yield gather(edges, 0, ROWS, table, scale=scale, add_self=True, threads=threads)
    for dtype in ("float16", "uint8"):
        rows = np.abs(numbers(ROWS, 33, seed=4, scale=250)).astype(dtype)
        yield gather(graph(ROWS, weighted=True), 0, ROWS, rows, threads=threads)


def multiplied(threads: int) -> Iterator[Array]:
    for n, k, m in PRODUCTS:
        X, W, D = numbers(n, k, seed=1), numbers(k, m, seed=2), numbers(n, m, seed=3)
        yield dense.matmul(X, W, bias=W[0].copy(), relu=True, threads=threads)
        yield dense.matmul_transposed(X, D, threads=threads)


def passed(threads: int) -> Iterator[Array]:
    for n, _, m in PRODUCTS:
        D, labels = numbers(n, m, seed=1, scale=9), np.arange(n) % m
        yield passes.relu(D.copy(), threads=threads)
        yield passes.relu_backward(D, numbers(n, m, seed=2), threads=threads)
        yield passes.column_sums(D, threads=threads)
        loss, gradient = passes.softmax_cross_entropy(D.copy(), labels, scale=0.3, threads=threads)
        yield np.float64(loss)
        yield gradient


def dropped(threads: int) -> Iterator[Array]:
    for width in WIDTHS:
        X, vertices = numbers(ROWS, width, seed=1), np.arange(ROWS, dtype=np.int64) * 7919
        made = dropout.dropped(X, 0.4, seed=1, epoch=2, layer=3, vertices=vertices, threads=threads)
        assert isinstance(made, np.ndarray)
        yield made


def quantised(threads: int) -> Iterator[Array]:
    for width, bits in product(WIDTHS, (2, 4, 8)):
        rows, index = numbers(ROWS, width, seed=1), np.arange(ROWS)[::-1].copy()
        parameters, codes = np.empty((ROWS, 2), np.uint16), np.empty((ROWS, (width * bits + 7) // 8), np.uint8)
        assert quantise.quantise(rows, index, bits, 99, parameters, codes, threads=threads)
        back = np.empty_like(rows)
        quantise.dequantise(parameters, codes, bits, back, index, threads=threads)
        yield from (parameters, codes, back)


def attended(threads: int) -> Iterator[Array]:
    """Forward and backward, with everything that an edge may have: weights, dropout,
    great scores, given coefficients."""
    for (heads, width), dtype, hard in product(SHAPES, ("float32", "bfloat16"), (False, True)):
        edges, wide, all_rows = graph(ROWS + GHOSTS, weighted=hard), heads * width, ROWS + GHOSTS
        T, dZ = numbers(all_rows, wide, seed=1), numbers(all_rows, wide, seed=2)
        s, t, log_total, delta = (numbers(all_rows, heads, seed=3 + i, scale=150 if hard else 2) for i in range(4))
        log_total = np.abs(log_total) * 2
        ids = np.arange(all_rows, dtype=np.int64) * 104729
        drops = EdgeDropout(0.3, 12345, ids) if hard else None
        options = {"add_self": hard, "dropout": drops, "threads": threads}
        sources = records(T, s, dtype=dtype)
        yield from arrays(attend(edges, 0, ROWS, sources, t[:ROWS], **options))
        marked = records(dZ, t, log_total, delta, dtype=dtype)
        yield from attend_backward(edges, 0, ROWS, marked, T[:ROWS], s[:ROWS], **options)
        alpha = numbers(len(edges.indices) + ROWS * hard, heads, seed=9)
        yield from arrays(attend_given(edges, 0, ROWS, sources, alpha, log_total[:ROWS], **options))
        yield rows_gradient(edges, 0, ROWS, marked, alpha, **options)
        yield edge_dot(edges, 0, ROWS, T[:ROWS], marked, **options)


def records(rows: Array, *scores: Array, dtype: str) -> Records:
    heads = scores[0].shape[1]
    made = Records(len(rows), heads, rows.shape[1] // heads, num_scores=len(scores), dtype=dtype)
    made.write(slice(None), rows, *scores)
    return made


def arrays(made: Attended) -> list[Array]:
    return [getattr(made, one.name) for one in fields(made)]


def exponentials(threads: int) -> Iterator[Array]:
    edge = [-np.inf, np.inf, np.nan, -87.3, 88.0, -87.30001, 88.00001, 0.0]
    x = np.concatenate([numbers(200_000, seed=1, scale=120), np.array(edge, np.float32)])
    for function, values in (("exp", x), ("log", np.abs(x[np.isfinite(x) & (x != 0)]))):
        y = np.empty_like(values)
        assert library.LIBRARY is not None
        called = getattr(library.LIBRARY, f"siafu_attention_{function}")
        called(ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(len(y)))
        yield y


def functions_of(threads: int) -> Iterator[Array]:
    for scale, dtype in product((1e-6, 1.0, 120.0), (np.float32, np.float64)):
        x = numbers(20_003, seed=1, scale=scale).astype(dtype)
        x[:7] = [-np.inf, np.inf, np.nan, 0, -1, -87.30001, 88.00001]
        for name in ("exp", "expm1", "log", "log1p", "tanh"):
            yield getattr(functions, name)(x)
        logits = x[np.isfinite(x)][:19_800].reshape(-1, 3)
        loss, gradient = functions.binary_cross_entropy(
            logits, np.arange(logits.size).reshape(-1, 3) % 2, threads=threads
        )
        yield np.float64(loss)
        yield gradient


def plain(threads: int) -> Iterator[Array]:
    """Products of float64, sparse products and inner products."""
    for n, k, m in PRODUCTS[:4]:
        X, W, D = (numbers(*shape, seed=seed).astype(np.float64) for seed, shape in enumerate(((n, k), (k, m), (n, m))))
        yield dense.matmul_doubles(X, W, threads=threads)
        yield dense.matmul_doubles(X, D, transposed=True, threads=threads)
    edges = graph(ROWS)
    for width, dtype in product(WIDTHS, (np.float32, np.float64)):
        rows, data = numbers(ROWS, width, seed=1).astype(dtype), numbers(len(edges.indices), seed=2)
        yield csr.multiply(edges.indptr, edges.indices, data, rows)
        yield csr.multiply(edges.indptr, edges.indices, data, rows, width=ROWS)
        sparse = csr.multiply_both(
            edges.indptr, edges.indices, data, SparseRows(edges.indptr, edges.indices, data.astype(dtype), ROWS)
        )
        yield from (sparse.indptr, sparse.indices, sparse.data)
        for heads in (1, 3):
            A, B = (numbers(ROWS, heads * width, seed=seed).astype(dtype) for seed in (3, 4))
            yield functions.dots(A, B, heads)


def paired(threads: int) -> Iterator[Array]:
    edges = graph(ROWS)
    for width, dtype in product(WIDTHS, (np.float32, np.float64)):
        H = numbers(ROWS, width, seed=1).astype(dtype)
        others = EdgeRows(edges.indptr, numbers(ROWS, width, seed=2).astype(dtype), edges.indices)
        D = numbers(len(edges.indices), width, seed=3).astype(dtype)
        yield pairs.dots(H, others, threads=threads)
        yield pairs.products(H, others, threads=threads)
        yield pairs.sums(D, others, threads=threads)
        yield pairs.sums(D[:, :1], others, threads=threads)
    kind, ids = (np.arange(len(edges.indices)) % 3).astype(np.uint8), np.arange(ROWS, dtype=np.int64) * 104729
    yield from pairs.draw(edges.indptr, edges.indices, kind, 1, ids, ids, 0.7, 12345, threads)


KERNELS: dict[str, Callable[[int], Iterator[Array]]] = {
    "gather": gathered,
    "dense": multiplied,
    "passes": passed,
    "dropout": dropped,
    "quantise": quantised,
    "attention": attended,
    "exponential": exponentials,
    "functions": functions_of,
    "pairs": paired,
    "plain": plain,
}


def digest(kernel: str, threads: int) -> str:
    """Of all that a kernel makes; a number that is none counts as one, whatever its sign and bits."""
    made = hashlib.sha256()
    for array in KERNELS[kernel](threads):
        values = np.ascontiguousarray(array)
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
        made.update(f"{values.dtype} {values.shape} {zlib.crc32(values.tobytes())}".encode())
    return made.hexdigest()[:16]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("isa", INSTRUCTION_SETS[1:])
def test_every_instruction_set_makes_the_golden_bits(kernel: str, isa: str) -> None:
    with using(isa):
        assert digest(kernel, threads=1 if isa == "scalar" else 2) == json.loads(GOLDEN.read_text())[kernel]


@pytest.mark.skipif(len(INSTRUCTION_SETS) == 1, reason="no compiled kernels")
def test_threads_do_not_change_the_bits() -> None:
    golden = json.loads(GOLDEN.read_text())
    assert {kernel: digest(kernel, threads=3) for kernel in KERNELS} == golden


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({kernel: digest(kernel, threads=2) for kernel in sorted(KERNELS)}, indent=1) + "\n")
