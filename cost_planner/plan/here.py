"""Predicts a run whose processes are all on this machine, as ``siafu train`` starts it without a cloud: time of an
epoch, and memory, with the cores and the memory that this process may use (``siafu.allotment``). No money.

Threads, intervals and environments are those that the trainer would choose. Environments compute on whole cores, or for
the share of time that ``lambda.cpu_share = real`` gives them. All processes share the processors and the memory's
bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cost_planner import memory
from cost_planner.plan.asked import Asked
from cost_planner.plan.memory_traffic import Bandwidth
from cost_planner.plan.parts import LinkRate
from cost_planner.plan.ranking import Simulated, floors_of, simulated_epochs
from cost_planner.plan.simulated_run import Environments, Plan
from cost_planner.plan.speeds import Speeds
from cost_planner.plan.work import Counts, plan_of
from run_coordinator import intervals
from siafu import allotment
from siafu.config import Config
from siafu.machine import num_environments, num_threads
from siafu.models import ModelSpec
from siafu.shards import Manifest

#: Loopback, and the copies that it makes, are in what messages cost.
LOOPBACK = LinkRate(20e9)
#: Backends of a machine without a GPU.
BACKENDS = ("cpu", "lambda")


@dataclass(frozen=True)
class Here:
    """A way to train on this machine, predicted."""

    config: Config  # with what the trainer would choose
    simulated: Simulated
    ghost_bytes: float  # between graph servers, in an epoch without evaluation
    memory_bytes: int  # of all processes, at the peak
    limited_by: str

    @property
    def seconds(self) -> float:
        """Seconds of all epochs, without start-up."""
        return self.simulated.first_s + (self.config.train.epochs - 1) * self.simulated.epoch_s


def local_plan(
    config: Config,
    spec: ModelSpec,
    counts: Counts,
    speeds: Speeds,
    link: LinkRate = LOOPBACK,
    bandwidth: Bandwidth | None = None,
    cores: int | None = None,
) -> Plan:
    """The plan of a run on this machine. ``link``: of each environment; ``bandwidth``: of the machine's memory;
    ``cores``: None for this machine's."""
    cores = cores or allotment.cores()
    return plan_of(
        config,
        spec,
        counts,
        speeds.of_throttled() if config.servers.backend == "lambda" and config.lambdas.core < 1 else speeds,
        threads=num_threads(config, cores),
        link=LOOPBACK,
        bandwidth=bandwidth,
        together=cores,
        environments=Environments(
            count=config.lambdas.count,
            most=num_environments(config, cores),
            core=config.lambdas.core,
            link=link,
            latency_s=speeds.hop_s,
            cold_s=0.0,
            memory_mb=config.lambdas.memory_mb,
        ),
    )


def predicted(
    config: Config, manifest: Manifest, speeds: Speeds, bandwidth: Bandwidth, cores: int | None = None
) -> Here:
    """Predicts a run on these shards, or on the shards that the manifest describes."""
    config = config.replace({"train.intervals": intervals.of(config, manifest)})
    spec, counts = ModelSpec.of(config, manifest), Counts.of(manifest, config.data.split)
    plan = local_plan(config, spec, counts, speeds, bandwidth=bandwidth, cores=cores)
    floors = floors_of(plan)
    return Here(
        config,
        simulated_epochs(plan, floors, seed=0),
        plan.ghost_bytes,
        memory.predict(config, manifest, cores=cores).nbytes,
        floors.limit,
    )


def of(asked: Asked, bandwidth: Bandwidth) -> list[Here]:
    """Predictions for every requested backend, number of graph servers and mode; fastest first."""
    found = []
    for parts in asked.servers or (asked.config.data.parts,):
        manifest = asked.graph.manifest(parts)
        for backend in (name for name in BACKENDS if name in asked.backends):
            for mode, staleness in asked.modes:
                base = asked.config
                train = replace(
                    base.train,
                    mode=mode,
                    staleness=staleness,
                    epochs=asked.epochs.of(mode, staleness),
                    intervals=asked.intervals or base.train.intervals,
                )
                config = replace(
                    base,
                    data=replace(base.data, parts=parts),
                    train=train,
                    lambdas=replace(base.lambdas, count=asked.lambdas or 0),
                )
                config = config.replace({"servers.backend": backend})
                found.append(predicted(config, manifest, asked.speeds, bandwidth))
    return sorted(found, key=lambda one: one.seconds)


def fits(one: Here) -> bool:
    return one.memory_bytes <= allotment.memory_bytes()
