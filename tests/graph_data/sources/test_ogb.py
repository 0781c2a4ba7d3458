import numpy as np
import pytest

from graph_data.prepare import cached
from graph_data.sources import ogb
from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL
from tests.graph_data.sources.ogb_folder import EDGES, FEATURES, table, write, write_binary

pytest.importorskip("pyarrow")


@pytest.mark.parametrize("layout", [write, write_binary], ids=["text", "binary"])
def test_a_folder_of_ogb_becomes_the_graph(layout, tmp_path):
    graph = resolve(f"ogb:{layout(tmp_path / 'ogbn_tiny')}").load()
    assert (graph.name, graph.num_vertices, graph.num_classes) == ("ogbn-tiny", 4, 3)
    assert (graph.src.tolist(), graph.dst.tolist()) == (EDGES[0].tolist(), EDGES[1].tolist())
    assert (np.asarray(graph.features) == FEATURES).all()
    assert graph.labels.tolist() == [2, 0, -1, 1]
    assert graph.split[:, 0].tolist() == [TRAIN, VAL, TEST, TRAIN]


def test_several_columns_of_labels_are_several_classes(tmp_path):
    write(tmp_path / "ogbn_proteins", labels=np.array([[0, 1], [1, 1], [0, 0], [1, 0]]))
    graph = ogb.load(str(tmp_path / "ogbn_proteins"))
    assert (graph.target, graph.num_classes) == ("labels", 2)


def test_a_name_is_looked_for_where_graphs_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIAFU_DATA", raising=False)
    write(tmp_path / "dataset" / "ogbn_tiny")
    assert ogb.load("ogbn-tiny").num_vertices == 4
    write(tmp_path / "elsewhere" / "ogbn_other")
    monkeypatch.setenv("SIAFU_DATA", str(tmp_path / "elsewhere"))
    assert ogb.load("ogbn-other").num_vertices == 4


@pytest.mark.parametrize("unpacked", ["tiny", "tiny-bin"])
def test_a_folder_may_be_called_as_the_zip_unpacks_it(unpacked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIAFU_DATA", raising=False)
    with pytest.raises(
        DatasetError, match=r"no folder raw/ in ogbn-tiny, nor in ogbn_tiny or tiny or tiny-bin of data, "
    ):
        ogb.load("ogbn-tiny")
    write(tmp_path / "dataset" / unpacked)
    assert ogb.load("ogbn-tiny").name == "ogbn-tiny"


def test_one_of_several_splits_is_chosen_by_name(tmp_path):
    folder = write(tmp_path / "two")
    write(folder, scheme="sales", splits={"train": [1], "valid": [0], "test": [3]})
    assert ogb.load(f"{folder}?split=sales").split[:, 0].tolist() == [VAL, TRAIN, 0, TEST]


def test_features_may_be_given_where_there_are_none(tmp_path):
    folder = write(tmp_path / "none", features=None)
    assert ogb.load(f"{folder}?features=random:7").features.shape == (4, 7)


def test_a_graph_without_edges_and_with_an_empty_part_is_one(tmp_path):
    folder = write(tmp_path / "few", edges=EDGES[:, :1], splits={"train": [0], "valid": [1], "test": [2]})
    assert ogb.load(str(folder)).num_edges == 1


def test_the_cache_sees_a_changed_file(tmp_path):
    folder = write(tmp_path / "ogbn_tiny")
    first = cached(f"ogb:{folder}", cache_dir=tmp_path / "cache")
    assert cached(f"ogb:{folder}", cache_dir=tmp_path / "cache") == first
    table(folder / "raw/node-label.csv.gz", [[10], [11], [12], [13]])
    assert cached(f"ogb:{folder}", cache_dir=tmp_path / "cache") != first


def saved(folder, split):
    """As OGB's DatasetSaver leaves a folder: arrays in archives, and the split in torch's format."""
    torch = pytest.importorskip("torch")
    write_binary(folder)
    for path in (folder / "split/time").iterdir():
        path.unlink()
    torch.save(split, folder / "split/time/split_dict.pt")
    return f"ogb:{folder}"


def vertices(kind):
    return {"train": np.array([0, 3], kind), "valid": np.array([1], kind), "test": np.array([2], kind)}


@pytest.mark.parametrize("kind", ["i8", "i4"])
def test_a_split_of_dataset_saver_is_read(kind, tmp_path):
    torch = pytest.importorskip("torch")
    tensors = {part: torch.from_numpy(chosen) for part, chosen in vertices(kind).items()}
    for number, split in enumerate((vertices(kind), tensors)):
        source = resolve(saved(tmp_path / str(number), split))
        graph = source.load()
        assert graph.split[:, 0].tolist() == [TRAIN, VAL, TEST, TRAIN]
        assert graph.notes == (f"{tmp_path / str(number)}: left out: node_year",)
        assert tmp_path / str(number) / "split/time/split_dict.pt" in source.files()


class Evil:
    def __reduce__(self):
        return (print, ("this must never be printed",))


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ({"train": Evil()}, r"not a dict of lists of vertices \("),
        ({"train": np.array([0])}, "not a dict of train, valid, test, as OGB's DatasetSaver writes it$"),
        ({**vertices("i8"), "test": {"paper": np.array([2])}}, "'test' is a dict, must be an array of vertices"),
        ({**vertices("i8"), "test": np.array([4])}, r"test has vertex 4, must be in 0\.\.3$"),
    ],
)
def test_a_split_of_dataset_saver_that_is_none_is_refused(split, words, tmp_path, capsys):
    with pytest.raises(DatasetError, match=f"split_dict.pt:? {words}"):
        ogb.load(saved(tmp_path / "o", split).removeprefix("ogb:"))
    assert "never" not in capsys.readouterr().out


