"""Against files that DGL itself wrote: tests/golden/dgl."""

import numpy as np
import pytest

from graph_data.sources import distdgl
from graph_data.sources.dglfile import read
from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import NONE, TRAIN
from tests.graph_data.sources.golden_dgl import DST, FEATURES, FOLDER, LABELS, SRC, WEIGHT, E, N
from tests.graph_data.sources.golden_dgl import TRAIN as IN_TRAINING


@pytest.mark.parametrize("kept_as", ["coo", "csr", "csc"])
def test_a_file_of_dgl_is_read_however_it_keeps_its_edges(kept_as):
    graph = resolve(str(FOLDER / f"{kept_as}.dgl")).load()
    assert graph.num_vertices == N
    assert (graph.src.tolist(), graph.dst.tolist()) == (SRC.tolist(), DST.tolist())
    assert (graph.features == FEATURES).all()
    assert (graph.labels == LABELS).all()
    assert (graph.weight == WEIGHT).all()
    assert graph.split[:, 0].tolist() == np.where(IN_TRAINING, TRAIN, NONE).tolist()


def test_kinds_of_edges_are_types():
    graph = resolve(str(FOLDER / "relations.dgl")).load()
    assert graph.num_edge_types == 2
    assert graph.edge_type.tolist() == [0] * (E // 2) + [1] * (E // 2)
    assert graph.src.tolist() == [*SRC[::2], *SRC[1::2]]
    assert graph.weight.tolist() == [*WEIGHT[::2], *WEIGHT[1::2]]


def test_reading_keeps_no_hold_on_the_file(tmp_path):
    path = tmp_path / "copy.dgl"
    path.write_bytes((FOLDER / "coo.dgl").read_bytes())
    found, _ = read(path)
    path.write_bytes(b"")
    assert found.ends[0].tolist() == SRC.tolist()


# --- DistDGL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["toy", "typed"])
@pytest.mark.parametrize("named", ["", ".json"])
def test_partitions_are_put_together_again(named, folder):
    path = FOLDER / folder if not named else FOLDER / folder / f"{folder}.json"
    graph = resolve(f"distdgl:{path}").load()
    assert (graph.name, graph.num_vertices, graph.num_edges) == (folder, N, E)
    original = graph.features[:, 0].astype(int) // 3  # DGL numbers vertices anew; the features tell which is which
    assert sorted(original) == list(range(N))
    edge = (graph.weight - 0.5).astype(int)
    assert sorted(edge) == list(range(E))
    assert original[graph.src].tolist() == SRC[edge].tolist()
    assert original[graph.dst].tolist() == DST[edge].tolist()


def test_labels_and_masks_come_from_the_partitions():
    graph = distdgl.load(str(FOLDER / "toy"))
    original = graph.features[:, 0].astype(int) // 3
    assert (graph.labels == LABELS[original]).all()
    assert ((graph.split[:, 0] == TRAIN) == IN_TRAINING[original]).all()


def test_types_come_from_the_ranges_of_edges():
    graph = distdgl.load(str(FOLDER / "typed"))
    edge = (graph.weight - 0.5).astype(int)
    assert graph.num_edge_types == 2
    assert (graph.edge_type == edge % 2).all()


def with_times(monkeypatch, parts, kinds):
    """Partitions of which some, and in these some kinds of edges, carry a time."""
    whole = distdgl.read_tensors

    def with_more(path):
        found = whole(path)
        if path.name == "edge_feat.dgl" and path.parent.name in parts:
            found |= {f"{kind}/time": np.ones(len(found[f"{kind}/w"])) for kind in kinds}
        return found

    monkeypatch.setattr(distdgl, "read_tensors", with_more)


def test_what_edges_of_some_kinds_alone_carry_is_named(monkeypatch):
    with_times(monkeypatch, ("part0", "part1"), ("n:even:n",))
    assert distdgl.load(str(FOLDER / "typed")).notes == ("typed: left out: time",)


def test_what_one_partition_alone_carries_is_refused(monkeypatch):
    with_times(monkeypatch, ("part1",), ("n:even:n", "n:odd:n"))
    with pytest.raises(DatasetError, match=r"part0/edge_feat\.dgl: n:\w+:n/time has none rows, must have"):
        distdgl.load(str(FOLDER / "typed"))
