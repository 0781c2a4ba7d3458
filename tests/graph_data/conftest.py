import os
from pathlib import Path

import pytest

BESIDE_THE_REPOSITORY = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def real_data(monkeypatch):
    """The folder with the real graphs, found by their bare names; a test that wants it is skipped where it is not."""
    folder = Path(os.environ.get("SIAFU_DATA") or BESIDE_THE_REPOSITORY)
    if not (folder / "cora.npz").is_file():
        pytest.skip(f"needs the real graphs: no cora.npz in {folder} (set SIAFU_DATA)")
    monkeypatch.setenv("SIAFU_DATA", str(folder))
    return folder


@pytest.fixture
def archives(real_data):
    """Files of the field as they are downloaded."""
    if not (real_data / "archives").is_dir():
        pytest.skip(f"needs the field's archives: no folder archives in {real_data} (set SIAFU_DATA)")
    return real_data / "archives"
