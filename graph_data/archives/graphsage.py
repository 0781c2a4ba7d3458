"""GraphSAGE's files (Hamilton et al., NeurIPS 2017): X-G.json (node-link),
X-id_map.json, X-class_map.json and X-feats.npy.

A vertex's number is id_map's. Ends of links are ids; where ids are texts and ends are integers, as old
NetworkX wrote, they are places in the list of nodes. A node that is neither ``val`` nor ``test`` trains;
one without these two is in no split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_data.archives.found import Found, check_within, graph_of, integers, labels_by, read_json, rows_of
from siafu.errors import DatasetError, listed
from siafu.graph import NONE, TEST, TRAIN, VAL, Graph
from siafu.sparse import Array

NODE, LINK = {"id", "val", "test"}, {"source", "target", "weight"}  # what is read of each
PARTS = ("G.json", "id_map.json", "class_map.json", "feats.npy")


def find(file: Path) -> Found | None:
    stem = next((file.name.removesuffix(f"-{part}") for part in PARTS if file.name.endswith(f"-{part}")), "")
    files = tuple(file.with_name(f"{stem}-{part}") for part in PARTS)
    if not stem or not any(one.is_file() for one in files[:3]):  # anybody may call features X-feats.npy
        return None
    return Found(stem, files, f"{stem}-G.json")


def load(found: Found, given: dict[str, str]) -> Graph:
    graph_file, ids_file, classes_file, features_file = found.files
    whole, ids = read_json(graph_file), read_json(ids_file)
    nodes, links = (_records(whole.get(name), name, graph_file) for name in ("nodes", "links"))
    numbers = _numbers(ids, [node.get("id") for node in nodes], ids_file)
    num_vertices = len(nodes)
    check_within(numbers, num_vertices, str(ids_file))
    if len(np.unique(numbers)) < num_vertices:
        raise DatasetError(f"{ids_file}: two nodes of {graph_file.name} have one number")
    src, dst = (_ends(links, end, nodes, numbers, ids, graph_file) for end in ("source", "target"))
    split = np.zeros((num_vertices, 1), np.uint8)
    split[numbers, 0] = [_role(node, graph_file) for node in nodes]
    unsaid = int((split == NONE).sum())
    classes = read_json(classes_file)
    labels = labels_by(_numbers(ids, classes, ids_file), classes.values(), num_vertices, classes_file)
    notes: tuple[str, ...] = (f"{found.shown}: {unsaid} nodes say neither val nor test: in no split",) if unsaid else ()
    for what, records, read in (("nodes", nodes, NODE), ("links", links, LINK)):
        if left := sorted({key for record in records for key in record} - read):
            notes += (f"{found.shown}: left out of {what}: {listed(left)}",)
    return graph_of(
        found, given, (src, dst, _weights(links, graph_file)), rows_of(features_file), labels, split, notes=notes
    )


def _records(given: Any, name: str, file: Path) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(record, dict) for record in given):
        raise DatasetError(f"{file}: {name} must be a list of objects")
    return given


def _numbers(ids: dict[str, Any], chosen: Any, file: Path) -> Array:
    """Vertex numbers of ids, which are texts in id_map: JSON has only texts as keys."""
    try:
        return integers((ids[str(one)] for one in chosen), file)
    except KeyError as missing:
        raise DatasetError(f"{file}: has no id {str(missing)[:60]}") from None


def _ends(links: Any, end: str, nodes: Any, numbers: Array, ids: dict[str, Any], file: Path) -> Array:
    ends = [link.get(end) for link in links]
    if isinstance(nodes[0].get("id") if nodes else None, str) and all(type(one) is int for one in ends):
        places = integers(ends, file)
        check_within(places, len(nodes), str(file))
        return numbers[places]
    return _numbers(ids, ends, file)


def _weights(links: list[dict[str, Any]], file: Path) -> Array | None:
    weights = [link.get("weight") for link in links]
    if all(weight is None for weight in weights):
        return None
    if not all(type(weight) in (int, float) for weight in weights):
        raise DatasetError(f"{file}: a link whose weight is no number, or that has none while others have one")
    with np.errstate(over="ignore"):  # what is infinite then is refused by the check of the graph
        return np.array(weights, np.float64).astype(np.float32)


def _role(node: dict[str, Any], file: Path) -> int:
    """The role of a node by its two flags. A node with only one of them has false for the other."""
    val, test = (node.get(flag, False) for flag in ("val", "test"))
    if not {type(val), type(test)} <= {bool, int}:
        raise DatasetError(f"{file}: node {str(node.get('id'))[:60]!r}: val and test must be true or false")
    if test or val:
        return TEST if test else VAL
    return TRAIN if {"val", "test"} <= node.keys() else NONE
