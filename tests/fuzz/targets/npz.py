"""``.npz`` sources: an archive of arrays."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Iterator

import numpy as np

from graph_data.sources import npz
from siafu.graph import tidy
from tests.fuzz.inputs import Input
from tests.fuzz.mutations import edited_npy
from tests.fuzz.targets import Folder, Target

FILE = "graph.npz"


class Npz(Target):
    """Its parts are the arrays, and "zip": changes to the archive made of them, as places and bytes."""

    name = "npz"
    modules = (
        "graph_data.sources.npz",
        "graph_data.fields",
        "graph_data.masks",
        "graph_data.objects.arrays",
        "siafu.graph",
        "siafu.sparse",
        "numpy.lib.format",
        "zipfile",
    )
    tokens = (b"PK\x01\x02", b"PK\x05\x06", b"PK\x03\x04", b"'shape': ()", b"|O", b"<f4", b"(2, 3)")
    constant_bytes = 600_000
    bytes_per_byte = 2000  # what is compressed may be a thousand times as long

    def __init__(self) -> None:
        self._folder = Folder()

    def examples(self) -> Iterator[Input]:
        arrays: dict[str, object] = {
            "edge_index": np.array([[0, 1, 2], [1, 2, 0]]),
            "num_nodes": 3,
            "num_features": 2,
            "num_classes": 2,
            "x": np.ones((3, 2), np.float32),
            "y": np.array([0, 1, -1]),
            "train_mask": np.array([True, False, False]),
        }
        yield _parts(arrays)
        yield _parts({**arrays, "edge_weight": np.ones(3), "edge_type": np.array([0, 1, 0]), "num_edge_types": 3})
        yield _parts(
            {
                "edges": np.array([[0, 1], [1, 2], [2, 0]]),
                "node_features": np.ones((3, 2)),
                "label": np.array([[0], [1], [0]]),
                "train_masks": np.eye(2, 3, dtype=np.uint8),
                "test_idx": np.array([2]),
                "w": np.ones((3, 1)),
                "feature_names": np.array(["a", "b"]),
                "node_year": np.arange(3),
                "n_id": np.array([3, 5, 8]),
            }
        )
        sparse = {
            "x_indptr": np.array([0, 1, 1, 2]),
            "x_indices": np.array([0, 1], np.int32),
            "x_data": np.ones(2, np.float32),
        }
        yield _parts({**{key: value for key, value in arrays.items() if key != "x"}, **sparse})
        yield (*_parts({**arrays, "y": np.array([[0, 1], [1, 1], [0, 0]], np.uint8)}), ("zip", b""))
        yield (*_parts({**arrays, "y": np.array([0.5, np.nan, 1])}), ("zip", struct.pack("<IB", 3, 9)))

    def run(self, given: Input) -> None:
        graph = npz.load(str(self._folder.put(((FILE, _archive(given)),)) / FILE))
        tidy(graph, directed=True)

    def edited(self, given: Input, rng: random.Random) -> Input | None:
        which = rng.choice(given)[0] if given else ""
        return tuple((name, edited_npy(content, rng) if name == which else content) for name, content in given)


def _archive(given: Input) -> bytes:
    stream = io.BytesIO()
    parts = dict(given)
    changes = parts.pop("zip", b"")
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    data = bytearray(stream.getvalue())
    for place, byte in struct.iter_unpack("<IB", changes[: len(changes) // 5 * 5]):
        data[place % len(data)] = byte
    return bytes(data)


def _parts(arrays: dict[str, object]) -> Input:
    parts = []
    for name, values in arrays.items():
        stream = io.BytesIO()
        np.save(stream, np.asarray(values))
        parts.append((f"{name}.npy", stream.getvalue()))
    return tuple(parts)
