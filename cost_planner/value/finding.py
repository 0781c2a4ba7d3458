"""A table of values in words: the best contender, whether the runs are enough to say so, and when Lambdas would win.

1. A claim about two contenders is the ratio of their values over the seeds that both have, with its interval
   (``cost_planner.value.pairs``). They differ where the interval does not contain 1. Too few seeds allow no claim.
   Of Lambdas beside CPU servers alone, the ratio of their times to the target stands beside it.
2. A contender has the highest value if it differs from every other one. If the best of several Lambdas is compared with
   the best of several CPU servers, the interval is widened for that choice.
3. *Break-even*: the time in which a contender, at its own prices, would have another's value. Lambdas cost in
   proportion to time; so do servers, but at least 60 s.
4. *When Lambdas win*: the price below which they win in their time here; none if their servers alone cost too much. And
   the price below which they could win at best: if they did all tensor tasks without any waiting, servers would have (1
   - share) of their training left. The latter is given only for runs longer than the 60 s that EC2 bills at least.

Pure: rows of ``cost_planner.value.judge`` in, sentences out.
"""

from __future__ import annotations

from collections.abc import Sequence

from cost_planner.value import pairs
from cost_planner.value.judge import attempts
from cost_planner.value.rows import (
    CUT_SHORT,
    Figures,
    Finding,
    LambdasWin,
    OnMachines,
    Pair,
    Reached,
    Row,
    StoodInFor,
    reached,
)
from siafu.errors import counted
from siafu.pricing.cost import EC2_MINIMUM_S
from siafu.progress import dollars

#: Halvings of a factor between 0 and 1: to a double's last bit.
HALVINGS = 60


def of(found: OnMachines) -> Finding:
    rows = sorted(reached(found["rows"]), key=lambda row: -row["value"])
    servers, functions = ([row for row in rows if row["kind"] == kind] for kind in ("cpu", "lambda"))
    cards = [row for row in rows if row["kind"] in ("gpu", "method")]
    rest = [row for row in rows if row["kind"] in ("cpu", "lambda")]
    told: Figures = {
        "best": rows[0]["name"] if rows else None,
        "best_beside_others": [_compared(rows[0], other) for other in rows[1:]],
        "lambda_beside_cpu": _chosen(functions, servers),
        "lambdas_win": _lambdas_win(functions[0], servers[0]) if functions and servers else None,
        "gpu_beside_rest": _chosen(cards, rest),
    }
    return {"text": _text(told, found), **told, "but": _but(found, rows)}


def _chosen(some: Sequence[Reached], others: Sequence[Reached]) -> Pair | None:
    """Compares the best of each (rule 2); None if one of them has no runs."""
    return _compared(some[0], others[0], len(some) * len(others)) if some and others else None


def _compared(one: Reached, other: Reached, choices: int = 1) -> Pair:
    """Compares two contenders by rules 1 and 3."""
    found = pairs.ratio(attempts(one), attempts(other), choices)
    found = found or pairs.Ratio(one["value"] / other["value"], 0)
    faster = pairs.ratio(attempts(one), attempts(other), choices, pairs.log_speed)
    faster = faster or pairs.Ratio(other["seconds"] / one["seconds"], 0)
    return {
        "name": one["name"],
        "other": other["name"],
        "times": found.times,
        "interval": found.interval,
        "seeds": found.seeds,
        "choices": choices,
        "certain": found.certain,
        "faster": faster.times,
        "faster_interval": faster.interval,
        "seconds": one["seconds"],
        "even_s": even_s(one, other),
    }


def even_s(one: Reached, other: Reached) -> float:
    """Seconds at which one has the other's value: rule 3, all its runs scaled by one factor. Infinite if it is free."""
    spent, seconds = float(other["seconds"] * other["cost"]["usd"]), float(one["seconds"])
    if not seconds * one["cost"]["usd"]:
        return float("inf")
    low, high = 0.0, 1.0
    while seconds * high * _usd(one, high) < spent:
        high *= 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if seconds * middle * _usd(one, middle) < spent else (low, middle)
    return seconds * high


