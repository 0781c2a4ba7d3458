"""How many environments a graph server may have on a Ray cluster: no cluster is needed."""

from __future__ import annotations

import pytest

from graph_server.lambdas.launchers.ray import share_of
from siafu.errors import ConfigError


@pytest.mark.parametrize(
    ("free", "memory_mb", "parts", "expected"),
    [
        ({"CPU": 2.0, "memory": 64 << 30}, 1769, 1, 2),
        ({"CPU": 2.0, "memory": 64 << 30}, 192, 2, 9),
        ({"CPU": 1.0, "memory": 64 << 30}, 1769, 1, 1),  # just one
        ({"CPU": 64.0, "memory": 1 << 30}, 512, 1, 2),
    ],
)
def test_graph_servers_share_the_room_that_is_left(
    free: dict[str, float], memory_mb: int, parts: int, expected: int
) -> None:
    assert share_of(free, memory_mb, parts) == expected


def test_cluster_without_room_for_an_environment_each_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has 0 processors .* room for 0 environments of 192 MB; 2 graph servers"):
        share_of({"memory": 64 << 30}, 192, 2)
