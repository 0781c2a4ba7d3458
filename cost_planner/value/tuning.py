"""``siafu value --tune N``: finds a cluster and a learning rate for each contender.

1. A contender without a given cluster tries numbers of graph servers, or of ranks, with the call's learning rate; then
   other rates, on the best cluster. A contender with a given rate keeps it.
2. Every contender has equally many tries: N rates, and the sizes of cluster beyond the first. A contender with fewer
   sizes tries more rates. A contender with a given rate tries only sizes.
3. All tries have one seed, which no run of the comparison has.
4. The best cluster has the highest value until the target; if none reached it, over whole runs. The best rate reached
   the target in the fewest epochs, as rates do not change an epoch's time; if none did, it has the highest validation
   score.
5. Tuning counts towards the limits of the call, but in no contender's results: it is shown apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cost_planner.value import contenders, judge, trained, value
from cost_planner.value.contenders import Asked
from run_coordinator.repeat import Done, Trial
from siafu.baseline import METHODS
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.run_files import Result

RATE = "train.lr"
#: Added to ``train.seed``: more runs than anybody compares.
OTHER_SEED = 1_000_000
#: In the name of a try's directory, behind that of its contender.
TRY = ",tune-"

CarryOut = Callable[[Sequence[Trial]], Generator[Done, None, None]]
#: How good a try was: the greater, the better.
Goodness = tuple[float, float]


@dataclass(frozen=True)
class Sizes:
    """Cluster sizes to try: numbers of graph servers, and of a baseline's ranks. Empty: the call fixes the size."""

    servers: Sequence[int] = ()
    ranks: Sequence[int] = ()

    def of(self, one: Asked, base: Config, ranks: int) -> list[int]:
        """The sizes that the contender can have; none if it sets its own."""
        if _key(one) in one.own:
            return []
        found = self.ranks if one.kind in METHODS else self.servers
        return [size for size in found if _can_have(one, size, base, ranks)]


AS_ASKED = Sizes()


@dataclass(frozen=True)
class Found:
    """The tuned settings of a contender."""

    asked: str  # its name in the call
    tries: str  # what begins the names of its tries' directories
    size: int | None  # graph servers, or ranks; None: as it was asked
    rate: float | None  # None: as it was asked


@dataclass(frozen=True)
class Tuned:
    asked: Sequence[Asked]  # those of the call, with what was found
    found: Mapping[str, Found]  # by directory of these


