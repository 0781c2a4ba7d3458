"""GraphSAINT's folder (Zeng et al., ICLR 2020): adj_full.npz by SciPy, role.json, class_map.json and feats.npy.

adj_train.npz, the edges among training vertices, follows from these and is not read.
"""

from __future__ import annotations

from pathlib import Path

from graph_data.archives import npzfile
from graph_data.archives.found import Found, graph_of, integers, labels_by, read_json, rows_of, split_by
from graph_data.archives.sparsematrix import edges, square
from siafu.errors import DatasetError
from siafu.graph import Graph

PARTS = ("adj_full.npz", "role.json", "class_map.json", "feats.npy")
ROLES = ("tr", "va", "te")


def find(file: Path) -> Found | None:
    if file.name not in (*PARTS, "adj_train.npz"):
        return None
    files = tuple(file.with_name(part) for part in PARTS)
    if not (files[0].is_file() or files[1].is_file()):
        return None
    return Found(file.resolve().parent.name, files, "adj_full.npz")


def load(found: Found, given: dict[str, str]) -> Graph:
    adjacency_file, roles_file, classes_file, features_file = found.files
    adjacency = square(npzfile.scipy_matrix(adjacency_file))
    num_vertices = adjacency.shape[0]
    roles = read_json(roles_file)
    if not all(isinstance(roles.get(role), list) for role in ROLES):
        raise DatasetError(f"{roles_file}: must have lists {', '.join(ROLES)}")
    train, val, test = (integers(roles[role], roles_file) for role in ROLES)
    classes = read_json(classes_file)
    labels = labels_by(integers(classes, classes_file), classes.values(), num_vertices, classes_file)
    split = split_by(num_vertices, train, val, test, str(roles_file))
    return graph_of(found, given, edges(adjacency), rows_of(features_file), labels, split)