def _usd(row: Reached, factor: float) -> float:
    """Dollars of a success if every run took ``factor`` times its time: Lambdas in proportion, servers by rule 3."""
    usd, lambda_usd = float(row["cost"]["usd"]), float(row["cost"]["parts"].get("lambda", 0.0))
    times = [one["seconds"] for one in row["attempts"] if one["outcome"] != CUT_SHORT]
    billed, before = (float(sum(max(t * f, EC2_MINIMUM_S) for t in times)) for f in (factor, 1.0))
    return (usd - lambda_usd) * billed / before + lambda_usd * factor


def _lambdas_win(lambdas: Reached, cpu: Reached) -> LambdasWin:
    """The prices at which Lambdas would win: rule 4."""
    lambda_usd, seconds = lambdas["cost"]["parts"].get("lambda", 0.0), lambdas["seconds"]
    spent, servers = cpu["seconds"] * cpu["cost"]["usd"], lambdas["cost"]["usd"] - lambda_usd
    share, setup_s = cpu["tensor_share"], cpu["setup_s"] or 0.0
    least_s = None if share is None else setup_s + (1 - share) * (cpu["seconds"] - setup_s)
    longer = least_s is not None and least_s >= EC2_MINIMUM_S
    return {
        "tensor_share": share,
        "least_s": least_s,
        "usd_at_most": spent / least_s - _usd(cpu, least_s / cpu["seconds"]) if least_s and longer else None,
        "usd_here": spent / seconds - servers,
        "spent_usd": lambda_usd,
    }


# --- words ------------------------------------------------------------------------------------------------------------


def _text(told: Figures, found: OnMachines) -> str:
    if told["best"] is None:
        return "No contender has reached the target: there is nothing to compare."
    others, pair, win, cards = (
        told["best_beside_others"],
        told["lambda_beside_cpu"],
        told["lambdas_win"],
        told["gpu_beside_rest"],
    )
    if not others:
        return f"{told['best']} alone has reached the target: there is nothing to compare it with."
    said = _too_few(others)
    if pair is None or len(others) > 1:
        said.append(_most(told["best"], others, pair))
    if pair is not None and win is not None:
        said += [_lambda_or_cpu(pair), *_price(win)]
    if cards is not None and cards["times"] < 1 and cards["certain"] is not False:
        faster = _times(cards["seconds"] / cards["even_s"])
        said.append(
            f"{cards['name']}, the best at the price of {found['stand_in']['gpu']}, would need {faster} times the "
            f"speed for the value of {cards['other']}."
        )
    return " ".join(said)


def _too_few(compared: Sequence[Pair]) -> list[str]:
    """Says that seeds are too few for a claim: rule 5 of ``cost_planner.value.pairs``, if it applies to any."""
    seeds = [one["seeds"] for one in compared if one["certain"] is None]
    if not seeds:
        return []
    needed, there = f"a claim needs {pairs.MIN_SEEDS} seeds of each contender", min(seeds)
    if there < pairs.MIN_SEEDS:
        missing = f"{needed}, here there {'is' if there == 1 else 'are'} {there} (--runs {pairs.MIN_SEEDS})"
    else:
        missing = f"{needed}, of which two reach the target"
    return [f"Not enough runs: {missing}. In these runs:"]


def _most(best: str, others: Sequence[Pair], pair: Pair | None) -> str:
    """Says which contender has the highest value: rule 2. ``pair``: the comparison that follows, not to be repeated."""
    alike = [one for one in others if one["certain"] is False]
    if alike:
        names = ", ".join(f"{one['other']} ({_ratio(one)})" for one in alike)
        return f"{best} has the highest value here, but may not differ from {names}."
    if pair is not None and {pair["name"], pair["other"]} == {best, others[0]["other"]}:
        return f"{best} has the highest value."
    return f"{best} has the highest value: {_ratio(others[0])} that of {others[0]['other']}."


