"""What editors and type checkers are told of ``siafu.train`` and its like."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import siafu
from run_coordinator.baseline.settings import OWN, SHARED
from run_coordinator.recovery.resume import FLAGS
from run_coordinator.run_config import SHORT
from website import stub

ROOT = Path(__file__).parent.parent.parent
STUB = Path(siafu.__file__).with_suffix(".pyi")

RIGHT = """
import siafu
from pathlib import Path

siafu.train("digits", epochs=3, hidden=[16, 8], max_time="30m", run_dir=Path("x"), mode="pipe", split=1)
siafu.train("edges.csv", features=Path("users.csv"), labels="users.csv#job", split="users.csv#role", num_vertices=4)
siafu.train(object(), logger="tensorboard", lambdas=2, lambda_on="local", budget=0.5)
siafu.repeat("digits", runs=5, jobs=2, lr=0.01, hidden=16)
siafu.search("cora", {"lr": [0.01, 0.005]}, runs=3, model="gat", preset="paper")
siafu.train_baseline("pipegcn", "cora", ranks=2, link_rate="25MB", fanouts=(5, 5))
siafu.resume("runs/x", epochs=100)
"""
WRONG = (
    ('siafu.train("digits", epochz=3)', 'Unexpected keyword argument "epochz" for "train"'),
    ('siafu.train("digits", epochs="x")', 'Argument "epochs" to "train" has incompatible type "str"; expected "int"'),
    ('siafu.train("digits", mode="sync")', 'Argument "mode" to "train" has incompatible type'),
    ('siafu.train("digits", settings="lr")', 'Argument "settings" to "train" has incompatible type'),
    ('siafu.search("digits", runs="3")', 'Argument "runs" to "search" has incompatible type'),
    ('siafu.repeat("digits")', 'Missing named argument "runs" for "repeat"'),
    ('siafu.train_baseline("pipegcn", lambdas=2)', 'Unexpected keyword argument "lambdas" for "train_baseline"'),
    ('siafu.resume("runs/x", hidden=8)', 'Unexpected keyword argument "hidden" for "resume"'),
)


def test_the_stub_is_what_the_command_prints() -> None:
    assert STUB.read_text(encoding="utf-8") == stub.stub(), "make pages"


@pytest.mark.parametrize(
    ("name", "settings"),
    [("train", SHORT), ("repeat", SHORT), ("search", SHORT), ("resume", FLAGS), ("train_baseline", (*SHARED, *OWN))],
)
def test_a_signature_names_every_setting_in_place_of_any_keyword(name: str, settings: tuple[str, ...]) -> None:
    parameters = inspect.signature(getattr(siafu, name)).parameters
    assert set(settings) <= set(parameters)
    assert not [one for one in parameters.values() if one.kind is one.VAR_KEYWORD]


def test_mypy_passes_right_calls_and_finds_wrong_ones(tmp_path: Path) -> None:
    """Other rooms are not read, to be quick: tests/test_wheel.py has mypy read an installed siafu."""
    calls = tmp_path / "calls.py"
    calls.write_text("\n".join([RIGHT, *(call for call, _ in WRONG)]) + "\n")
    first = RIGHT.count("\n") + 2
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports", "skip"]
    words += ["--no-error-summary", "--hide-error-context", "--cache-dir", str(tmp_path / "cache")]
    said = subprocess.run([*words, str(STUB), str(calls)], cwd=ROOT, capture_output=True, text=True).stdout
    errors = [line.rpartition("calls.py:")[2] for line in said.splitlines() if " error: " in line]
    assert len(errors) == len(WRONG), said
    for number, (error, (_, expected)) in enumerate(zip(errors, WRONG, strict=True), first):
        assert error.startswith(f"{number}: error: {expected}")
