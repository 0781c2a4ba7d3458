"""What each way of saving the link to Lambdas is worth: seconds per epoch, and bytes per
epoch each way, with and without it.

    python -m benchmarks.acceptance.link [--scale 0.1] [--rounds 5] [--links 75MB,25MB] [--delay 2ms] [--json FILE]

Every worker has a link of its own to each server (``benchmarks.shaper``): 75 MB/s is what to plan on for a Lambda
of today, 25 MB/s are the 200 Mbit/s of the paper. A variant is the defaults with one thing changed; all of a
link's variants run once per round, so that they see the same machine, and a ratio is the median over rounds. The
bytes are those of the epochs after the first ``WARMUP_EPOCHS``, when workers have what never changes. Exit code 1
if affinity saves too little of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks.acceptance import table
from benchmarks.acceptance.overlap import WARMUP_EPOCHS, Meter
from benchmarks.shaper import Shaper, quantity
from run_coordinator import api
from siafu.config import Config
from siafu.places import LINK_BYTES_PER_S

#: What saves the link -> (its key, its value when it is on, and when it is off).
SAVERS: dict[str, tuple[str, Any, Any]] = {
    "streaming": ("lambda.stream", True, False),
    "batching": ("lambda.prefetch", 2, 1),
    "rematerialisation": ("lambda.rematerialise", "always", "never"),
    "fusion": ("lambda.fuse", True, False),
    "affinity": ("lambda.keep_constants", True, False),
}
DEFAULTS, NOTHING = "defaults", "none of them"
#: Of the bytes per epoch both ways, what constant-input affinity must save.
AFFINITY_SAVES = 0.60


@dataclass
class Variant:
    """What was measured of it, one value per round."""

    settings: dict[str, Any]
    epoch_s: list[float] = field(default_factory=list)
    down: list[float] = field(default_factory=list)  # bytes per epoch to the workers
    up: list[float] = field(default_factory=list)  # and from them

    @property
    def nbytes(self) -> float:
        return median(down + up for down, up in zip(self.down, self.up, strict=True))

    def slower_than(self, base: Variant) -> list[float]:
        return [mine / its for mine, its in zip(self.epoch_s, base.epoch_s, strict=True)]


def variants(config: Config) -> dict[str, Variant]:
    """The defaults, each saver on and off where that is not the default already, and all of them off."""
    settings = config.flat()
    found = {DEFAULTS: Variant({})}
    for name, (key, on, off) in SAVERS.items():
        # What the config leaves open ("auto") the run decides: then both ends are measured.
        decided = on if name == "rematerialisation" and config.rematerialises else settings[key]
        found |= {
            f"{name} {word}": Variant({key: value}) for word, value in (("on", on), ("off", off)) if value != decided
        }
    found[NOTHING] = Variant({key: off for key, _, off in SAVERS.values()})
    return found


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    settings = table.settings(args)
    links: dict[str, dict[str, Variant]] = {}
    for rate in args.links:
        config = Config().replace(settings | {"servers.backend": "lambda", "lambda.proxy": "127.0.0.1:1"})
        links[f"{rate / 1e6:g} MB/s"] = measured = variants(config)
        cpu_share = _measure(args, rate, settings, measured)
        title = f"{args.source}, hidden {args.hidden}: {rate / 1e6:g} MB/s, {1000 * args.delay:g} ms per Lambda"
        table.show([_shown(name, one, measured[DEFAULTS]) for name, one in measured.items()], title)
        print(f"{args.rounds} rounds; the shaper took {cpu_share:.0%} of a core at most")
    saved = {link: _affinity_saves(measured) for link, measured in links.items()}
    for link, share in saved.items():
        print(f"{link}: affinity saves {share:.1%} of the bytes per epoch, must be {AFFINITY_SAVES:.0%}")
    figures = {link: {name: asdict(one) for name, one in measured.items()} for link, measured in links.items()}
    table.record(args.json, {"arguments": vars(args), "affinity_saves": saved, "links": figures})
    return 0 if min(saved.values()) >= AFFINITY_SAVES else 1


def _measure(args: argparse.Namespace, rate: float, settings: dict[str, Any], measured: dict[str, Variant]) -> float:
    """Runs every variant once per round; returns the largest share of a core that the shaper took."""
    cpu_share = 0.0
    for number in range(args.rounds):
        for name, variant in measured.items():
            with (
                Shaper(rate=rate, delay_s=args.delay, per_connection=True) as shaper,
                tempfile.TemporaryDirectory() as folder,
            ):
                meter = Meter(shaper)
                run = api.train(
                    args.source,
                    parts=args.parts,
                    hidden=args.hidden,
                    epochs=args.epochs,
                    mode=args.mode,
                    eval_every=0,
                    run_dir=f"{folder}/run",
                    on_status=meter,
                    settings=settings | variant.settings | {"lambda.proxy": shaper.address},
                )
                seconds = [line["epoch_s"] for line in run.metrics() if line["event"] == "epoch"]
            variant.epoch_s.append(median(seconds[WARMUP_EPOCHS:]))
            down, up = _per_epoch(meter)
            variant.down.append(down)
            variant.up.append(up)
            cpu_share = max(cpu_share, shaper.cpu_s / run.result["train_seconds"])
            table.say(f"{number + 1}/{args.rounds} {name}: {variant.epoch_s[-1]:.2f} s")
    return cpu_share


def _per_epoch(meter: Meter) -> tuple[float, float]:
    """Bytes to and from all workers, mean over the epochs that count."""
    first, last = meter.traffic[WARMUP_EPOCHS - 1], meter.traffic[-1]
    epochs = len(meter.traffic) - WARMUP_EPOCHS
    down = sum(last[server].received - first[server].received for server in first)
    up = sum(last[server].sent - first[server].sent for server in first)
    return down / epochs, up / epochs


def _affinity_saves(measured: dict[str, Variant]) -> float:
    """Share of the bytes per epoch."""
    kept = measured.get("affinity on", measured[DEFAULTS])
    sent_again = measured.get("affinity off", measured[DEFAULTS])
    return 1 - kept.nbytes / sent_again.nbytes


def _shown(name: str, variant: Variant, base: Variant) -> dict[str, str]:
    ratios = variant.slower_than(base)
    return {
        "variant": name,
        "s/epoch": f"{median(variant.epoch_s):.3f}",
        "time ratio": f"{median(ratios):.2f}",
        "lowest … highest": f"{min(ratios):.2f} … {max(ratios):.2f}",
        "MB down": f"{median(variant.down) / 1e6:.1f}",
        "MB up": f"{median(variant.up) / 1e6:.1f}",
        "bytes ratio": f"{variant.nbytes / base.nbytes:.2f}",
    }


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = table.parser(
        __doc__,
        source=("", "another graph than reddit-small at --scale"),
        scale=0.1,
        rounds=5,
        epochs=12,
        parts=2,
        hidden=128,
        mode="async",
        set=([], "for every run"),
    )
    parser.add_argument(
        "--links",
        type=_rates,
        default=f"{LINK_BYTES_PER_S / 1e6:g}MB,25MB",
        metavar="75MB,25MB",
        help="rates, one after the other",
    )
    parser.add_argument("--delay", type=quantity, default=0.002, metavar="2ms")
    args = parser.parse_args(argv)
    args.source = args.source or f"synthetic:reddit-small?scale={args.scale:g}"
    return args


def _rates(text: str) -> list[float]:
    return [quantity(rate) for rate in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
