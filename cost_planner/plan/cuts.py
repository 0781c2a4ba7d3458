"""Plans for a graph that is not partitioned yet: the best option's time if more edges cross, or fewer, and which
options wait for a better partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost_planner.plan.asked import Asked
from cost_planner.plan.graphs import HIGH_CUT, LOW_CUT
from cost_planner.plan.options import Catalogue, Option
from cost_planner.plan.ranking import Predicted, first_epochs
from siafu.progress import duration

#: Behind an option's name.
NEEDS_LOW_CUT = "†"


def of(asked: Asked, best: Predicted) -> list[str]:
    """A sentence on other cuts; none if the cut is known or given, or if there is one server."""
    if not asked.graph.cut_is_assumed or best.option.in_pipe.servers == 1:
        return []
    low, high = (_seconds(asked, best, cut) for cut in (LOW_CUT, HIGH_CUT))
    return [
        f"The cut is not known: with {LOW_CUT:g} of the edges between servers instead of {asked.graph.cut:g}, "
        f"option 1 {_words(low)}, with {HIGH_CUT:g} it {_words(high)} (siafu prepare --parts counts it, --cut sets it)."
    ]


def waiting(asked: Asked, options: Sequence[Option]) -> list[str]:
    """A sentence on the options that fit only with a low cut; none if there are none."""
    count = sum(option.needs_low_cut for option in options)
    if not count:
        return []
    return [
        f"Options that need a better cut ({NEEDS_LOW_CUT}): {count:,}. They have too little memory with "
        f"{asked.graph.cut:g} of the edges between servers, and enough with {LOW_CUT:g}. The best of them are shown if "
        "they have more value than option 1."
    ]


def _seconds(asked: Asked, best: Predicted, cut: float) -> float | None:
    """Seconds of the same option with another cut; None if it does not fit."""
    option, train = best.option, best.option.config.train
    environments = option.in_pipe.environments
    same = replace(
        asked,
        graph=replace(asked.graph, cut=cut),
        instances=[option.machine.name],
        servers=[option.in_pipe.servers],
        backends=[option.backend],
        modes=[("pipe" if option.backend == "vanilla" else train.mode, train.staleness)],
        memories_mb=[option.config.lambdas.memory_mb],
        lambdas=environments.count if environments else None,
    )
    found = next((one for one in Catalogue(same).options if not one.needs_low_cut), None)
    return None if found is None else Predicted(found, first_epochs(found, seed=0), best.error).seconds


def _words(seconds: float | None) -> str:
    return "does not fit" if seconds is None else f"takes {duration(seconds)}"
