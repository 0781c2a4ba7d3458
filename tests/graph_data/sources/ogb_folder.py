"""Small data in OGB's layout, as ``ogb.nodeproppred`` downloads and unpacks it."""

import gzip

import numpy as np

EDGES = np.array([[0, 1, 2, 3, 1], [1, 2, 0, 1, 1]])
FEATURES = np.array([[0.5, -1.25, 3.0], [0.0, 1e-3, 2.0], [1.0, 1.0, 1.0], [-2.0, 0.0, 0.125]], np.float32)
LABELS = np.array([[2.0], [0.0], [np.nan], [1.0]])
SPLITS = {"train": [0, 3], "valid": [1], "test": [2]}


def write(folder, edges=EDGES, features=FEATURES, labels=LABELS, splits=SPLITS, scheme="time", counts=None):
    rows, listed = counts or (len(labels), edges.shape[1])
    table(folder / "raw/edge.csv.gz", edges.T)
    table(folder / "raw/num-node-list.csv.gz", [[rows]])
    table(folder / "raw/num-edge-list.csv.gz", [[listed]])
    table(folder / "raw/node-label.csv.gz", labels)
    if features is not None:
        table(folder / "raw/node-feat.csv.gz", features)
    for name, vertices in splits.items():
        table(folder / f"split/{scheme}/{name}.csv.gz", np.reshape(vertices, (-1, 1)))
    return folder


def write_binary(folder):
    """As papers100M is packed."""
    write(folder)
    for file in (folder / "raw").iterdir():
        file.unlink()
    counts = {"num_nodes_list": np.array([len(LABELS)]), "num_edges_list": np.array([EDGES.shape[1]])}
    np.savez(folder / "raw/data.npz", edge_index=EDGES, node_feat=FEATURES, node_year=np.zeros((4, 1)), **counts)
    np.savez(folder / "raw/node-label.npz", node_label=LABELS)
    return folder


def table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(",".join(shown(value) for value in row) for row in rows)
    path.write_bytes(gzip.compress((text + "\n").encode()))


def shown(value):
    return (
        "nan"
        if isinstance(value, float | np.floating) and np.isnan(value)
        else repr(value.item() if hasattr(value, "item") else value)
    )
