"""The files that papers publish: JSON, text and arrays in one folder, read as the format that their names tell."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from graph_data.archives import formats
from siafu.errors import DatasetError
from siafu.graph import tidy
from tests.fuzz.inputs import Input
from tests.fuzz.targets import Folder, Target

FEATURES = np.array([[1, 0], [0, 2], [3, 0]], np.float32)
ADJACENCY = scipy.sparse.csr_matrix(np.array([[0, 1, 0], [0, 0, 1], [0, 1, 0]], np.float32))


def _saved(save: Any, *given: Any, **named: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, *given, **named)
    return stream.getvalue()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


class Archives(Target):
    """Pickles have a target of their own, and so has npz: here is what lies in JSON and
    text, and how files fit together."""

    name = "archives"
    modules = (
        *formats.FORMATS.values(),
        "graph_data.archives.formats",
        "graph_data.archives.found",
        "graph_data.archives.npzfile",
        "graph_data.archives.sparsematrix",
    )
    tokens = (
        b"\t",
        b",",
        b"\n",
        b"[",
        b"]",
        b"{}",
        b"null",
        b"true",
        b"1e400",
        b"-1",
        b"NaN",
        b"99999999999999999999",
        b"16777215",
        b'"val":',
        b'"test":',
        b"symmetric",
        b"skew-symmetric",
        b"pattern",
        b"integer",
        b"hermitian",
        b"complex",
        b"array",
        b"%",
    )
    constant_bytes = 300_000_000  # SciPy, of a matrix with sparsematrix.EMPTY_LINES rows
    bytes_per_byte = 400

    def __init__(self) -> None:
        self._folder = Folder()

    def examples(self) -> Iterator[Input]:
        feats = _saved(np.save, FEATURES)
        yield (
            ("adj_full.npz", _saved(scipy.sparse.save_npz, ADJACENCY)),
            ("role.json", _json({"tr": [0], "va": [1], "te": [2]})),
            ("class_map.json", _json({"0": 0, "1": 1, "2": 0})),
            ("feats.npy", feats),
        )
        nodes = [{"id": v, "val": v == 1, "test": v == 2} for v in range(3)]
        for ids in (range(3), "abc"):
            yield (
                (
                    "x-G.json",
                    _json(
                        {
                            "nodes": [node | {"id": one} for node, one in zip(nodes, ids, strict=True)],
                            "links": [{"source": ids[0], "target": ids[1]}, {"source": 1, "target": 2}],
                        }
                    ),
                ),
                ("x-id_map.json", _json({str(one): v for v, one in enumerate(ids)})),
                ("x-class_map.json", _json({str(one): [v % 2, 1] for v, one in enumerate(ids)})),
                ("x-feats.npy", feats),
            )
        for rows in (("0,1", "1,0", "0,0"), ("0,3", "1", "2")):
            lines = "".join(f"{v}\t{row}\t{v % 2}\n" for v, row in enumerate(rows))
            yield (
                ("out1_graph_edges.txt", b"node_id\tnode_id\n0\t1\n2\t1\n"),
                ("out1_node_feature_label.txt", b"node_id\tfeature\tlabel\n" + lines.encode()),
            )
        yield (("x.content", b"31\t0\t1\tred\n7 1 0 blue\n"), ("x.cites", b"31\t7\n7 31\n99 7\n"))
        for words in (b"real general\n3 3 2\n1 2 0.5\n3 1 2\n", b"pattern symmetric\n% by hand\n\n3 3 1\n2 1\n"):
            yield (("x.mtx", b"%%MatrixMarket matrix coordinate " + words),)
        masks = {f"{part}_masks": np.eye(3, dtype=bool)[i][None] for i, part in enumerate(("train", "val", "test"))}
        yield (
            (
                "x.npz",
                _saved(np.savez, node_features=FEATURES, node_labels=np.arange(3), edges=np.eye(2, dtype=int), **masks),
            ),
        )

    def run(self, given: Input) -> None:
        folder = self._folder.put(tuple((name.replace("/", "_"), content) for name, content in given if name))
        found = formats.recognised(folder)
        if found is None:
            raise DatasetError("nothing is recognised")
        options = "?features=random:2" if found.title == "a MatrixMarket file" else ""
        graph = tidy(formats.load(f"{folder}{options}"))
        assert len(graph.labels) == graph.num_vertices == len(graph.split)
