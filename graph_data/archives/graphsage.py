"""GraphSAGE's files (Hamilton et al., NeurIPS 2017): X-G.json (node-link), X-id_map.json, X-class_map.json and X-feats.npy.

A vertex's number is id_map's. Ends of links are ids; where ids are texts and ends are integers, as old NetworkX wrote, they are
places in the list of nodes. A node that is neither ``val`` nor ``test`` trains; one without these two is in no split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_data.archives.found import Found, check_within, graph_of, integers, labels_by, read_json, rows_of
from siafu.errors import DatasetError
from siafu.graph import NONE, TEST, TRAIN, VAL, Graph
from siafu.sparse import Array

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
    split[numbers, 0] = [_role(node) for node in nodes]
    unsaid = int((split == NONE).sum())
    classes = read_json(classes_file)
    labels = labels_by(_numbers(ids, classes, ids_file), classes.values(), num_vertices, classes_file)
    notes = (f"{found.shown}: {unsaid} nodes say neither val nor test: in no split",) if unsaid else ()
    return graph_of(found, given, (src, dst, None), rows_of(features_file), labels, split, notes=notes)


def _records(given: Any, name: str, file: Path) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(record, dict) for record in given):
        raise DatasetError(f"{file}: {name} must be a list of objects")
    return given


def _numbers(ids: dict[str, Any], chosen: Any, file: Path) -> Array:
    """Of ids that are keys of id_map: JSON has texts there."""
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


def _role(node: dict[str, Any]) -> int:
    if not {"val", "test"} <= node.keys():
        return NONE
    return TEST if node["test"] else VAL if node["val"] else TRAIN
