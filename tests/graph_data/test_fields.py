"""One table of names: what an array is called decides nothing about whether it is read."""

import networkx
import numpy as np
import pytest

import siafu
from graph_data.fields import FLAT
from graph_data.masks import role_of, split_of
from graph_data.objects import graph_of
from graph_data.objects.dgl import of_frames
from graph_data.objects.pyg import from_fields
from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import NONE, TEST, TRAIN, VAL

torch = pytest.importorskip("torch")

N = 4
EDGES = np.array([[0, 0, 1, 2, 3], [1, 2, 2, 3, 0]])
X, Y = np.arange(8.0, dtype=np.float32).reshape(N, 2), np.array([0, 1, 1, 0])
WEIGHT = np.array([1.0, 2, 3, 4, 5])
PARTS = {
    "train": np.array([True, True, False, False]),
    "val": np.array([False, False, True, False]),
    "test": np.array([False, False, False, True]),
}
ROLES = [[TRAIN], [TRAIN], [VAL], [TEST]]


def of_npz(arrays, tmp_path):
    np.savez(tmp_path / "g.npz", **arrays)
    return resolve(str(tmp_path / "g.npz")).load()


def of_mapping(arrays, tmp_path):
    return graph_of(arrays)


def of_pt(arrays, tmp_path):
    torch.save({key: torch.from_numpy(np.asarray(value)) for key, value in arrays.items()}, tmp_path / "g.pt")
    return resolve(str(tmp_path / "g.pt")).load()


def of_dgl(arrays, tmp_path):
    edges = {key: values for key, values in arrays.items() if len(values) == EDGES.shape[1]}
    nodes = {key: values for key, values in arrays.items() if key not in edges and key != "edge_index"}
    return of_frames(arrays["edge_index"], N, nodes, edges, name="g")


def of_networkx(arrays, tmp_path):
    found = networkx.MultiDiGraph()
    arrays = {key: values for key, values in arrays.items() if key != "edge_index"}
    for key, values in arrays.items():
        if len(values) == N:
            for v in range(N):
                found.add_node(v, **{key: values[v]})
    found.add_nodes_from(range(N))
    for e, (u, v) in enumerate(EDGES.T.tolist()):
        found.add_edge(u, v, **{key: values[e] for key, values in arrays.items() if len(values) == EDGES.shape[1]})
    return siafu.from_networkx(found, name="g")


READERS = (of_npz, of_mapping, of_pt, of_dgl, of_networkx)
every_reader = pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)


def arrays(**more):
    return {"edge_index": EDGES, "x": X, "y": Y, **more}


MASK_NAMES = [
    ("train_mask", "val_mask", "test_mask"),
    ("train_mask", "valid_mask", "test_mask"),
    ("trn_mask", "dev_mask", "tst_mask"),
    ("tr_mask", "validation_mask", "te_mask"),
    ("mask_train", "mask_val", "mask_test"),
    ("train-mask", "val-mask", "test-mask"),
    ("Train_Mask", "Val_Mask", "Test_Mask"),
    ("train_masks", "val_masks", "test_masks"),
]
INDEX_NAMES = [
    ("train_idx", "val_idx", "test_idx"),
    ("idx_train", "idx_val", "idx_test"),
    ("train_index", "valid_index", "test_index"),
    ("train_nid", "val_nid", "test_nid"),
    ("train", "valid", "test"),
    ("train_node_ids", "dev_node_ids", "test_node_ids"),
]


@every_reader
@pytest.mark.parametrize("as_bytes", [False, True], ids=["bool", "uint8"])
def test_masks_are_read_by_every_name(read, as_bytes, tmp_path):
    for names in MASK_NAMES:
        masks = dict(zip(names, PARTS.values(), strict=True))
        masks = {name: mask.astype(np.uint8) for name, mask in masks.items()} if as_bytes else masks
        graph = read(arrays(**masks), tmp_path)
        assert (graph.split.tolist(), graph.notes) == (ROLES, ()), names


@pytest.mark.parametrize("read", [of_npz, of_mapping, of_pt], ids=lambda read: read.__name__)
def test_lists_of_vertices_are_read_by_every_name(read, tmp_path):
    for names in INDEX_NAMES:
        lists = dict(zip(names, ([1, 0], [2], [[3]]), strict=True))
        graph = read(arrays(**{name: np.array(values) for name, values in lists.items()}), tmp_path)
        assert (graph.split.tolist(), graph.notes) == (ROLES, ()), names


