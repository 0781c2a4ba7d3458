"""The quantiser's rules (gpu_baselines/halos/quantise.py, by number), and that every
implementation makes the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_baselines import kernels
from gpu_baselines.halos import quantise
from gpu_baselines.halos.quantise import LIMIT, WIDTHS, Layout, message_key, noise
from gpu_baselines.kernels import cpu
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array
from tests.gpu_baselines.triton_interpreter import interpreted
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using

GOLDEN = Path(__file__).parents[2] / "golden" / "quantised_rows.bin"
COLUMNS = (1, 3, 4, 5, 16, 17, 63, 64, 65, 100, 257)


@pytest.fixture(params=INSTRUCTION_SETS)
def packing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Layout], cpu.Packing]]:
    """Every way in which this machine can do it."""
    if request.param == "numpy":
        monkeypatch.setattr(cpu.compiled, "COMPILED", False)
    elif LIBRARY is None or not hasattr(LIBRARY, "siafu_quantise"):
        pytest.fail("the compiled kernels are older than quantise.cpp: make setup")
    with using(request.param):
        yield lambda layout: cpu.Packing(layout, 2)


def all_rows_in(bits: int, count: int) -> Layout:
    return Layout(np.full(count, bits, np.uint8))


def mixed_widths(count: int, seed: int = 0) -> Layout:
    return Layout(np.random.default_rng(seed).choice(np.array(WIDTHS, np.uint8), count))


def awkward_rows(columns: int, seed: int = 0) -> Array:
    """Of all sizes, constant, nearly so, with a sign of zero, too small to be divided by, and as large as may be."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((24, columns)) * np.exp(rng.uniform(-40, 40, (24, 1)))
    X[3], X[4], X[5], X[6] = 0, 1, 1.2345, -1.2345
    X[7, 0], X[8], X[9] = -0.0, 1e-45 * np.arange(columns), LIMIT * np.linspace(-1, 1, columns)
    X[10], X[11], X[12] = -np.arange(columns), 1e4 + rng.random(columns), -0.0
    return X.astype(np.float32)


def steps(message: Array, layout: Layout) -> Array:
    return (message[: layout.first_code].view("<u2").reshape(-1, 2)[:, 1].astype(np.uint32) << 16).view(np.float32)


def sent(X: Array, layout: Layout, key: int) -> Array:
    return quantise.rows_of(quantise.message(X, layout, key), layout, X.shape[1])


# --- rounding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", WIDTHS)
def test_rows_arrive_unbiased_and_vary_as_the_paper_says(bits: int) -> None:
    """Rule 3: a million draws, the mean of each value within 5 sigma, and the variance F S^2 / 6 within 2 %."""
    columns, draws = 100, 10_000
    row = np.random.default_rng(bits).uniform(-0.7, 2.3, columns).astype(np.float32)  # neither end is a bfloat16
    layout = all_rows_in(bits, draws)
    message = quantise.message(np.tile(row, (draws, 1)), layout, key=7)
    S = float(steps(message, layout)[0])
    errors = quantise.rows_of(message, layout, columns).astype(np.float64) - row
    assert len(np.unique(errors.round(6), axis=0)) == draws  # each with its own noise
    below = errors.min(0)  # -fraction S, where a value was ever rounded down
    spread = np.sqrt(np.clip(-below * (S + below), (1e-3 * S) ** 2, None))
    assert np.all(np.abs(errors.mean(0)) <= 5 * spread / np.sqrt(draws))
    assert abs(errors.mean()) <= 5 * S / np.sqrt(6 * columns * draws)
    # all fractions alike often
    even = np.linspace(0, (1 << bits) - 1, 60_000, dtype=np.float32)[:, None] * np.float32(0.25)
    one = even.T.copy()
    error = sent(one, all_rows_in(bits, 1), key=3)[0].astype(np.float64) - one[0]
    step = float(steps(quantise.message(one, all_rows_in(bits, 1), 3), all_rows_in(bits, 1))[0])
    assert np.sum(error**2) == pytest.approx(one.shape[1] * step**2 / 6, rel=0.02)


@pytest.mark.parametrize("bits", WIDTHS)
def test_no_value_is_off_by_a_step(bits: int) -> None:
    """Rule 2: the Z and S that travel cover the row; nothing is clamped."""
    for columns in COLUMNS:
        X, layout = awkward_rows(columns), all_rows_in(bits, 24)
        message = quantise.message(X, layout, 5)
        error = np.abs(quantise.rows_of(message, layout, columns).astype(np.float64) - X)
        S = steps(message, layout)[:, None].astype(np.float64)
        assert np.all(error <= S * (1 + 1e-4) + 2.0**-23 * np.abs(X))  # float32 rounds both the code and the result
        top = quantise.unpacked(message[layout.first_code :].reshape(24, -1), bits, columns).max(initial=0)
        assert top <= (1 << bits) - 1


def test_constant_rows_arrive_as_they_are() -> None:
    """Rule 5; what is no bfloat16 lies between two codes, and is unbiased as any."""
    constants = np.array([0.0, 1.0, -1.5, 2.0**100, 1.2345], np.float32)
    layout = mixed_widths(5)
    came = sent(np.tile(constants[:, None], (1, 4000)), layout, 1)
    assert np.array_equal(came[:4], np.tile(constants[:4, None], (1, 4000)))
    assert came[4].mean() == pytest.approx(1.2345, abs=2e-4)


