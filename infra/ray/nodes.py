"""Which node of a Ray cluster gets which members of a run, and whether it has what they need."""

from __future__ import annotations

import logging
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from siafu import __version__, ray_cluster
from siafu.address import Address
from siafu.errors import ConfigError

logger = logging.getLogger(__name__)

#: For Ray to set nodes' processors aside, and for a worker process to start on each of them.
RESERVE_S, PROBE_S = 10.0, 30.0
CONNECT_S = 0.5


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    id: str
    host: str  # its address
    port: int  # of Ray's daemon there
    cpus: float  # processors, by Ray's count

    @property
    def answers(self) -> bool:
        """Whether the node's daemon answers within half a second."""
        try:
            socket.create_connection((self.host, self.port), CONNECT_S).close()
        except OSError:
            return False
        return True

    def __str__(self) -> str:
        return f"node {self.host} ({self.id[:8]})"


@dataclass(frozen=True)
class Reserved:
    """A placement group, and the nodes of its bundles."""

    group: Any
    bundles: Mapping[Address, int]
    nodes: Mapping[Address, Node]


def bundles(members: Sequence[Address], num_nodes: int) -> dict[Address, int]:
    """Member -> number of its bundle; each bundle will be on a node of its own.

    Graph servers come first, so each has a node of its own where there are enough, and parameter servers have one where
    there are more.
    """
    return {member: i % min(num_nodes, len(members)) for i, member in enumerate(members)}


def versions() -> dict[str, str]:
    """Versions that must be equal on all machines of a run."""
    ray = ray_cluster.load()
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "ray": str(ray.__version__), "siafu": __version__}


def mismatch(node: Node, theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The differences between a node's versions and ours, in one line; empty if there are none. ``error``: the reason
    why siafu does not load there."""
    if "error" in theirs:
        return f"{node} cannot load siafu: {theirs['error']}; install siafu {ours['siafu']} there"
    wrong = [f"{name} {theirs.get(name, 'none')}, not {own}" for name, own in ours.items() if theirs.get(name) != own]
    return f"{node} has {', '.join(wrong)} as this machine" if wrong else ""


def alive() -> list[Node]:
    """Machines of the cluster that can run a member."""
    ray = ray_cluster.load()
    found = (n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= 1)
    return [Node(n["NodeID"], n["NodeManagerAddress"], n["NodeManagerPort"], n["Resources"]["CPU"]) for n in found]


def reserve(members: Sequence[Address], num_graph_servers: int) -> Reserved:
    """Reserves a processor for each member. ConfigError without room, or if a node does not match."""
    ray = ray_cluster.load()
    nodes = alive()
    if not nodes:
        raise ConfigError("run.on = ray: the cluster has no node with a processor")
    if len(nodes) < num_graph_servers:
        logger.warning(
            "data.parts = %d, but the cluster has %d nodes: some have several graph servers, and "
            "hold as much of the graph",
            num_graph_servers,
            len(nodes),
        )
    placed = bundles(members, len(nodes))
    sizes = [list(placed.values()).count(b) for b in sorted(set(placed.values()))]
    if any(size > cpus for size, cpus in zip(sizes, sorted((node.cpus for node in nodes), reverse=True), strict=False)):
        raise ConfigError(_no_room(sizes, nodes))
    group = ray.util.placement_group([{"CPU": size} for size in sizes], strategy="STRICT_SPREAD")
    try:
        if not group.wait(RESERVE_S):
            raise ConfigError(_no_room(sizes, nodes))
        where = ray.util.placement_group_table(group)["bundles_to_node_id"]
        by_id = {node.id: node for node in nodes}
        reserved = Reserved(group, placed, {member: by_id[where[b]] for member, b in placed.items()})
        _check(reserved)
    except BaseException:
        ray.util.remove_placement_group(group)
        raise
    return reserved


def _no_room(sizes: Sequence[int], nodes: Sequence[Node]) -> str:
    free = ray_cluster.load().available_resources().get("CPU", 0)
    return (
        f"run.on = ray: {sum(sizes)} servers need {len(sizes)} nodes with {', '.join(map(str, sizes))} "
        f"free processors; {len(nodes)} nodes are alive, with {sum(node.cpus for node in nodes):g} "
        f"processors, {free:g} of them free"
    )


def _check(reserved: Reserved) -> None:
    """Asks every node for its versions."""
    ray = ray_cluster.load()
    strategies = ray.util.scheduling_strategies

    def probe() -> dict[str, str]:  # a function in a function travels whole: the node may have no siafu to find it in
        try:
            from infra.ray import nodes as ray_nodes

            return ray_nodes.versions()
        except Exception as error:  # the edge of a process
            return {"error": f"{type(error).__name__}: {error}"}

    task = ray.remote(probe)
    asked = {}
    for member, bundle in reserved.bundles.items():
        there = strategies.PlacementGroupSchedulingStrategy(reserved.group, placement_group_bundle_index=bundle)
        node = reserved.nodes[member]
        if node not in asked:
            asked[node] = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()
    ours = versions()
    for node, answer in asked.items():
        try:
            theirs = ray.get(answer, timeout=PROBE_S)
        except ray.exceptions.RayError as error:
            raise ConfigError(f"run.on = ray: {node} cannot run anything: {ray_cluster.text_of(error)}") from error
        if why := mismatch(node, theirs, ours):
            raise ConfigError(f"run.on = ray: {why}")
