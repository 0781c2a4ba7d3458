"""Renumbering what is prepared gives what preparing the renumbered graph gives."""

from dataclasses import replace

import numpy as np
import pytest

from graph_data.prepare import prepare
from graph_data.renumbered import Numbers, renumbered
from siafu.shards import ShardSet
from tests.graph_data.graphs import random_graph

OPTIONS = {"parts": 2, "partitioner": "chunk", "order": "given"}
CLASSES = {"ascending": [0, 2, 3], "falling": [4, 2, 0], "one unknown": [1, -1, 0]}
RELATIONS = {"ascending": [1, 2, 4], "falling": [3, 2, 0]}


def places(numbers, count):
    return Numbers(np.array(numbers), count)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", RELATIONS)
def test_relations_are_those_of_the_renumbered_graph(case, weighted, directed, tmp_path):
    graph = random_graph(types=3, weighted=weighted)
    moved = replace(graph, edge_type=np.array(RELATIONS[case])[graph.edge_type], num_edge_types=5)
    before = prepare(graph, tmp_path / "before", directed=directed, **OPTIONS)
    expected = prepare(moved, tmp_path / "expected", directed=directed, **OPTIONS).manifest
    renumbered(before, tmp_path / "after", None, places(RELATIONS[case], 5))
    found = ShardSet.open(tmp_path / "after")
    found.verify()
    assert found.manifest == replace(expected, partitions=found.manifest.partitions)
    assert found.manifest.fingerprint == expected.fingerprint


@pytest.mark.parametrize("case", CLASSES)
def test_classes_are_those_of_the_renumbered_graph(case, tmp_path):
    graph, numbers = random_graph(), np.array([*CLASSES[case], -1])
    before = prepare(graph, tmp_path / "before", **OPTIONS)
    renumbered(before, tmp_path / "after", places(CLASSES[case], 5), None)
    found = ShardSet.open(tmp_path / "after")
    found.verify()
    assert found.manifest.num_classes == 5
    for p in range(2):
        np.testing.assert_array_equal(found.partition(p).labels, numbers[before.partition(p).labels], strict=True)
        assert (tmp_path / "after" / f"part-{p:03d}" / "features.npy").is_symlink()  # nothing large is copied
