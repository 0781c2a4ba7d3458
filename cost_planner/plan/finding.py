"""The conclusion of a plan in words: CPUs alone, Lambdas beside them, or a GPU.

Two options are even if the ratio of their values is within the error of the less certain one. Value goes with the
square of time, as dollars go with time too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from cost_planner.plan.lambdas import Lambdas, Length, Lengths, Pair
from cost_planner.plan.ranking import Predicted
from siafu.errors import counted
from siafu.progress import dollars, duration

#: Backend -> its name for a reader, and advice if it has the highest value.
NAMES = {
    "cpu": ("CPU servers alone", "Use CPUs only"),
    "lambda": ("CPU servers with Lambdas", "Use Lambdas"),
    "gpu": ("servers with a GPU each", "Rent the GPU"),
    "vanilla": ("one machine's GPUs", "Rent the GPU"),
}


def finding(predicted: Sequence[Predicted]) -> list[str]:
    """Lines that compare the backends; none for a single backend. ``predicted``: best first."""
    best: dict[str, Predicted] = {}
    for one in predicted:
        best.setdefault(one.option.backend, one)
    told = _compared(list(best.values()))
    measured = [one for one in best.values() if not one.option.card]
    if told and len(measured) < len(best):
        told[-1] += " GPU figures are assumed, not measured."
        if next(iter(best.values())).option.card:
            told += [f"Without GPUs: {line}" for line in _compared(measured)]
    return told


def in_short(predicted: Sequence[Predicted]) -> list[str]:
    """The best option in a sentence, and a sentence on the best of each other backend. ``predicted``: best first."""
    best: dict[str, Predicted] = {}
    for one in predicted:
        best.setdefault(one.option.backend, one)
    first, *others = best.values()
    even = [NAMES[one.option.backend][0] for one in others if _even(first, one)]
    behind = [one for one in others if not _even(first, one)]
    option, advice = first.option, NAMES[first.option.backend][1] if behind and not even else "Best value"
    found = [
        f"{advice}: {option.name} on {option.machines} x {option.machine.name}{_lambdas(first)} takes "
        f"{duration(first.seconds)} and {dollars(first.cost.usd)} for {option.epochs} epochs."
    ]
    told = [f"About even, within the prediction's error: {' and '.join(even)}."] if even else []
    if behind:
        ratios = ", ".join(f"{_ratio(first, one)} times the value of {NAMES[one.option.backend][0]}" for one in behind)
        told.append(f"It has {ratios}.")
    if told and any(one.option.card for one in best.values()):
        told.append("GPU figures are assumed, not measured.")
    return [*found, " ".join(told)] if told else found


def line_of_lambdas(found: Lambdas | None) -> list[str]:
    """Says whether Lambdas pay on one cluster, and from which width, at which price and in which runs they would."""
    if found is None:
        return []
    pair, option = found.asked, found.asked.beside.option
    within = "" if found.max_vcpus == math.inf else f", with at most {counted(int(found.max_vcpus), 'vCPU')}"
    line = (
        f"On {option.machines} x {option.machine.name}{within}, Lambdas give {pair.faster:.2f} times the speed and "
        f"{pair.worth:.2f} times the value of CPUs alone."
    )
    return [" ".join([line, *_by_width(found.by_width), _by_price(pair), _by_length(found)])]


def of_lambdas(found: Lambdas | None) -> list[str]:
    """Details of the comparison with Lambdas."""
    if found is None:
        return []
    pair, option = found.asked, found.asked.beside.option
    number = f"{pair.beside.simulated.environments} of {option.config.lambdas.memory_mb} MB"
    even = _even(pair.alone, pair.beside) and _even(pair.beside, pair.alone)
    said = [f"Lambdas on {option.machines} x {option.machine.name}: {number} ({option.name})."]
    if even:
        said.append("Their value and that of the CPUs alone are about even, within the prediction's error.")
    if worth := {width: pair.worth > 1 for width, pair in found.by_width.items()}:
        said.append(f"They have more value {widths(worth)}.")
    if pair.even_price is not None:
        said.append(f"At {pair.even_price:.2f} times Lambda's prices, the values are equal.")
    said.append(f"A month's unused free tier would pay {dollars(pair.free_usd)} of these Lambdas.")
    return [" ".join(said)]


def _by_width(pairs: Mapping[int, Pair]) -> list[str]:
    return [f"They are faster {widths({width: pair.faster > 1 for width, pair in pairs.items()})}."] if pairs else []


def widths(so: Mapping[int, bool]) -> str:
    """The hidden widths at which ``so`` is true, in words; narrowest first."""
    if len(set(so.values())) == 1:
        return f"at {'every' if all(so.values()) else 'no'} hidden width from {min(so):,} to {max(so):,}"
    groups = [[width for width, _ in group] for is_so, group in groupby(so.items(), lambda item: item[1]) if is_so]
    return f"at hidden widths {' and '.join(_range(found, min(so), max(so)) for found in groups)}"


def _range(found: Sequence[int], least: int, most: int) -> str:
    """Neighbouring widths in words, among those from ``least`` to ``most``."""
    first, last = found[0], found[-1]
    if last == most:
        return f"from {first:,} on"
    if first == least:
        return f"up to {last:,}"
    return f"of {first:,}" if first == last else f"from {first:,} to {last:,}"


def _by_price(pair: Pair) -> str:
    if pair.even_price is None:
        return "Even free Lambdas would have less value."
    even, today = (_price(factor * pair.usd_per_gb_s) for factor in (pair.even_price, 1.0))
    return f"At {even} per GB-s of Lambda (today {today}), the values are equal."


def _price(usd: float) -> str:
    """A price with three digits: 0.0000133334 -> "$0.0000133"."""
    return f"${usd:.{max(2, 2 - math.floor(math.log10(usd)))}f}"


def _by_length(found: Lambdas) -> str:
    cheaper, worth_more = _runs(found.cheaper), _runs(found.worth_more)
    if cheaper == worth_more:
        return f"Of all options, those with Lambdas cost less and have more value {cheaper}."
    return f"Of all options, those with Lambdas cost less {cheaper}, and have more value {worth_more}."


def _runs(found: Sequence[Lengths]) -> str:
    """Lengths of a run, in words."""
    if not found:
        return "at no number of epochs"
    if found[0].first.epochs == 1 and found[0].last is None:
        return "at any number of epochs"
    return " and ".join(map(_between, found))


def _between(found: Lengths) -> str:
    first, last = found.first, found.last
    if last is None:
        return f"from {_run(first)} on"
    return f"up to {_run(last)}" if first.epochs == 1 else f"from {_run(first)} to {_run(last)}"


def _run(length: Length) -> str:
    return f"{counted(length.epochs, 'epoch')} ({duration(length.seconds)})"


def _compared(best: Sequence[Predicted]) -> list[str]:
    """Compares the first backend's best option with the others'."""
    if len(best) < 2:
        return []
    first, *others = best
    name, advice = NAMES[first.option.backend]
    even = [one for one in others if _even(first, one)]
    behind = [one for one in others if one not in even]
    found = []
    if even:
        told = f"{_times(first, even)}. That is about even, within the prediction's error."
        found.append(f"{name[0].upper()}{name[1:]} ({words(first)}) have {told}")
    if behind:
        who = "They" if even else f"{advice}: {name}"
        found.append(f"{who} have {_times(first, behind)}.")
    return [" ".join(found)]


def _times(first: Predicted, others: Sequence[Predicted]) -> str:
    return ", ".join(
        f"{_ratio(first, one)} times the value of {NAMES[one.option.backend][0]} ({words(one)})" for one in others
    )


def _even(first: Predicted, other: Predicted) -> bool:
    return first.value < other.value * (1 + max(first.error, other.error)) ** 2


def _ratio(first: Predicted, other: Predicted) -> str:
    ratio = first.value / other.value
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.3g}"


def words(one: Predicted) -> str:
    option = one.option
    return (
        f"{option.name} on {option.machines} x {option.machine.name}{_lambdas(one)}: "
        f"{duration(one.seconds)}, {dollars(one.cost.usd)}"
    )


def _lambdas(one: Predicted) -> str:
    if not one.option.environments:
        return ""
    return f", {one.simulated.environments} Lambdas of {one.option.config.lambdas.memory_mb} MB"
