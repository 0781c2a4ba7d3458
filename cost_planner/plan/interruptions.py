"""Time that interruptions of spot machines add to a run (``cloud.spot``). Pure.

1. For each type, AWS's Spot Advisor publishes the share of machines that were taken back in a month, as a band. A plan
   takes the band's upper end (``spot_interrupted_pct`` of prices.csv) as the monthly rate of one machine, so a run's
   interruptions grow with its machines and its time. A type without a figure counts as never taken back, and a plan
   names it (``unknown``).
2. An interruption ends the run (docs/recovery.md), and ``siafu resume`` continues from the newest checkpoint. It costs
   half the time between checkpoints, or half of the training without any; a new machine's boot; and the start of a run.
3. All machines of the run are billed while they wait. Not counted: the time until somebody resumes, installing siafu on
   the new machine, and interruptions of the added time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cost_planner.plan.options import Option
from siafu.pricing import prices
from siafu.pricing.cost import HOUR_S, HOURS_PER_MONTH
from siafu.pricing.prices import Instance

#: From a request for a machine to its first login: m7i.large, Amazon Linux 2023, mean of three
#: (``BOOT_SOURCE``). EC2 bills the last 3.2 s of it.
BOOT_S, BOOT_SOURCE = 25.8, "github.com/brevdev/ec2-coldboot-research, 2026-02-01"


@dataclass(frozen=True)
class Interruptions:
    expected: float  # of all machines, in the undisturbed run
    each_s: float  # that one interruption costs

    @property
    def seconds(self) -> float:
        return self.expected * self.each_s


def of(option: Option, training_s: float, epoch_s: float) -> Interruptions:
    """Interruptions of a run that trains for ``training_s`` after set-up if nothing interrupts it."""
    if not option.config.cloud.spot:
        return Interruptions(0.0, 0.0)
    per_month = sum(count * (machine.spot_interrupted or 0.0) for machine, count in machines(option).items())
    hours = (option.setup_s + training_s) / HOUR_S
    lost_s = min(_between_checkpoints_s(option, training_s, epoch_s), training_s) / 2
    return Interruptions(per_month * hours / HOURS_PER_MONTH, lost_s + BOOT_S + option.setup_s)


def unknown(option: Option) -> list[str]:
    """Types of spot machines whose interruption frequency is not known."""
    if not option.config.cloud.spot:
        return []
    return sorted(machine.name for machine in machines(option) if machine.spot_interrupted is None)


def machines(option: Option) -> Counter[Instance]:
    """All EC2 machines of an option."""
    param = prices.instance(option.config.cloud.param_instance, option.config.lambdas.region)
    found = Counter({option.machine: option.machines})
    if option.param_servers:
        found[param] += option.param_servers
    return found


def _between_checkpoints_s(option: Option, training_s: float, epoch_s: float) -> float:
    """Seconds between checkpoints; a baseline has only those of ``checkpoint_every``."""
    run = option.config.run
    found = [run.checkpoint_every * epoch_s] if run.checkpoint_every else []
    if run.checkpoint_seconds and option.backend != "vanilla":
        found.append(run.checkpoint_seconds)
    return min(found, default=training_s)
