"""Do Lambdas pay? What the planner says beside what is measured, with Lambdas that get no more than they would on AWS.

    siafu plan --calibrate
    python -m benchmarks.acceptance.verdict [--rounds 5] [--hidden 64 256 1024] [--json FILE]

The server computes on one thread. Its Lambdas, together, may compute as much as one core (``lambda.cpu_share = real``),
each behind a link of ``places.LINK_BYTES_PER_S`` (``benchmarks.shaper``); the graph is a sparse synthetic one. Each
round trains both ways with the same seed, in an order of its own; a verdict is the median of the rounds' ratios. Prices
are those of a server of ``INSTANCE`` and of arm64 Lambdas, for a run of ``LONG`` epochs. What is predicted counts what
the shaper costs, which is found as for ``benchmarks.acceptance.plan``. Exit code 1 if an epoch is predicted with
more than ``CLOSE`` too much or too little, or a verdict has the wrong sign.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Any

from benchmarks.acceptance import plan, table
from cost_planner.plan.calibrate import GRAPHS, Measured, Setting
from cost_planner.plan.calibration import Calibration
from cost_planner.value import value
from cost_planner.value.judge import StandIn
from siafu.places import LINK_BYTES_PER_S
from siafu.pricing import cost

INSTANCE = "c7g.large"  # two vCPUs: one computes, one looks after messages
#: Four environments of a quarter of a core.
COUNT, MEMORY_MB = 4, 442
WAYS = {
    "cpu": ("cpu", 4, {}),
    "lambda": ("lambda", 16, {"lambda.cpu_share": "real", "lambda.memory_mb": MEMORY_MB}),
}
CLOSE = 0.2
#: EC2 bills 60 s at least: a shorter run's verdict would be about that.
LONG = 2000

Job = tuple[str, int]  # way, hidden


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(__doc__, rounds=5, epochs=10, hidden=((64, 256, 1024), "hidden units")).parse_args(argv)
    calibration = Calibration.load()
    shaped = [(place, mode) for place in plan.SHAPED for mode in ("pipe", "no-pipe")]
    links = [(*job, [plan.trained(GRAPHS["dense"], job, args.epochs)]) for job in shaped]
    instrument = plan.fitted_instrument(links, calibration)
    table.say(f"the shaper: {instrument}")
    runs: dict[Job, list[Measured]] = {}
    jobs = [(way, hidden) for hidden in args.hidden for way in WAYS]
    for number in range(args.rounds):
        for job in Random(number).sample(jobs, len(jobs)):
            runs.setdefault(job, []).append(trained(job, args.epochs, number))
            table.say(f"{number + 1}/{args.rounds} {job}: {1000 * runs[job][-1].seen.epoch_s:.0f} ms")
    foreseen = {job: plan.foreseen_s(found[0], _link(job), calibration, instrument) for job, found in runs.items()}
    rows = [verdict(hidden, runs, foreseen) for hidden in args.hidden]
    table.show(rows)
    table.markdown(rows)
    table.record(args.json, {"calibration": calibration.measured, "instrument": str(instrument), "rows": rows})
    return 0 if all(is_right(hidden, runs, foreseen) for hidden in args.hidden) else 1


def trained(job: Job, epochs: int, seed: int) -> Measured:
    way, hidden = job
    backend, intervals, more = WAYS[way]
    setting = Setting(backend, intervals=intervals, hidden=hidden, environments=COUNT, graph="sparse")
    more = {**more, "servers.threads": 1, "train.seed": seed}
    return plan.behind_link(GRAPHS["sparse"], setting, epochs, _link(job), more)


def _link(job: Job) -> float:
    return LINK_BYTES_PER_S / 1e6 if WAYS[job[0]][0] == "lambda" else 0.0


def verdict(hidden: int, runs: dict[Job, list[Measured]], foreseen: dict[Job, float]) -> dict[str, Any]:
    cells: dict[str, Any] = {"hidden": hidden}
    for way in WAYS:
        seen, job = _seconds(way, hidden, runs), (way, hidden)
        cells[f"{way}: predicted, ms"] = f"{1000 * foreseen[job]:.0f}"
        cells[f"{way}: measured, ms"] = f"{1000 * median(seen):.0f} ({1000 * min(seen):.0f} to {1000 * max(seen):.0f})"
    times, values = _ratios(hidden, runs)
    predicted_time, predicted_value = _predicted(hidden, runs, foreseen)
    cells["time of CPUs / with Lambdas: predicted"] = f"{predicted_time:.2f}"
    cells["measured"] = f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})"
    cells["value with Lambdas / of CPUs: predicted"] = f"{predicted_value:.2f}"
    cells["value measured"] = f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
    return cells


def is_right(hidden: int, runs: dict[Job, list[Measured]], foreseen: dict[Job, float]) -> bool:
    """Every epoch close, and who wins, in time and in value, as measured."""
    close = all(abs(foreseen[way, hidden] / median(_seconds(way, hidden, runs)) - 1) <= CLOSE for way in WAYS)
    pairs = zip(_predicted(hidden, runs, foreseen), _ratios(hidden, runs), strict=True)
    return close and all((said > 1) == (median(found) > 1) for said, found in pairs)


def _seconds(way: str, hidden: int, runs: dict[Job, list[Measured]]) -> list[float]:
    return [run.seen.epoch_s for run in runs[way, hidden]]


def _ratios(hidden: int, runs: dict[Job, list[Measured]]) -> tuple[list[float], list[float]]:
    """Of each round: the time of CPUs over that with Lambdas, and the value with Lambdas over that of CPUs."""
    pairs = list(zip(runs["cpu", hidden], runs["lambda", hidden], strict=True))
    times = [alone.seen.epoch_s / helped.seen.epoch_s for alone, helped in pairs]
    values = [_value(helped, helped.seen.epoch_s) / _value(alone, alone.seen.epoch_s) for alone, helped in pairs]
    return times, values


def _predicted(hidden: int, runs: dict[Job, list[Measured]], foreseen: dict[Job, float]) -> tuple[float, float]:
    alone, helped = (("cpu", hidden), ("lambda", hidden))
    values = [_value(runs[job][0], foreseen[job]) for job in (alone, helped)]
    return foreseen[alone] / foreseen[helped], values[1] / values[0]


def _value(run: Measured, epoch_s: float) -> float:
    """Of ``LONG`` such epochs, the environments there all the time."""
    lambdas, seconds = run.config.lambdas, LONG * epoch_s
    priced = StandIn(INSTANCE, INSTANCE).priced(run.config)
    gb_s = COUNT * lambdas.memory_mb / 1024 * seconds
    requests = COUNT * seconds / (lambdas.timeout_s - lambdas.margin_s)
    return value(seconds, cost.of_run(priced, requests=requests, gb_s=gb_s, seconds=seconds).usd)


if __name__ == "__main__":
    sys.exit(main())
