from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks.measure import wire as bench_wire
from benchmarks.measure.echo import RUN_ID, Links
from siafu import wire
from siafu.errors import ConfigError
from siafu.wire import GradientAck, PublishedRows


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench_wire.add_arguments(parser)
    return parser.parse_args(given)


def test_every_example_is_a_message_of_about_the_size_that_its_name_says():
    sizes = {"64 KiB": 64 << 10, "256 KiB": 256 << 10, "1 MiB": 1 << 20, "8 MiB": 8 << 20}
    for name, message in bench_wire.examples(width=128).items():
        decoded = wire.decode(wire.encode(message, RUN_ID), RUN_ID)
        assert type(decoded) is type(message)
        stated = next((nbytes for text, nbytes in sizes.items() if name.endswith(text)), 0)
        assert stated <= wire.nbytes(message) <= 1.03 * stated


def test_what_is_sent_over_either_link_comes_back_and_floods_are_counted_to_the_end():
    rows = PublishedRows("train", 0, 2, 1, np.ones((64, 64), np.float32))
    with Links() as links:
        for link in links.values():
            for message in (GradientAck(0, 1, 2, 3), rows):
                assert 0 < link.echo(message, 3) < 10
                assert 0 < link.flood(message, 20) < 10
                assert 0 < link.echo(message, 3) < 10  # the far end echoes again


@pytest.mark.long
def test_a_row_has_both_links_and_the_checksum_s_share():
    with Links() as links:
        row = bench_wire._row("rows", PublishedRows("train", 0, 2, 1, np.ones((512, 64), np.float32)), links, 1)
    assert row["nbytes"] == 512 * 64 * 4
    assert row["echo_ratio"] == pytest.approx(row["echo_us"] / row["raw_echo_us"])
    assert row["checksum_share"] > 0
    assert set(bench_wire.COLUMNS) <= set(row)


def test_rounds_and_width_must_be_positive():
    with pytest.raises(ConfigError, match="--rounds 0, --width 128: must be >= 1"):
        bench_wire.measure(arguments("--rounds", "0"))
