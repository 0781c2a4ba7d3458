"""The papers' files as PyG's own data sets read them, where PyG has a reader of the format:
the same graph, array by array."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from graph_data.objects.pyg import from_pyg
from graph_data.sources.names import resolve
from siafu.graph import Graph, tidy
from tests.graph_data.archives.same import dense

datasets = pytest.importorskip("torch_geometric.datasets")
io = pytest.importorskip("torch_geometric.io")

RNG = np.random.default_rng(3)
N, F = 40, 5
FEATURES = RNG.integers(0, 2, (N, F)).astype(np.float32)
LABELS = RNG.integers(0, 3, N)
EDGES = np.unique(RNG.integers(0, N, (120, 2)), axis=0)
ADJACENCY = scipy.sparse.csr_matrix((np.ones(len(EDGES)), EDGES.T), shape=(N, N))
ROLES = RNG.integers(1, 4, N)


def placed(folder: Path, files: Sequence[Path]) -> Path:
    """Where PyG looks for what it would download."""
    folder.mkdir(parents=True)
    for file in files:
        shutil.copy(file, folder)
    return folder


def assert_same(ours: Graph, data: Any) -> None:
    """Undirected, each edge once: PyG's readers add the reverse of each edge, or do not."""
    one, other = tidy(ours), tidy(from_pyg(data, target="auto"))
    assert (one.num_vertices, one.num_classes) == (other.num_vertices, other.num_classes)
    for name in ("src", "dst", "labels", "split"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(dense(one.features), dense(other.features))


def test_planetoid(archives: Path, tmp_path: Path) -> None:
    placed(tmp_path / "Cora" / "raw", sorted((archives / "planetoid").glob("ind.cora.*")))
    ours = resolve(str(tmp_path / "Cora" / "raw")).load()
    assert_same(ours, datasets.Planetoid(str(tmp_path), "Cora")[0])


def test_heterophilous_graphs(archives: Path, tmp_path: Path) -> None:
    file = archives / "heterophilous" / "minesweeper.npz"
    placed(tmp_path / "minesweeper" / "raw", [file])
    data = datasets.HeterophilousGraphDataset(str(tmp_path), "Minesweeper")[0]
    assert_same(resolve(str(file)).load(), data)


def test_gnn_benchmark(archives: Path) -> None:
    for file in sorted((archives / "gnn_benchmark").glob("*.npz")):
        assert_same(resolve(str(file)).load(), io.read_npz(str(file), to_undirected=False))


@pytest.mark.parametrize("several", [False, True])
def test_graphsaint(several: bool, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    scipy.sparse.save_npz(raw / "adj_full.npz", ADJACENCY)
    np.save(raw / "feats.npy", FEATURES)
    marks = np.eye(3, dtype=int)[LABELS].tolist() if several else LABELS.tolist()
    (raw / "class_map.json").write_text(json.dumps({str(v): mark for v, mark in enumerate(marks)}))
    parts = {part: np.flatnonzero(role == ROLES).tolist() for role, part in enumerate(("tr", "va", "te"), 1)}
    (raw / "role.json").write_text(json.dumps(parts))
    data = (datasets.Yelp if several else datasets.Flickr)(str(tmp_path))[0]
    assert_same(resolve(f"{raw}{'?target=labels' if several else ''}").load(), data if not several else as_labels(data))


def as_labels(data: Any) -> Any:
    """PyG keeps several classes as floats of 0 and 1."""
    data.y = data.y.long()
    return data


def test_dgls_pair_of_reddit(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    np.savez(raw / "reddit_data.npz", feature=FEATURES, label=LABELS, node_types=ROLES)
    scipy.sparse.save_npz(raw / "reddit_graph.npz", ADJACENCY.tocoo())
    assert_same(resolve(str(raw)).load(), datasets.Reddit(str(tmp_path))[0])


def test_geom_gcn(tmp_path: Path) -> None:
    raw = tmp_path / "texas" / "raw"
    raw.mkdir(parents=True)
    rows = (",".join(map(str, row)) for row in FEATURES.astype(int).tolist())
    lines = "".join(f"{v}\t{row}\t{LABELS[v]}\n" for v, row in enumerate(rows))
    (raw / "out1_node_feature_label.txt").write_text("node_id\tfeature\tlabel\n" + lines)
    pairs = "".join(f"{u}\t{v}\n" for u, v in EDGES.tolist())
    (raw / "out1_graph_edges.txt").write_text("node_id\tnode_id\n" + pairs)
    for i in range(10):
        roles = np.random.default_rng(i).integers(1, 4, N)
        masks = {f"{part}_mask": (roles == role).astype(int) for role, part in enumerate(("train", "val", "test"), 1)}
        np.savez(raw / f"texas_split_0.6_0.2_{i}.npz", **masks)
    assert_same(resolve(str(raw)).load(), datasets.WebKB(str(tmp_path), "Texas")[0])
