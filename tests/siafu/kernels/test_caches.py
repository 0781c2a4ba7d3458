"""siafu.kernels.caches: sizes as Linux writes them, and what stands in where it writes none."""

from __future__ import annotations

import pytest

from siafu.kernels import caches


def write_index(folder, number, level, kind, size):
    index = folder / f"index{number}"
    index.mkdir()
    for name, text in (("level", level), ("type", kind), ("size", size)):
        (index / name).write_text(f"{text}\n")


def test_sizes_are_read_by_level(tmp_path):
    write_index(tmp_path, 0, "1", "Instruction", "32K")
    write_index(tmp_path, 1, "1", "Data", "48K")
    write_index(tmp_path, 2, "2", "Unified", "1024K")
    write_index(tmp_path, 3, "3", "Unified", "33M")
    assert [caches.size(level, tmp_path) for level in (1, 2, 3)] == [48 << 10, 1 << 20, 33 << 20]


@pytest.mark.parametrize("text", ["", "many", "12X"])
def test_a_machine_that_does_not_tell_gets_the_default(tmp_path, text):
    write_index(tmp_path, 0, "3", "Unified", text)
    assert caches.size(3, tmp_path) == caches.DEFAULT_BYTES[3]
    assert caches.size(2, tmp_path / "nowhere") == caches.DEFAULT_BYTES[2]


def test_tables_are_laid_out_for_a_cache_that_is_near():
    assert caches.for_tables(1 << 20, 32 << 20) == 32 << 20  # a few cores' own
    assert caches.for_tables(2 << 20, 480 << 20) == 8 << 20
