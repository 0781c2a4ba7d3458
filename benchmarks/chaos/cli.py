"""``python -m benchmarks chaos``: how a run bears failures on this machine, with a seed for
each so that it can be repeated."""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.chaos import fork_server, schedule
from benchmarks.chaos.trial import Trial, suffer, undisturbed
from siafu.errors import ConfigError, GnnError

EXAMPLES = """examples:
  python -m benchmarks chaos                                 ten runs on the digits graph, each hit by faults of its own
  python -m benchmarks chaos --seed 17 --runs 1 --keep DIR   one seed again, with its logs
  python -m benchmarks chaos --runs 200 --jobs 2 --minutes 20 --json
  python -m benchmarks chaos shards/cora --fresh             every process started anew, as by siafu train: true times
                                                             to recover
"""
#: Failures are noticed sooner than by default and few epochs are enough to learn, so that a trial takes
#: seconds; and every epoch is saved.
HASTE = (
    "servers.heartbeat_s=0.2",
    "servers.silence_s=2",
    "servers.stall_s=15",
    "lambda.task_timeout_s=2",
    "run.checkpoint_every=1",
    "run.restarts=10",
    "train.lr=0.03",
    "train.eval_every=2",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "python -m benchmarks chaos [SOURCE] [--runs N] [--seed S]"
    parser.description = (
        "Train a small graph again and again on real processes that are killed, stopped and cut off, and\n"
        "check that each run ends, in pipe mode with the bits of an undisturbed one, in async mode with its\naccuracy."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("source", nargs="?", default="digits", metavar="SOURCE", help="as of siafu train [digits]")
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="seeds, from --seed on [10]")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first one; even: pipe, odd: async [0]")
    parser.add_argument(
        "--minutes", type=float, default=0.0, metavar="M", help="start no run after so long; 0: no limit [0]"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at a time, such as one for each core [1]"
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start each process anew; without it, they are forked from one that has imported all",
    )
    parser.add_argument("--epochs", type=int, default=16, metavar="N", help="of a run [16]")
    parser.add_argument(
        "--window",
        type=float,
        default=3.0,
        metavar="X",
        help="seconds from a run's first fault to its last, at most [3]",
    )
    parser.add_argument("--only", default="", metavar="KIND,...", help=f"kinds of faults: {', '.join(schedule.KINDS)}")
    parser.add_argument(
        "--band", type=float, default=0.05, metavar="X", help="by which async accuracy may be lower [0.05]"
    )
    parser.add_argument(
        "--keep", default="", metavar="DIR", help="keep run directories there; without it, those of failures in ./chaos"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="a setting of the runs; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, and progress on stderr")


def main(args: argparse.Namespace) -> int:
    kinds = _kinds(args.only)
    for flag, least in (("runs", 1), ("jobs", 1), ("minutes", 0), ("epochs", 1)):
        if not (asked := getattr(args, flag)) >= least:
            raise ConfigError(f"--{flag} {asked:g}: must be >= {least}")
    settings = [word for setting in (*HASTE, *args.set) for word in ("--set", setting)]
    arguments = [
        args.source,
        "--parts",
        "2",
        "--param-servers",
        "2",
        "--lambdas",
        "4",
        "--intervals",
        "4",
        "--epochs",
        str(args.epochs),
        *settings,
    ]
    # that a member which was killed does not answer is no news
    logging.getLogger("benchmarks.shaper").setLevel(logging.ERROR)
    if fork_server.SUPPORTED and not args.fresh:
        fork_server.Popen.nursery = fork_server.Nursery.start()
    begun, trials = time.monotonic(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        keep = Path(args.keep) if args.keep else None
        base = keep or Path(folder)
        quiet = {mode: _reference(mode, arguments, base) for mode in ("pipe", "async")}
        for trial in _trials(args, kinds, arguments, base, begun):
            verdict, run_dir = _judge(trial, quiet[trial.mode], args.band), base / f"seed-{trial.seed}"
            trials.append(_record(trial, verdict))
            print(_line(trial, verdict), file=sys.stderr, flush=True)
            if verdict and keep is None:
                shutil.copytree(run_dir, Path("chaos") / run_dir.name, dirs_exist_ok=True)
            if keep is None:
                shutil.rmtree(run_dir, ignore_errors=True)
    failed = [trial for trial in trials if trial["failure"]]
    if args.json:
        print(
            json.dumps(
                {
                    "runs": len(trials),
                    "failed": len(failed),
                    "minutes": (time.monotonic() - begun) / 60,
                    "by_kind": summary(trials),
                    "trials": trials,
                }
            )
        )
    else:
        _show(trials)
    if failed:
        print(
            f"python -m benchmarks chaos: {len(failed)} of {len(trials)} runs failed: seeds "
            f"{', '.join(str(t['seed']) for t in failed)}",
            file=sys.stderr,
        )
    return 1 if failed else 0


def _trials(
    args: argparse.Namespace, kinds: Sequence[str], arguments: Sequence[str], base: Path, begun: float
) -> Iterator[Trial]:
    """Of every seed whose turn comes in time, ``--jobs`` at once, as they end."""
    over = threading.Event()

    def suffered(seed: int) -> Trial | None:
        if over.is_set() or (args.minutes and time.monotonic() - begun > 60 * args.minutes):
            return None
        plan = schedule.draw(seed, args.window, args.epochs, kinds)
        return suffer(plan, arguments, base / f"seed-{seed}", over)

    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            for future in as_completed(
                [pool.submit(suffered, seed) for seed in range(args.seed, args.seed + args.runs)]
            ):
                if (trial := future.result()) is not None:
                    yield trial
        finally:
            over.set()  # Ctrl-C: what runs is ended, the others do not begin


def _kinds(only: str) -> Sequence[str]:
    kinds = [kind.strip() for kind in only.split(",") if kind.strip()] or list(schedule.KINDS)
    if unknown := sorted(set(kinds) - schedule.KINDS.keys()):
        raise ConfigError(f"--only {', '.join(unknown)}: must be of {', '.join(schedule.KINDS)}")
    return kinds


def _reference(mode: str, arguments: Sequence[str], base: Path) -> Trial:
    trial = undisturbed(mode, arguments, base / f"undisturbed-{mode}")
    if trial.error:
        raise GnnError(f"the undisturbed {mode} run failed: {trial.error}")
    return trial


def _judge(trial: Trial, quiet: Trial, band: float) -> str:
    """What is wrong with the run; empty: nothing."""
    if trial.error:
        return trial.error
    if trial.mode == "pipe":
        same = all(trial.result[key] == quiet.result[key] for key in ("weights_digest", "loss_history"))
        return "" if same else "other bits than undisturbed"
    short = quiet.result["val_acc"] - trial.result["val_acc"]
    return (
        f"validation accuracy {trial.result['val_acc']:.4f}, undisturbed {quiet.result['val_acc']:.4f}"
        if short > band
        else ""
    )


def _record(trial: Trial, verdict: str) -> dict[str, Any]:
    return {
        "seed": trial.seed,
        "mode": trial.mode,
        "failure": verdict,
        "seconds": round(trial.seconds, 2),
        "keys": trial.keys,
        "faults": dict(trial.faults),
        "restarts": trial.restarts,
        "resumes": [round(seconds, 2) for seconds in trial.resumes],
        "weights_digest": trial.result.get("weights_digest"),
        "val_acc": trial.result.get("val_acc"),
    }


def _line(trial: Trial, verdict: str) -> str:
    faults = [f"{number} {kind}" if number > 1 else kind for kind, number in trial.faults.items()] or ["no fault"]
    times = [restart.get("seconds") for restart in trial.restarts] + trial.resumes
    back = f"; back in {', '.join(f'{s:.1f}' for s in times if s is not None)} s" if times else ""
    keys = "; with keys" if trial.keys else ""
    return (
        f"seed {trial.seed}  {trial.mode:5}  {trial.seconds:5.1f} s  {verdict or 'ok'}  "
        f"({', '.join(faults)}{back}{keys})"
    )


def summary(trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By kind of fault: how often, in how many runs, how many of those came through, and seconds to recover where a run
    suffered that kind of member or link fault alone."""
    rows = []
    for kind in sorted({kind for trial in trials for kind in trial["faults"]}):
        hit = [trial for trial in trials if kind in trial["faults"]]
        alone = [t for t in hit if not any(k != kind and k in schedule.KINDS for k in t["faults"])]
        times = [r["seconds"] for t in alone for r in t["restarts"] if r.get("seconds") is not None] + [
            s for t in alone for s in t["resumes"]
        ]
        rows.append(
            {
                "kind": kind,
                "faults": sum(trial["faults"][kind] for trial in hit),
                "runs": len(hit),
                "came_through": sum(not trial["failure"] for trial in hit),
                "restarts_alone": len(times),
                "median_s": round(statistics.median(times), 2) if times else None,
                "max_s": round(max(times), 2) if times else None,
            }
        )
    return rows


def _show(trials: Sequence[dict[str, Any]]) -> None:
    table = Table(box=None, header_style="bold")
    table.add_column("fault", no_wrap=True)
    for title in ("injected", "runs", "recovered", "timed*", "median s", "max s"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in summary(trials):
        cells = [row["faults"], row["runs"], row["came_through"], row["restarts_alone"], row["median_s"], row["max_s"]]
        table.add_row(row["kind"], *("" if cell is None else str(cell) for cell in cells))
    console = Console(soft_wrap=True)
    console.print(table)
    modes = Counter(trial["mode"] for trial in trials)
    good = Counter(trial["mode"] for trial in trials if not trial["failure"])
    restarts, resumes = sum(len(t["restarts"]) for t in trials), sum(len(t["resumes"]) for t in trials)
    console.print(
        f"{good['pipe']} of {modes['pipe']} pipe runs with the bits of an undisturbed one, {good['async']} of "
        f"{modes['async']} async runs within the band\n"
        f"{restarts} restarts, {resumes} resumes; {sum(t['keys'] for t in trials)} runs with keys\n"
        "* restarts and resumes of runs with no other fault of members and links, and how long until training went on"
    )