def test_noise_depends_on_key_row_and_column_alone() -> None:
    """Rule 4: whatever else is in a message, and whatever the width of a row."""
    whole = noise(9, np.arange(50), 30)
    assert np.array_equal(noise(9, np.array([7, 3]), 11), whole[[7, 3], :11])
    assert not np.array_equal(noise(10, np.arange(50), 30), whole)
    assert len(np.unique(noise(9, np.arange(400), 500))) > 61_000  # of 65536: 1 - 1/e^3 of them
    keys = {message_key(1, 2, s, a, b) for s in range(4) for a in range(4) for b in range(4)}
    assert len(keys) == 64


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_bytes_of_a_message_by_hand() -> None:
    """Rules 6 and 7: codes that need no chance. Row 0 in 4 bits, row 1 in 2, row 2 in 8."""
    X = np.array([[0, 15, 1, 2, 3], [3, 0, 1, 2, 3], [0, 255, 16, 17, 18]], np.float32)
    message = quantise.message(X, Layout(np.array([4, 2, 8], np.uint8)), key=0)
    one = [0, 0, 0x80, 0x3F]  # Z = 0, S = 1
    assert message.tolist() == [*one * 3, 0b10_01_00_11, 0b11, 0xF0, 0x21, 0x03, 0, 255, 16, 17, 18]


def test_bytes_are_those_of_the_golden_file(packing: Callable[[Layout], cpu.Packing]) -> None:
    """Rows of 13 values in all widths, with noise. A change of layout or noise changes the file in the same commit."""
    rows = (np.arange(20 * 13, dtype=np.float32).reshape(20, 13) * 0.618034) % 1 - 0.25
    message = packing(mixed_widths(20)).pack(torch.from_numpy(rows), 0x0123456789ABCDEF).numpy()
    assert message.tobytes() == GOLDEN.read_bytes()


@pytest.mark.parametrize("columns", COLUMNS)
def test_every_implementation_makes_the_same_bytes(columns: int, packing: Callable[[Layout], cpu.Packing]) -> None:
    X, key = awkward_rows(columns), 2**63 + 11
    for layout in (*(all_rows_in(bits, 24) for bits in WIDTHS), mixed_widths(24), mixed_widths(24, 1)):
        wanted = quantise.message(X, layout, key)
        message = packing(layout).pack(torch.from_numpy(X), key)
        assert np.array_equal(message.numpy(), wanted)
        assert len(wanted) == layout.nbytes(columns)
        out = torch.full(X.shape, torch.nan)
        packing(layout).unpack(message, out)
        assert np.array_equal(out.numpy(), quantise.rows_of(wanted, layout, columns))


def test_a_long_message_is_the_same_on_several_threads(packing: Callable[[Layout], cpu.Packing]) -> None:
    X, layout = np.random.default_rng(2).standard_normal((3000, 70)).astype(np.float32), mixed_widths(3000)
    assert np.array_equal(packing(layout).pack(torch.from_numpy(X), 3).numpy(), quantise.message(X, layout, 3))


def test_a_message_of_no_rows_has_no_bytes() -> None:
    layout = mixed_widths(0)
    assert (layout.nbytes(16), layout.groups) == (0, ())
    assert quantise.message(np.zeros((0, 16), np.float32), layout, 1).size == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e38, -1e38])
def test_what_cannot_be_sent_is_refused(bad: float, packing: Callable[[Layout], cpu.Packing]) -> None:
    """Rule 8, in the last row and in the last column as well."""
    for place in ((0, 0), (9, 20), (4, 7)):
        X = np.zeros((10, 21), np.float32)
        X[place] = bad
        with pytest.raises(ValueError):
            packing(mixed_widths(10)).pack(torch.from_numpy(X), 1)
        with pytest.raises(ValueError):
            quantise.message(X, mixed_widths(10), 1)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


def same_bytes_by_triton(device: str) -> None:
    """Called by the tests below, where Triton compiles or is interpreted."""
    from gpu_baselines.kernels import cuda

    for columns, key in product(COLUMNS, (1, 2**63 + 11)):  # Triton has its own way with an argument that is 1
        X = awkward_rows(columns)
        for layout in (*(all_rows_in(bits, 24) for bits in WIDTHS), mixed_widths(24)):
            wanted, by_triton = quantise.message(X, layout, key), cuda.Packing(layout, torch.device(device))
            message = by_triton.pack(torch.from_numpy(X).to(device), key)
            assert np.array_equal(message.cpu().numpy(), wanted), (columns, layout.widths)
            out = torch.full(X.shape, torch.nan, device=device)
            by_triton.unpack(message, out)
            assert np.array_equal(out.cpu().numpy(), quantise.rows_of(wanted, layout, columns))
    for bad in (np.nan, np.inf, 1e38):
        by_triton.pack(torch.full(X.shape, bad, device=device), 1)
        with pytest.raises(ValueError):
            by_triton.check()
        by_triton.check()  # once for each time


@pytest.mark.gpu
def test_a_gpu_makes_the_same_bytes() -> None:
    assert isinstance(kernels.packing(mixed_widths(3), torch.device("cuda"), 1), object)
    same_bytes_by_triton("cuda")


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed: torch's wheel for CPUs has none")
def test_triton_interpreted_makes_the_same_bytes() -> None:
    interpreted("from tests.gpu_baselines.halos.test_quantise import same_bytes_by_triton as same; same('cpu')")
