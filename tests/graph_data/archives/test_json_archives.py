"""GraphSAINT's folder and GraphSAGE's files, made by hand as they are published."""

import json

import numpy as np
import pytest
import scipy.sparse

from graph_data.sources.names import resolve
from tests.graph_data.archives.same import edges_of, refusal

FEATURES = np.array([[1, 0], [0, 2], [3, 0], [4, 4]])


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


# --- GraphSAGE --------------------------------------------------------------------------------------------------------


def sage(folder, ids, ends):
    """Four nodes, listed in the order of ids, with numbers 2, 0, 1, 3; node 3 says nothing of val and test."""
    said = [{"val": False, "test": False}, {"val": True, "test": False}, {"val": False, "test": True}, {}]
    nodes = [{"id": one, **flags} for one, flags in zip(ids, said, strict=True)]
    links = [{"source": u, "target": v} for u, v in ends]
    whole = {"directed": False, "graph": {}, "nodes": nodes, "links": links, "multigraph": False}
    (folder / "ppi-G.json").write_text(json.dumps(whole))
    (folder / "ppi-id_map.json").write_text(json.dumps(dict(zip(map(str, ids), (2, 0, 1, 3), strict=True))))
    (folder / "ppi-class_map.json").write_text(json.dumps({str(one): [i % 2, 1] for i, one in enumerate(ids)}))
    np.save(folder / "ppi-feats.npy", FEATURES)
    return folder


@pytest.mark.parametrize(
    ("ids", "ends"),
    [
        ([10, 11, 12, 13], [(10, 11), (12, 13)]),
        (["a", "b", "c", "d"], [("a", "b"), ("c", "d")]),
        (["a", "b", "c", "d"], [(0, 1), (2, 3)]),  # places, as NetworkX 1 wrote them
    ],
)
def test_graphsage_by_any_file_or_the_folder(tmp_path, ids, ends):
    sage(tmp_path, ids, ends)
    for name in (".", "ppi-G.json", "ppi-id_map.json", "ppi-class_map.json", "ppi-feats.npy"):
        graph = resolve(str(tmp_path / name)).load()
    assert graph.name == "ppi"
    assert graph.notes == (
        "ppi-G.json: GraphSAGE's files, public split",
        "ppi-G.json: 1 nodes say neither val nor test: in no split",
    )
    assert edges_of(graph) == [(1, 3), (2, 0)]
    assert graph.labels.tolist() == [[1, 1], [0, 1], [0, 1], [1, 1]]
    assert graph.split[:, 0].tolist() == [2, 3, 1, 0]
    np.testing.assert_array_equal(graph.features, FEATURES)


def test_graphsage_that_does_not_fit_is_one_line(tmp_path):
    sage(tmp_path, [0, 1, 2, 3], [(0, 9)])
    assert refusal(tmp_path) == f"{tmp_path}/ppi-G.json: has no id '9'"
    sage(tmp_path, ["a", "b", "c", "d"], [(0, 9)])
    assert refusal(tmp_path) == f"{tmp_path}/ppi-G.json: vertex 9, must be in 0..3"
    (tmp_path / "ppi-G.json").write_text('{"nodes": 1}')
    assert refusal(tmp_path) == f"{tmp_path}/ppi-G.json: nodes must be a list of objects"
    (tmp_path / "ppi-feats.npy").unlink()
    assert refusal(tmp_path) == "ppi-G.json: GraphSAGE's files, but ppi-feats.npy is not beside it"


def test_features_alone_are_not_graphsages(tmp_path):
    np.save(tmp_path / "my-feats.npy", FEATURES)
    (tmp_path / "edges.csv").write_text("0,1\n")
    assert resolve(str(tmp_path)).kind == "edges"
