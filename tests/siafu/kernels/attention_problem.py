"""A random graph for attention, and what it must give: edge by edge in float64, and torch's gradients."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from siafu.kernels.attention import Attended, EdgeDropout, Records, attend, attend_backward, target_gradient
from siafu.ops import edge_dropout, edge_key
from siafu.shards import Edges

#: heads x width: what the kernel has of its own, and what falls between.
SHAPES = (
    (8, 8),
    (1, 8),
    (1, 16),
    (1, 64),
    (4, 16),
    (4, 32),
    (8, 16),
    (8, 64),
    (2, 8),
    (1, 1),
    (1, 3),
    (3, 5),
    (2, 41),
    (1, 130),
    (17, 3),
    (40, 2),
    (5, 16),
)
SEGMENT = 4096  # attention.cpp: longer rows are cut


class Problem:
    """A directed graph of n vertices and g ghosts with rows and scores; vertices 0, n // 2 and n - 1 have no in-edges.

    p: share of the coefficients that are dropped.
    """

    def __init__(self, heads, width, *, n=40, ghosts=7, mean=6, hub=0, weighted=False, spread=1.0, p=0.0, seed=0):
        rng = np.random.default_rng(seed)
        self.heads, self.width, self.n, self.g = heads, width, n, ghosts
        degree = rng.integers(0, 2 * mean + 1, n)
        degree[[0, n // 2, n - 1]] = 0
        degree[3] = hub or degree[3]
        indptr = np.append(0, np.cumsum(degree)).astype(np.int64)
        indices = np.concatenate([np.sort(rng.integers(0, n + ghosts, d)) for d in degree]).astype(np.int32)
        weight = (rng.random(len(indices)) + 0.1).astype(np.float32) if weighted else None
        self.edges = Edges(indptr, indices, weight)
        self.T = rng.standard_normal((n + ghosts, heads * width)).astype(np.float32)
        self.s = (spread * rng.standard_normal((n + ghosts, heads))).astype(np.float32)
        self.t = (spread * rng.standard_normal((n, heads))).astype(np.float32)
        self.ids = rng.integers(0, 1 << 40, n + ghosts)
        self.dropout = EdgeDropout(p, edge_key(seed, 5, 1), self.ids) if p else None

    def sources(self, dtype="float32"):
        return self.records(self.T, self.s, dtype=dtype)

    def records(self, rows, *scores, dtype="float32", beside=None):
        """Of the inner vertices, then of the ghosts."""
        made = Records(self.n + self.g, self.heads, self.width, num_scores=len(scores), dtype=dtype, beside=beside)
        made.write(slice(None), rows, *scores)
        return made

    def attend(self, start=0, stop=None, *, dtype="float32", **options):
        stop = self.n if stop is None else stop
        return attend(self.edges, start, stop, self.sources(dtype), self.t, dropout=self.dropout, **options)

    def mask(self, sources, targets):
        """[edges, heads], float64."""
        if self.dropout is None:
            return np.ones((len(sources), self.heads))
        ends = self.ids[sources], self.ids[targets]
        return edge_dropout(*ends, self.heads, self.dropout.p, self.dropout.key, np.float64)

    def expected(self, slope=0.2, add_self=False):
        """Edge by edge, in float64."""
        heads, n = self.heads, self.n
        T, s, t = (a.astype(np.float64) for a in (self.T, self.s, self.t))
        T = T.reshape(len(T), heads, -1)
        Z, leaned = np.zeros((n, heads, self.width)), np.zeros((n, heads, self.width))
        log_total, leaned_total = np.full((n, heads), np.inf), np.zeros((n, heads))
        for v, (sources, weight) in enumerate(neighbours(self.edges, add_self)):
            if len(sources) == 0:
                continue
            x = t[v] + s[sources]  # [edges, heads]
            lean = np.where(x < 0, slope, 1.0)
            e = np.exp(x * lean - (x * lean).max(0)) * weight[:, None]
            alpha = e / e.sum(0)
            log_total[v] = (x * lean).max(0) + np.log(e.sum(0))
            leaned_total[v] = (alpha * lean).sum(0)
            alpha *= self.mask(sources, np.full(len(sources), v))
            Z[v], leaned[v] = (np.einsum("eh,ehd->hd", a, T[sources]) for a in (alpha, alpha * lean))
        return Attended(Z.reshape(n, -1), log_total, leaned.reshape(n, -1), leaned_total)


def neighbours(edges, add_self=False):
    """Columns and weights of each row, itself first if it counts."""
    for v in range(len(edges.indptr) - 1):
        part = slice(edges.indptr[v], edges.indptr[v + 1])
        columns = edges.indices[part]
        weight = np.ones(len(columns)) if edges.weight is None else edges.weight[part].astype(np.float64)
        yield (np.append(v, columns), np.append(1, weight)) if add_self else (columns, weight)


def transposed(edges, n):
    """Edges out of each of n vertices; the graph has no ghosts."""
    row = np.repeat(np.arange(n), np.diff(edges.indptr))
    order = np.lexsort((row, edges.indices))
    indptr = np.append(0, np.cumsum(np.bincount(edges.indices, minlength=n))).astype(np.int64)
    return Edges(indptr, row[order].astype(np.int32), None if edges.weight is None else edges.weight[order])


def gradients(problem, dZ, *, slope=0.2, add_self=False, dtype="float32", threads=1):
    """dT, ds and dt of <dZ, Z>, of a problem without ghosts."""
    sources = problem.sources(dtype)
    n, real = problem.n, sources.real
    t = problem.t.astype(real)
    options = {"slope": slope, "add_self": add_self, "dropout": problem.dropout, "threads": threads}
    done = attend(problem.edges, 0, n, sources, t, **options)
    dt, delta = target_gradient(done, dZ.astype(real))
    targets = problem.records(dZ.astype(real), t, done.log_total, delta, dtype=dtype)
    dT, ds = attend_backward(
        transposed(problem.edges, n), 0, n, targets, problem.T.astype(real), problem.s.astype(real), **options
    )
    return dT, ds, dt


def assert_close(found, oracle, tolerance=1e-5):
    np.testing.assert_allclose(
        found, oracle, rtol=tolerance, atol=tolerance * max(1e-30, np.abs(oracle[np.isfinite(oracle)]).max(initial=0))
    )


def assert_attended(found, oracle, tolerance=1e-5):
    for field in fields(Attended):
        assert_close(getattr(found, field.name), getattr(oracle, field.name), tolerance)


def torch_gradients(problem, dZ, slope=0.2, add_self=False):
    """dT, ds and dt of <dZ, Z>, in float64."""
    torch = pytest.importorskip("torch", reason="an emulated processor has none (tests/arm64.py)")
    row = np.concatenate([np.full(len(c), v) for v, (c, _) in enumerate(neighbours(problem.edges, add_self))])
    columns = np.concatenate([c for c, _ in neighbours(problem.edges, add_self)]).astype(np.int64)
    weight = torch.tensor(np.concatenate([w for _, w in neighbours(problem.edges, add_self)]))[:, None]
    T, s, t = (torch.tensor(a.astype(np.float64), requires_grad=True) for a in (problem.T, problem.s, problem.t))
    mask = torch.tensor(problem.mask(columns, row))
    row, columns = torch.tensor(row), torch.tensor(columns)
    e = torch.exp(torch.nn.functional.leaky_relu(t[row] + s[columns], slope)) * weight
    total = torch.zeros((problem.n, problem.heads), dtype=torch.float64).index_add(0, row, e)
    message = (mask * e / total[row])[:, :, None] * T.reshape(problem.n, problem.heads, -1)[columns]
    Z = torch.zeros((problem.n, problem.heads, problem.width), dtype=torch.float64).index_add(0, row, message)
    (Z.reshape(problem.n, -1) * torch.tensor(dZ)).sum().backward()
    return [a.grad.numpy() for a in (T, s, t)]