def test_one_split_in_two_files_must_be_one_and_a_fourth_part_is_named(tmp_path):
    torch = pytest.importorskip("torch")
    folder = write(tmp_path / "o")
    split = ogb.load(str(folder)).split[:, 0]
    parts = {part: np.flatnonzero(split == role) for part, role in (("train", TRAIN), ("valid", VAL), ("test", TEST))}
    torch.save(parts, folder / "split/time/split_dict.pt")
    assert ogb.load(str(folder)).split[:, 0].tolist() == split.tolist()
    torch.save({**parts, "test": np.array([], np.int64)}, folder / "split/time/split_dict.pt")
    with pytest.raises(
        DatasetError, match=r"split_dict\.pt and test\.csv\.gz are two names of one thing, and they differ"
    ):
        ogb.load(str(folder))
    table(folder / "split/time/unlabeled.csv.gz", [[1]])
    with pytest.raises(
        DatasetError, match=r"has no use for unlabeled\.csv\.gz, only for train, valid, test: leave it out$"
    ):
        ogb.load(str(folder))


def test_codes_of_classes_and_of_types_are_numbered_and_named(tmp_path):
    folder = write(tmp_path / "o", labels=np.array([[40.0], [10.0], [np.nan], [20.0]]))
    table(folder / "raw/edge_type.csv.gz", [[500], [900], [500], [500], [900]])
    graph = ogb.load(str(folder))
    assert (graph.labels.tolist(), graph.num_classes, graph.num_edge_types) == ([2, 0, -1, 1], 3, 2)
    assert (graph.names["classes"], graph.names["edge_types"]) == (("10", "20", "40"), ("500", "900"))
    assert [note.partition(": ")[2] for note in graph.notes] == [
        "3 classes are numbered in the order of their values, 10 to 40",
        "2 types of edges are numbered in the order of their values, 500 to 900",
    ]


def test_weights_and_types_of_edges_are_read_and_other_files_named(tmp_path):
    folder = write(tmp_path / "o")
    table(folder / "raw/edge_weight.csv.gz", [[0.5], [1.5], [2.5], [3.5], [4.5]])
    table(folder / "raw/edge_type.csv.gz", [[0], [2], [1], [0], [0]])
    table(folder / "raw/node_year.csv.gz", [[1999]] * 4)
    graph = ogb.load(str(folder))
    assert graph.weight.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert (graph.edge_type.tolist(), graph.num_edge_types) == ([0, 2, 1, 0, 0], 3)
    assert graph.notes == (f"{folder}: left out: node_year",)
    table(folder / "raw/node_label2.csv.gz", [[1]] * 4)
    with pytest.raises(DatasetError, match="has no use for 'node_label2', which looks like labels"):
        ogb.load(str(folder))
