"""A run says on which kinds of processors it was computed: its bits are those of the kinds."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from siafu import processor
from siafu.__main__ import main

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86-64"),
    pytest.mark.skipif(len(processor.kind().split()) < 2, reason="NumPy has no OpenBLAS that names its kernels"),
]


def train(folder: Path, capsys: pytest.CaptureFixture[str], handler: str) -> tuple[dict[str, Any], list[str]]:
    """The result of a run with two workers, and the lines of its summary that are about processors."""
    flags = f"--backend lambda --mode pipe --epochs 3 --intervals 4 --lambdas 2 --set run.dir={folder} --set lambda.handler={handler}"
    one_each = "--set lambda.prefetch=1"  # of four tasks, one worker cannot take all
    assert main(["train", "digits", *flags.split(), *one_each.split()]) == 0
    lines = capsys.readouterr().out.splitlines()
    return json.loads((folder / "result.json").read_text()), [line for line in lines if line.startswith("processors")]


@pytest.mark.long
def test_workers_of_two_kinds_are_named_and_the_summary_says_what_follows(tmp_path: Path, capsys: Any) -> None:
    result, lines = train(tmp_path / "run", capsys, "tests.integration.two_processors.handler")
    assert {"x86_64 Haswell", "x86_64 Sandybridge"} <= {" ".join(kind.split()[:2]) for kind in result["processors"]}
    assert len(lines) == 1
    assert "may differ" in lines[0]
    assert not any(name.startswith(processor.PROCESSOR) for name in result["usage"])


def test_a_run_on_one_kind_names_it_in_its_result_alone(tmp_path: Path, capsys: Any) -> None:
    result, lines = train(tmp_path / "run", capsys, "lambda_funcs.handler.handler")
    (kind,) = result["processors"]
    assert kind.startswith(processor.kind())
    assert lines == []
