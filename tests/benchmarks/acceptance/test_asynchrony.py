"""Every variant of the table is a run that siafu takes: it refuses settings without effect, and once refused one."""

from __future__ import annotations

import pytest

from benchmarks.acceptance import overlap
from benchmarks.acceptance.asynchrony import VARIANTS, mode_of
from run_coordinator import run_config


@pytest.mark.parametrize("name", VARIANTS)
def test_siafu_takes_the_settings_of_every_variant(name: str) -> None:
    staleness, settings = VARIANTS[name]
    found = run_config.resolve("digits", None, settings, mode_of(staleness))
    assert found.train.staleness == (staleness or 0)


@pytest.mark.parametrize("name", overlap.MODES)
def test_siafu_takes_the_settings_of_every_mode_that_overlaps(name: str) -> None:
    mode, settings = overlap.MODES[name]
    assert run_config.resolve("digits", None, settings, {"mode": mode}).train.mode == mode
