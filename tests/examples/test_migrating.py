"""docs/migrating.md: its Python runs from top to bottom, and both sides of the comparison learn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.test_examples import ROOT, ended, numbers

PAGE = (ROOT / "docs" / "migrating.md").read_text()


@pytest.mark.long
def test_pyg_before_and_siafu_after_reach_the_same_accuracy(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed")
    code = "".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
    done = ended(["-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    pyg, ours = numbers(r"(?:PyG|siafu) (0\.\d+|1\.0+)", done.stdout)
    assert min(pyg, ours) > 0.8
    assert abs(pyg - ours) < 0.1
    assert any((tmp_path / "exported").iterdir())


@pytest.mark.long
def test_partitions_of_dgl_are_prepared_and_trained_on(tmp_path: Path) -> None:
    words = re.search(r"^    siafu (prepare distdgl:\S+ --parts 2 --out \S+)$", PAGE, re.MULTILINE)
    assert words
    prepare = words[1].replace("distdgl:", f"distdgl:{ROOT}/").split()
    for command in (prepare, ["train", "shards/mine", "--epochs", "2", "--quiet"]):
        done = ended(["-m", "siafu", *command], tmp_path)
        assert done.returncode == 0, done.stderr
