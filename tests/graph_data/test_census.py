from dataclasses import dataclass

import numpy as np
import pytest

from graph_data import census as census_module
from graph_data.census import Numbering, take_census
from siafu.errors import DatasetError


@dataclass
class Listed:
    """Edges of one piece, as an ``EdgeSource``."""

    src: list
    dst: list
    weight: list | None = None
    pieces = ("listed",)

    def blocks(self, piece, rows):
        for start in range(0, len(self.src), rows):
            part = slice(start, start + rows)
            weight = None if self.weight is None else np.array(self.weight[part])
            yield np.array(self.src[part], np.int64), np.array(self.dst[part], np.int64), weight


def random_ids(high, count=500, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, high, count).tolist()


@pytest.mark.parametrize("rows", [1, 7, 1000])
@pytest.mark.parametrize("dense", [0, 100, 1 << 20])
@pytest.mark.parametrize("high", [50, 1 << 18, 2**62])
def test_vertices_are_the_ids_that_occur_in_ascending_order(high, dense, rows, monkeypatch):
    monkeypatch.setattr(census_module, "MERGE_AT", 16)
    edges = Listed(random_ids(high), random_ids(high, seed=1))
    found = take_census(edges, None, rows, dense)
    expected = np.unique(edges.src + edges.dst)
    assert (found.num_vertices, found.num_edges) == (len(expected), 500)
    assert np.array_equal(np.arange(len(expected)) if found.ids is None else found.ids, expected)


@pytest.mark.parametrize("dense", [0, 2**62])
def test_numbers_are_places_in_the_ids(dense):
    ids = np.array([3, 7, 8, 100])
    assert Numbering(ids, dense if dense == 0 else 1000).of(np.array([8, 3, 100, 8])).tolist() == [2, 0, 3, 2]


def test_ids_without_gaps_are_their_own_numbers():
    found = take_census(Listed([0, 2], [1, 0]), None, 10, 0)
    assert found.ids is None
    assert Numbering(found.ids, 0).of(np.array([2, 1])).tolist() == [2, 1]


def test_ids_beside_the_edges_are_vertices_too():
    for dense in (0, 100):
        found = take_census(
            Listed([5], [7]), None, 10, dense, {"a": [np.array([6, 9]), np.array([7])], "b": [np.array([6])]}
        )
        assert found.ids.tolist() == [5, 6, 7, 9]
        assert found.apart == {"a": (3, 2), "b": (1, 1)}


def test_a_given_number_of_vertices_is_kept():
    found = take_census(Listed([5], [7]), 10, 10, 0)
    assert (found.num_vertices, found.ids) == (10, None)


def test_an_id_beyond_the_given_number_is_refused_with_its_row():
    with pytest.raises(DatasetError, match=r"^listed: row 3: vertex 10, must be in 0\.\.9$"):
        take_census(Listed([1, 2, 3], [1, 2, 10]), 10, 2, 0)
    with pytest.raises(DatasetError, match=r"^listed: row 2: vertex -1, must be in 0\.\.9$"):
        take_census(Listed([1, -1, 3], [1, 2, 10]), 10, 2, 0)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf, 1e-50])
def test_a_bad_weight_is_refused_with_its_row(weight):
    with pytest.raises(DatasetError, match=r"^listed: row 2: weight .*, must be finite and > 0$"):
        take_census(Listed([1, 2, 3], [1, 2, 1], [1.0, weight, 1.0]), 10, 5, 0)


def test_no_edge_is_refused():
    with pytest.raises(DatasetError, match=r"^listed: has no edge, so no vertex$"):
        take_census(Listed([], []), None, 10, 0)


def test_the_sample_is_of_edges_and_bounded(monkeypatch):
    monkeypatch.setattr(census_module, "SAMPLE", 50)
    edges = Listed(list(range(2000)), [v + 2000 for v in range(2000)])
    found = take_census(edges, 4000, 30, 0)
    assert 10 <= len(found.src) <= 100
    assert np.array_equal(found.dst, found.src + 2000)
    assert found.src.mean() == pytest.approx(1000, rel=0.3)