def test_a_dict_of_parts_is_a_split_and_a_list_of_these_several(tmp_path):
    one = {"train": [0, 1], "valid": [2], "test": [3]}
    for key in ("split_idx", "splits", "split"):
        assert graph_of(arrays(**{key: one})).split.tolist() == ROLES
    tensors = {part: torch.tensor(vertices) for part, vertices in one.items()}
    assert from_fields(arrays(split_idx=tensors)).split.tolist() == ROLES
    assert graph_of(arrays(role={"tr": [0, 1], "va": [2], "te": [3]})).split.tolist() == ROLES  # GraphSAINT's words
    with pytest.raises(DatasetError, match="has no use for 'years', which looks like a split: call it train_mask"):
        graph_of(arrays(years=one))
    assert graph_of(arrays(accuracy={"train": 0.9, "test": 0.8})).notes == ("arrays: left out: accuracy",)
    other = {"train": [2], "valid": [], "test": [0, 1, 3]}
    graph = graph_of(arrays(split_idx_list=[one, other]))
    assert graph.split.tolist() == [[TRAIN, TEST], [TRAIN, TEST], [VAL, TRAIN], [TEST, TEST]]


def test_several_splits_are_rows_or_columns():
    other = np.array([[False] * N] * 2)
    columns = {f"{part}_mask": np.stack([mask, *other], axis=1) for part, mask in PARTS.items()}
    rows = {f"{part}_masks": np.stack([mask, *other]) for part, mask in PARTS.items()}
    expected = [[role, NONE, NONE] for (role,) in ROLES]
    assert graph_of(arrays(**columns)).split.tolist() == expected
    assert graph_of(arrays(**rows)).split.tolist() == expected


@every_reader
def test_features_labels_and_weights_are_read_by_every_name(read, tmp_path):
    for what, held in (("x", X), ("y", Y), ("edge_weight", WEIGHT)):
        for name in FLAT[what]:
            given = {"edge_index": EDGES, "x": X, "y": Y, "edge_weight": WEIGHT}
            del given[what]
            graph = read({**given, name: held}, tmp_path)
            assert (graph.features == X).all()
            assert (graph.labels.tolist(), graph.weight.tolist()) == (Y.tolist(), WEIGHT.tolist()), name
            assert graph.notes == ()


@every_reader
def test_what_is_left_over_is_named_in_a_note(read, tmp_path):
    given = arrays(node_year=np.array([2001, 2002, 2003, 2004]), rank=np.ones(N))
    (note,) = read(given, tmp_path).notes
    assert note.endswith(": left out: node_year, rank")


@every_reader
@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("fold", np.arange(N), "a split: call it train_mask, "),
        ("split", np.array([0, 0, 1, 2]), "a split: call it train_mask, "),
        ("trainmask", PARTS["train"], "a split: call it train_mask, "),
        ("node_class", Y, r"labels: call it y \(\[N\]\), or leave it out$"),
        ("targets", Y, r"labels: call it y \(\[N\]\), or leave it out$"),
        ("target", Y, r"labels: call it y \(\[N\]\), or leave it out$"),
        ("label2", Y, r"labels: call it y \(\[N\]\), or leave it out$"),
        ("is_hub", PARTS["val"], "a mask: call it train_mask, val_mask or test_mask, or leave it out$"),
        ("strength_weight", WEIGHT, r"a weight: call it edge_weight \(of edges, \[E\]\), or leave it out$"),
    ],
)
def test_what_looks_like_a_split_a_weight_or_a_label_is_refused(read, name, values, words, tmp_path):
    given = arrays(**{name: values})
    with pytest.raises(DatasetError, match=f"has no use for '{name}', which looks like {words}"):
        read(given, tmp_path)


@every_reader
@pytest.mark.parametrize(
    ("one", "other", "values", "changed"),
    [("x", "feat", X, X + 1), ("y", "label", Y, 1 - Y), ("edge_weight", "w", WEIGHT, WEIGHT + 1)],
)
def test_two_names_of_one_thing_are_refused_unless_they_agree(read, one, other, values, changed, tmp_path):
    given = arrays(**{one: values, other: values})
    assert read(given, tmp_path).notes == ()
    with pytest.raises(
        DatasetError, match=f"has '{one}' and '{other}', two names of one thing, and they differ: keep one"
    ):
        read({**given, other: changed}, tmp_path)


def test_a_mask_and_a_list_of_one_part_agree_or_are_refused():
    masks = {f"{part}_mask": mask for part, mask in PARTS.items()}
    assert graph_of(arrays(**masks, train_idx=[0, 1])).split.tolist() == ROLES
    with pytest.raises(DatasetError, match="has 'train_mask' and 'train_idx', two names of one thing, and they differ"):
        graph_of(arrays(**masks, train_idx=[0]))


def test_edge_attributes_yield_to_weights_and_are_named():
    graph = graph_of(arrays(edge_weight=WEIGHT, edge_attr=np.ones((5, 3))))
    assert (graph.weight.tolist(), graph.notes) == (WEIGHT.tolist(), ("arrays: left out: edge_attr",))
    with pytest.raises(DatasetError, match=r"^arrays: edge weights are \[5, 3\], must be \[E\]: one value per edge$"):
        graph_of(arrays(edge_attr=np.ones((5, 3))))


