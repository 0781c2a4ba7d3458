from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from siafu import wire
from siafu.kernels.checksum import LEAST_BYTES, crc32
from siafu.wire import PublishedRows


@pytest.mark.parametrize("seed", range(5))
def test_the_checksum_is_zlib_s_for_every_length_and_alignment(seed: int):
    data = random.Random(seed).randbytes(LEAST_BYTES + 1200)
    for extra in range(0, 1100, 1 if seed == 0 else 17):
        part = memoryview(data)[seed : LEAST_BYTES + extra]
        assert crc32(part) == zlib.crc32(part)


def test_short_and_large_buffers_are_zlib_s_too():
    for data in (b"", b"a", bytes(LEAST_BYTES), bytearray(b"\xff" * (1 << 20)), np.arange(1 << 18).data.cast("B")):
        assert crc32(data) == zlib.crc32(data)


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 255, 256, 5000, 20_000])
def test_parts_one_after_the_other_make_the_checksum_of_all(cut: int):
    data = random.Random(3).randbytes(30_000)
    assert crc32(data[cut:], crc32(data[:cut])) == zlib.crc32(data)


def test_one_flipped_bit_is_seen():
    data = bytearray(random.Random(7).randbytes(1 << 16))
    before = crc32(data)
    data[12_345] ^= 4
    assert crc32(data) != before


def test_frames_of_either_checksum_are_the_same_bytes_and_read_each_other():
    message = PublishedRows("train", 0, 2, 1, np.random.default_rng(0).random((100, 64), dtype=np.float32))
    fast, slow = (wire.encode(message, bytes(8), checksum) for checksum in (crc32, zlib.crc32))
    assert [bytes(frame) for frame in fast] == [bytes(frame) for frame in slow]
    assert np.array_equal(wire.decode(slow, bytes(8), crc32).values, wire.decode(fast, bytes(8)).values)
