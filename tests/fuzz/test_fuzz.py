"""The corpus again, a little fuzzing of every parser, and whether the fuzzer finds what is planted. Longer:
``python -m tests.fuzz all --minutes 10``."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import __main__ as fuzz_command
from tests.fuzz.engine import Entry, Fuzzer, cover
from tests.fuzz.inputs import CORPUS, MENDED, name_of, pack, stored, unpack
from tests.fuzz.targets import TARGETS, target_of
from tests.fuzz.watch import fuzz

PLANTED = "tests.fuzz.targets.planted:"

pytest.importorskip("pyarrow")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_gives_typed_errors_or_nothing(name):
    fuzzer = Fuzzer(target_of(name), random.Random(0))
    fuzzer.begin()
    assert fuzzer.findings == {}


@pytest.mark.long
@pytest.mark.parametrize(("seed", "inputs"), [(8, 150), (9, 600)])
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found_in_a_few_hundred_inputs(name, seed, inputs):
    """So many, and not for so long: the same ones on every machine. What a longer look finds joins the corpus."""
    fuzzer = Fuzzer(target_of(name), random.Random(seed))
    fuzzer.begin()
    many = fuzzer.executions + inputs
    while fuzzer.executions < many:
        fuzzer.step()
    assert {what: finding.detail for what, finding in fuzzer.findings.items()} == {}


def test_inputs_are_called_by_their_content():
    known = [(path, given) for name in TARGETS for path, given in stored(name)]
    assert all(path.name == name_of(given) for path, given in known)
    assert len(known) > 100
    assert sum(path.stat().st_size for path, _ in known) < 2_000_000
    assert {path.parent.name for path, _ in known} == {*TARGETS, MENDED}
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


def test_an_input_comes_back_from_disk():
    given = (("0", b""), ("part-000/x.npy", b"\x93NUMPY"), ("ü", bytes(300)))
    assert unpack(pack(given)) == given


# --- does it find anything? -------------------------------------------------------------------------------------------


def test_coverage_leads_to_a_mistake_behind_three_bytes():
    fuzzer = Fuzzer(target_of(f"{PLANTED}Planted"), random.Random(1))
    fuzzer.begin()
    while not fuzzer.findings and fuzzer.executions < 30_000:
        fuzzer.step()
    (what,) = fuzzer.findings
    assert what.startswith("KeyError at ")
    assert dict(fuzzer.findings[what].given)["file"][:3] == b"SIA"


def test_equal_seeds_try_equal_inputs():
    tried = []
    for _ in range(2):
        inputs: list[object] = []
        fuzzer = Fuzzer(target_of(f"{PLANTED}Planted"), random.Random(5), before_run=inputs.append)
        fuzzer.begin()
        for _ in range(200):
            fuzzer.step()
        tried.append(inputs)
    assert tried[0] == tried[1]


@pytest.mark.long
def test_memory_of_a_hostile_length_is_found():
    result = fuzz(f"{PLANTED}Greedy", 3.0, seed=1)
    assert {finding.what.partition(" ")[0] for finding in result.findings} <= {"memory", "MemoryError", "slow"}
    assert result.findings


@pytest.mark.long
def test_what_a_process_died_of_is_kept():
    result = fuzz(f"{PLANTED}Deadly", 3.0, seed=1)
    assert result.findings[0].what == "dies of SIGABRT"
    assert dict(result.findings[0].given).get("file", b"") == b""


def test_a_cover_takes_every_edge_with_few_inputs():
    entries = [
        Entry((("f", b"x" * size),), frozenset(edges))
        for size, edges in ((9, (1, 2, 3)), (1, (1,)), (2, (2,)), (5, (4,)))
    ]
    kept = cover(entries)
    assert frozenset().union(*(entry.edges for entry in kept)) == {1, 2, 3, 4}
    assert len(kept) == 2


@pytest.mark.long
def test_the_command_line_says_what_was_found(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(TARGETS, "planted", f"{PLANTED}Planted")
    monkeypatch.setattr(fuzz_command, "FOUND", tmp_path)
    monkeypatch.setattr(fuzz_command, "fuzz", lambda name, seconds, seed: fuzz(f"{PLANTED}Deadly", 2.0, seed))
    assert fuzz_command.main(["planted", "--minutes", "0.01"]) == 1
    out = capsys.readouterr().out
    assert "findings" in out
    assert "dies of SIGABRT: --replay " in out
    assert len(list((tmp_path / "planted").iterdir())) == 1
