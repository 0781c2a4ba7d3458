"""``bsnap:`` sources: a folder of Dorylus', and what siafu keeps beside it."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator

import numpy as np

from graph_data.sources import bsnap
from siafu.graph import tidy
from tests.fuzz.inputs import Input
from tests.fuzz.mutations import edited_npy
from tests.fuzz.targets import Folder, Target, replaced


class Bsnap(Target):
    name = "bsnap"
    modules = (
        "graph_data.sources.bsnap",
        "graph_data.rowfile",
        "graph_data.sources.beside",
        "graph_data.sources.vertexfiles",
        "siafu.graph",
        "numpy.lib.format",
    )
    tokens = (b"\x04\x00\x00\x00", struct.pack("<IQ", 3, 2), b"\x93NUMPY\x01\x00", b"|O", b"<f4", b"'shape': (4,)")
    constant_bytes = 400_000

    def __init__(self) -> None:
        self._folder = Folder()

    def examples(self) -> Iterator[Input]:
        graph = struct.pack("<iIQ6I", 4, 4, 3, 0, 1, 1, 2, 2, 0)
        features = struct.pack("<I", 2) + np.arange(8, dtype="<f4").tobytes()
        labels = struct.pack("<I4I", 2, 0, 1, 0, 1)
        plain = (("graph.bsnap", graph), ("features.bsnap", features), ("labels.bsnap", labels))
        yield plain
        yield (*plain, ("split.npy", _npy(np.array([[1], [2], [3], [0]], np.uint8))))
        yield (*plain, ("weight.npy", _npy(np.ones(3, np.float32))), ("type.npy", _npy(np.array([0, 1, 0], np.uint16))))
        yield (*plain, ("labels.npy", _npy(np.array([[0.5], [np.nan], [1], [2]], np.float32))))
        yield (*plain, ("labels.npy", _npy(np.array([[0, 1], [1, 1], [0, 0], [1, 0]], np.uint8))))

    def run(self, given: Input) -> None:
        graph = bsnap.load(str(self._folder.put(given)))
        tidy(graph, directed=True)

    def edited(self, given: Input, rng: random.Random) -> Input | None:
        if not given:
            return None
        name, content = rng.choice(given)
        if name.endswith(".npy"):
            return replaced(given, name, edited_npy(content, rng))
        return replaced(given, name, _as_headed(name, content, dict(given)))

    def sealed(self, given: Input) -> Input:
        """Cut or filled to the length that their headers say, if that is short: else all end at the length."""
        parts = dict(given)
        return tuple((name, _as_headed(name, content, parts)) for name, content in given)


def _as_headed(name: str, content: bytes, parts: dict[str, bytes]) -> bytes:
    graph = parts.get("graph.bsnap", b"")
    if len(graph) < 16 or len(content) < 4:
        return content
    _, vertices, edges = struct.unpack_from("<iIQ", graph)
    (first,) = struct.unpack_from("<I", content)
    lengths = {
        "graph.bsnap": 16 + 8 * edges,
        "features.bsnap": 4 + 4 * first * vertices,
        "labels.bsnap": 4 + 4 * vertices,
    }
    length = lengths.get(name, len(content))
    return content[:length].ljust(length, b"\0") if length <= 4096 else content


def _npy(values: np.ndarray) -> bytes:  # type: ignore[type-arg]
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()
