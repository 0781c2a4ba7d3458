"""Issue 6, acceptance 5: every method goes on from a checkpoint to the same weights, and
a killed rank ends its run by name.

    python -m benchmarks.acceptance.baselines.resume [--source cora] [--epochs 30] [--only pipegcn gossip] [--json FILE]

For each method: one run to the end; the same run, one of whose ranks is killed (SIGKILL) after a third of the epochs,
and how long the launcher then takes to end, and whom it names: that rank; that run resumed. The digests of the weights
must be equal. Where there are several ranks, a third run, one of whose ranks is stopped (SIGSTOP), must name that one
as silent. Where ranks meet in an order that no seed fixes (gossip) two whole runs differ too: this is shown as "free",
with both digests. Exit code 1 if anything else happens.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.acceptance import table
from siafu.baseline import METHODS
from tests.integration.processes import Training, rank_of

LIMIT_S = 30.0
#: That others wait for a rank that was stopped.
PATIENCE_S = 5
#: Flags that small runs of a method need.
FLAGS = {
    "pipegcn": ["--smooth", "FG"],
    "adaqp": ["--set", "baseline.period=4"],
    "gnnpipe": ["--model", "gcnii", "--layers", "4"],
    "allreduce": ["--subgraphs", "6"],
    "gossip": ["--subgraphs", "6"],
    "cluster": ["--subgraphs", "6"],
    "sampling": ["--batch", "64"],
}
FREE = ("gossip",)


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(__doc__, source="cora", epochs=30, only=list(METHODS)).parse_args(argv)
    rows = []
    for method in args.only:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(Path(folder), method, args.source, args.epochs))
        print(f"{method}: {rows[-1]['verdict']}", flush=True)
    table.show([{**row, "said": "; ".join(row["said"])} for row in rows])
    table.record(args.json, rows)
    return 0 if all(row["holds"] for row in rows) else 1


def measure(folder: Path, method: str, source: str, epochs: int) -> dict[str, Any]:
    """One method."""
    every = max(1, epochs // 6)
    flags = [
        method,
        source,
        "--epochs",
        str(epochs),
        "--checkpoint-every",
        str(every),
        "--eval-every",
        str(epochs),
        "--hidden",
        "16",
        "--dropout",
        "0.5",
        "--quiet",
        *FLAGS.get(method, []),
    ]
    with Training(folder / "whole", *flags, verb="baseline") as whole:
        wanted = whole.result
    begin = max(every + 1, epochs // 3)
    ended_s, said, named = struck(folder / "killed", flags, begin, signal.SIGKILL, "rank {} died: killed by SIGKILL")
    told, stopped_s = [said], 0.0
    if wanted["ranks"] > 1:
        patient, silent = (
            [*flags, "--timeout-s", str(PATIENCE_S)],
            f"rank {{}} is silent for more than {PATIENCE_S} s (--timeout-s)",
        )
        stopped_s, said, is_named = struck(folder / "stopped", patient, begin, signal.SIGSTOP, silent)
        told.append(said)
        named = named and is_named
    with Training(folder / "killed", "--resume", str(folder / "killed"), "--quiet", verb="baseline") as resumed:
        again = resumed.result
    same = wanted["weights_digest"] == again.get("weights_digest")
    free = not same and method in FREE and "weights_digest" in again
    verdict = "the same weights" if same else "free" if free else again.get("error", "OTHER weights")
    return {
        "method": method,
        "whole": wanted["weights_digest"],
        "resumed": again.get("weights_digest", ""),
        "ended_s": ended_s,
        "stopped_s": stopped_s,
        "said": told,
        "verdict": verdict if named else f"{verdict}, NOT NAMED",
        "holds": (same or free) and named,
    }


def struck(
    run_dir: Path, flags: Sequence[str], epochs: int, blow: signal.Signals, words: str
) -> tuple[float, str, bool]:
    """A run one of whose ranks gets the signal after so many epochs: how long the launcher takes to end, what it says
    last, and whether that is in time and ``words`` of that rank."""
    with Training(run_dir, *flags, verb="baseline") as training:
        training.until(lambda: training.epochs() >= epochs, "a third of the epochs", 600)
        victim = min(training.pids("gpu_baselines"))
        rank = rank_of(victim)
        os.kill(victim, blow)
        begun = time.monotonic()
        training.wait(600)
        ended_s, said = time.monotonic() - begun, (training.errors.strip().splitlines() or ["nothing"])[-1]
    return ended_s, said, said.endswith(words.format(rank)) and ended_s < LIMIT_S


if __name__ == "__main__":
    sys.exit(main())
