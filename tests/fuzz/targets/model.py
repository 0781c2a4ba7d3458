"""``siafu.model_file.load_model``: weights in safetensors, from whoever trained them."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from siafu.model_file import digest, load_model, save_model
from siafu.models import ModelSpec
from tests.fuzz.inputs import Input
from tests.fuzz.mutations import edited_safetensors
from tests.fuzz.targets import Folder, Target, replaced

FILE = "model.safetensors"


class Model(Target):
    name = "model"
    modules = ("siafu.model_file", "siafu.models")
    tokens = (
        b'"__metadata__":',
        b'"data_offsets":[0,4]',
        b'"dtype":"F32"',
        b'"BF16"',
        b'"F8_E4M3"',
        b'"shape":[',
        b"widths",
        b'\\"',
    )
    structured = 0.6

    def __init__(self) -> None:
        self._folder = Folder()

    def examples(self) -> Iterator[Input]:
        spec = ModelSpec("gcn", in_features=3, num_classes=2, num_train=4)
        kinds = (
            {},
            {"W0": np.ones((3, 2), np.float32)},
            {"a": np.zeros(0), "b": np.float64(3), "c": np.ones((2, 1, 2), np.int64)},
        )
        for weights in kinds:
            with tempfile.TemporaryDirectory() as name:
                save_model(Path(name) / FILE, weights, spec, {"epoch": 3})
                yield ((FILE, (Path(name) / FILE).read_bytes()),)

    def run(self, given: Input) -> None:
        weights, spec = load_model(self._folder.put(given) / FILE)
        assert all(isinstance(name, str) for name in weights)
        assert isinstance(spec.widths, tuple)
        for W in weights.values():
            W.tobytes()

    def sealed(self, given: Input) -> Input:
        """With the digest of the weights as they are."""
        data = dict(given).get(FILE, b"")
        try:
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + length])
            header["__metadata__"]["digest"] = digest(load(data))
        except (ValueError, KeyError, TypeError, RecursionError, SafetensorError):
            return given
        text = json.dumps(header).encode()
        return replaced(given, FILE, len(text).to_bytes(8, "little") + text + data[8 + length :])

    def edited(self, given: Input, rng: random.Random) -> Input | None:
        return tuple((name, edited_safetensors(content, rng)) for name, content in given)
