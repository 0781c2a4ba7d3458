"""Energy of an option: an estimate. Pure.

Processors are taken to work at full load for the whole run, at the published watts of a vCPU (``chips.csv``: averages
of measured servers of each kind of processor). Memory, disks, network and cooling are not counted. An option with a
processor or a GPU without a figure has none.
"""

from __future__ import annotations

from cost_planner.plan import cores, interruptions
from cost_planner.plan.ranking import Predicted
from siafu.places import CORE_MB
from siafu.pricing.cost import HOUR_S


def watt_hours(one: Predicted) -> float | None:
    """Energy of all servers and Lambdas; None: not known."""
    option, lambdas = one.option, one.option.config.lambdas
    vcpus: list[tuple[cores.Cores, float]] = [
        (cores.cores_of(machine), machine.vcpu * count) for machine, count in interruptions.machines(option).items()
    ]
    if option.environments:
        in_lambdas = one.simulated.environments * lambdas.memory_mb / CORE_MB
        vcpus.append((cores.of_lambda(option.config.cloud.arch), in_lambdas))
    known = [found.chip.watts_per_vcpu * count for found, count in vcpus if found.chip and found.chip.watts_per_vcpu]
    return None if option.card or len(known) < len(vcpus) else sum(known) * one.seconds / HOUR_S
