"""siafu.kernels.gather against a float64 product, in every instruction set that this machine has, and in SciPy."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from siafu.kernels import Table, gather
from siafu.shards import Edges
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using

WIDTHS = (1, 2, 7, 8, 15, 16, 17, 31, 33, 48, 64, 100, 128, 200, 602)
TABLES = ("float32", "float64", "bfloat16", "float16")
ARRAYS = ("float32", "float64", "float16", "uint8")
#: Of the sums' own rounding, and of the rounding of what is stored.
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "uint8": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


def random_edges(num_rows, num_columns, *, seed=0, mean=9, hub=0, weighted=False):
    """Rows of 0 to 2 * mean edges, some empty; row 3 has ``hub`` edges."""
    rng = np.random.default_rng(seed)
    degree = rng.integers(0, 2 * mean + 1, num_rows)
    degree[[0, num_rows // 2, num_rows - 1]] = 0
    if hub:
        degree[3] = hub
    columns = [np.sort(rng.integers(0, num_columns, d)) for d in degree]
    weight = rng.random(degree.sum()).astype(np.float32) if weighted else None
    indptr = np.append(0, np.cumsum(degree)).astype(np.int64)
    return Edges(indptr, np.concatenate(columns).astype(np.int32), weight)


def random_rows(num_rows, width, dtype="float32", *, seed=1):
    rng = np.random.default_rng(seed)
    if dtype == "uint8":
        return rng.integers(0, 256, (num_rows, width)).astype(np.uint8)
    return rng.standard_normal((num_rows, width)).astype(np.float64 if dtype == "float64" else np.float32)


def table_of(rows, dtype="float32"):
    table = Table(*rows.shape, dtype)
    table.write(slice(None), rows)
    return table


def expected(edges, start, stop, X, *, scale=None, add_self=False, bias=None, relu=False, add=None):
    X = X.astype(np.float64)
    out = np.zeros((stop - start, X.shape[1]))
    for v in range(start, stop):
        first, last = edges.indptr[v], edges.indptr[v + 1]
        weight = np.ones(last - first) if edges.weight is None else edges.weight[first:last].astype(np.float64)
        out[v - start] = weight @ X[edges.indices[first:last]]
    out += X[start:stop] if add_self else 0
    out *= 1 if scale is None else scale[start:stop, None]
    out += 0 if add is None else add
    out += 0 if bias is None else bias
    return np.maximum(out, 0) if relu else out


def assert_close(Z, oracle, dtype):
    np.testing.assert_allclose(Z, oracle, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * np.abs(oracle).max())


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("weighted", [False, True])
def test_tables_of_every_width_are_gathered(isa, width, weighted):
    edges, X = random_edges(40, 40, weighted=weighted), random_rows(40, width)
    for dtype in TABLES:
        Z = gather(edges, 0, 40, table_of(X, dtype))
        assert Z.dtype == (np.float64 if dtype == "float64" else np.float32)
        assert_close(Z, expected(edges, 0, 40, X), dtype)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("weighted", [False, True])
def test_arrays_of_every_width_are_gathered(isa, width, weighted):
    edges = random_edges(40, 40, weighted=weighted)
    for dtype in ARRAYS:
        X = random_rows(40, width, dtype).astype(dtype)
        assert_close(gather(edges, 0, 40, X), expected(edges, 0, 40, X), dtype)


@pytest.mark.parametrize("width", [5, 41, 130])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [np.asarray, table_of])
def test_scale_self_add_bias_and_relu_come_in_this_order(isa, width, dtype, kind):
    edges, X = random_edges(30, 30), random_rows(30, width, dtype)
    rng = np.random.default_rng(2)
    extras = {
        "scale": rng.random(30).astype(dtype),
        "bias": rng.standard_normal(width).astype(dtype),
        "add": rng.standard_normal((25, width)).astype(dtype),
    }
    options = {**extras, "add_self": True, "relu": True}
    base = kind(X) if kind is np.asarray else kind(X, dtype)
    assert_close(gather(edges, 4, 29, base, **options), expected(edges, 4, 29, X, **options), dtype)
    for name, value in options.items():
        Z = gather(edges, 4, 29, base, **{name: value})
        assert_close(Z, expected(edges, 4, 29, X, **{name: value}), dtype)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("width", [16, 150])
def test_a_hub_is_summed_in_segments(isa, weighted, width):
    edges, X = random_edges(20, 60, hub=50_000, weighted=weighted), random_rows(60, width)
    options = {"add_self": True, "relu": True, "scale": np.full(20, 0.001, np.float32)}
    Z = gather(edges, 0, 20, table_of(X), threads=3, **options)
    largest = 50_000 * np.abs(X).max() * 0.001
    np.testing.assert_allclose(Z, expected(edges, 0, 20, X, **options), rtol=0, atol=2e-5 * largest)


def test_many_hubs_share_the_threads(isa):
    rng = np.random.default_rng(4)
    degree = np.array([20_000, 5, 16_384, 16_385, 0, 40_000])
    indptr = np.append(0, np.cumsum(degree)).astype(np.int64)
    edges = Edges(indptr, np.concatenate([np.sort(rng.integers(0, 900, d)) for d in degree]).astype(np.int32), None)
    table = table_of(random_rows(900, 150))
    Z = gather(edges, 0, 6, table, threads=2)
    largest = 40_000 * np.abs(random_rows(900, 150)).max()
    np.testing.assert_allclose(Z, expected(edges, 0, 6, random_rows(900, 150)), rtol=0, atol=2e-5 * largest)
    assert np.array_equal(Z[2:4], gather(edges, 2, 4, table))


def test_nothing_to_gather_gives_zeros_or_nothing(isa):
    none = Edges(np.zeros(11, np.int64), np.zeros(0, np.int32), None)
    X = random_rows(10, 5)
    assert not gather(none, 0, 10, X).any()
    assert gather(none, 4, 4, X).shape == (0, 5)
    assert gather(none, 0, 10, table_of(X), bias=np.ones(5, np.float32)).min() == 1


def test_relu_does_not_hide_a_nan(isa):
    X = np.full((2, 40), np.nan, np.float32)
    edges = Edges(np.array([0, 1, 2]), np.array([0, 1], np.int32), None)
    assert np.isnan(gather(edges, 0, 2, X, relu=True)).all()


def test_a_mapped_file_is_a_base(isa, tmp_path):
    edges, X = random_edges(30, 30), random_rows(30, 19)
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert_close(gather(edges, 0, 30, mapped), expected(edges, 0, 30, X), "float32")


def test_results_go_where_they_are_wanted(isa):
    edges, X = random_edges(30, 30), random_rows(30, 70)
    wide = np.full((30, 100), 7, np.float32)
    out = wide[:, 10:80]
    assert gather(edges, 0, 30, X, out=out) is out
    assert_close(out, expected(edges, 0, 30, X), "float32")
    assert (wide[:, :10] == 7).all()
    assert (wide[:, 80:] == 7).all()
    gather(edges, 0, 30, X, add=out, out=out)
    assert_close(out, 2 * expected(edges, 0, 30, X), "float32")


# --- the same bits ----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [1, 16, 41, 200])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_and_ranges_change_no_bit(isa, width, dtype):
    edges = random_edges(3000, 3000, mean=12, hub=40_000, weighted=True)
    table = table_of(random_rows(3000, width), dtype)
    whole = gather(edges, 0, 3000, table)
    assert np.array_equal(whole, gather(edges, 0, 3000, table, threads=3))
    for start, stop in ((0, 1), (3, 4), (2, 1000), (1000, 3000)):
        assert np.array_equal(whole[start:stop], gather(edges, start, stop, table, threads=2))


def test_calls_from_several_threads_do_not_disturb_each_other(isa):
    edges, table = random_edges(2000, 2000, hub=20_000), table_of(random_rows(2000, 33))
    whole = gather(edges, 0, 2000, table)
    with ThreadPoolExecutor(4) as pool:
        ranges = [(start, start + 250) for start in range(0, 2000, 250)] * 4
        for (start, stop), Z in zip(
            ranges, pool.map(lambda r: gather(edges, *r, table, threads=2), ranges), strict=True
        ):
            assert np.array_equal(Z, whole[start:stop])


def test_a_forked_process_gathers_with_threads_of_its_own():
    edges, table = random_edges(2000, 2000), table_of(random_rows(2000, 33))
    whole = gather(edges, 0, 2000, table, threads=2)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(whole, gather(edges, 0, 2000, table, threads=2)) else 1)
    assert os.waitpid(child, 0)[1] == 0


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": -1}, "rows -1:10, must be in 0:10"),
        ({"threads": 0}, "0 threads, must be >= 1"),
        ({"stop": 11}, "rows 0:11, must be in 0:10"),
        ({"base": np.zeros((10, 6), np.int32)}, "base is int32"),
        ({"base": np.zeros((10, 6), np.float32).T.copy().T}, "without gaps between columns"),
        ({"base": np.zeros(10, np.float32)}, "base is float32 .10."),
        ({"base": np.zeros((9, 6), np.float32), "add_self": True}, "base has 9 rows, must have the 10"),
        ({"scale": np.zeros(10)}, "scale is float64 .10., .* must be float32 .10."),
        ({"bias": np.zeros(5, np.float32)}, "bias is float32 .5."),
        ({"add": np.zeros((9, 6), np.float32)}, "add is float32 .9, 6."),
        ({"out": np.zeros((10, 12), np.float32)[:, ::2]}, "out is float32 .10, 6., strides .48, 8."),
        ({"edges": Edges(np.zeros(11, np.int32), np.zeros(0, np.int32), None)}, "indptr is int32"),
        ({"edges": Edges(np.zeros(11, np.int64), np.zeros(0, np.int64), None)}, "indices is int64"),
        ({"edges": Edges(np.zeros(11, np.int64), np.zeros(0, np.int32), np.zeros(0))}, "weight is float64"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    call = {"edges": random_edges(10, 10), "start": 0, "stop": 10, "base": np.zeros((10, 6), np.float32), **change}
    with pytest.raises(ValueError, match=message):
        gather(**call)


@pytest.mark.parametrize("stride", [16, 32, 64])
def test_columns_of_wider_rows_are_gathered_in_place(stride):
    rng = np.random.default_rng(5)
    indptr = np.array([0, 3, 3, 40, 90])
    edges = Edges(indptr.astype(np.int64), rng.integers(0, 50, 90).astype(np.int32), None)
    whole = rng.normal(size=(50, stride)).astype(np.float32)
    for width in range(1, stride + 1):
        X = whole[:, :width]
        for name in INSTRUCTION_SETS:
            with using(name):
                found = gather(edges, 0, 4, X)
            expected = np.array([X[edges.indices[a:b]].sum(0) for a, b in pairwise(indptr)])
            np.testing.assert_allclose(found, expected, atol=1e-4, err_msg=f"{name} {width}")
