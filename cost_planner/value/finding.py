"""What a table of values says, in words: who is worth most, whether the runs are enough to
say so, and when Lambdas would win.

1. Two contenders are told apart when every run of one is worth more than any run of the other. One run of each tells
   nothing about noise; where runs overlap, their order may be chance.
2. *Break-even*: the time in which a contender, priced as it is, would be worth as much as another. Lambdas cost in
   proportion to time; so do servers, 60 s at least.
3. *When Lambdas win*: what they can take off the servers is the tensor tasks. If they took all of that,
   and for nothing waited, CPU servers would be done in (1 - share) of their time: Lambdas win if what they
   cost then is less than what is left.

Pure: rows of ``cost_planner.value.judge`` in, sentences out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cost_planner.value import break_even
from siafu.pricing.cost import EC2_MINIMUM_S
from siafu.progress import dollars

Row = Mapping[str, Any]


def of(found: Mapping[str, Any]) -> dict[str, Any]:
    """JSON: ``text``, the figures that it is made of, and ``but``: what a reader must know of how they were got."""
    rows = sorted((row for row in found["rows"] if row["value"]), key=lambda row: -row["value"])
    cpu, lambdas, cards = (_best(rows, kinds) for kinds in (("cpu",), ("lambda",), ("gpu", "method")))
    told: dict[str, Any] = {
        "best": rows[0]["name"] if rows else None,
        "best_beside_next": _compared(rows[0], rows[1]) if len(rows) > 1 else None,
        "lambda_beside_cpu": _compared(lambdas, cpu) if lambdas and cpu else None,
        "lambdas_win": _lambdas_win(lambdas, cpu) if lambdas and cpu and cpu["tensor_share"] else None,
        "gpu_beside_rest": _compared(cards, next(row for row in rows if row["kind"] in ("cpu", "lambda")))
        if cards and (lambdas or cpu)
        else None,
    }
    return {"text": _text(told, found), **told, "but": _but(found, rows)}


def _best(rows: Sequence[Row], kinds: Sequence[str]) -> Row | None:
    return next((row for row in rows if row["kind"] in kinds), None)


def _compared(one: Row, other: Row) -> dict[str, Any]:
    """times: of the other's value; certain: by rule 1, None with one run of each;
    even_s: in which one is worth as much."""
    least, most = min(one["spread"]["value"]), max(one["spread"]["value"])
    apart = least > max(other["spread"]["value"]) or most < min(other["spread"]["value"])
    return {
        "name": one["name"],
        "other": other["name"],
        "times": one["value"] / other["value"],
        "certain": None if one["reached"] == other["reached"] == 1 else apart,
        "seconds": one["seconds"],
        "even_s": even_s(one, other),
    }


def even_s(one: Row, other: Row) -> float:
    """Rule 2."""
    usd, lambda_usd = one["cost"]["usd"], one["cost"]["parts"].get("lambda", 0.0)
    servers, lambdas = (usd - lambda_usd) / max(one["seconds"], EC2_MINIMUM_S), lambda_usd / one["seconds"]
    seconds = break_even(other["seconds"], other["cost"]["usd"], servers + lambdas)
    if seconds >= EC2_MINIMUM_S:
        return seconds
    return break_even(other["seconds"], other["cost"]["usd"], lambdas, fixed_usd=servers * EC2_MINIMUM_S)


def _lambdas_win(lambdas: Row, cpu: Row) -> dict[str, Any]:
    """Rule 3: least_s, and what Lambdas may cost for that to be worth as much as ``cpu``."""
    seconds, usd = (1 - cpu["tensor_share"]) * cpu["seconds"], cpu["cost"]["usd"]
    servers = usd * max(seconds, EC2_MINIMUM_S) / max(cpu["seconds"], EC2_MINIMUM_S)
    return {
        "tensor_share": cpu["tensor_share"],
        "least_s": seconds,
        "usd": cpu["seconds"] * usd / seconds - servers,
        "spent_usd": lambdas["cost"]["parts"].get("lambda", 0.0),
    }


# --- words ------------------------------------------------------------------------------------------------------------


def _text(told: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    if told["best"] is None:
        return "No contender has reached the target: there is nothing to compare."
    first, pair, win, cards = (
        told[key] for key in ("best_beside_next", "lambda_beside_cpu", "lambdas_win", "gpu_beside_rest")
    )
    if first is None:
        return f"{told['best']} alone has reached the target: there is nothing to compare it with."
    said = []
    if pair is None or {pair["name"], pair["other"]} != {first["name"], first["other"]}:
        said.append(
            f"{first['name']} has the highest value: {_times(first['times'])} times that of "
            f"{first['other']}{_sure(first)}."
        )
    if pair is not None:
        said.append(_lambda_or_cpu(pair))
    if win is not None:
        said.append(
            f"Tensor tasks are {win['tensor_share']:.0%} of the CPU servers' work. If Lambdas did all of it without "
            f"any waiting, they would win below a cost of {dollars(win['usd'])}; here they cost "
            f"{dollars(win['spent_usd'])}."
        )
    if cards is not None and cards["times"] < 1:
        faster = _times(cards["seconds"] / cards["even_s"])
        said.append(
            f"{cards['name']}, the best at the price of {found['stand_in']['gpu']}, would need {faster} times the "
            f"speed for the value of {cards['other']}."
        )
    return " ".join(said)


def _lambda_or_cpu(pair: Mapping[str, Any]) -> str:
    lambdas, cpu, times, sure = pair["name"], pair["other"], pair["times"], _sure(pair)
    if times >= 1:
        return f"Lambdas ({lambdas}) have {_times(times)} times the value of CPU servers alone ({cpu}){sure}."
    return (
        f"CPU servers alone ({cpu}) have {_times(1 / times)} times the value of Lambdas ({lambdas}){sure}. For the "
        f"same value, Lambdas would need {pair['even_s']:.3g} s instead of {pair['seconds']:.3g} s."
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _sure(pair: Mapping[str, Any]) -> str:
    """Rule 1."""
    if pair["certain"] is None:
        return " (one run of each, so noise is unknown)"
    return " (in every run)" if pair["certain"] else " (but their runs overlap, so that may be noise)"


def _but(found: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    said, gpu = [], found["stand_in"]["gpu"]
    if any(row["stand_in"] for row in rows):
        graph = found["stand_in"]["graph"]
        machines = " and ".join(sorted({f"a machine with {one.partition(',')[0]}" for one in found["machines"]}))
        said.append(
            f"not measured on EC2: times of {machines or 'this machine'}, at the price of {graph} for each graph server"
        )
    billed = [f"{row['name']} {dollars(row['run_usd'])}" for row in rows if row["run_usd"] is not None]
    if billed:
        where = "; those bills exclude servers that were not on AWS" if any(row["stand_in"] for row in rows) else ""
        said.append(
            "dollars count until the target, on the machines named here; siafu cost bills the whole run as it ran: "
            f"{', '.join(billed)}{where}"
        )
    if any(row["shares_cores"] for row in rows):
        said.append("Lambdas look slower here, because they shared cores with the servers; on AWS they have their own")
    on_cores = [row["name"] for row in rows if row["devices"] == ["cpu"]]
    if on_cores:
        said.append(f"{', '.join(on_cores)}: trained on CPU cores, priced as one {gpu}, whose GPU would be faster")
    crowded = [row["name"] for row in rows if row["ranks"] > found["stand_in"]["num_gpus"]]
    if crowded:
        num_gpus = found["stand_in"]["num_gpus"]
        said.append(
            f"{', '.join(crowded)}: more ranks than the {num_gpus} GPU{'s' * (num_gpus != 1)} of "
            f"{gpu}, which they would share"
        )
    if any(row["seconds"] < EC2_MINIMUM_S for row in rows):
        said.append("EC2 bills 60 s at least, so values of shorter runs say little about the cost of servers")
    return said
