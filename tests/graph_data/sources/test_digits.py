import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from graph_data.sources.digits import _images, _mutual_neighbours, load
from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL, tidy


def test_digits_are_1797_images_in_10_classes_with_a_fixed_split():
    graph = load("")
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (1797, 64, 10)
    assert (graph.features.min(), graph.features.max()) == (0, 1)
    assert [int((graph.split == role).sum()) for role in (TRAIN, VAL, TEST)] == [539, 359, 899]
    assert set(graph.labels[graph.split[:, 0] == TRAIN]) == set(range(10))


def test_the_graph_is_the_same_everywhere():
    graph = tidy(load(""))
    assert graph.num_edges == 11_262
    assert (graph.labels[graph.src] == graph.labels[graph.dst]).mean() > 0.97


def test_neighbours_are_mutual_and_ties_go_to_the_lower_id():
    # on a line; 1 is as near to 0 as to 2, and prefers 0
    points = np.array([[0], [1], [2], [9], [11]], np.float32)
    src, dst = _mutual_neighbours(points, k=1)
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == [(0, 1), (1, 0), (3, 4), (4, 3)]


@pytest.mark.parametrize("k", [1, 3, 10])
def test_neighbours_equal_those_by_brute_force(k):
    points = np.random.default_rng(0).integers(0, 17, (60, 8)).astype(np.float32)
    nearest = []
    for i in range(60):
        others = sorted((int(((points[i] - points[j]) ** 2).sum()), j) for j in range(60) if j != i)
        nearest.append({j for _, j in others[:k]})
    expected = [(i, j) for i in range(60) for j in range(60) if j in nearest[i] and i in nearest[j]]
    src, dst = _mutual_neighbours(points, k)
    assert list(zip(src.tolist(), dst.tolist(), strict=True)) == expected


def test_digits_take_no_argument():
    with pytest.raises(DatasetError, match="digits takes no argument, got 'large'"):
        load("large")


def test_the_images_are_scikit_learns_wherever_it_keeps_them(monkeypatch):
    expected = load_digits()
    direct = _images()
    monkeypatch.setattr(Path, "is_file", lambda file: False)
    assert np.array_equal(_images(), direct)
    assert np.array_equal(direct, np.column_stack([expected.data, expected.target]))


def test_no_file_of_the_working_folder_is_taken_for_the_images(monkeypatch, tmp_path):
    expected = _images()
    (tmp_path / "datasets" / "data").mkdir(parents=True)
    (tmp_path / "datasets" / "data" / "digits.csv.gz").write_bytes(b"not these")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert np.array_equal(_images(), expected)


def test_images_are_read_without_importing_scikit_learn():
    asks = "import sys; from graph_data.sources.digits import load; load(''); print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True).stdout == "False\n"
