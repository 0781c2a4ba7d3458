"""Contenders take turns, in processes of their own; one that fails says why and is left out."""

from __future__ import annotations

import sys

import pytest

from benchmarks.measure.rounds import Contender, Times, groups, race

ANSWERS = """
import json, os, sys
seconds = float(sys.argv[1])
for line in sys.stdin:
    ((what, options),) = json.loads(line).items()
    if what == "setup" and options.get("refuse"):
        answer = {"error": "no such package"}
    elif what == "setup":
        answer = {"note": f"threads {os.environ['OMP_NUM_THREADS']}"}
    elif what == "run":
        if options.get("crash") == seconds:
            print("Segmentation fault", file=sys.stderr, flush=True)
            os.kill(os.getpid(), 11)
        with open(options["log"], "a") as log:
            log.write(f"{seconds:g} ")
        answer = {"seconds": seconds}
    else:
        answer = {"sum": 42}
    print(json.dumps(answer), flush=True)
"""


def contender(name, seconds, *, nbytes=1, peer=True, blas_threads=None, **setup):
    program = (sys.executable, "-S", "-c", ANSWERS, str(seconds))
    return Contender(name, program, {"threads": 2, **setup}, nbytes, peer, blas_threads)


def test_contenders_take_turns(tmp_path):
    log = tmp_path / "log"
    race([contender("siafu", 1, peer=False), contender("dgl", 2), contender("pyg", 3)], 3, {"log": str(log)})
    assert log.read_text().split() == ["1", "2", "3"] * 3


def test_ratio_is_of_times_of_the_same_rounds(tmp_path):
    times = race([contender("siafu", 2, peer=False), contender("dgl", 3)], 2, {"log": str(tmp_path / "log")})
    assert (times["siafu"].median_s, times["dgl"].median_s) == (2, 3)
    assert times["dgl"].ratio_to("siafu") == 1.5
    assert times["siafu"].ratio_to("dgl") is None  # only siafu's own are kept to compare with
    assert times["dgl"].check == {"sum": 42}


def test_one_that_refuses_says_why_and_the_others_run(tmp_path):
    log = tmp_path / "log"
    times = race([contender("siafu", 1, peer=False), contender("dgl", 2, refuse=True)], 2, {"log": str(log)})
    assert times["dgl"].failed == "setup: no such package"
    assert times["dgl"].median_s is None
    assert log.read_text().split() == ["1", "1"]


def test_one_that_crashes_is_left_out_from_then_on(tmp_path):
    log = tmp_path / "log"
    times = race([contender("siafu", 1, peer=False), contender("dgl", 2)], 2, {"log": str(log), "crash": 2})
    assert times["dgl"].failed == "run: died of signal 11 (Segmentation fault)"
    assert times["siafu"].seconds == [1, 1]


@pytest.mark.parametrize(("blas_threads", "shown"), [(None, "threads 2"), (1, "threads 1")])
def test_threads_reach_the_contender(tmp_path, blas_threads, shown):
    times = race([contender("siafu", 1, peer=False, blas_threads=blas_threads)], 1, {"log": str(tmp_path / "log")})
    assert times["siafu"].note == shown


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        (100, [["siafu", "a", "b", "c"]]),  # all at once
        (60, [["siafu", "a", "b"], ["siafu", "c"]]),
        (20, [["siafu", "a"], ["siafu", "b"], ["siafu", "c"]]),  # one must be tried, whatever is free
    ],
)
def test_peers_that_do_not_fit_together_run_in_groups(available, expected):
    own = contender("siafu", 1, nbytes=10, peer=False)
    peers = [contender(name, 1, nbytes=25) for name in "abc"]
    assert [[c.name for c in group] for group in groups([own, *peers], available)] == expected


def test_siafu_alone_is_a_group():
    own = contender("siafu", 1, peer=False)
    assert groups([own], 100) == [[own]]


def test_nothing_measured_has_no_median():
    assert Times(failed="died").median_s is None
