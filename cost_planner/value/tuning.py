"""A learning rate of its own for each contender: ``siafu value --tune N``.

Every contender is trained once with each of N rates, by a seed that no run of the comparison has. It then has the rate
of the run that reached the target in the fewest epochs, whose time no rate changes; where none did, of the highest
validation score. Who was asked with a rate keeps it. What tuning takes counts towards the limits of the call, and for
nobody in the comparison.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace

from cost_planner.value import contenders
from cost_planner.value.contenders import Asked
from run_coordinator.repeat import Done, Trial
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.run_files import Result

RATE = "train.lr"
#: Added to ``train.seed``: more runs than anybody compares.
OTHER_SEED = 1_000_000


@dataclass(frozen=True)
class Tuned:
    asked: Sequence[Asked]  # those of the call, with their rates
    rates: Mapping[str, float]  # by label, of those who have been tuned


def rates(first: float, number: int) -> list[float]:
    """``first``, then, to two digits, half a power of ten above and below it, a whole one, and so on.

    >>> rates(0.01, 5)
    [0.01, 0.032, 0.0032, 0.1, 0.001]
    """
    steps = (((place + 1) // 2) * (1 if place % 2 else -1) for place in range(number))
    return [float(f"{first * 10 ** (step / 2):.2g}") if step else first for step in steps]


def tuned(
    asked: Sequence[Asked],
    base: Config,
    number: int,
    ranks: int,
    labels: Mapping[str, str],
    carry_out: Callable[[Sequence[Trial]], Generator[Done, None, None]],
    on_done: Callable[[Done], None],
) -> Tuned:
    """Has ``number`` rates tried for each. labels: directory -> label, of those that can run. ConfigError for mistakes
    in a contender's own settings."""
    if number < 2:
        raise ConfigError(f"--tune {number}: must be >= 2 learning rates")
    trials: list[Trial] = []
    for one in asked:
        if one.directory in labels and RATE not in one.own:
            trials += _trials(one, base, ranks, labels[one.directory], number)
    best: dict[str, tuple[tuple[float, float], float]] = {}  # label -> how good, and the rate
    with contextlib.closing(carry_out(trials)) as outcomes:
        for done in outcomes:
            on_done(done)
            if done.result is None:
                continue
            name, rate = done.trial.settings["tuned"], done.trial.config.train.lr
            if name not in best or _goodness(done.result) > best[name][0]:
                best[name] = _goodness(done.result), rate
    found = {name: rate for name, (_, rate) in best.items()}
    with_rates = [
        replace(one, own={**one.own, RATE: f"{found[name]:g}"})
        if (name := labels.get(one.directory, "")) in found
        else one
        for one in asked
    ]
    return Tuned(with_rates, found)


def _trials(one: Asked, base: Config, ranks: int, label: str, number: int) -> list[Trial]:
    found = []
    for rate in rates(base.train.lr, number):
        with_rate = replace(one, own={**one.own, RATE: f"{rate:g}"})
        config = contenders.config_of(with_rate, base, ranks)
        config = config.replace({"train.seed": base.train.seed + OTHER_SEED})
        told = {"tuned": label, "contender": f"{label} lr={rate:g}"}
        found.append(Trial(f"{one.directory},tune-lr={rate:g}", config, told))
    return found


def _goodness(result: Result) -> tuple[float, float]:
    """The greater, the better."""
    if result["stopped"] == "target":
        return 1.0, -result["epochs"]
    score = result["val_acc"]
    return 0.0, score if score is not None else -float("inf")
