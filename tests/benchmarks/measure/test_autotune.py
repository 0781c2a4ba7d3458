from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks.measure import autotune
from benchmarks.measure.autotune import best, measure
from benchmarks.measure.pipeline_model import Load, PipelineModel


def test_the_best_number_is_the_smallest_that_is_about_as_fast_as_any():
    assert best({1: 9.0, 2: 5.0, 4: 1.02, 8: 1.0, 16: 1.01}) == 4
    assert best({1: 9.0, 2: 5.0, 4: 1.04, 8: 1.0, 16: 1.01}) == 8


def test_in_the_model_the_slower_side_decides_how_long_an_epoch_takes():
    #  8 intervals x 4 layers x 15 ms of graph work on 2 threads are 240 ms; half as much
    #  tensor work on one environment too
    load = Load(threads=2, intervals=8, ratio=0.5, sigma=0, slow_share=0, latency_s=0, cold_s=0)
    graph_s = 8 * 4 * 0.015 / 2
    assert PipelineModel(load, 8, 0).run(1) == pytest.approx(graph_s, rel=0.2)
    heavy = Load(threads=2, intervals=8, ratio=4.0, sigma=0, slow_share=0, latency_s=0, cold_s=0)
    assert PipelineModel(heavy, 1, 0).run(1) == pytest.approx(8 * 4 * heavy.tensor_s, rel=0.2)
    assert PipelineModel(heavy, 4, 0).run(1) == pytest.approx(8 * 4 * heavy.tensor_s / 4, rel=0.2)


def test_the_model_keeps_as_many_environments_as_are_wanted():
    model = PipelineModel(Load(threads=2, intervals=8), 6, 0)
    model.run(3)
    assert len(model._held) == 6
    model.wanted = 2
    model._launch()
    model.run(1)
    assert len(model._held) == 2


def test_the_table_has_a_line_for_each_mode_and_ratio(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(autotune, "DECISIONS", 2)
    monkeypatch.setattr(autotune, "RATIOS", (0.5, 1.0))
    found = measure(Namespace(threads=1, intervals=4, seeds=1))
    assert [(row["mode"], row["tensor/graph"]) for row in found.rows] == [
        ("async", 0.5),
        ("async", 1.0),
        ("pipe", 0.5),
        ("pipe", 1.0),
    ]
    assert {column for row in found.rows for column in found.columns} <= set(found.rows[0])
    assert set(found.summary) == {"largest deviation in async"}
