"""Where ApplyEdge runs: on graph servers, inside of the gather, or as tensor tasks. What
either costs, and which is less. Pure.

On servers a coefficient lives in registers while its row is gathered. As a tensor task its scores are cut out,
travel, and come back as coefficients that a gather then reads: the server saves no more than the softmax, and
pays for the cutting. That is worth it where environments are many and near and the server's threads few; seconds
are of the server with most edges:

    servers   fused · edges / threads
    Lambdas   max(given · edges / threads + tasks · message, (task · edges / core + bytes / link + tasks · message)
                  / environments)
              where environments are processes of this machine, all of it one after the other on the threads

Rows of vertices travel alike in both, and are left out. ``run_coordinator.apply_edge`` measures ``Seconds``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from siafu.machine import MESSAGE_S
from siafu.models import Model
from siafu.run_files import Explained, PlaceFigures
from siafu.tasks import Kind, Lane, Step, is_of_edges

Placement = Literal["server", "lambda"]
#: Lambdas are chosen below this share of the servers' time: a second measurement differs by as much.
CLEARLY = 0.8


@dataclass(frozen=True)
class Seconds:
    """Of one core of this machine, for one edge in all layers of an epoch, forward and backward."""

    fused: float  # the gathers with the coefficients inside
    given: float  # the gathers with coefficients that came from elsewhere, and cutting out what makes them
    task: float  # the edge tasks' arithmetic in numpy


@dataclass(frozen=True)
class Load:
    """Of the graph server with most edges."""

    edges: int  # into its vertices, with those to themselves
    tasks: int  # of edges, in an epoch
    nbytes: int  # that its edge tasks send and receive in an epoch
    threads: int
    environments: int
    core: float  # what an environment has of a core
    link_bytes_per_s: float  # of an environment; where it is a process of this machine, what a core copies
    here: bool  # whether environments share this machine's cores


@dataclass(frozen=True)
class Estimate:
    server_s: float
    lambda_s: float

    @classmethod
    def of(cls, seconds: Seconds, load: Load) -> Estimate:
        server_s = seconds.fused * load.edges / load.threads
        graph_s, task_s = seconds.given * load.edges, seconds.task * load.edges
        travel_s, messages_s = load.nbytes / load.link_bytes_per_s, load.tasks * MESSAGE_S
        if load.here:
            return cls(server_s, (graph_s + task_s + travel_s + 2 * messages_s) / load.threads)
        there_s = (task_s / load.core + travel_s + messages_s) / load.environments
        return cls(server_s, max(graph_s / load.threads + messages_s, there_s))

    @property
    def best(self) -> Placement:
        """Servers, unless Lambdas are clearly faster."""
        return "lambda" if self.lambda_s < CLEARLY * self.server_s else "server"


def edge_steps(model: Model) -> list[Step]:
    """The edge tasks of an epoch of a model that is built with ``apply_edge = "lambda"``; none for most models."""
    steps = model.program(Lane.TRAIN).steps
    return [step for step in steps if step.kind in (Kind.AE, Kind.AE_B) and step.operator == "attention"]


def nbytes_of_epoch(model: Model, edges: int, vertices: int, intervals: int, *, weighted: bool) -> int:
    """What the edge tasks of one server send and receive. Each array of edges has a
    pointer more than its interval has rows.

    edges: into the vertices, with those to themselves; backwards as many go out of the vertices of all servers
    together.
    """
    itemsize, pointers = np.dtype(model.spec.dtype).itemsize, 8 * (vertices + intervals)
    total = 0
    for step in edge_steps(model):
        cut = f"E{step.gathers}"
        for slot in (*step.reads, cut, *step.writes):
            width = model.width(slot) + (weighted and slot == cut)
            total += edges * width * itemsize + pointers if is_of_edges(slot) else vertices * width * itemsize
    return total


def explained(chosen: Placement, asked: str, nbytes: int, estimate: Estimate | None, load: Load | None) -> Explained:
    """For result.json: what was chosen, and by which figures."""
    server: PlaceFigures = {"bytes_per_epoch": 0}
    function: PlaceFigures = {"bytes_per_epoch": nbytes}
    found: Explained = {"chosen": chosen, "asked": asked, "server": server, "lambda": function}
    if estimate is not None and load is not None:
        server["epoch_s"], function["epoch_s"] = estimate.server_s, estimate.lambda_s
        found["load"] = asdict(load)
    return found