def _lambda_or_cpu(pair: Pair) -> str:
    lambdas, cpu = pair["name"], pair["other"]
    if pair["certain"] is False:
        return (
            f"Lambdas ({lambdas}) may not differ from CPU servers alone ({cpu}): {_ratio(pair)} the value, "
            f"{_faster(pair)} the speed."
        )
    if pair["times"] >= 1:
        return (
            f"Lambdas ({lambdas}) have {_ratio(pair)} the value of CPU servers alone ({cpu}), and {_faster(pair)} the "
            "speed."
        )
    turned = _turned(pair)
    return (
        f"CPU servers alone ({cpu}) have {_ratio(turned)} the value of Lambdas ({lambdas}), and {_faster(turned)} the "
        f"speed. For the same value, Lambdas would need {pair['even_s']:.3g} s instead of {pair['seconds']:.3g} s."
    )


def _price(win: LambdasWin) -> list[str]:
    """Says at which cost Lambdas win: rule 4."""
    here, most, spent = win["usd_here"], win["usd_at_most"], dollars(win["spent_usd"])
    if here <= 0:
        said = [f"Their price ({spent}) is not the reason: free Lambdas would not win in that time either."]
    else:
        said = [f"In that time, Lambdas win below a cost of {dollars(here)}; here they cost {spent}."]
    if most is not None:
        said.append(
            f"Tensor tasks are {win['tensor_share']:.0%} of the CPU servers' work. If Lambdas did all of it without "
            f"any waiting, they would win below a cost of {dollars(most)}."
        )
    return said


def _turned(pair: Pair) -> Pair:
    """The pair the other way round."""
    return {
        **pair,
        "times": 1 / pair["times"],
        "interval": _inverse(pair["interval"]),
        "faster": 1 / pair["faster"],
        "faster_interval": _inverse(pair["faster_interval"]),
    }


def _inverse(interval: Sequence[float] | None) -> list[float] | None:
    return None if interval is None else [1 / interval[1], 1 / interval[0]]


def _ratio(pair: Pair) -> str:
    """A ratio in words, by rule 1: "1.32 times (95% interval 1.21 to 1.45, 5 seeds)"."""
    if pair["interval"] is None:
        return f"{_times(pair['times'])} times"
    chosen = f", widened for the choice among {pair['choices']} pairs" * (pair["choices"] > 1)
    return f"{_times(pair['times'])} times (95% interval {_between(pair['interval'])}, {pair['seeds']} seeds{chosen})"


def _faster(pair: Pair) -> str:
    """A ratio of times to the target in words, by rule 1: "1.15 times (1.10 to 1.20)"."""
    interval = pair["faster_interval"]
    return f"{_times(pair['faster'])} times" + ("" if interval is None else f" ({_between(interval)})")


def _between(interval: Sequence[float]) -> str:
    low, high = map(_times, interval)
    return f"{low} to {high}"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


# --- what a reader must know ------------------------------------------------------------------------------------------


def _but(found: OnMachines, rows: Sequence[Reached]) -> list[str]:
    said = [*_attempts(found["rows"]), *_machines(found, rows), *_clocks(rows)]
    billed = [f"{row['name']} {dollars(row['run_usd'])}" for row in rows if row["run_usd"]]
    if billed:
        where = "; those bills exclude servers that were not on AWS" if any(row["stand_in"] for row in rows) else ""
        said.append(
            "dollars count until the target, on the machines named here; siafu cost bills the whole run as it ran: "
            f"{', '.join(billed)}{where}"
        )
    if any(row["seconds"] < EC2_MINIMUM_S for row in rows):
        said.append("EC2 bills at least 60 s: values of shorter runs say little of what servers cost")
    return said


