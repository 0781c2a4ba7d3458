"""What a plan says in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from cost_planner.plan.finding import finding
from siafu.progress import duration


@dataclass(frozen=True)
class Machine:
    name: str = "c7g.2xlarge"


@dataclass(frozen=True)
class Option:
    backend: str
    card: Any = None
    name: str = "an option"
    machines: int = 2
    machine: Machine = Machine()
    environments: int = 0


@dataclass(frozen=True)
class Cost:
    usd: float = 1.0


@dataclass(frozen=True)
class Found:
    option: Option
    value: float
    error: float
    seconds: float = 60.0
    cost: Cost = Cost()


def found(**values: float) -> list[Any]:
    """Backend -> value: best first; calibrated ones are off by a quarter, the others by as much as they are."""
    return [
        Found(
            Option(name, "a card" if name in ("gpu", "vanilla") else None),
            value,
            1.0 if name in ("gpu", "vanilla") else 0.25,
        )
        for name, value in sorted(values.items(), key=lambda item: -item[1])
    ]


#: What is said of every option here.
SAID = "an option on 2 x c7g.2xlarge: 60 s, $1.00"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"cpu": 2.0, "lambda": 1.0},
            "Use CPUs only: CPU servers alone have 2 times the value of CPU servers with Lambdas",
        ),
        (
            {"cpu": 1.0, "lambda": 3.0},
            "Use Lambdas: CPU servers with Lambdas have 3 times the value of CPU servers alone",
        ),
        (
            {"cpu": 1.5, "lambda": 1.0},
            f"CPU servers alone ({SAID}) have 1.50 times the value of",
        ),
        ({"cpu": 1.0, "vanilla": 4.1}, "Rent the GPU: one machine's GPUs have"),
        ({"cpu": 1.0, "gpu": 3.9}, f"Servers with a GPU each ({SAID}) have 3.9 times the value of CPU servers alone"),
    ],
)
def test_the_best_is_advised_if_it_is_beyond_the_error(values, words):
    lines = finding(found(**values))
    assert lines[0].startswith(words)
    assert ("about even, within the prediction's error" in lines[0]) == (SAID in words)
    assert ("GPU figures are assumed" in lines[0]) == bool({"gpu", "vanilla"} & values.keys())


def test_behind_a_gpu_the_rest_are_compared_too():
    first, second = finding(found(vanilla=9.0, cpu=2.0, **{"lambda": 1.0}))
    assert first.startswith("Rent the GPU")
    assert second.startswith("Without GPUs: Use CPUs only")


def test_one_backend_alone_has_nobody_to_compare_with():
    assert finding(found(cpu=1.0)) == []


def test_durations_are_short():
    assert [duration(one) for one in (0.0123, 75, 500, 20000)] == ["12 ms", "75 s", "8.33 min", "5.56 h"]
