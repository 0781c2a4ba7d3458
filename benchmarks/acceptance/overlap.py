"""What overlapping graph and tensor tasks is worth when the network is slow: seconds
per epoch of each mode, interleaved.

    python -m benchmarks.acceptance.overlap [--rounds 5] [--epochs 8] [--hidden 128] [--link lambda|server]
    [--rate 25MB --delay 5ms] [--json FILE]

Workers reach every server through ``benchmarks.shaper``. With ``--link lambda`` each worker has the rate to each server
for itself: 25 MB/s are the 200 Mbit/s that a Lambda had in the paper. With ``--link server`` all workers of a server
share it; the floor beside a mode's time is then what the busiest link needs for the bytes of an epoch alone: no
schedule can be faster, so time / floor says how well the link is kept busy. Evaluation is left to the last epoch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.acceptance import table
from benchmarks.shaper import Shaper, Traffic, quantity
from benchmarks.socks import Destination
from run_coordinator import api
from run_coordinator.actions import Status

#: name -> (mode, settings). Plain asynchrony is the paper's: gathers take what is there, intervals run as they can.
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "no-pipe": ("no-pipe", {}),
    "pipe": ("pipe", {}),
    "async-plain": ("async", {"train.freshness": 0}),
    "async": ("async", {}),
}
BASE = "pipe"
#: Epochs that do not count: cold starts, layer 0's aggregation, and asynchrony's warm-up.
WARMUP_EPOCHS = 2


@dataclass
class Mode:
    """What was measured of it, one value per round."""

    epoch_s: list[float] = field(default_factory=list)
    floor_s: list[float] = field(default_factory=list)
    nbytes: list[float] = field(default_factory=list)  # per epoch, over the busiest link

    def row(self, base: Mode) -> dict[str, Any]:
        ratios = [mine / its for mine, its in zip(self.epoch_s, base.epoch_s, strict=True)]
        return {
            "epoch_s": median(self.epoch_s),
            "ratio": median(ratios),
            "ratios": ratios,
            "floor_s": median(self.floor_s),
            "busiest_link_nbytes": median(self.nbytes),
            "link_use": median(self.floor_s) / median(self.epoch_s),
        }


class Meter:
    """Notes at the end of each epoch what has passed each link."""

    def __init__(self, shaper: Shaper):
        self._shaper = shaper
        self.traffic: list[dict[Destination, Traffic]] = []  # by epoch

    def __call__(self, status: Status) -> None:
        if status.epoch > len(self.traffic):
            self.traffic += [self._shaper.traffic] * (status.epoch - len(self.traffic))

    def busiest_nbytes(self) -> float:
        """Bytes of one epoch over the direction of a link that has most, mean over the epochs that count."""
        first, last = self.traffic[WARMUP_EPOCHS - 1], self.traffic[-1]
        gone = [last[to].sent - first[to].sent for to in first] + [
            last[to].received - first[to].received for to in first
        ]
        return max(gone) / (len(self.traffic) - WARMUP_EPOCHS)


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    modes = {name: Mode() for name in args.modes.split(",")}
    settings = table.settings(args)
    cpu_shares = []
    for _ in range(args.rounds):
        for name, mode in modes.items():
            with _shaper(args) as shaper, tempfile.TemporaryDirectory() as folder:
                meter = Meter(shaper)
                result = _train(args, name, settings | {"lambda.proxy": shaper.address}, f"{folder}/run", meter)
                cpu_shares.append(shaper.cpu_s / result["train_seconds"])
            mode.epoch_s.append(median(result["epoch_s"][WARMUP_EPOCHS:]))
            mode.nbytes.append(meter.busiest_nbytes())
            mode.floor_s.append(mode.nbytes[-1] / args.rate)
            table.say(f"{name}: {mode.epoch_s[-1]:.2f} s, floor {mode.floor_s[-1]:.2f} s")
    rows = {name: mode.row(modes.get(BASE, mode)) for name, mode in modes.items()}
    title = f"{args.source}, hidden {args.hidden}: {args.rate / 1e6:g} MB/s, {1000 * args.delay:g} ms per {args.link}"
    table.show([_shown(name, row) for name, row in rows.items()], title)
    print(f"{args.rounds} rounds; the shaper took {max(cpu_shares):.1%} of a core at most")
    table.record(args.json, {"arguments": vars(args), "modes": rows, "shaper_cpu_share": max(cpu_shares)})
    return 0


def _shaper(args: argparse.Namespace) -> Shaper:
    return Shaper(rate=args.rate, delay_s=args.delay, per_connection=args.link == "lambda")


def _train(args: argparse.Namespace, name: str, settings: dict[str, Any], run_dir: str, meter: Meter) -> dict[str, Any]:
    """The result, and with it the seconds of each epoch."""
    mode, more = MODES[name]
    run = api.train(
        args.source,
        parts=2,
        intervals=16,
        hidden=args.hidden,
        epochs=args.epochs,
        mode=mode,
        eval_every=0,
        run_dir=run_dir,
        on_status=meter,
        settings=more | settings,
    )
    return {**run.result, "epoch_s": [line["epoch_s"] for line in run.metrics() if line["event"] == "epoch"]}


def _shown(name: str, row: dict[str, Any]) -> dict[str, str]:
    return {
        "mode": name,
        "s/epoch": f"{row['epoch_s']:.2f}",
        f"ratio to {BASE}": f"{row['ratio']:.2f}",
        "lowest … highest": f"{min(row['ratios']):.2f} … {max(row['ratios']):.2f}",
        "floor s": f"{row['floor_s']:.2f}",
        "link in use": f"{row['link_use']:.0%}",
    }


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = table.parser(
        __doc__,
        source="synthetic:reddit-small?scale=0.05",
        rounds=5,
        epochs=8,
        hidden=128,
        modes=(",".join(MODES), "of these, with a comma between"),
        set=([], "for every run"),
    )
    parser.add_argument("--rate", type=quantity, default=25e6, metavar="25MB")
    parser.add_argument("--delay", type=quantity, default=0.005, metavar="5ms")
    parser.add_argument("--link", choices=("lambda", "server"), default="lambda", help="what has a link of its own")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
