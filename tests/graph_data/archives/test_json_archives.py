"""GraphSAINT's folder, made by hand as it is published."""

import json

import numpy as np
import pytest
import scipy.sparse

from graph_data.sources.names import resolve
from siafu.errors import DatasetError

FEATURES = np.array([[1, 0], [0, 2], [3, 0], [4, 4]])


def edges_of(graph):
    return sorted(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def refusal(name):
    with pytest.raises(DatasetError) as error:
        resolve(str(name)).load()
    return str(error.value)


@pytest.fixture
def saint(tmp_path):
    folder = tmp_path / "yelp"
    folder.mkdir()
    adjacency = scipy.sparse.csr_matrix((np.ones(4), ([0, 1, 1, 3], [1, 0, 3, 1])), shape=(4, 4))
    scipy.sparse.save_npz(folder / "adj_full.npz", adjacency)
    scipy.sparse.save_npz(folder / "adj_train.npz", adjacency)
    (folder / "role.json").write_text(json.dumps({"tr": [1, 3], "va": [0], "te": [2]}))
    (folder / "class_map.json").write_text(json.dumps({"3": 2, "0": 0, "1": 1, "2": 0}))
    np.save(folder / "feats.npy", FEATURES.astype(np.float64))
    return folder


def test_graphsaint_by_any_file_or_the_folder(saint):
    for name in (".", "adj_full.npz", "adj_train.npz", "role.json", "class_map.json", "feats.npy"):
        source = resolve(str(saint / name))
        graph = source.load()
        assert (source.kind, graph.name) == ("archive", "yelp")
        assert [file.name for file in source.files()] == ["adj_full.npz", "role.json", "class_map.json", "feats.npy"]
    assert graph.notes == ("adj_full.npz: GraphSAINT's folder, public split",)
    assert edges_of(graph) == [(0, 1), (1, 0), (1, 3), (3, 1)]
    assert graph.weight is None
    assert (graph.labels.tolist(), graph.num_classes) == ([0, 1, 0, 2], 3)
    assert graph.split[:, 0].tolist() == [2, 1, 3, 1]
    np.testing.assert_array_equal(graph.features, FEATURES)


def test_graphsaint_of_several_labels(saint):
    (saint / "class_map.json").write_text(json.dumps({"3": [1, 1], "0": [0, 0], "1": [0, 1], "2": [1, 0]}))
    graph = resolve(str(saint)).load()
    assert (graph.labels.tolist(), graph.target, graph.num_classes) == ([[0, 0], [0, 1], [1, 0], [1, 1]], "labels", 2)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("role.json", '{"tr": [0]}', "must have lists tr, va, te"),
        ("role.json", '{"tr": [0], "va": [9], "te": []}', "vertex 9, must be in 0..3"),
        ("role.json", '{"tr": [0], "va": [0], "te": []}', "vertex 0 is in two parts of the split"),
        (
            "role.json",
            "{",
            "not readable as JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))",
        ),
        ("class_map.json", "[]", "must be a JSON object"),
        ("class_map.json", '{"x": 1}', "a vertex or a class that is no integer"),
        ("class_map.json", '{"0": [1, 2]}', "a label that is no class, or a list of other numbers than 0 and 1"),
        (
            "class_map.json",
            '{"0": [1], "1": 1}',
            "must be a class, or a list of 0 and 1 of one length, for each vertex",
        ),
        ("feats.npy", "no", "not a readable .npy file (it does not begin as one)"),
    ],
)
def test_graphsaint_that_does_not_fit_is_one_line(saint, part, content, message):
    (saint / part).write_text(content)
    assert refusal(saint) == f"{saint / part}: {message}"


def test_graphsaint_without_its_roles(saint):
    (saint / "role.json").unlink()
    assert refusal(saint) == "adj_full.npz: GraphSAINT's folder, but role.json is not beside it"
