"""What a plan comes to, in words: CPUs alone, Lambdas beside them, or a GPU.

Two options are even where the ratio of their values is within the error of the less certain one: value goes with the
square of time, as dollars go with time too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cost_planner.plan.lambdas import Lambdas, Pair
from cost_planner.plan.ranking import Predicted
from siafu.progress import dollars, duration

#: Backend -> what it is for a reader, and what to do where it is worth most.
NAMES = {
    "cpu": ("CPU servers alone", "Use CPUs only"),
    "lambda": ("CPU servers with Lambdas", "Use Lambdas"),
    "gpu": ("servers with a GPU each", "Rent the GPU"),
    "vanilla": ("one machine's GPUs", "Rent the GPU"),
}


def finding(predicted: Sequence[Predicted]) -> list[str]:
    """Lines; none where one backend alone was looked at. ``predicted``: best first."""
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


def of_lambdas(found: Lambdas | None) -> list[str]:
    """Whether they pay on one cluster, and when they would."""
    if found is None:
        return []
    pair, option = found.asked, found.asked.beside.option
    number = f"{pair.beside.simulated.environments} of {option.config.lambdas.memory_mb} MB"
    even = _even(pair.alone, pair.beside) and _even(pair.beside, pair.alone)
    line = (
        f"Lambdas on {option.machines} x {option.machine.name}: with {number}, a run is {pair.faster:.2f} times as "
        f"fast and has {pair.worth:.2f} times the value of the CPUs alone{', about even, within the error' * even}."
    )
    free = f"A month's unused free tier would pay {dollars(pair.free_usd)} of these Lambdas."
    return [" ".join([line, *_by_width(found), *_by_price(pair), free])]


def _by_width(found: Lambdas) -> list[str]:
    pairs = found.by_width
    if not pairs:
        return []
    faster = _where({width: pair.faster > 1 for width, pair in pairs.items()})
    worth = _where({width: pair.worth > 1 for width, pair in pairs.items()})
    return [
        f"Of hidden widths from {min(pairs)} to {max(pairs):,}, they are faster {faster}, and have more value {worth}."
    ]


def _where(so: Mapping[int, bool]) -> str:
    """Widths at which it is so, in words: where that begins and ends."""
    found = [width for width, is_so in so.items() if is_so]
    if not found or len(found) == len(so):
        return "at all" if found else "at none"
    first, last = min(found), max(found)
    if last == max(so):
        return f"from {first:,} on"
    return (
        f"up to {last:,}" if first == min(so) else f"at {first:,}" if first == last else f"from {first:,} to {last:,}"
    )


def _by_price(pair: Pair) -> list[str]:
    if pair.worth >= 1 or pair.even_price is None:
        return []
    return [f"At {pair.even_price:.2f} times Lambda's price, the value would be equal."]


def _compared(best: Sequence[Predicted]) -> list[str]:
    """The best of each backend, the first of them with the others."""
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
