"""What a search goes through: lists, ranges, combinations and draws."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from run_coordinator.search import search
from run_coordinator.search_space import Range, parse, points, written
from siafu.errors import ConfigError


def test_names_are_those_of_flags_or_keys_and_values_those_of_the_config():
    space = parse(
        {"lr": "0.01,0.010,5e-3", "model.hidden": "64 32,16", "attn-dropout": [0, 0.5], "model.norm": ["layer"]}
    )
    assert space == {
        "train.lr": (0.01, 0.005),
        "model.hidden": ((64, 32), (16,)),
        "model.attn_dropout": (0.0, 0.5),
        "model.norm": ("layer",),
    }


def test_values_may_be_an_array():
    assert parse({"lr": np.logspace(-2, -1, 2), "hidden": np.array([8, 16])}) == {
        "train.lr": (0.01, 0.1),
        "model.hidden": ((8,), (16,)),
    }


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("1e-4..1e-1:log", "lr", Range(1e-4, 1e-1, True, False)),
        ("0..0.8", "dropout", Range(0.0, 0.8, False, False)),
        ("8..128:log", "hidden", Range(8, 128, True, True)),
        (" 1 .. 4 ", "layers", Range(1, 4, False, True)),
    ],
)
def test_ranges(text: str, name: str, expected: Range):
    assert list(parse({name: text}).values()) == [expected]


@pytest.mark.parametrize(
    ("over", "complaint"),
    [
        ({}, "nothing to search over: give --grid KEY=VALUE,..., such as --grid train.lr=0.01,0.005"),
        ({"lr": "2..1"}, "search over lr = 2..1: must be two numbers, LOW < HIGH"),
        ({"lr": "0..1:log"}, "search over lr = 0..1: must be two numbers, LOW < HIGH and LOW > 0"),
        ({"lr": "a..b"}, "search over lr = a..b: must be two numbers, LOW < HIGH"),
        ({"lr": "0..inf"}, "search over lr = 0..inf: must be two numbers, LOW < HIGH"),
        (
            {"model.name": "gcn..sage"},
            "search over model.name: a range is for numbers, model.name needs values with commas between",
        ),
        ({"lr": []}, "search over lr = []: must be values, or LOW..HIGH with :log or without"),
        ({"lr": 0.1}, "search over lr = 0.1: must be values, or LOW..HIGH with :log or without"),
        ({"lr": "fast"}, "train.lr = 'fast': must be a finite number"),
        ({"model.with": "8"}, "model.with: unknown key; did you mean model.width?"),
        ({"lr": "1", "train.lr": "2"}, "search over train.lr: train.lr is there twice, give all its values in one"),
        ({"seed": "0,1"}, "search over seed: is not a setting of the model or its training"),
        ({"budget": "0,1"}, "search over budget: is not a setting of the model or its training"),
    ],
)
def test_a_space_that_cannot_be_is_refused_in_one_line(over: dict, complaint: str):
    expected = complaint.partition(";")[0]  # what the nearest key is, depends on all of them
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}"):
        parse(over)


def test_what_is_searched_over_has_no_other_value_beside_it():
    with pytest.raises(ConfigError, match=r"^search over hidden: model\.hidden is also given one value"):
        search("digits", {"lr": [0.1], "hidden": [4, 8]}, hidden=16)
    with pytest.raises(ConfigError, match=r"^search over lr: train\.lr is also given one value"):
        search("digits", {"lr": [0.1]}, settings={"train.lr": 0.1})


def test_a_grid_is_every_combination_the_last_setting_first():
    found = points(parse({"lr": "0.1,0.2", "hidden": "4,8"}), 0, seed=0)
    assert [(p["train.lr"], p["model.hidden"]) for p in found] == [(0.1, (4,)), (0.1, (8,)), (0.2, (4,)), (0.2, (8,))]


def test_a_range_needs_to_know_how_often_to_draw():
    with pytest.raises(
        ConfigError, match=r"^search over train\.lr: a range needs --random N, how often to draw from it$"
    ):
        points(parse({"lr": "0.1..0.2"}), 0, seed=0)


def test_draws_are_within_the_range_repeat_by_the_seed_and_begin_longer_lists():
    space = parse({"lr": "1e-4..1e-1:log", "hidden": "8..128:log", "model.norm": "none,layer"})
    drawn = points(space, 200, seed=3)
    assert points(space, 50, seed=3) == drawn[:50]
    assert points(space, 50, seed=4) != drawn[:50]
    rates = [point["train.lr"] for point in drawn]
    assert all(1e-4 <= rate <= 1e-1 for rate in rates)
    assert 0.4 < sum(math.log10(rate) < -2.5 for rate in rates) / 200 < 0.6  # evenly by the logarithm
    assert all(isinstance(point["model.hidden"], int) and 8 <= point["model.hidden"] <= 128 for point in drawn)
    assert {point["model.norm"] for point in drawn} == {"none", "layer"}


def test_no_point_is_drawn_twice_even_if_there_are_fewer_than_asked():
    assert len(points(parse({"hidden": "4,8", "layers": "1..2"}), 10, seed=0)) == 4


@pytest.mark.parametrize(("value", "text"), [((64, 32), "64,32"), (0.01, "0.01"), (True, "True"), ("layer", "layer")])
def test_values_are_written_as_set_takes_them(value, text: str):
    assert written(value) == text
