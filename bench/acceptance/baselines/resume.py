"""Issue 6, acceptance 5: every method goes on from a checkpoint to the same weights, and a killed rank ends its run by name.

    python -m bench.acceptance.baselines.resume [--source cora] [--epochs 30] [--only pipegcn gossip] [--json FILE]

For each method: one run to the end; the same run, one of whose ranks is killed (SIGKILL) after a third of the epochs, and
how long the launcher then takes to end, and whom it names; that run resumed. The digests of the weights must be equal. Where
ranks meet in an order that no seed fixes (gossip) two whole runs differ too: this is shown as "free", with both digests.
Exit code 1 if anything else happens.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.acceptance.baselines.there import is_there, write
from siafu.baseline import METHODS
from tests.integration.processes import Training

LIMIT_S = 30.0
#: Flags that small runs of a method need.
FLAGS = {
    "pipegcn": ["--smooth", "FG"], "adaqp": ["--set", "baseline.period=4"],
    "gnnpipe": ["--model", "gcnii", "--layers", "4"], "allreduce": ["--subgraphs", "6"],
    "gossip": ["--subgraphs", "6"], "cluster": ["--subgraphs", "6"], "sampling": ["--batch", "64"],
}  # fmt: skip
FREE = ("gossip",)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="cora")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--only", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(argv)
    rows = []
    for method in args.only:
        if not is_there(method):
            print(f"{method}: skipped, it is not written", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(Path(folder), method, args.source, args.epochs))
        print(f"{method}: {rows[-1]['verdict']}", flush=True)
    table = Table("method", "whole run", "resumed", "killed rank ended the run", "and it said", "")
    for row in rows:
        table.add_row(
            row["method"], row["whole"], row["resumed"], f"{row['ended_s']:.1f} s", row["said"], row["verdict"]
        )
    Console(width=140).print(table)
    write(args.json, rows)
    return 0 if all(row["holds"] for row in rows) else 1


def measure(folder: Path, method: str, source: str, epochs: int) -> dict[str, Any]:
    """One method."""
    every = max(1, epochs // 6)
    flags = [
        method, source, "--epochs", str(epochs), "--checkpoint-every", str(every), "--eval-every", str(epochs), "--hidden", "16",
        "--dropout", "0.5", "--quiet", *FLAGS.get(method, []),
    ]  # fmt: skip
    with Training(folder / "whole", *flags, verb="baseline") as whole:
        wanted = whole.result
    with Training(folder / "killed", *flags, verb="baseline") as training:
        training.until(lambda: training.epochs() >= max(every + 1, epochs // 3), "a third of the epochs", 600)
        victim = min(training.pids("gpu_baselines"))
        os.kill(victim, signal.SIGKILL)
        begun = time.monotonic()
        training.wait(600)
        ended_s, said = time.monotonic() - begun, (training.errors.strip().splitlines() or ["nothing"])[-1]
    with Training(folder / "killed", "--resume", str(folder / "killed"), "--quiet", verb="baseline") as resumed:
        again = resumed.result
    same = wanted["weights_digest"] == again.get("weights_digest")
    named = "killed by SIGKILL" in said and ended_s < LIMIT_S
    free = not same and method in FREE and "weights_digest" in again
    verdict = "the same weights" if same else "free" if free else again.get("error", "OTHER weights")
    return {
        "method": method, "whole": wanted["weights_digest"], "resumed": again.get("weights_digest", ""), "ended_s": ended_s,
        "said": said, "verdict": verdict if named else f"{verdict}, NOT NAMED", "holds": (same or free) and named,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