def _attempts(rows: Sequence[Row]) -> list[str]:
    """Says which runs missed the target or were cut short: rules 3 and 4 of ``cost_planner.value.judge``."""
    missed = [f"{row['name']} {row['missed']} of {row['runs']}" for row in rows if row["missed"]]
    cut = [f"{row['name']} {row['cut_short']} of {row['runs']}" for row in rows if row["cut_short"]]
    said = []
    if missed:
        said.append(f"runs that ended below the target: {', '.join(missed)}; their time and dollars count")
    if cut:
        said.append(
            f"runs that a limit stopped, or that did not finish: {', '.join(cut)}; they do not count "
            "(siafu resume RUN continues one)"
        )
    return said


def _machines(found: OnMachines, rows: Sequence[Reached]) -> list[str]:
    said, stand_in = [], found["stand_in"]
    gpu, num_gpus = stand_in["gpu"], stand_in["num_gpus"]
    if any(row["stand_in"] for row in rows):
        machines = " and ".join(sorted({f"a machine with {one.partition(',')[0]}" for one in found["machines"]}))
        said.append(
            f"not measured on EC2: times of {machines or 'this machine'}, at the price of {stand_in['graph']} for each "
            f"graph server{_param_servers(rows)}"
        )
    threads = {row["threads"] for row in rows if row["kind"] in ("cpu", "lambda") and row["threads"]}
    said += [other_cores(count, stand_in) for count in sorted(threads) if count != stand_in["vcpus"]]
    if any(row["shares_cores"] for row in rows):
        said.append("Lambdas look slower here, because they shared cores with the servers; on AWS they have their own")
    whole = [row["name"] for row in rows if row["whole_cores"]]
    if whole:
        said.append(
            f"{', '.join(whole)}: Lambdas computed on whole cores, for which Lambda asks more than is counted here "
            "(lambda.cpu_share=real gives them what their memory buys)"
        )
    on_cores = [row["name"] for row in rows if row["devices"] == ["cpu"]]
    if on_cores:
        faster = ", whose GPU would be faster" if num_gpus else ", which has no GPU"
        said.append(f"{', '.join(on_cores)}: trained on CPU cores, priced as one {gpu}{faster}")
    crowded = [row["name"] for row in rows if row["ranks"] > num_gpus > 0]
    if crowded:
        said.append(
            f"{', '.join(crowded)}: more ranks than the {counted(num_gpus, 'GPU')} of {gpu}, which they would share"
        )
    return said


def _param_servers(rows: Sequence[Reached]) -> str:
    """Names the parameter servers' machines, which dollars include too."""
    bought = sorted({line["what"] for row in rows for line in row["cost"]["items"] if line["part"] == "param_servers"})
    return f" and of {' or '.join(bought)} for parameter servers" if bought else ""


def other_cores(threads: int, stand_in: StoodInFor) -> str:
    """Says that graph servers here use another number of cores than the instance type that they stand for."""
    return (
        f"a graph server computes on {counted(threads, 'core')} here, {stand_in['graph']} has "
        f"{stand_in['vcpus']} vCPUs: on it the times would differ, by how much is not known"
    )


def _clocks(rows: Sequence[Reached]) -> list[str]:
    """Says what times include: rule 1 of ``cost_planner.value.judge``, and of ``cost_planner.value.trained``."""
    said = []
    if any(row["setup_s"] is None for row in rows):
        said.append("start-up is in no contender's time: not all of these runs say how long theirs took")
    beside = [f"{row['name']} {row['evaluation_share']:.0%}" for row in rows if row["evaluation_share"]]
    if beside:
        said.append(
            f"graph servers evaluate beside training, which is in their times; of what they computed: "
            f"{', '.join(beside)} (--eval-every N)"
        )
    apart = [f"{row['name']} {row['evaluation_s']:.2g} s" for row in rows if row["evaluation_s"]]
    if apart:
        said.append(f"baselines stop to evaluate, which is left out of their times: {', '.join(apart)} a run")
    return said
