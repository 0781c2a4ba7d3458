"""A run says what it was computed with; with compiled kernels its bits are the same whatever that is."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from siafu import kernels, processor
from siafu.__main__ import main
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS

pytestmark = pytest.mark.skipif(kernels.ISA == "numpy", reason="no compiled kernels")


def train(folder: Path, handler: str = "lambda_funcs.handler.handler") -> dict[str, Any]:
    """The result of a run with two workers."""
    flags = (
        f"--backend lambda --mode pipe --epochs 3 --intervals 4 --lambdas 2 --set run.dir={folder} --set "
        f"lambda.handler={handler}"
    )
    one_each = "--set lambda.prefetch=1"  # of four tasks, one worker cannot take all
    assert main(["train", "digits", *flags.split(), *one_each.split()]) == 0
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


@pytest.mark.long
@pytest.mark.skipif("avx2" not in INSTRUCTION_SETS, reason="needs two instruction sets")
def test_workers_on_two_kinds_of_processors_make_the_bits_of_one(tmp_path: Path) -> None:
    one, two = train(tmp_path / "one"), train(tmp_path / "two", "tests.integration.two_processors.handler")
    assert {f"{platform.machine()} {isa}" for isa in ("scalar", "avx2")} <= set(two["processors"])
    assert two["weights_digest"] == one["weights_digest"]
    assert two["arithmetic"] == "as everywhere"
    assert not any(name.startswith(processor.PROCESSOR) for name in two["usage"])


@pytest.mark.long
def test_a_run_on_one_kind_names_it_in_its_result_alone(tmp_path: Path, capsys: Any) -> None:
    result = train(tmp_path / "run")
    assert result["processors"] == [processor.kind(kernels.ISA)]
    assert result["arithmetic"] == "as everywhere"
    assert not {"processors", "arithmetic"} & {line.split()[0] for line in capsys.readouterr().out.splitlines() if line}
