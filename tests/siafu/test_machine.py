"""How many environments a server wants is one formula, whoever asks: the server, the prediction of memory."""

import dataclasses

import pytest

from cost_planner import memory
from siafu import config as configs
from siafu.config import Config
from siafu.machine import num_environments, num_threads


def config(*, on: str = "local", run_on: str = "local", parts: int = 1, intervals: int = 16, count: int = 0) -> Config:
    base = Config()
    return dataclasses.replace(
        base,
        data=dataclasses.replace(base.data, parts=parts),
        run=dataclasses.replace(base.run, on=run_on),
        train=dataclasses.replace(base.train, intervals=intervals),
        lambdas=configs.Lambda(on=on, count=count),
        servers=dataclasses.replace(base.servers, backend="lambda"),
    )


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"count": 5}, 5),
        ({}, 8),
        ({"parts": 4}, 2),
        ({"intervals": 3}, 3),  # an interval has one task at a time
        ({"parts": 4, "run_on": "aws"}, 8),  # a machine each
        ({"on": "aws", "intervals": 40}, 40),  # environments of the service
    ],
)
def test_everybody_counts_the_same_environments(settings, wanted, monkeypatch):
    monkeypatch.setattr("siafu.allotment.cores", lambda: 4)
    asked = config(**settings)
    assert num_environments(asked) == wanted
    assert memory.processes(asked, 4)[memory.LAMBDAS] == asked.data.parts * wanted


def test_threads_and_environments_of_another_machine_follow_its_cores():
    assert (num_threads(config(), 12), num_environments(config(), 3)) == (12, 6)
    assert num_threads(config(parts=4), 12) == 3
    assert num_threads(config(parts=4, run_on="aws"), 12) == 12
