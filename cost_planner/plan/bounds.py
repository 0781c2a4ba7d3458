"""Lower bounds of an epoch's time: what each resource alone needs for its work. Pure. A bound takes microseconds and
a simulation seconds, so thousands of settings are compared by bounds before a few are simulated.

1. A resource's floor is its work of all steps over its rate. If steps overlap (pipe, async), the epoch takes at least
   the longest floor. If not (no-pipe), it takes about the sum of every step's longest: a slower peer's sends, or an
   evaluation, may overlap a little.
2. No epoch is shorter than the path of one interval through its steps.
3. A machine's memory is a resource: no epoch is shorter than the bytes that its steps move over the bandwidth, however
   many cores there are.
4. Evaluation adds its share: its steps over the epochs between two evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cost_planner.plan.simulated_run import Environments, Plan, StepWork
from siafu.sparse import Array
from siafu.tasks import TENSOR_KINDS, Step

#: Columns of ``Floors.table``; what is Lambda's is of one environment with one core.
RESOURCES = (
    "GPU",
    "graph threads",
    "main thread",
    "I/O thread",
    "processors",
    "memory bandwidth",
    "link out",
    "link in",
    "parameter servers",
    "Lambdas' cores",
    "Lambdas' links",
)
CORES, LINKS = RESOURCES.index("Lambdas' cores"), RESOURCES.index("Lambdas' links")
PROCESSORS, PARAM = RESOURCES.index("processors"), RESOURCES.index("parameter servers")
OUT, INTO = RESOURCES.index("link out"), RESOURCES.index("link in")


@dataclass(frozen=True)
class Floors:
    table: Array  # float64 [steps, resources], seconds of an epoch
    path_s: float  # of one interval through all steps, without its environment
    core_s: float  # and there, on a whole core
    travel_s: float  # and on the way there and back
    intervals: int

    @classmethod
    def of(cls, plan: Plan) -> Floors:
        """Bounds of a run. Its environments, if it has any, count as one with one core, until ``with_environments``."""
        steps = [(1.0, step, work) for step, work in zip(plan.program.steps, plan.work, strict=True)]
        if plan.eval_every and plan.eval_program is not None:
            share = 1 / plan.eval_every
            steps += [(share, s, w) for s, w in zip(plan.eval_program.steps, plan.eval_work, strict=True)]
        table = np.array([[share * seconds for seconds in _row(plan, step, work)] for share, step, work in steps])
        remote = [work for step, work in zip(plan.program.steps, plan.work, strict=True) if _is_remote(plan, step)]
        here = [work for step, work in zip(plan.program.steps, plan.work, strict=True) if not _is_remote(plan, step)]
        rate = plan.environments.link.bytes_per_s if plan.environments else 1.0
        return cls(
            table,
            sum(max(plan.thread_s(work), work.memory / plan.memory_bytes_per_s) + work.card for work in here)
            + sum(work.cut for work in plan.work)
            + plan.update_s,
            sum(work.seconds for work in remote),
            sum((work.down + work.up) / rate for work in remote),
            plan.intervals,
        )

    def with_environments(self, count: int, core: float) -> Floors:
        """The bounds with ``count`` environments per server. More environments than intervals find no task."""
        busy = max(1, min(count, self.intervals))
        table = self.table.copy()
        table[:, CORES] /= busy * core
        table[:, LINKS] /= busy
        return replace(self, table=table, core_s=self.core_s / core)

    def enough(self, core: float) -> float:
        """The number of environments per server with which Lambda takes no longer than the slowest other resource."""
        sums = self.table.sum(axis=0)
        rest = max(float(np.delete(sums, [CORES, LINKS]).max()), self.epoch_path_s(core), 1e-9)
        return max(float(sums[CORES]) / core, float(sums[LINKS])) / rest

    def epoch_path_s(self, core: float = 1.0) -> float:
        return self.path_s + self.core_s / core + self.travel_s

    def epoch_s(self, mode: str) -> float:
        floor = self.table.max(axis=1).sum() if mode == "no-pipe" else self.table.sum(axis=0).max()
        return max(float(floor), self.epoch_path_s())

    def by_resource(self) -> dict[str, float]:
        """Seconds of each resource that has work; "critical path" is rule 2's."""
        sums = zip(RESOURCES, self.table.sum(axis=0), strict=True)
        return {**{name: float(found) for name, found in sums if found}, "critical path": self.epoch_path_s()}

    @property
    def limit(self) -> str:
        """The slowest resource."""
        found = self.by_resource()
        return max(found, key=lambda name: found[name])


def _is_remote(plan: Plan, step: Step) -> bool:
    return plan.environments is not None and step.kind in TENSOR_KINDS


def _row(plan: Plan, step: Step, work: StepWork) -> list[float]:
    """Seconds of one step by resource, over all intervals of a server; for parameter servers, over all servers'
    intervals."""
    k, others, remote = plan.intervals, plan.servers - 1, _is_remote(plan, step)
    kind = plan.environments or Environments()
    pool, card, cut = 0.0 if remote else k * work.seconds, k * work.card, k * work.cut
    main = k * (work.main + work.pasted * others)
    io = k * work.io * (plan.servers if step.publishes else 1)
    gradient = work.weights * step.has_gradient
    param = k * plan.servers * plan.param_server_s(step, work) if step.kind in TENSOR_KINDS else 0.0
    moving = plan.servers if plan.together else 0.0 if remote else 1.0  # servers on one machine, and its environments
    rate, down, up = kind.link.bytes_per_s, work.down * remote, work.up * remote
    return [
        card,
        (pool + card) / (plan.threads if work.shared else min(k, plan.threads)) + cut / min(k, plan.threads),
        main,
        io,
        (pool + cut + main + io) / (plan.cores or plan.threads + 1),
        moving * k * work.memory / plan.memory_bytes_per_s,
        k * (work.peers * others + down) / plan.link.bytes_per_s,
        k * (work.peers * others + up) / plan.link.bytes_per_s,
        param / plan.param_servers,
        k * work.seconds * remote,
        k * max(down, up + gradient * remote) / rate,
    ]
