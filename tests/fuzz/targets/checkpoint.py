"""``siafu.training_state.load``: the folder that training goes on from."""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from siafu.models import ModelSpec
from siafu.training_state import MANIFEST, TrainingState, load, write
from tests.fuzz.inputs import Input
from tests.fuzz.mutations import edited_json, edited_safetensors
from tests.fuzz.targets import Folder, Target, replaced


class Checkpoint(Target):
    name = "checkpoint"
    modules = ("siafu.training_state", "siafu.model_file")
    tokens = (
        b'"digest":',
        b'"format_version": 2',
        b'"versions": [',
        b"0/W0",
        b"7/",
        b'"files":',
        b"../ledger.json",
        b'{"": {}}',
    )
    structured = 0.6

    def __init__(self) -> None:
        self._folder = Folder()

    def examples(self) -> Iterator[Input]:
        W = np.ones((3, 2), np.float32)
        spec = ModelSpec("gcn", in_features=3, num_classes=2, num_train=4)
        states = (
            TrainingState(0, {0: {"W0": W}}, {}, {}),
            TrainingState(7, {7: {"W0": W}, 5: {"W0": W + 1}}, {"W0/m": W, "steps": np.int64(7)}, {"epochs": [1, 2]}),
        )
        for state in states:
            with tempfile.TemporaryDirectory() as name:
                write(Path(name), state, spec, "0123456789abcdef", {"edges": "0123456789abcdef"})
                yield tuple((file.name, file.read_bytes()) for file in sorted(Path(name).iterdir()))

    def run(self, given: Input) -> None:
        state = load(self._folder.put(given))
        assert state.version in state.weights
        assert isinstance(state.ledger, dict)
        for weights in (*state.weights.values(), state.optimiser):
            for value in weights.values():
                value.tobytes()

    def edited(self, given: Input, rng: random.Random) -> Input | None:
        if not given:
            return None
        name, content = rng.choice(given)
        edit = edited_safetensors if name.endswith(".safetensors") else edited_json
        return replaced(given, name, edit(content, rng))

    def sealed(self, given: Input) -> Input:
        """Sizes and hashes of the files as they are, and the manifest's digest over them."""
        parts = dict(given)
        try:
            body = json.loads(parts[MANIFEST])
            for name, said in body["files"].items():
                if name in parts:
                    said.update(bytes=len(parts[name]), sha256=hashlib.sha256(parts[name]).hexdigest())
            body.pop("digest", None)
            canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
            body["digest"] = hashlib.sha256(canonical.encode()).hexdigest()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return given
        return replaced(given, MANIFEST, json.dumps(body).encode())