def rates(first: float, number: int) -> list[float]:
    """``first``, then, to two digits, half a power of ten above and below it, a whole one, and so on.

    >>> rates(0.01, 5)
    [0.01, 0.032, 0.0032, 0.1, 0.001]
    """
    steps = (((place + 1) // 2) * (1 if place % 2 else -1) for place in range(number))
    return [float(f"{first * 10 ** (step / 2):.2g}") if step else first for step in steps]


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4 and so on, up to ``most``."""
    return [1 << power for power in range(max(1, most).bit_length())]


def at(one: Asked, size: int) -> Asked:
    """The contender on a cluster of this size, with its old name."""
    return replace(one, own={**one.own, _key(one): str(size)})


def tuned(
    asked: Sequence[Asked],
    base: Config,
    number: int,
    ranks: int,
    sizes: Mapping[str, Sequence[int]],
    stand_in: judge.StandIn,
    folder: Path,
    carry_out: CarryOut,
    on_done: Callable[[Done], None],
) -> Tuned:
    """Tries ``number`` learning rates, or more (rule 2), for each contender. asked: those that can run. sizes: sizes to
    try, by directory. ConfigError for mistakes in a contender's own settings."""
    if number < 2:
        raise ConfigError(f"--tune {number}: must be >= 2 learning rates")
    tries = _Tries(asked, base, ranks, stand_in, folder, carry_out, on_done)
    chosen = tries.best({one.directory: [at(one, size) for size in sizes[one.directory]] for one in asked}, tries.worth)
    most = max([1, *map(len, sizes.values())])
    with_rates: dict[str, list[Asked]] = {}
    for one in asked:
        if RATE not in one.own:
            more = most - max(1, len(sizes[one.directory]))
            on = chosen.get(one.directory, one)
            with_rates[one.directory] = [_with_rate(on, rate) for rate in rates(base.train.lr, number + more)]
    best = tries.best(with_rates, lambda done: _goodness(done.result))
    ended: list[Asked] = []
    found: dict[str, Found] = {}
    for one in asked:
        own = best.get(one.directory, chosen.get(one.directory, one))
        ended.append(_named(one, own, [*(other for other in asked if other is not one), *ended], base, ranks))
        if own is not one:
            size, rate = _size(one, own), float(own.own[RATE]) if one.directory in best else None
            found[ended[-1].directory] = Found(one.name, one.directory + TRY, size, rate)
    return Tuned(ended, found)


class _Tries:
    """The tuning runs of all contenders."""

    def __init__(
        self,
        asked: Sequence[Asked],
        base: Config,
        ranks: int,
        stand_in: judge.StandIn,
        folder: Path,
        carry_out: CarryOut,
        on_done: Callable[[Done], None],
    ):
        self._asked = {one.directory: one for one in asked}
        self._base, self._ranks, self._stand_in, self._folder = base, ranks, stand_in, folder
        self._carry_out, self._on_done = carry_out, on_done
        # All mutable state:
        self._done: dict[str, Done] = {}  # by name: the call's rate on the best cluster is a try of either kind

    def best(self, tries: Mapping[str, Sequence[Asked]], good: Callable[[Done], Goodness]) -> dict[str, Asked]:
        """The best try of each contender, by directory; without contenders whose tries all failed. A single try is
        chosen without a run."""
        several = {name: [(self._trial(name, own), own) for own in owns] for name, owns in tries.items()}
        trials = [trial for found in several.values() if len(found) > 1 for trial, _ in found]
        with contextlib.closing(self._carry_out([one for one in trials if one.name not in self._done])) as outcomes:
            for done in outcomes:
                self._done[done.trial.name] = done
                self._on_done(done)
        best: dict[str, Asked] = {}
        for name, found in several.items():
            known = [(self._done.get(trial.name), own) for trial, own in found]
            ended = [(good(done), own) for done, own in known if done is not None and done.result is not None]
            if len(found) == 1 or ended:
                best[name] = found[0][1] if len(found) == 1 else max(ended, key=lambda one: one[0])[1]
        return best

    def worth(self, done: Done) -> Goodness:
        """How good a cluster is: rule 4."""
        run, target = trained.read(self._folder / done.trial.name), self._base.train.target_acc
        there = run.reaches(target, "val") if target else None
        until = there or run.last
        usd = judge.spent(run, until, self._stand_in).usd
        return float(there is not None), value((run.setup_s or 0.0) + until.seconds, usd)

    def _trial(self, name: str, own: Asked) -> Trial:
        """The trial of one try, named after its settings."""
        one = self._asked[name]
        size, told = _size(one, own), []
        if size is not None:
            told.append(f"{_word(one)}={size}")
        if RATE in own.own and RATE not in one.own and not (told and own.own[RATE] == f"{self._base.train.lr:g}"):
            told.append(f"lr={own.own[RATE]}")
        config = contenders.config_of(own, self._base, self._ranks)
        config = config.replace({"train.seed": self._base.train.seed + OTHER_SEED})
        return Trial(name + TRY + "-".join(told), config, {"contender": " ".join([one.name, *told])})


def _size(one: Asked, own: Asked) -> int | None:
    """The cluster size that tuning chose; None: unchanged."""
    return int(own.own[_key(one)]) if _key(one) in own.own and _key(one) not in one.own else None


def _with_rate(one: Asked, rate: float) -> Asked:
    return replace(one, own={**one.own, RATE: f"{rate:g}"})


def _named(one: Asked, own: Asked, others: Sequence[Asked], base: Config, ranks: int) -> Asked:
    """The contender with its size in its name, and its rate in its directories' names. Adds "tuned" if another
    contender was asked with this size."""
    size = _size(one, own)
    rate = f"lr={own.own[RATE]}" if RATE in own.own and RATE not in one.own else ""
    found = replace(own, words=(*one.words, *([f"{_word(one)}={size}"] if size is not None else [])), tuned=rate)
    taken = [contenders.label(other, base, ranks) for other in others]
    return replace(found, words=(*found.words, "tuned")) if contenders.label(found, base, ranks) in taken else found


def _can_have(one: Asked, size: int, base: Config, ranks: int) -> bool:
    try:
        contenders.can_run(at(one, size), base, ranks)
        contenders.config_of(at(one, size), base, ranks)
    except ConfigError:
        return False
    return True


def _key(one: Asked) -> str:
    return "baseline.ranks" if one.kind in METHODS else "data.parts"


def _word(one: Asked) -> str:
    return _key(one).partition(".")[2]


def _goodness(result: Result | None) -> Goodness:
    """How good a rate is: rule 4."""
    assert result is not None
    if result["stopped"] == "target":
        return 1.0, -result["epochs"]
    score = result["val_acc"]
    return 0.0, score if score is not None else -float("inf")
