"""siafu.kernels.rows: what is written into a table is read from it, rounded as it says."""

from __future__ import annotations

import numpy as np
import pytest

from siafu.kernels import Table, from_bfloat16, rows, to_bfloat16
from siafu.kernels.rows import row_bytes, stored_type
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using
from tests.siafu.kernels.test_gather import TABLES, TOLERANCE, random_rows


@pytest.fixture(params=[False, True], ids=["whole rows", "tiles"])
def small_cache(request, monkeypatch):
    """Tables of 100 rows have tiles of two cache lines each."""
    if request.param:
        monkeypatch.setattr(rows, "TABLE_BYTES", 200 * 64)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", TABLES)
@pytest.mark.parametrize("width", [1, 8, 9, 33, 130])
def test_what_is_written_is_read(isa, small_cache, dtype, width):
    table, X = Table(100, width, dtype), random_rows(100, width, dtype)
    table.write(slice(None), X)
    np.testing.assert_allclose(table.read(slice(None)), X, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert table.read(slice(2, 4)).dtype == (np.float64 if dtype == "float64" else np.float32)
    assert np.array_equal(table.read(np.array([7, 3])), table.read(slice(None))[[7, 3]])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", TABLES)
@pytest.mark.parametrize("width", [5, 40])
def test_rows_go_to_slices_and_to_single_places_times_their_scale(isa, small_cache, dtype, width):
    table, X = Table(100, width, dtype), random_rows(30, width, "float64")
    scale = np.linspace(0.5, 2, 30)
    places = np.random.default_rng(0).permutation(100)[:30]
    table.write(places, X, scale, threads=2)
    expected = np.zeros((100, width))
    expected[places] = X * scale[:, None]
    tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    np.testing.assert_allclose(table.read(slice(None)), expected, **tolerance)
    X, scale = X.astype(np.float32), scale.astype(np.float32)
    table.write(slice(70, None), X, scale)
    expected[70:] = X.astype(np.float64) * scale[:, None]
    np.testing.assert_allclose(table.read(slice(None)), expected, **tolerance)


def test_rows_of_any_real_type_and_stride_are_written(isa):
    table = Table(10, 6)
    for X in (
        np.arange(60).reshape(10, 6),
        np.arange(60, dtype=np.uint8).reshape(6, 10).T,
        random_rows(10, 20)[:, 3:9],
    ):
        table.write(slice(None), X)
        np.testing.assert_array_equal(table.read(slice(None)), X)


def test_instruction_sets_store_the_same_bits():
    X = (
        np.random.default_rng(0).standard_normal((500, 37)).astype(np.float32)
        * np.logspace(-9, 6, 500, dtype=np.float32)[:, None]
    )
    for dtype in TABLES:
        stored = []
        for name in INSTRUCTION_SETS:
            with using(name):
                table = Table(500, 37, dtype)
                table.write(slice(None), X, np.full(500, 1.5, np.float32))
                stored.append(table.read(slice(None)))
        assert all(np.array_equal(stored[0], other) for other in stored[1:])


@pytest.mark.parametrize(
    ("num_rows", "width", "dtype", "tile"),
    [
        (10, 200, "float32", 64),  # 8 KB of the 16 that a small table may have
        (100, 200, "float32", 32),  # a pair of lines
        (100, 200, "float64", 16),
        (100, 200, "bfloat16", 64),
        (10_000, 64, "float32", 32),
        (10_000, 41, "float32", 48),  # padded to four lines, three would be more
        (10_000, 41, "bfloat16", 64),
    ],
)
def test_large_tables_are_tiled_in_pairs_of_lines(
    monkeypatch: pytest.MonkeyPatch, num_rows: int, width: int, dtype: str, tile: int
):
    monkeypatch.setattr("siafu.kernels.rows.TABLE_BYTES", 64 << 10)
    table = Table(num_rows, width, dtype)
    assert table.tile == tile
    itemsize = np.dtype(stored_type(dtype)).itemsize
    assert row_bytes(num_rows, width, itemsize) == -(-width // tile) * tile * itemsize
    assert table.nbytes == num_rows * row_bytes(num_rows, width, itemsize)


@pytest.mark.parametrize(
    ("num_rows", "width", "dtype", "edges", "tile"),
    [
        (500, 64, "float32", 32, 16),  # 31 KB of 64 for a line of each, 62 for two
        (500, 41, "float32", 32, 16),
        (500, 41, "bfloat16", 32, 32),
        (500, 64, "float32", 31, 32),  # too few edges
        (513, 64, "float32", 500, 32),  # too many rows
        (250, 64, "float32", 500, 32),  # two lines of each fit as well
        (250, 41, "float32", 500, 16),  # but not three
        (160, 41, "float32", 500, 48),
    ],
)
def test_tiles_of_tables_with_many_edges_are_one_line_where_only_those_stay_in_the_last_cache(
    monkeypatch: pytest.MonkeyPatch, num_rows: int, width: int, dtype: str, edges: float, tile: int
):
    monkeypatch.setattr("siafu.kernels.rows.TABLE_BYTES", 64 << 10)
    table = Table(num_rows, width, dtype, edges=edges)
    assert table.tile == tile
    assert table.nbytes == num_rows * row_bytes(num_rows, width, np.dtype(stored_type(dtype)).itemsize, edges)


def test_short_rows_are_not_padded_to_a_line():
    assert Table(1000, 7).nbytes == 1000 * 32
    assert Table(1000, 3, "bfloat16").nbytes == 1000 * 8


def test_tables_begin_at_a_cache_line():
    for num_rows in (3, 100_000):
        assert Table(num_rows, 16).address % 64 == 0


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even():
    rows = {
        0x3F808000: 0x3F80,  # half way: to even
        0x3F818000: 0x3F82,
        0x3F808001: 0x3F81,
        0x3F807FFF: 0x3F80,
        0x7F7FFFFF: 0x7F80,  # the largest float32 becomes inf
        0x7F800000: 0x7F80,
        0xFF800000: 0xFF80,
        0x80000000: 0x8000,
        0x00000001: 0x0000,
        0x00018000: 0x0002,  # denormals round like the others
    }
    values = np.array(list(rows), np.uint32).view(np.float32)
    assert to_bfloat16(values).tolist() == list(rows.values())
    assert np.isnan(from_bfloat16(to_bfloat16(np.array([np.nan, -np.nan], np.float32)))).all()
    patterns = np.arange(1 << 16, dtype=np.uint16)
    finite = patterns[~np.isnan(from_bfloat16(patterns))]
    assert np.array_equal(to_bfloat16(from_bfloat16(finite)), finite)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_tables_round_as_numpy_does(isa, dtype):
    bits = np.random.default_rng(3).integers(0, 1 << 32, 64_000, dtype=np.uint32)
    special = np.array(
        [0, 0x80000000, 0x7F800000, 0xFF800000, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001], np.uint32
    )
    X = np.concatenate([bits, special]).view(np.float32)
    X = X[~np.isnan(X)]
    table = Table(1, len(X), dtype)
    table.write(slice(None), X[None])
    with np.errstate(over="ignore"):
        expected = from_bfloat16(to_bfloat16(X)) if dtype == "bfloat16" else X.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(table.read(slice(None))[0], expected)


@pytest.mark.parametrize(
    ("place", "rows", "scale", "error"),
    [
        (slice(0, 3), np.zeros((2, 4)), None, "rows .2, 4., must be .3, 4."),
        (slice(0, 6, 2), np.zeros((3, 4)), None, "step 1"),
        (slice(0, 11), np.zeros((11, 4)), None, "the table has 10 rows"),
        (np.array([0, 10]), np.zeros((2, 4)), None, "0..10, must be in 0..9"),
        (np.array([0.5]), np.zeros((1, 4)), None, "place float64"),
        (slice(0, 2), np.zeros((2, 4)), np.zeros(3), "scale .3., must be .2."),
    ],
)
def test_writes_that_do_not_fit_are_refused(place, rows, scale, error):
    with pytest.raises((ValueError, IndexError), match=error):
        Table(10, 4).write(place, rows, scale)


def test_tables_of_other_types_are_refused():
    with pytest.raises(ValueError, match="table of 'int8', must be one of float32, float64, bfloat16, float16"):
        Table(10, 4, "int8")
    with pytest.raises(ValueError, match="-1 rows"):
        Table(-1, 4)
