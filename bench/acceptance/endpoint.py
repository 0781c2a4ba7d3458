"""Does trouble with Lambda's service change the result? Runs against an endpoint that throttles, delays, loses and fails.

    python -m bench.acceptance.endpoint [--source digits] [--epochs 60] [--seed 1] [--only NAME,...] [--json FILE]

Each row is a run in ``pipe`` mode whose workers are invoked through the endpoint launcher, at a service that does one thing
to a share of the calls, by a seeded script. Workers leave after a second, so that there are many calls. Runs that go on
must end with the bits of the quiet run on the local launcher, and the calls of any second stay bounded; runs for which
there is no hope must end soon, with one line that says why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.fake_lambda import FakeLambda, Script, Trouble, quiet, seeded, throttle
from tests.integration.processes import Training

PARTS, LAMBDAS = 2, 3
#: A worker takes no new task after a second, and is gone after two.
TIMEOUT_S, MARGIN_S = 2.0, 1.0
#: What one graph server may ask for in any second, whatever it is told: all its workers, and as many again.
CALLS_PER_S = 2 * LAMBDAS
#: A hopeless run ends within.
PATIENCE_S = 30.0

CONCURRENCY, RESERVED = "ConcurrentInvocationLimitExceeded", "ReservedFunctionConcurrentInvocationLimitExceeded"
RATES = (
    "FunctionInvocationRateLimitExceeded",
    "ReservedFunctionInvocationRateLimitExceeded",
    "CallerRateLimitExceeded",
)
SNAPSHOTS = "ConcurrentSnapshotCreateLimitExceeded"


@dataclass(frozen=True)
class Scenario:
    """What a run meets."""

    name: str
    shares: dict[Trouble, float] = field(default_factory=dict)  # of the calls
    first: tuple[Trouble, ...] = ()  # befalls the first calls instead
    allowed: int | None = None  # environments that it is let have, whatever it was told before the run
    why: str = ""  # what the last line of a hopeless run says; "" if it must end well

    def script(self, seed: int) -> Script:
        by_luck = seeded(seed, self.shares) if self.shares else quiet
        return lambda number: self.first[number] if number < len(self.first) else by_luck(number)


def refuse(code: str, status: int) -> Trouble:
    return Trouble("refuse", code, status)


def hopeless(code: str, status: int, advice: str) -> Scenario:
    """A refusal that waiting does not help, in the midst of a run."""
    return Scenario(f"{status} {code}", {refuse(code, status): 0.3}, why=f"{code}: as the script says: {advice}")


EVERYTHING = Scenario(
    "everything at once",
    {
        throttle(CONCURRENCY): 0.05, throttle(RATES[0]): 0.05, refuse("ServiceException", 500): 0.05,
        refuse("EC2ThrottledException", 502): 0.05, Trouble("delay", seconds=0.3): 0.1, Trouble("twice"): 0.1,
        Trouble("lose call"): 0.05, Trouble("lose answer"): 0.05, Trouble("hang up"): 0.1,
        Trouble("fail", "Runtime.ExitError"): 0.05, Trouble("crash", seconds=0.5): 0.1,
    },
)  # fmt: skip

SCENARIOS = (
    Scenario("quiet"),
    *(Scenario(f"429 {reason}", {throttle(reason): 0.3}) for reason in (CONCURRENCY, RESERVED, *RATES, SNAPSHOTS)),
    Scenario("429 for the first ten calls", first=(throttle(CONCURRENCY),) * 10),
    Scenario("2 environments for 6", allowed=2),
    Scenario("500, 502, 503", {
        refuse("ServiceException", 500): 0.1, refuse("EC2ThrottledException", 502): 0.1,
        refuse("ENINotReadyException", 502): 0.1, refuse("SlowDown", 503): 0.1}),
    Scenario("delayed by 0.5 s", {Trouble("delay", seconds=0.5): 0.5}),
    Scenario("run twice", {Trouble("twice"): 0.5}),
    Scenario("call lost", {Trouble("lose call"): 0.3}),
    Scenario("answer lost", {Trouble("lose answer"): 0.3}),
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
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What all runs share."""

    source: str = "digits"
    epochs: int = 60
    seed: int = 1

    def arguments(self, *more: str) -> list[str]:
        deadline = f"--set=lambda.timeout_s={TIMEOUT_S}", f"--set=lambda.margin_s={MARGIN_S}"
        return [
            self.source, "--mode", "pipe", "--parts", str(PARTS), "--lambdas", str(LAMBDAS), "--intervals", "8",
            "--epochs", str(self.epochs), "--dropout", "0.5", *deadline, *more,
        ]  # fmt: skip


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
            digest = training.result["weights_digest"] if code == 0 else ""
            last = (training.errors.strip().splitlines() or [""])[-1]
            gone = training.all_gone(5)
        calls = list(fake.calls)
        busiest = fake.most_calls(1.0)
    if scenario.why:
        good = code == 1 and scenario.why in last and seconds < PATIENCE_S
    else:
        good = digest == expected
    return {
        "name": scenario.name, "good": good and gone and busiest <= PARTS * CALLS_PER_S, "code": code, "last": last,
        "calls": len(calls), "troubled": sum(call.trouble is not None for call in calls), "busiest_second": busiest,
        "answers": dict(Counter(call.answer for call in calls)), "most_running": fake.most_running,
        "seconds": seconds, "weights_digest": digest, "nothing_left": gone,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=Setting.source)
    parser.add_argument("--epochs", type=int, default=Setting.epochs)
    parser.add_argument("--seed", type=int, default=Setting.seed)
    parser.add_argument("--only", default="", metavar="NAME,...", help="scenarios whose names contain one of these")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(argv)
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")  # the endpoint is ours: nobody's credentials are needed
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    setting = Setting(args.source, args.epochs, args.seed)
    wanted = [scenario for scenario in SCENARIOS if any(name in scenario.name for name in args.only.split(","))]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        expected = run_locally(setting, Path(folder) / "local")["weights_digest"]
        for number, scenario in enumerate(wanted):
            rows.append(run(setting, scenario, Path(folder) / str(number), expected))
            print(f"{scenario.name}: {'as it must be' if rows[-1]['good'] else rows[-1]}", file=sys.stderr, flush=True)
    _show(rows, f"{args.source}, {args.epochs} epochs, weights {expected[:16]} on the local launcher")
    good = all(row["good"] for row in rows)
    print("every run ended as it must" if good else "NOT every run ended as it must")
    if args.json:
        Path(args.json).write_text(json.dumps({"expected": expected, "rows": rows}, indent=1) + "\n")
    return 0 if good else 1


def _show(rows: list[dict[str, Any]], title: str) -> None:
    table = Table("the service", "calls", "troubled", "most/s", "at once", "seconds", "ended", "", title=title)
    for row in rows:
        ended = f"weights {row['weights_digest'][:16]}" if row["code"] == 0 else row["last"]
        table.add_row(
            row["name"], str(row["calls"]), str(row["troubled"]), str(row["busiest_second"]), str(row["most_running"]),
            f"{row['seconds']:.1f}", ended, "ok" if row["good"] else "WRONG",
        )  # fmt: skip
    Console(width=150).print(table)


if __name__ == "__main__":
    sys.exit(main())
