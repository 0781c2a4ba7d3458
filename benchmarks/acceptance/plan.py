"""The simulator against reality on this machine: predicted epoch times beside measured ones, of
settings that were not calibrated on.

    python -m benchmarks.acceptance.plan [--rounds 3] [--json FILE]           a quarter of an hour
    python -m benchmarks.acceptance.plan --calibration FILE --only async      with what was calibrated before

A setting is a mode x intervals x environments x link rate x partitions; some train inductively. Links are those of each
environment, shaped in user space (``benchmarks.shaper``). What is calibrated on and what is predicted run in the same
rounds, each in an order of its own: a machine that others share is a third faster in one hour than in the next.
Measured is the median of rounds. Two numbers are the result: the share of settings whose predicted epoch is within
``CLOSE`` of the measured one, and the share of pairs of modes, all else equal, that the prediction puts in the
measured order. Pairs that differ by less than ``EQUAL`` when measured are shown and counted too: they may be put in
either order. Exit code 1 if either is below its bar.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from random import Random
from statistics import median
from typing import Any

from benchmarks.acceptance import table
from benchmarks.shaper import CHUNK_S, MAX_CHUNK_NBYTES, MIN_CHUNK_NBYTES, Shaper
from cost_planner.plan import machine_rates
from cost_planner.plan.calibrate import (
    GRAPHS,
    SETTINGS,
    Measured,
    Setting,
    fitted,
    measured,
    middle,
    predicted_s,
)
from cost_planner.plan.calibration import Calibration, own_path
from cost_planner.plan.here import LOOPBACK, local_plan
from cost_planner.plan.parts import LinkRate
from cost_planner.plan.simulated_run import Environments

CLOSE, CLOSE_SHARE, RANKED_SHARE = 0.15, 1.0, 0.9
EQUAL = 0.02
MODES = ("no-pipe", "pipe", "async")
DELAY_S = 0.001


@dataclass(frozen=True)
class Place:
    """What a comparison of modes has in common."""

    parts: int
    intervals: int
    environments: int
    mb_per_s: float = 0.0  # of each environment's link; 0: none but loopback
    inductive: bool = False

    @property
    def words(self) -> str:
        link = f"{self.mb_per_s:g} MB/s" if self.mb_per_s else "loopback"
        kind = ", inductive" * self.inductive
        return f"{self.parts} x {self.intervals} intervals, {self.environments} Lambdas each, {link}{kind}"

    def setting(self, mode: str) -> Setting:
        return Setting(mode=mode, parts=self.parts, intervals=self.intervals, environments=self.environments, hidden=96)


PLACES = (
    Place(1, 8, 2),
    Place(1, 16, 2, 50),
    Place(1, 24, 1),
    Place(2, 8, 1),
    Place(2, 12, 2, 25),
    Place(1, 16, 3, 25),
    Place(2, 4, 1, 50),
    Place(2, 16, 1, 10),
    Place(2, 8, 1, inductive=True),
)
#: What the shaper is calibrated on.
SHAPED = (Place(1, 12, 2, 200), Place(2, 10, 1, 35), Place(1, 20, 2, 35))
FACTORS, LATES_S = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0), (0.0, 0.0003, 0.0006)


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(
        __doc__,
        source=GRAPHS["dense"],
        rounds=3,
        epochs=13,
        only=(MODES, "these modes alone"),
        calibration=(None, "instead of calibrating"),
        save=(None, "where to keep the calibration [this machine's]"),
    ).parse_args(argv)
    assert not {place.setting(mode) for place in PLACES for mode in MODES} & set(SETTINGS)
    asked = [(place, mode) for place in PLACES for mode in args.only]
    shaped = [(place, mode) for place in SHAPED for mode in ("pipe", "no-pipe")]
    known = () if args.calibration else SETTINGS
    runs: dict[Setting | tuple[Place, str], list[Measured]] = {}
    for number in range(args.rounds):
        jobs: list[Setting | tuple[Place, str]] = [*known, *shaped, *asked]
        Random(number).shuffle(jobs)
        for job in jobs:
            runs.setdefault(job, []).append(trained(args.source, job, args.epochs))
            words = job.words if isinstance(job, Setting) else f"{job[1]}, {job[0].words}"
            table.say(f"{number + 1}/{args.rounds} {words}: {1000 * runs[job][-1].seen.epoch_s:.0f} ms")
    if args.calibration:
        calibration = Calibration.load(args.calibration)
    else:
        calibration = fitted([middle(runs[setting]) for setting in known], machine_rates.measured())
        calibration.save(args.save or own_path())
    instrument = fitted_instrument([(*job, runs[job]) for job in shaped], calibration)
    table.say(f"the shaper: {instrument}")
    rows = [compared(*job, runs[job], calibration, instrument) for job in asked]
    close = sum(abs(row["off"]) <= CLOSE for row in rows) / len(rows)
    right, clear = _ranked(rows)
    table.show([_shown(row) for row in rows])
    print(f"within {CLOSE:.0%}: {close:.0%} of {len(rows)} settings, must be all")
    for name, pairs in (("pairs of modes", right), (f"those that differ by more than {EQUAL:.0%}", clear)):
        print(
            f"{name} in the right order: {sum(pairs)} of {len(pairs)}"
            + (f", must be {RANKED_SHARE:.0%}" if pairs is right else "")
        )
    known_of = {"calibration": asdict(calibration), "instrument": asdict(instrument)}
    table.record(args.json, {"rows": rows, "close": close, **known_of})
    ranked = sum(right) / len(right) if right else 1.0
    return 0 if close >= CLOSE_SHARE and ranked >= RANKED_SHARE else 1


def trained(source: str, job: Setting | tuple[Place, str], epochs: int) -> Measured:
    if isinstance(job, Setting):
        return measured(source if job.graph == "dense" else GRAPHS[job.graph], job, epochs)
    place, mode = job
    more = {"data.inductive": True} if place.inductive else {}
    return behind_link(source, place.setting(mode), epochs, place.mb_per_s, more)


def behind_link(
    source: str, setting: Setting, epochs: int, mb_per_s: float, more: Mapping[str, Any] | None = None
) -> Measured:
    """``mb_per_s``: of each environment's link; 0: none but loopback."""
    shaped = Shaper(rate=mb_per_s * 1e6, delay_s=DELAY_S, per_connection=True) if mb_per_s else nullcontext()
    with shaped as shaper:
        proxy = {"lambda.proxy": shaper.address} if shaper is not None else {}
        return measured(source, setting, epochs, {**(more or {}), **proxy})


