"""The weights of a trained model are the same bits on every machine: one golden digest for
each model and number of partitions.

Whatever computes them: every instruction set, servers' threads or Lambdas, whatever BLAS NumPy has. Partitions may
change the order of sums, and so the bits.

``python -m tests.integration.test_golden_models`` writes the golden file anew: only where
siafu is meant to compute otherwise.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from run_coordinator.known_answer import numbers
from siafu import model_file
from siafu.config import Config
from siafu.graph import Graph, tidy
from siafu.models import MODELS
from siafu.shards import ShardSet
from tests.fleet import Fleet
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using
from tests.toy_graphs import with_sparse_features

GOLDEN = Path(__file__).parents[1] / "golden" / "models.json"
PARTS = (1, 2)
SETTINGS: dict[str, Any] = {
    "data.directed": True,
    "model.hidden": 24,
    "model.dropout": 0.3,
    "train.lr": 0.05,
    "train.weight_decay": 5e-4,
    "train.epochs": 5,
    "train.intervals": 3,
    "train.mode": "pipe",
    "train.clip_norm": 1.0,
    "train.schedule": "cosine",
}
#: Between them, all that a model may be made of.
OPTIONS: dict[str, dict[str, Any]] = {
    "gcn": {"model.layers": 3, "model.jump": "cat", "train.label_smoothing": 0.1},
    "sage": {"model.activation": "tanh", "model.norm": "layer"},
    "gat": {"model.activation": "elu", "model.heads": 4, "model.attn_dropout": 0.2, "model.residual": True},
    "gin": {"model.train_eps": True, "model.residual": True, "model.norm": "layer"},
    "gcnii": {"model.layers": 6, "train.optimizer": "sgd", "train.momentum": 0.9},
    "appnp": {"model.hops": 4, "model.dtype": "float64"},
    "sgc": {"model.hops": 2, "model.hidden": 16},
    "rgcn": {"model.bases": 2},
}
SPARSE = ("gcn", "sgc")
#: So many vertices that the rows of a task travel in parts, also those of one of two partitions.
N, NUM_EDGES, WIDTH, CLASSES = 900, 5000, 50, 7


def graph(model: str) -> Graph:
    """Of integers alone: no generator or C library has a part in it."""
    src, dst, kind, label = (
        (np.abs(numbers(size, seed=seed)) * high).astype(np.int64)
        for seed, (size, high) in enumerate(((NUM_EDGES, N), (NUM_EDGES, N), (NUM_EDGES, 3), (N, CLASSES)))
    )
    features = numbers(N, WIDTH, seed=5)
    features[np.abs(numbers(N, WIDTH, seed=6)) < 0.7] = 0
    made = tidy(
        Graph(
            name="golden",
            num_vertices=N,
            src=src,
            dst=dst,
            weight=0.5 + np.abs(numbers(NUM_EDGES, seed=7)),
            features=features,
            labels=label,
            num_classes=CLASSES,
            split=np.array([1, 1, 2, 3], np.uint8)[np.arange(N) % 4][:, None],
            directed=True,
        ),
        directed=True,
    )
    if model == "rgcn":
        made = replace(made, edge_type=kind[: made.num_edges].astype(np.uint16), num_edge_types=3)
    return with_sparse_features(made) if model in SPARSE else made


def shards_of(model: str, parts: int, folder: Path) -> ShardSet:
    return prepare(graph(model), folder, parts=parts, partitioner="random", order="random", directed=True)


def digest(model: str, shards: ShardSet, parts: int, backend: str) -> str:
    options = {"model.name": model, "data.parts": parts, "servers.backend": backend, **OPTIONS.get(model, {})}
    fleet = Fleet(Config().replace({**SETTINGS, **options}), shards, seed=3)
    fleet.train()
    return model_file.digest(fleet.weights("final"))


@pytest.mark.sampled(2)
@pytest.mark.skipif(len(INSTRUCTION_SETS) == 1, reason="no compiled kernels")
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("model", MODELS)
def test_every_machine_trains_to_the_golden_bits(model: str, parts: int, tmp_path: Path):
    wanted = json.loads(GOLDEN.read_text())[f"{model}, {parts} partitions"]
    shards = shards_of(model, parts, tmp_path)
    for isa in INSTRUCTION_SETS[1:]:
        with using(isa):
            assert digest(model, shards, parts, "cpu") == wanted, isa
    assert digest(model, shards, parts, "lambda") == wanted


def golden() -> Iterator[tuple[str, str]]:
    for model in MODELS:
        for parts in PARTS:
            with tempfile.TemporaryDirectory() as folder:
                yield f"{model}, {parts} partitions", digest(model, shards_of(model, parts, Path(folder)), parts, "cpu")


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(dict(golden()), indent=1) + "\n")
