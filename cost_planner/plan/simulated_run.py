"""Values of a simulated run: the work of each step, a server's Lambdas, and the run that they make up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cost_planner.plan.parts import LinkRate
from siafu.config import KEPT_SHARE
from siafu.places import COLD_START_S, CORE_MB, LINK_BYTES_PER_S
from siafu.tasks import Program, Step

#: Of a step, for each thread: more even out which thread is done first. Chunks of a task.
FEW_TASKS, MOST_CHUNKS = 8, 4


@dataclass(frozen=True)
class Environments:
    """A server's Lambdas. ``count`` 0: the autotuner sets their number."""

    count: int = 0
    most: int = 1000
    core: float = 1.0  # share of a core
    link: LinkRate = field(default_factory=lambda: LinkRate(LINK_BYTES_PER_S))  # each way
    latency_s: float = 0.001  # one way
    cold_s: float = COLD_START_S
    prefetch: int = 0  # tasks that one holds at once; 0: as many as a graph server's own rule comes to
    memory_mb: int = CORE_MB
    sigma: float = 0.1  # of the logarithm of computing times
    #: Seconds of a thread, for each byte, where all traffic passes a proxy on the servers' machine
    #: (``benchmarks.shaper``), that has a link for each connection.
    relay: float = 0.0
    slow_share: float = 0.0  # of tasks, that take ``slow_factor`` as long
    slow_factor: float = 5.0


@dataclass(frozen=True)
class StepWork:
    """The work of one interval's step. Seconds are processor time."""

    seconds: float = 0.0  # of a graph thread, or of an environment's processor
    shared: bool = False  # a server's idle threads help with ``seconds``
    cut: float = 0.0  # of a graph thread before it sends a tensor task: cutting out the rows of its edges
    held: float = 0.0  # of a graph thread before that, in which it keeps the main thread (Python's lock) from running
    down: float = 0.0  # bytes to the environment
    up: float = 0.0  # bytes back
    peers: float = 0.0  # bytes of what a Scatter publishes, to each other server
    main: float = 0.0  # seconds of the server's main thread
    io: float = 0.0  # seconds of its I/O thread
    remote_io: float = 0.0  # and of an environment's
    pasted: float = 0.0  # of the main thread of each server that gets what is published
    memory: float = 0.0  # bytes between the memory and the processors of who computes, meanwhile
    weights: float = 0.0  # bytes of weights that the step is computed with; of as many gradients, if it has any
    card: float = 0.0  # seconds of the server's GPU, which does one thing at a time; the graph thread waits for it
    asks: bool = False  # a server asks for weights first: those of all layers, once an epoch

    def towards(self, other: StepWork, share: float) -> StepWork:
        """This work, with a share of the bytes and of reading messages as in ``other``."""
        names = "seconds", "down", "main", "io", "remote_io"
        return replace(
            self, **{name: getattr(self, name) + share * (getattr(other, name) - getattr(self, name)) for name in names}
        )


@dataclass(frozen=True)
class Plan:
    """A run."""

    program: Program
    work: Sequence[StepWork]  # by step of the program
    eval_program: Program | None = None
    eval_work: Sequence[StepWork] = ()
    eval_every: int = 0  # epochs between evaluations; 0: never
    servers: int = 1
    param_servers: int = 1
    threads: int = 2
    intervals: int = 8  # of each server
    mode: str = "pipe"  # or "no-pipe", "async"
    staleness: int = 0
    freshness: float = 0.9
    ahead: float = 0.125
    warmup_epochs: int = 0
    #: None: the threads compute tensor tasks too.
    environments: Environments | None = field(default_factory=Environments)
    link: LinkRate = field(default_factory=lambda: LinkRate(1e9))  # of a server, each way
    memory_bytes_per_s: float = math.inf  # of a machine's memory: all its cores share it
    latency_s: float = 0.0002  # between servers, one way
    wake_s: float = 0.0  # from a server's graph thread to its main one
    cores: float = 0.0  # processors of a server's machine; 0: one for each thread and for the main one
    together: bool = False  # all processes on one machine, with so many processors
    exchange_s: float = 50e-6  # of a parameter server, for a request or a gradient
    exchange_byte_s: float = 0.0  # and for each byte of it
    update_s: float = 0.001  # from the last gradient to new weights
    judge_s: float = 0.0  # of the coordinator, for an evaluation
    sigma: float = 0.05  # of the logarithm of graph threads' times
    #: By step: what it takes if environments are sent again what never changes.
    resent_work: Sequence[StepWork] = ()
    resent_eval_work: Sequence[StepWork] = ()

    def with_environments(self, kind: Environments) -> Plan:
        """Adds environments to a plan without any. They keep as many constants as fit (``Lambda.keep_bytes``)."""
        constants = [again.down - kept.down for kept, again in zip(self.work, self.resent_work, strict=True)]
        every = self.intervals * max(constants, default=0.0)  # steps read the same rows
        room = (kind.count or min(kind.most, self.intervals)) * KEPT_SHARE * (kind.memory_mb << 20)
        share = max(0.0, 1 - room / every) if every else 0.0

        def mixed(work: Sequence[StepWork], again: Sequence[StepWork]) -> Sequence[StepWork]:
            return [one.towards(other, share) for one, other in zip(work, again, strict=True)] if share else work

        return replace(
            self,
            environments=kind,
            work=mixed(self.work, self.resent_work),
            eval_work=mixed(self.eval_work, self.resent_eval_work),
        )

    @property
    def threads_each(self) -> float:
        """Threads that compute a shared task, if a step has fewer tasks than threads."""
        return max(1.0, self.threads / self.intervals)

    @property
    def chunks(self) -> int:
        """Chunks of a shared task, if each thread has so few tasks that idle threads matter."""
        return 1 if self.threads_each > 1 else min(MOST_CHUNKS, max(1, FEW_TASKS * self.threads // self.intervals))

    @property
    def ghost_bytes(self) -> float:
        """Ghost bytes between all servers, in an epoch without evaluation."""
        return sum(work.peers for work in self.work) * self.intervals * (self.servers - 1) * self.servers

    def thread_s(self, work: StepWork) -> float:
        """Seconds that a graph thread takes for a task, if it shares the task with as many threads as it may."""
        return work.seconds / (self.threads_each if work.shared else 1.0)

    def param_server_s(self, step: Step, work: StepWork) -> float:
        """Seconds of a parameter server for one tensor task: a request for weights, and a gradient."""
        messages = (work.asks or self.environments is not None) + step.has_gradient
        return self.exchange_s * messages + work.weights * step.has_gradient * self.exchange_byte_s
