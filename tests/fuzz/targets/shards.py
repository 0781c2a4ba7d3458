"""``siafu.shards``: a small prepared folder of which some file is not what it was."""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graph_data.prepare import prepare
from siafu.shards import MANIFEST, ShardSet
from siafu.sparse import SparseRows
from tests.fuzz.inputs import Input
from tests.fuzz.mutations import edited_json, edited_npy
from tests.fuzz.targets import Folder, Target, replaced
from tests.graph_data.graphs import random_graph

SHAPES = ({}, {"weighted": True}, {"sparse": True}, {"types": 3}, {"numbers": 1})


class Shards(Target):
    name = "shards"
    modules = ("siafu.shards", "siafu.verified", "siafu.sparse", "numpy.lib.format")
    tokens = (
        b"'descr': ",
        b"'shape': (",
        b"(3,)",
        b"'fortran_order': True",
        b"|O",
        b"<f4",
        b'"digest":',
        b"../",
        b"\x93NUMPY\x02\x00",
    )
    constant_bytes = 2_500_000  # files are hashed in blocks of 1 MiB, of which two are there at a time

    def __init__(self) -> None:
        self._folder = Folder()

    def examples(self) -> Iterator[Input]:
        for i, shape in enumerate(SHAPES):
            with tempfile.TemporaryDirectory() as name:
                graph = random_graph(n=8, edges=16, splits=1, **shape)  # type: ignore[arg-type]
                prepare(graph, Path(name) / "out", parts=1, partitioner="chunk", order="given", directed=i % 2 == 1)
                out = Path(name) / "out"
                files = sorted(file for file in out.rglob("*") if file.is_file())
                yield tuple((str(file.relative_to(out)), file.read_bytes()) for file in files)

    def run(self, given: Input) -> None:
        shards = ShardSet.open(self._folder.put(given))
        for p in range(min(4, shards.manifest.num_partitions)):
            shard = shards.partition(p)
            for value in vars(shard).values():
                if isinstance(value, np.ndarray):
                    value.sum() if value.dtype.kind in "iu" else value.tobytes()
                elif isinstance(value, SparseRows):
                    value.indices.sum()
        _ = shards.manifest.digest
        shards.verify()

    def edited(self, given: Input, rng: random.Random) -> Input | None:
        parts = dict(given)
        if not parts:
            return None
        name = MANIFEST if MANIFEST in parts and rng.random() < 0.5 else rng.choice(list(parts))
        edit = edited_json if name == MANIFEST else edited_npy
        return replaced(given, name, edit(parts[name], rng))

    def sealed(self, given: Input) -> Input:
        """Sizes and hashes of the files as they are, and the manifest's digest over them."""
        parts = dict(given)
        try:
            body = json.loads(parts[MANIFEST])
            for p, entry in enumerate(body["partitions"]):
                for file, said in entry["files"].items():
                    content = parts.get(f"part-{p:03d}/{file}")
                    if content is not None:
                        said.update(
                            bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), crc32=zlib.crc32(content)
                        )
            unsealed = {key: value for key, value in body.items() if key != "digest"}
            canonical = json.dumps(unsealed, sort_keys=True, separators=(",", ":"))
            body["digest"] = hashlib.sha256(canonical.encode()).hexdigest()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return given
        return replaced(given, MANIFEST, json.dumps(body).encode())
