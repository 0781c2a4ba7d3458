"""Types of ``siafu value --json``: a row for each contender, the criteria, the finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, TypeGuard

from siafu.run_files import Bill

#: What becomes of a run.
REACHED, MISSED, CUT_SHORT = "reached", "missed", "cut short"


class Tried(TypedDict):
    """A run, until the target or to its end."""

    seed: int
    outcome: str  # REACHED, MISSED, CUT_SHORT
    seconds: float
    usd: float


class _Contender(TypedDict):
    name: str
    runs: int
    reached: int  # of the runs
    missed: int
    cut_short: int
    errors: list[str]  # of runs that failed
    left_out: str  # why it has no run; "": it has, or its runs were not begun yet
    kind: str  # "cpu", "lambda", "gpu"; "method": a baseline
    ranks: int  # that share the machine of a baseline; 0 of graph servers
    threads: int | None  # of a graph server here
    devices: list[str]
    stand_in: bool  # whether machines here stood in for those of EC2
    shares_cores: bool  # Lambdas with the servers
    whole_cores: bool  # whether Lambdas computed with more than their memory buys
    best: float | None  # score
    run_dirs: list[str]
    attempts: list[Tried]
    relative_value: float | None
    interval: list[float] | None  # of the ratio of values, low and high


class OfSuccesses(TypedDict):
    """The figures of a contender that has reached the target: totals of all its runs, divided by the successes."""

    seconds: float
    setup_s: float | None
    evaluation_s: float
    epochs: float
    scores: dict[str, float]  # by split
    cost: Bill
    value: float
    spread: dict[str, list[float]]  # seconds, epochs, usd, value: the least and the most of the successes
    tensor_share: float | None
    evaluation_share: float | None
    run_usd: float | None  # bills of the whole runs


class Reached(_Contender, OfSuccesses):
    pass


class Unreached(_Contender):
    seconds: None
    setup_s: None
    evaluation_s: None
    epochs: None
    scores: None
    cost: None
    value: None
    spread: None
    tensor_share: None
    evaluation_share: None
    run_usd: None


Row = Reached | Unreached


class StoodInFor(TypedDict):
    """The EC2 instances that machines here stand for; "": the config's own."""

    graph: str
    param: str
    gpu: str
    num_gpus: int
    vcpus: int


class Judged(TypedDict):
    target: float | None
    split: str
    relative_to: str
    rows: list[Row]


class OnMachines(Judged):
    """Judged contenders, and the machines of their runs."""

    stand_in: StoodInFor
    machines: list[str]


class Pair(TypedDict):
    """One contender beside another."""

    name: str
    other: str
    times: float  # the other's value
    interval: list[float] | None  # of ``times``; None of too few seeds
    seeds: int
    choices: int  # pairs among which this one was chosen
    certain: bool | None  # whether they differ; None of too few seeds
    faster: float  # times the other's speed: its time to the target over this one's
    faster_interval: list[float] | None
    seconds: float
    even_s: float  # in which it would be worth as much as the other


class LambdasWin(TypedDict):
    """Prices below which Lambdas win, in US dollars."""

    tensor_share: float | None  # of the servers' work
    least_s: float | None  # if Lambdas did all tensor tasks without any waiting
    usd_at_most: float | None  # in ``least_s``; None where that is not known or shorter than servers are billed
    usd_here: float  # in the time that they took; negative where no price helps
    spent_usd: float


class Figures(TypedDict):
    """The figures that sentences are made of."""

    best: str | None
    best_beside_others: list[Pair]
    lambda_beside_cpu: Pair | None
    lambdas_win: LambdasWin | None
    gpu_beside_rest: Pair | None


class Finding(Figures):
    text: str
    but: list[str]  # what a reader must know of how the figures were got


class Found(OnMachines):
    finding: Finding


class TunedTo(TypedDict):
    """The tuned settings of a contender, and the cost of tuning."""

    asked: str  # its name before
    size: int | None  # graph servers, or ranks; None: as it was asked
    lr: float | None  # None: as it was asked
    tries: int
    seconds: float  # of all tries, with their evaluations
    usd: float


class OfWidth(TypedDict):
    """The prediction with Lambdas beside CPU servers alone."""

    faster: float  # times the speed
    relative_value: float


class PredictedWidths(TypedDict):
    """The prediction of ``siafu plan`` for other hidden widths (``cost_planner.value.widths``)."""

    instance: str  # of each graph server
    servers: int
    by_hidden: Mapping[int, OfWidth]
    text: str


class Printed(Found):
    """The whole object of --json."""

    predicted_widths: PredictedWidths | None

    source: str
    run_dir: str | None
    tuned: Mapping[str, TunedTo]  # by name, who --tune has tuned


def has_reached(row: Row) -> TypeGuard[Reached]:
    return row["value"] is not None


def reached(rows: Sequence[Row]) -> list[Reached]:
    return [row for row in rows if has_reached(row)]
