"""Pickles of the field's archives: arrays, sparse matrices, and dicts of lists, read without running them."""

from __future__ import annotations

import collections
import pickle
import random
from collections.abc import Iterator

import numpy as np
import scipy.sparse

from graph_data.archives import plainpickle
from siafu.errors import DatasetError
from tests.fuzz.inputs import Input
from tests.fuzz.targets import Target

FILE = "pickle"


class Pickles(Target):
    """A module that a pickle names is never imported, and a state is never set on
    anything but what stands for an array."""

    name = "pickles"
    modules = ("graph_data.archives.plainpickle", "graph_data.archives.sparsematrix")
    tokens = (
        b"cnumpy.core.multiarray\n_reconstruct\n",
        b"cnumpy\ndtype\n",
        b"cscipy.sparse.csr\ncsr_matrix\n",
        b"cposix\nsystem\n",
        b"c__builtin__\nlist\n",
        b"ccopy_reg\n_reconstructor\n",
        b"R",
        b"b",
        b"\x81",
        b"s",
        b"u",
        b"\x85",
        b"(",
        b"\x94",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"r\xff\xff\xff\x7f",
        b"\x96\xff\xff\xff\xff\xff\xff\xff\xff",
    )
    constant_bytes = 100_000_000  # SciPy, of a matrix with sparsematrix.EMPTY_LINES rows
    bytes_per_byte = 400  # an opcode of a byte makes an object, its place in the memo, and a matrix of ten arrays

    def examples(self) -> Iterator[Input]:
        dense = np.array([[0, 2], [1, 0]], np.float32)
        values = (
            dense,
            np.array(["a", "bc"]),
            np.array([1, None, "x"], object),
            collections.defaultdict(list, {0: [1], 1: [0, 0]}),
            *(getattr(scipy.sparse, f"{kind}_matrix")(dense) for kind in ("csr", "csc", "coo")),
        )
        for value in values:
            for protocol in (0, 2, pickle.HIGHEST_PROTOCOL):
                yield ((FILE, pickle.dumps(value, protocol)),)

    def run(self, given: Input) -> None:
        value = plainpickle.loads(dict(given).get(FILE, b""), FILE)
        assert (
            value is None
            or isinstance(value, (int, float, str, bytes, list, tuple, dict, type, *plainpickle.STAND_INS))
            or value in plainpickle.BUILDERS.values()
        ), type(value)
        for read in (plainpickle.array, plainpickle.matrix):
            try:
                read(value, FILE)
            except DatasetError:
                continue

    def edited(self, given: Input, rng: random.Random) -> Input | None:
        """An instruction of one example amid another."""
        examples = [dict(one)[FILE] for one in self.examples()]
        content, other = dict(given).get(FILE, b""), rng.choice(examples)
        place, start = rng.randrange(len(content) + 1), rng.randrange(len(other))
        return ((FILE, content[:place] + other[start : start + rng.randrange(1, 40)] + content[place:]),)