def test_words_and_wikics_stopping_masks_are_no_loss():
    graph = graph_of(arrays(label_names=np.array(["a", "b"]), stopping_mask=PARTS["val"]))
    assert graph.notes == ("arrays: left out: label_names, stopping_mask",)


def test_pairs_of_edges_are_turned_and_the_note_says_so():
    graph = graph_of({"edges": EDGES.T, "node_features": X, "node_labels": Y})
    assert (graph.src.tolist(), graph.dst.tolist()) == (EDGES[0].tolist(), EDGES[1].tolist())
    assert graph.notes == ("arrays: edges is taken for pairs of source and target, [5, 2]",)
    with pytest.raises(
        DatasetError, match=r"edges is \[2, 2\], which may be rows or columns: call it edge_index, \[2, E\]"
    ):
        graph_of({"edges": EDGES[:, :2].T, "x": X})


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"train_mask": np.ones((N, N), bool)}, r"train_mask is \[4, 4\], as many splits as vertices"),
        ({"train_mask": np.array([0, 1, 2, 0])}, "train_mask is int64 of 0 to 2, must be bool, or 0 and 1"),
        ({"train_idx": np.array([0, N])}, r"train_idx has vertex 4, must be in 0\.\.3"),
        ({"idx_val": np.array([-1])}, r"idx_val has vertex -1, must be in 0\.\.3"),
        ({"test_nid": np.array([0.5])}, r"test_nid is float64 \[1\], must be integers \[k\]: vertices"),
        ({"train_idx": np.array([[0, 1], [2, 3]])}, r"train_idx is int64 \[2, 2\], must be integers \[k\]: vertices"),
        ({"train": np.array([0, 1, 1, 0])}, "train is 0 or 1 for each of 4 vertices: call it a mask"),
        ({"train_idx": [0, 1], "valid_idx": [1]}, "vertex 1 is in train_idx and valid_idx of split 0, must be in one"),
    ],
)
def test_splits_that_do_not_fit_are_refused(parts, words):
    with pytest.raises(DatasetError, match=f"^g: {words}"):
        split_of(parts, N, "g")


def test_masks_by_no_known_name_are_refused():
    with pytest.raises(DatasetError, match="'trains' is no name of a mask: call it train_mask, val_mask or test_mask"):
        siafu.from_arrays(EDGES, X, masks={"trains": PARTS["train"]})


def test_names_that_are_of_no_part():
    for name in ("train_edge_mask", "strain", "testament", "edge_index", "idx", "train_test_mask", "value", ""):
        assert role_of(name) is None, name


def test_what_some_kinds_of_edges_carry_is_refused_where_it_is_a_weight_and_named_otherwise():
    nodes = {"feat": X}
    with pytest.raises(
        DatasetError, match=r"^g: only some kinds of vertices or edges have 'w': give it to all, or to none$"
    ):
        of_frames(EDGES, N, nodes, {}, partly=["w"], name="g")
    assert of_frames(EDGES, N, nodes, {}, partly=["norm"], name="g").notes == ("g: left out: norm",)


def test_an_archive_may_say_what_its_labels_are(tmp_path):
    graph = of_npz(arrays(y=np.array([0.0, 1, 1, 0]), target=np.array("classes")), tmp_path)
    assert (graph.target, graph.labels.tolist()) == ("classes", [0, 1, 1, 0])


def test_classes_are_as_many_as_an_archive_tells_unless_a_target_makes_columns_of_them(tmp_path):
    assert of_npz(arrays(num_classes=np.int64(5)), tmp_path).num_classes == 5
    one_hot = arrays(y=np.eye(4, 3), num_classes=np.int64(1))
    np.savez(tmp_path / "h.npz", **one_hot)
    assert resolve(f"{tmp_path}/h.npz?target=labels").load().num_classes == 3
    assert resolve(f"{tmp_path}/h.npz?target=numbers").load().num_classes == 3
    with pytest.raises(DatasetError, match=r"num_classes is int64 \[1\], must be an integer scalar"):
        graph_of(arrays(num_classes=np.array([5])))


def test_ids_that_ascend_are_kept_and_others_named():
    assert graph_of(arrays(n_id=np.array([3, 5, 8, 9]))).ids.tolist() == [3, 5, 8, 9]
    graph = graph_of(arrays(node_id=np.array([3, 5, 4, 9])))
    assert (graph.ids, graph.notes) == (None, ("arrays: left out: node_id",))


@every_reader
def test_a_column_of_labels_is_one_label_per_vertex(read, tmp_path):
    for values, target in ((Y[:, None], "classes"), (np.array([[0.5], [1], [2], [np.nan]]), "numbers")):
        given = {"edge_index": EDGES, "x": X, "y": values}
        graph = read(given, tmp_path)
        assert (graph.target, graph.labels.shape) == (target, (N,))
