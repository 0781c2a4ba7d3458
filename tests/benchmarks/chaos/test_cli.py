"""``python -m benchmarks chaos``: mistakes."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import main


@pytest.mark.parametrize(
    ("flags", "limit"),
    [
        ("--runs -1", "--runs -1: must be >= 1"),
        ("--epochs 0", "--epochs 0: must be >= 1"),
        ("--minutes nan", "--minutes nan: must be >= 0"),
    ],
)
def test_a_mistake_gives_one_line_and_exit_code_2(flags: str, limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chaos", *flags.split()]) == 2
    said = capsys.readouterr().err
    assert limit in said
    assert said.startswith("python -m benchmarks chaos: ")
    assert said.count("\n") == 1
