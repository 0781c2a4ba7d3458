"""Does trouble with Lambda's service change the result? Runs against an endpoint that
throttles, delays, loses and fails.

    python -m benchmarks.acceptance.endpoint [--source digits] [--epochs 60] [--seed 1] [--only NAME,...] [--json FILE]

Each row is a run in ``pipe`` mode whose workers are invoked through the endpoint launcher, at a service that does one
thing to a share of the calls, by a seeded script. Workers leave after a second, so that there are many calls. Runs that
go on must end with the bits of the quiet run on the local launcher, and the calls of any second stay bounded; runs for
which there is no hope must end soon, with one line that says why.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.acceptance import table
from tests.fake_lambda import FakeLambda, Script, Trouble, quiet, seeded, throttle
from tests.integration.processes import Training

PARTS, LAMBDAS = 2, 3
#: A worker takes no new task after a second, and is gone after two.
TIMEOUT_S, MARGIN_S = 2.0, 1.0
#: What the graph servers may ask for in any second, whatever they are told: ten each (graph_server/lambdas/throttle.py,
#: rule 1; the service's own quota is ten for each environment), and the workers that they want at the start.
CALLS_PER_S = PARTS * (10 + LAMBDAS)
#: What they may ask for in all of an outage: pauses double, so a few each. Without any it would be thousands.
OUTAGE_S, OUTAGE_CALLS = 6.0, 30
#: Of the six environments wanted, those at a time that show whether the run has made do with fewer.
FEWER = 4
#: A hopeless run ends within.
PATIENCE_S = 30.0

CONCURRENCY, RESERVED = "ConcurrentInvocationLimitExceeded", "ReservedFunctionConcurrentInvocationLimitExceeded"
RATES = (
    "FunctionInvocationRateLimitExceeded",
    "ReservedFunctionInvocationRateLimitExceeded",
    "CallerRateLimitExceeded",
)
SNAPSHOTS = "ConcurrentSnapshotCreateLimitExceeded"
THROTTLED = throttle("").code


@dataclass(frozen=True)
class Scenario:
    """What a run meets."""

    name: str
    shares: dict[Trouble, float] = field(default_factory=dict)  # of the calls
    first: tuple[Trouble | None, ...] = ()  # befalls the first calls instead
    outage_s: float = 0.0  # from the first call on, all are refused
    allowed: int | None = None  # environments that it is let have, whatever it was told before the run
    fewer: bool | None = None  # whether it must make do with fewer environments than it wants; None: as it likes
    why: str = ""  # what the last line of a hopeless run says; "" if it must end well

    def script(self, seed: int) -> Script:
        by_luck = seeded(seed, self.shares) if self.shares else quiet
        begun: list[float] = []

        def script(number: int) -> Trouble | None:
            begun.append(time.monotonic())
            if begun[-1] - begun[0] < self.outage_s:
                return refuse("ServiceException", 500)
            return self.first[number] if number < len(self.first) else by_luck(number)

        return script


def refuse(code: str, status: int) -> Trouble:
    return Trouble("refuse", code, status)


def throttled(reason: str) -> Scenario:
    """Two of the first six calls get through; later, two of three."""
    trouble = throttle(reason)
    return Scenario(
        f"429 {reason}", {trouble: 0.3}, (None, None, *[trouble] * 4), fewer=reason in (CONCURRENCY, RESERVED)
    )


def hopeless(code: str, status: int, advice: str) -> Scenario:
    """A refusal that waiting does not help, in the midst of a run."""
    return Scenario(f"{status} {code}", {refuse(code, status): 0.3}, why=f"{code}: as the script says: {advice}")


EVERYTHING = Scenario(
    "everything at once",
    {
        throttle(CONCURRENCY): 0.05,
        throttle(RATES[0]): 0.05,
        refuse("ServiceException", 500): 0.05,
        refuse("EC2ThrottledException", 502): 0.05,
        Trouble("delay", seconds=0.3): 0.1,
        Trouble("twice"): 0.1,
        Trouble("lose call"): 0.05,
        Trouble("lose answer"): 0.05,
        Trouble("hang up"): 0.1,
        Trouble("fail", "Runtime.ExitError"): 0.05,
        Trouble("crash", seconds=0.5): 0.1,
    },
)

SCENARIOS = (
    Scenario("quiet"),
    *(throttled(reason) for reason in (CONCURRENCY, RESERVED, *RATES, SNAPSHOTS)),
    Scenario("429 for the first ten calls", first=(throttle(CONCURRENCY),) * 10),
    Scenario("2 environments for 6", allowed=2, fewer=True),
    Scenario(f"outage of {OUTAGE_S:g} s", outage_s=OUTAGE_S),
    Scenario(
        "500, 502, 503",
        {
            refuse("ServiceException", 500): 0.1,
            refuse("EC2ThrottledException", 502): 0.1,
            refuse("ENINotReadyException", 502): 0.1,
            refuse("SlowDown", 503): 0.1,
        },
    ),
    Scenario("delayed by 0.5 s", {Trouble("delay", seconds=0.5): 0.5}),
    Scenario("run twice", {Trouble("twice"): 0.5}),
    Scenario("call lost", {Trouble("lose call"): 0.3}),
    Scenario("answer lost", {Trouble("lose answer"): 0.3}),
    Scenario("answers that never come", first=(Trouble("no answer"),) * (PARTS * LAMBDAS)),
    Scenario("hung up on", {Trouble("hang up"): 0.3}),
    Scenario("crashes", {Trouble("crash", seconds=0.7): 0.3}),
    Scenario("FunctionError", {Trouble("fail", "Runtime.ExitError"): 0.06, Trouble("fail", "Sandbox.Timedout"): 0.06}),
    EVERYTHING,
    hopeless("ResourceNotFoundException", 404, "there is no such function"),
    hopeless("RequestTooLargeException", 413, "the payload is beyond Lambda's limit"),
    hopeless("RecursiveInvocationException", 400, "Lambda takes it for a loop"),
    hopeless("AccessDeniedException", 403, "the credentials may not"),
    hopeless("ExpiredTokenException", 403, "the AWS credentials have expired"),
    hopeless("KMSDisabledException", 502, "the key of the function's variables is disabled"),
)


@dataclass(frozen=True)
class Setting:
    """What all runs share."""

    source: str = "digits"
    epochs: int = 60
    seed: int = 1

    def arguments(self, *more: str) -> list[str]:
        deadline = f"--set=lambda.timeout_s={TIMEOUT_S}", f"--set=lambda.margin_s={MARGIN_S}"
        return [
            self.source,
            "--mode",
            "pipe",
            "--parts",
            str(PARTS),
            "--lambdas",
            str(LAMBDAS),
            "--intervals",
            "8",
            "--epochs",
            str(self.epochs),
            "--dropout",
            "0.5",
            *deadline,
            *more,
        ]


def run_locally(setting: Setting, run_dir: Path) -> dict[str, Any]:
    """The result of the run that the others are held against."""
    with Training(run_dir, *setting.arguments()) as training:
        return training.result


def run(setting: Setting, scenario: Scenario, run_dir: Path, expected: str) -> dict[str, Any]:
    """One row. ``expected``: the digest of the weights."""
    with FakeLambda(timeout_s=TIMEOUT_S, script=scenario.script(setting.seed), allowed=scenario.allowed) as fake:
        begun = time.monotonic()
        with Training(
            run_dir, *setting.arguments("--lambda-on", "aws", f"--set=lambda.endpoint={fake.url}")
        ) as training:
            code = training.wait(600)
            seconds = time.monotonic() - begun
            result = training.result if code == 0 else {"weights_digest": "", "usage": {}}
            last = (training.errors.strip().splitlines() or [""])[-1]
            gone = training.all_gone(60)
    row = {
        "name": scenario.name,
        "code": code,
        "last": last,
        "calls": len(fake.calls),
        "troubled": sum(call.trouble is not None for call in fake.calls),
        "busiest_second": fake.most_calls(1.0),
        "answers": dict(Counter(call.answer for call in fake.calls)),
        "most_running": fake.most_running,
        "seconds": seconds,
        "called_at": [call.at - fake.calls[0].at for call in fake.calls],
        "weights_digest": result["weights_digest"],
        "usage": result["usage"],
    }
    wrong = [what for what, right in _checks(row, scenario, expected).items() if not right]
    return {**row, "wrong": wrong if gone else [*wrong, "processes are left"]}


def _checks(row: dict[str, Any], scenario: Scenario, expected: str) -> dict[str, bool]:
    """What is asked of a run -> whether it is so."""
    bounded = {"calls per second": row["busiest_second"] <= CALLS_PER_S}
    if scenario.why:
        ended = row["code"] == 1 and scenario.why in row["last"] and "Traceback" not in row["last"]
        return {**bounded, "its last line": ended, "its length": row["seconds"] < PATIENCE_S}
    throttles = {
        answer.partition(" ")[2]: count for answer, count in row["answers"].items() if answer.startswith(THROTTLED)
    }
    counted = {reason: row["usage"].get(f"refused_{reason}") for reason in throttles}
    return {
        **bounded,
        "weights": row["weights_digest"] == expected,
        "throttles are counted by reason": counted == throttles,
        "calls in the outage": not scenario.outage_s or row["troubled"] <= OUTAGE_CALLS,
        "environments at a time": scenario.fewer is None or (row["most_running"] <= FEWER) is scenario.fewer,
    }


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(
        __doc__,
        source=Setting.source,
        epochs=Setting.epochs,
        seed=Setting.seed,
        only=("", "NAME,...: scenarios whose names contain one of these"),
    ).parse_args(argv)
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")  # the endpoint is ours: nobody's credentials are needed
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    setting = Setting(args.source, args.epochs, args.seed)
    wanted = [scenario for scenario in SCENARIOS if any(name in scenario.name for name in args.only.split(","))]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        expected = run_locally(setting, Path(folder) / "local")["weights_digest"]
        for number, scenario in enumerate(wanted):
            rows.append(run(setting, scenario, Path(folder) / str(number), expected))
            wrong = f"WRONG {rows[-1]}" if rows[-1]["wrong"] else "as it must be"
            table.say(f"{scenario.name}: {wrong}")
    title = f"{args.source}, {args.epochs} epochs, weights {expected[:16]} on the local launcher"
    table.show([_shown(row) for row in rows], title)
    good = not any(row["wrong"] for row in rows)
    print("every run ended as it must" if good else "NOT every run ended as it must")
    table.record(args.json, {"expected": expected, "rows": rows})
    return 0 if good else 1


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "the service": row["name"],
        "calls": row["calls"],
        "troubled": row["troubled"],
        "most/s": row["busiest_second"],
        "at once": row["most_running"],
        "seconds": f"{row['seconds']:.1f}",
        "ended": f"weights {row['weights_digest'][:16]}" if row["code"] == 0 else row["last"],
        "": ", ".join(row["wrong"]) or "ok",
    }


if __name__ == "__main__":
    sys.exit(main())