def compared(
    place: Place, mode: str, found: Sequence[Measured], calibration: Calibration, instrument: Instrument
) -> dict[str, Any]:
    seen = [run.seen.epoch_s for run in found]
    predicted = foreseen_s(found[0], place.mb_per_s, calibration, instrument)
    return {
        "place": asdict(place),
        "mode": mode,
        "measured_s": median(seen),
        "lowest_s": min(seen),
        "highest_s": max(seen),
        "predicted_s": predicted,
        "off": predicted / median(seen) - 1,
    }


def foreseen_s(run: Measured, mb_per_s: float, calibration: Calibration, instrument: Instrument) -> float:
    """Of an epoch, behind such links; 0: loopback."""
    link = LinkRate(mb_per_s * 1e6) if mb_per_s else LOOPBACK
    plan = local_plan(run.config, run.spec, run.counts, calibration.speeds, link, calibration.memory)
    if mb_per_s and plan.environments is not None:
        plan = replace(plan, environments=instrument.of(plan.environments, mb_per_s * 1e6))
    return predicted_s(plan)


@dataclass(frozen=True)
class Instrument:
    """What the shaper adds, which is no part of the system: it runs on the same processors."""

    # what its work costs, in its own processor time as it was measured: 3 ns a byte, and 60 us a turn
    factor: float = 1.0
    late_s: float = 0.0  # with which it wakes, for each message

    def of(self, environments: Environments, bytes_per_s: float) -> Environments:
        turn = min(max(bytes_per_s * CHUNK_S, MIN_CHUNK_NBYTES), MAX_CHUNK_NBYTES)
        late_s = environments.latency_s + DELAY_S + self.late_s
        return replace(environments, latency_s=late_s, relay=self.factor * (3e-9 + 60e-6 / turn))


def fitted_instrument(runs: Sequence[tuple[Place, str, Sequence[Measured]]], calibration: Calibration) -> Instrument:
    """Calibrated too, on runs that are none of ``PLACES``."""

    def off(instrument: Instrument) -> float:
        return sum(
            float(compared(place, mode, found, calibration, instrument)["off"]) ** 2 for place, mode, found in runs
        )

    return min((Instrument(factor, late_s) for factor in FACTORS for late_s in LATES_S), key=off)


def _ranked(rows: Sequence[dict[str, Any]]) -> tuple[list[bool], list[bool]]:
    """Of every pair of modes whether it is in the right order; and of those that differ."""
    every, clear = [], []
    for one, other in combinations(rows, 2):
        if one["place"] != other["place"]:
            continue
        measured_, predicted = one["measured_s"] / other["measured_s"], one["predicted_s"] / other["predicted_s"]
        every.append((measured_ > 1) == (predicted > 1))
        if abs(measured_ - 1) > EQUAL:
            clear.append(every[-1])
    return every, clear


def _shown(row: dict[str, Any]) -> dict[str, str]:
    return {
        "setting": Place(**row["place"]).words,
        "mode": row["mode"],
        "measured, ms": f"{1000 * row['measured_s']:.0f}",
        "lowest … highest": f"{1000 * row['lowest_s']:.0f} … {1000 * row['highest_s']:.0f}",
        "predicted, ms": f"{1000 * row['predicted_s']:.0f}",
        "off": f"{row['off']:+.0%}",
    }


if __name__ == "__main__":
    sys.exit(main())
