"""What tests of several rooms share."""

from __future__ import annotations

import gc
import os
import zlib
from collections.abc import Iterator

import pytest

from tests import surroundings

surroundings.settle()  # before numpy is imported: it reads variables then

import numpy as np  # noqa: E402

from tests import sampled  # noqa: E402
from tests.simulated_ray import SimulatedRay  # noqa: E402


def pytest_unconfigure() -> None:
    surroundings.end()


@pytest.hookimpl(tryfirst=True)  # -m selects afterwards
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """README's commands take longest: begun last, they would leave all processors but one idle."""
    items.sort(key=lambda item: item.path.name != "test_pages.py")
    sampled.mark_long(items)


def pytest_collection_finish() -> None:
    """What was collected stays, and so does most of what tests import: looked through again and again for cycles, they
    took 6% of a run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 20)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[SimulatedRay]:
    """Three nodes, started once. Whoever loses one puts it back. It asserts that nothing is left of it in the end."""
    pytest.importorskip("ray", reason="needs the extra ray")
    with SimulatedRay() as cluster:
        yield cluster


#: Mapped arrays hold a descriptor each, and those of a graph that has gone go only when its cycles are collected. That
#: takes half a second here: it is done once so many more are open than stayed open after the last time.
MORE_OPEN_FILES = 200


@pytest.fixture(scope="session")
def stayed_open() -> dict[str, int]:
    """Under "files", the descriptors that did."""
    return {"files": 100}


@pytest.fixture(autouse=True)
def few_open_files(stayed_open: dict[str, int]) -> Iterator[None]:
    """A worker of the test run does thousands of tests with 1,024 descriptors."""
    yield
    if os.path.isdir("/proc/self/fd") and len(os.listdir("/proc/self/fd")) > stayed_open["files"] + MORE_OPEN_FILES:
        gc.collect()
        stayed_open["files"] = len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def numbers_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module's ``RNG`` starts anew for every test: what it draws does not depend on which
    tests ran before it, and where."""
    if hasattr(request.module, "RNG"):
        seed = zlib.crc32(request.node.name.encode())
        monkeypatch.setattr(request.module, "RNG", np.random.default_rng(seed))
