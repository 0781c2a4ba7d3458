"""What tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulated_ray import SimulatedRay


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[SimulatedRay]:
    """Three nodes, started once. Whoever loses one puts it back. It asserts that nothing is left of it in the end."""
    pytest.importorskip("ray", reason="needs the extra ray")
    with SimulatedRay() as cluster:
        yield cluster
