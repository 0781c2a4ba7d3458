"""Outputs beside labels, interval by interval; an epoch is reported once."""

from __future__ import annotations

import numpy as np
import pytest

from graph_data.prepare import prepare
from graph_server.evaluation import Evaluation
from siafu.metrics import METRICS
from tests.toy_graphs import random_graph


@pytest.fixture
def evaluation(tmp_path) -> Evaluation:
    shard = prepare(random_graph(3), tmp_path / "shards").partition(0)
    return Evaluation(shard, np.asarray(shard.split[:, 0]), "classes", [4, 5])


def test_an_epoch_is_reported_with_its_last_interval(evaluation):
    n = len(evaluation.shard.vertices)
    outputs = np.random.default_rng(0).standard_normal((n, 8)).astype(np.float32)
    tallies = [evaluation.tally(outputs[a:b].copy(), a, b, None) for a, b in ((0, n // 2), (n // 2, n))]
    assert evaluation.add(7, 5, tallies[1]) is None
    assert evaluation.add(9, 4, tallies[0]) is None  # another epoch's
    report = evaluation.add(7, 4, tallies[0])
    assert (report.server, report.epoch) == (0, 7)
    whole = METRICS["classes"].tally(outputs, np.asarray(evaluation.shard.labels), evaluation.split)
    np.testing.assert_allclose(report.counts, METRICS["classes"].merge([whole]), rtol=1e-12)
    assert evaluation.add(7, 4, tallies[0]) is None  # it begins again
