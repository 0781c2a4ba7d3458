"""PyG's files as PyG itself writes them, and as its first version did."""

import os
import pickle

import numpy as np
import pytest

from graph_data.sources.names import resolve
from siafu.errors import DatasetError

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.data")

EDGES = [[0, 1, 2], [1, 2, 3]]
LABELS = [0, 1, 0, 1, 0]
TRAIN = [True, False, False, True, False]


def data():
    return pyg.Data(
        x=torch.arange(15.0).reshape(5, 3),
        edge_index=torch.tensor(EDGES),
        y=torch.tensor(LABELS),
        train_mask=torch.tensor(TRAIN),
    )


def check(path):
    graph = resolve(str(path)).load()
    assert [graph.src.tolist(), graph.dst.tolist()] == EDGES
    assert graph.labels.tolist() == LABELS
    assert (graph.split[:, 0] == 1).tolist() == TRAIN
    np.testing.assert_array_equal(graph.features, np.arange(15.0).reshape(5, 3))


def refusal(path, held):
    torch.save(held, path)
    with pytest.raises(DatasetError) as error:
        resolve(str(path)).load()
    return str(error.value).removeprefix(f"{path}: ")


def test_a_data(tmp_path):
    torch.save(data(), tmp_path / "a.pt")
    check(tmp_path / "a.pt")


def test_its_dict(tmp_path):
    torch.save(data().to_dict(), tmp_path / "a.pt")
    check(tmp_path / "a.pt")


def test_a_processed_data_set_of_one_graph(tmp_path):
    pyg.InMemoryDataset.save([data()], tmp_path / "a.pt")
    check(tmp_path / "a.pt")


def test_a_processed_data_set_as_it_was_before_pyg_2_4(tmp_path):
    torch.save(pyg.InMemoryDataset.collate([data()]), tmp_path / "a.pt")
    check(tmp_path / "a.pt")


def test_a_data_of_pyg_1_whose_attributes_lie_in_the_object_itself(tmp_path):
    class Data:  # as it was pickled then
        __module__, __qualname__ = "torch_geometric.data.data", "Data"

    old = Data()
    old.__dict__.update(data().to_dict(), edge_attr=None, pos=None, norm=None, face=None, __num_nodes__=5)
    real, pyg.data.Data = pyg.data.Data, Data
    try:
        torch.save((old, {"x": torch.tensor([0, 5]), "edge_index": torch.tensor([0, 3])}), tmp_path / "a.pt")
    finally:
        pyg.data.Data = real
    check(tmp_path / "a.pt")


def test_several_graphs_are_refused(tmp_path):
    held = pyg.InMemoryDataset.collate([data(), data()])
    assert refusal(tmp_path / "a.pt", held[:2]) == (
        "holds 2 graphs, must be one: torch.save(dataset[i].to_dict(), path)"
    )


@pytest.mark.parametrize("processed", [False, True])
def test_several_kinds_of_vertices_are_refused(tmp_path, processed):
    kinds = pyg.HeteroData()
    kinds["user"].x, kinds["item"].x = torch.rand(3, 2), torch.rand(2, 2)
    kinds["user", "buys", "item"].edge_index = torch.tensor([[0, 1], [1, 0]])
    held = (kinds.to_dict(), None, pyg.HeteroData) if processed else kinds
    assert refusal(tmp_path / "a.pt", held) == "HeteroData: load it with PyG and pass siafu.from_pyg(data)"


class Runs:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_what_a_file_wants_to_run_is_refused_by_name_and_not_run(tmp_path):
    told = refusal(tmp_path / "a.pt", {"edge_index": torch.tensor(EDGES), "x": Runs(str(tmp_path / "made"))})
    assert (
        told
        == f"holds a {os.mkdir.__module__}.mkdir, which is not read: write it with torch.save(data.to_dict(), path)"
    )
    assert not (tmp_path / "made").exists()


def test_other_objects_are_refused_by_name(tmp_path):
    write = "write it with torch.save(data.to_dict(), path)"
    assert refusal(tmp_path / "a.pt", torch.nn.Linear(2, 2)) == (
        f"holds a torch.nn.modules.linear.Linear, which is not read: {write}"
    )
    assert refusal(tmp_path / "a.pt", [data()]) == f"holds a list, no graph: {write}"
    assert refusal(tmp_path / "a.pt", {"a": torch.ones(2)}) == f"has no tensor edge_index: {write}"


def test_a_file_that_torch_did_not_write_is_refused_in_one_line(tmp_path):
    (tmp_path / "a.pt").write_bytes(pickle.dumps({"a": 1}, 4)[:-1])
    with pytest.raises(DatasetError) as error:
        resolve(str(tmp_path / "a.pt")).load()
    assert str(error.value) == (
        f"{tmp_path / 'a.pt'}: not a file of torch.save: write it with torch.save(data.to_dict(), path)"
    )
