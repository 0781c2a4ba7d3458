"""Parsers with mistakes on purpose: the fuzzer must find them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from siafu.errors import DatasetError
from tests.fuzz.inputs import Input
from tests.fuzz.targets import Target


class Planted(Target):
    """A mistake behind three bytes, each of which is a line of its own and a bit from the example's: by chance alone it
    takes millions of changes to hit all of them."""

    name = "planted"
    modules = ("tests.fuzz.targets.planted",)

    def examples(self) -> Iterator[Input]:
        yield (("file", b"RH@.x"),)

    def run(self, given: Input) -> None:
        data = dict(given).get("file", b"")
        if data[:1] != b"S":
            raise DatasetError("not one of ours")
        if data[1:2] != b"I":
            raise DatasetError("not one of ours")
        if data[2:3] != b"A":
            raise DatasetError("not one of ours")
        raise KeyError("planted")


class Greedy(Planted):
    """Believes a length."""

    name = "greedy"

    def run(self, given: Input) -> None:
        data = dict(given).get("file", b"")
        bytearray(int.from_bytes(data[:4], "big") >> 4)  # 256 MB at most: the machine that tests must have it


class Deadly(Planted):
    """Ends its process."""

    name = "deadly"

    def run(self, given: Input) -> None:
        if not dict(given).get("file", b"x"):
            os.abort()
